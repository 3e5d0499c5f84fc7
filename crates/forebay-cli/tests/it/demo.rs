//! `serve --demo`: the commands that it prints work as printed.

use anyhow::Context as _;
use forebay_testkit::client::{Reply, Request};
use forebay_testkit::launch::{Launched, Signal};

use crate::world::{ANYWHERE, BINARY, ask, end, forebay, get_admin, is_hit};

/// Quoted arguments of printed lines that begin with `command`.
fn printed(demo: &Launched, command: &str) -> Vec<Vec<String>> {
    let lines = demo.stdout().into_iter();
    let lines = lines.filter(|line| line.trim_start().starts_with(command));
    let quoted = |line: &str| line.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
    lines.map(|line| quoted(&line)).collect()
}

/// Sends the request that `curl` would send.
async fn curl(url: &str) -> anyhow::Result<Reply> {
    let rest = url.strip_prefix("http://").context("not a URL")?;
    let (host, _) = rest.split_once('/').context("no path")?;
    let request = Request::get(&rest[host.len()..]).field("Host", host);
    ask(host.parse()?, &request).await
}

#[tokio::test]
async fn the_printed_curl_commands_work() -> anyhow::Result<()> {
    let demo = forebay(["serve", "--demo"]).args(ANYWHERE).start().await?;
    demo.wait_stdout("Stop: Ctrl-C").await?;
    let curls = printed(&demo, "curl");
    let [hello, slow, big] = [0, 1, 2].map(|n| curls[n][0].clone());
    let first = curl(&hello).await?;
    assert_eq!((first.status, is_hit(&first)), (200, false));
    let second = curl(&hello).await?;
    assert!(is_hit(&second) && second.text() == first.text(), "{second:?}");
    assert_eq!(curl(&slow).await?.status, 200);
    assert!(is_hit(&curl(&slow).await?));
    assert_eq!(curl(&big).await?.body_length(), 1 << 20);
    Ok(())
}

#[tokio::test]
async fn the_printed_purge_command_works() -> anyhow::Result<()> {
    let demo = forebay(["serve", "--demo"]).args(ANYWHERE).start().await?;
    demo.wait_stdout("Stop: Ctrl-C").await?;
    let hello = printed(&demo, "curl")[0][0].clone();
    let first = curl(&hello).await?;
    assert_eq!((first.field("x-fetch"), is_hit(&curl(&hello).await?)), (Some("1"), true));
    // The printed command begins with the path of the running binary.
    let purge = demo.wait_stdout(&format!("{BINARY} purge ")).await?;
    let words = purge.split_whitespace().skip(1).map(|word| word.trim_matches('\''));
    let done = forebay([]).args(words).finish().await?;
    assert_eq!(
        (done.status.code(), done.stdout[0].as_str()),
        (Some(0), "purge 1: done (instances: 1)")
    );
    let third = curl(&hello).await?;
    assert_eq!((third.field("x-fetch"), is_hit(&third)), (Some("2"), false));
    Ok(())
}

#[tokio::test]
async fn the_printed_addresses_answer() -> anyhow::Result<()> {
    let demo = forebay(["serve", "--demo"]).args(ANYWHERE).start().await?;
    let last = demo.wait_stdout("Stop: Ctrl-C").await?;
    let urls: Vec<&str> = last.split(' ').filter(|word| word.starts_with("http://")).collect();
    assert_eq!(urls.len(), 2, "{last}");
    let page = curl(urls[0]).await?;
    assert!(page.status == 200 && page.text().starts_with("<!doctype html>"));
    assert!(curl(urls[1]).await?.text().contains("forebay_build_info"));
    assert_eq!(get_admin(&demo, "/readyz").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn the_disk_tier_is_removed_at_the_exit_or_by_the_next_demo() -> anyhow::Result<()> {
    let room = tempfile::tempdir()?;
    let folders = || Ok::<_, std::io::Error>(std::fs::read_dir(room.path())?.count());
    let start = || forebay(["serve", "--demo"]).args(ANYWHERE).env("TMPDIR", room.path()).start();
    let killed = start().await?;
    assert!(get_admin(&killed, "/readyz").await?.text().contains("\"disk\":\"ok\""));
    end(killed, Signal::Kill).await?;
    assert_eq!(folders()?, 1);
    let (first, second) = (start().await?, start().await?);
    assert_eq!(folders()?, 2, "one for each that runs");
    end(first, Signal::Term).await?;
    end(second, Signal::Term).await?;
    assert_eq!(folders()?, 0);
    let kept = room.path().join("kept").display().to_string();
    let demo = forebay(["serve", "--demo", "--disk", &kept]).args(ANYWHERE).start().await?;
    end(demo, Signal::Term).await?;
    assert!(room.path().join("kept").join("forebay.disk").exists());
    Ok(())
}

#[tokio::test]
async fn demo_with_an_origin_is_wrong_usage() -> anyhow::Result<()> {
    let both = forebay(["serve", "--demo", "--origin", "http://127.0.0.1:9"]).args(ANYWHERE);
    let both = both.finish().await?;
    assert!(both.stderr[0].contains("remove --demo or --origin"), "{:?}", both.stderr);
    assert_eq!((both.status.code(), both.stdout.len()), (Some(2), 0));
    Ok(())
}
