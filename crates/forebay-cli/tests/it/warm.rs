//! `forebay warm`, and the warm-up before a process is ready.

use std::path::PathBuf;

use forebay_testkit::client::Request;
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;

use crate::cluster::wait_health;
use crate::tls::Authority;
use crate::world::{
    ConfigFile, END_MAX, ask, forebay, fresh_origin, get, get_admin, is_hit, metric, nowhere,
    serve, serving,
};

const HOST: &str = "shop.example";

/// URLs of pages 0 to `count`.
fn urls(count: usize) -> String {
    (0..count).map(|number| format!("http://{HOST}/{number}\n")).collect()
}

/// Runs `forebay warm`; returns the exit code, stdout and stderr.
async fn warm(cache: &Launched, args: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let via = format!("http://{}", cache.address());
    let done = forebay(["warm", "--via", &via]).args(args.iter().copied()).finish().await?;
    Ok((done.status.code(), done.stdout.concat(), done.stderr.concat()))
}

fn file(text: &str) -> anyhow::Result<(PathBuf, ConfigFile)> {
    let file = ConfigFile::of(text)?;
    Ok((file.path.clone(), file))
}

fn page(path: &str) -> Request {
    Request::get(path).without_host().field("Host", HOST)
}

#[tokio::test]
async fn a_list_is_fetched_through_the_cache_and_a_second_run_finds_it_stored() -> anyhow::Result<()>
{
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let (path, _file) = file(&format!("# pages\n{}{}no url\n", urls(30), urls(5)))?;
    let path = path.display().to_string();
    let (code, out, err) = warm(&cache, &[&path, "--skip", "10"]).await?;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("20 of 20 URLs in ") && out.contains(": 20 stored, 0 stored"), "{out}");
    assert!(err.contains("1 lines are no URLs"), "{err}");
    assert_eq!(origin.requests(), 20);
    assert!(origin.received().iter().all(|one| one.fields.first("priority") == Some("u=7")));
    assert!(is_hit(&ask(cache.address(), &page("/29")).await?));
    let (code, out, _) = warm(&cache, &[&path, "--concurrency", "3"]).await?;
    assert_eq!((code, origin.requests()), (Some(0), 30));
    assert!(out.contains(": 10 stored, 20 stored before, 0 not storable, 0 failed"), "{out}");
    Ok(())
}

#[tokio::test]
async fn sitemaps_and_access_logs_are_lists_too() -> anyhow::Result<()> {
    let index = format!("<sitemapindex><loc>http://{HOST}/pages.xml</loc></sitemapindex>");
    let pages = format!("<urlset><loc>http://{HOST}/a</loc><loc>http://{HOST}/b</loc></urlset>");
    let origin = Origin::start(move |received| {
        let body = match received.path() {
            "/sitemap.xml" => index.clone(),
            "/pages.xml" => pages.clone(),
            _ => "page".to_owned(),
        };
        Answer::ok(body).field("Cache-Control", "max-age=600")
    });
    let origin = origin.await?;
    let cache = serve(&origin).await?;
    let sitemap = format!("http://{HOST}/sitemap.xml");
    let (code, out, err) = warm(&cache, &["--sitemap", &sitemap]).await?;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("2 of 2 URLs in ") && out.contains(": 2 stored"), "{out}");
    assert!(is_hit(&ask(cache.address(), &page("/b")).await?));
    let line = format!("{{\"method\":\"GET\",\"host\":\"{HOST}\",\"target\":\"/from-log\"}}\n");
    let (path, _file) = file(&line)?;
    let (code, out, err) = warm(&cache, &["--log", &path.display().to_string()]).await?;
    assert_eq!((code, out.contains("1 of 1 URLs")), (Some(0), true), "{out} {err}");
    assert!(is_hit(&ask(cache.address(), &page("/from-log")).await?));
    Ok(())
}

#[tokio::test]
async fn failures_and_wrong_usage_have_exit_codes() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::status(404)).await?;
    let cache = serve(&origin).await?;
    let (path, _file) = file(&urls(3))?;
    let path = path.display().to_string();
    let (code, out, err) = warm(&cache, &[&path]).await?;
    assert_eq!((code, out.contains("3 failed")), (Some(1), true), "{out}");
    assert!(err.contains(&format!("first failure: {HOST}/")) && err.contains("404"), "{err}");
    assert_eq!(warm(&cache, &[]).await?.0, Some(2));
    assert_eq!(warm(&cache, &[&path, "--log", &path]).await?.0, Some(2));
    assert_eq!(warm(&cache, &[&path, "--concurrency", "0"]).await?.0, Some(2));
    let (code, _, err) = warm(&cache, &["/no/such/list"]).await?;
    assert_eq!((code, err.contains("/no/such/list cannot be read")), (Some(1), true), "{err}");
    Ok(())
}

#[tokio::test]
async fn each_url_is_fetched_over_its_scheme_from_a_listener_with_a_right_certificate()
-> anyhow::Result<()> {
    let (origin, https) = (fresh_origin().await?, nowhere()?);
    let tls = format!("[tls]\nlisten = \"{https}\"\ncertificate = \"a.pem\"\nkey = \"a.key\"");
    let config = ConfigFile::serving(&origin.url(), &tls, "")?;
    let (authority, folder) = (Authority::new("test")?, config.folder.path());
    authority.write(folder, "a", &[HOST])?;
    let ca = folder.join("ca.pem").display().to_string();
    std::fs::write(&ca, &authority.pem)?;
    let cache = config.serve().await?;
    let (path, _file) = file(&format!("{}https://{HOST}/0\nhttps://{HOST}/1\n", urls(3)))?;
    let (path, secure) = (path.display().to_string(), format!("https://{https}"));
    // The first `--via` is that of `warm`.
    let both = [&*path, "--via", &secure, "--ca", &ca];
    let (code, out, err) = warm(&cache, &both).await?;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("5 of 5 URLs in ") && out.contains(": 5 stored, 0 stored"), "{out}");
    assert_eq!(origin.requests(), 5, "the scheme is a part of the key");
    let claimed = origin.received().into_iter();
    let claimed = claimed.filter(|one| one.fields.first("x-forwarded-proto") == Some("https"));
    assert_eq!(claimed.count(), 2);
    // Connections are kept, so that each of the eight requests at once has at most one.
    let label = format!("listener=\"{https}\"");
    assert!(metric(&cache, "forebay_connections_total", &label).await? <= 2);
    for (args, expected) in [
        (vec!["warm", &*path, "--via", &secure], "the TLS handshake with"),
        (vec!["warm", &*path, "--via", &secure, "--via", &secure], "two listeners of one scheme"),
        (vec!["warm", &*path, "--ca", &ca], "--ca: needs --via https://"),
        (vec!["warm", &*path, "--via", "ftp://a"], "--via ftp://a: must be a URL such as"),
    ] {
        let done = forebay([]).args(args).finish().await?;
        let err = done.stderr.concat();
        assert_eq!((done.status.code(), err.contains(expected)), (Some(1), true), "{err}");
    }
    assert_eq!(origin.requests(), 5);
    Ok(())
}

/// Configuration with the list beside it.
fn warming(text: &str, list: &str) -> anyhow::Result<ConfigFile> {
    let file = ConfigFile::of(text)?;
    std::fs::write(file.folder.path().join("urls.txt"), list)?;
    Ok(file)
}

#[tokio::test]
async fn a_process_is_ready_after_its_warm_up() -> anyhow::Result<()> {
    let gate = Gate::new();
    let waits = gate.clone();
    let origin = Origin::start(move |_| {
        Answer::ok("page").field("Cache-Control", "max-age=600").wait(&waits)
    });
    let origin = origin.await?;
    let text = serving(&origin.url(), "ready_after_warm = \"urls.txt\"", "");
    let list = format!("{}https://{HOST}/secure\n", urls(40));
    // The folder of the file has the list, which is read after the start.
    let file = warming(&text, &list)?;
    let cache = file.serve().await?;
    origin.wait_requests(16).await?;
    assert_eq!(get_admin(&cache, "/readyz").await?.status, 503);
    gate.open();
    wait_health(&cache, |health| health["state"] == "ready").await?;
    assert_eq!((get_admin(&cache, "/readyz").await?.status, origin.requests()), (200, 41));
    assert!(is_hit(&ask(cache.address(), &page("/39")).await?));
    Ok(())
}

#[tokio::test]
async fn a_warm_up_has_a_time_limit_and_its_list_is_checked() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let top = "ready_after_warm = \"urls.txt\"\nready_after_warm_max = \"1s\"";
    let text = serving(&origin.url(), top, "");
    let listed = warming(&text, &urls(4))?;
    let cache = listed.serve().await?;
    wait_health(&cache, |health| health["state"] == "ready").await?;
    let file = ConfigFile::of(&text)?;
    let done = forebay(["check"]).args([&file.path]).finish().await?;
    let err = done.stderr.concat();
    assert!(
        err.contains("forebay.toml:3:20: ready_after_warm") && err.contains("cannot be read"),
        "{err}"
    );
    Ok(())
}

/// A rolling restart of instances with a shared tier costs the origin almost nothing.
#[tokio::test]
async fn a_rolling_restart_with_a_warm_up_fetches_nothing_twice() -> anyhow::Result<()> {
    const PAGES: usize = 100;
    let origin = fresh_origin().await?;
    let redis = RedisLaunch::new().start().await?;
    let top = format!("ready_after_warm = \"urls.txt\"\n[redis]\nurl = \"{}\"", redis.url());
    let text = serving(&origin.url(), &top, "");
    let list = urls(PAGES);
    let mut caches = Vec::new();
    for _ in 0..4 {
        let file = warming(&text, &list)?;
        let cache = file.serve().await?;
        wait_health(&cache, |health| health["state"] == "ready").await?;
        caches.push((cache, file));
    }
    for (cache, file) in &mut caches {
        cache.signal(Signal::Term).await?;
        cache.wait_exit(END_MAX).await?;
        *cache = file.serve().await?;
        wait_health(cache, |health| health["state"] == "ready").await?;
        for number in 0..PAGES {
            let reply = ask(cache.address(), &page(&format!("/{number}"))).await?;
            assert!(is_hit(&reply), "{number}: {}", reply.status);
        }
    }
    let most = PAGES as u64 * 11 / 10;
    assert!(origin.requests() <= most, "{} requests for {PAGES} pages", origin.requests());
    let (last, _) = &caches[3];
    assert!(metric(last, "forebay_lookups_total", "tier=\"redis\",result=\"hit\"").await? >= 90);
    assert_eq!(get(last, "/0").await?.status, 200);
    Ok(())
}
