//! Configuration reload: changes that take effect, and errors that leave everything unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use serde_json::{Value, json};

use crate::world::{
    ANYWHERE, ConfigFile, END_MAX, admin_of, ask, forebay, fresh_origin, get, get_admin, is_hit,
    metric, serve, serving, to_admin,
};

async fn origin_that_says(body: &'static str) -> anyhow::Result<Origin> {
    Ok(Origin::always(Answer::ok(body).field("Cache-Control", "max-age=60")).await?)
}

fn asking(cache: &Launched) -> anyhow::Result<Request> {
    Ok(to_admin(cache, "POST", "/reload")?.field("Content-Type", "application/json"))
}

fn told(reply: &Reply) -> anyhow::Result<(u16, Value)> {
    Ok((reply.status, serde_json::from_slice(reply.body())?))
}

async fn reload(cache: &Launched) -> anyhow::Result<(u16, Value)> {
    told(&ask(admin_of(cache)?, &asking(cache)?).await?)
}

async fn counted(cache: &Launched) -> anyhow::Result<[u64; 2]> {
    let name = "forebay_reloads_total";
    let taken = metric(cache, name, "result=\"ok\"").await?;
    Ok([taken, metric(cache, name, "result=\"refused\"").await?])
}

#[tokio::test]
async fn sighup_applies_the_changed_file() -> anyhow::Result<()> {
    let (old, new) = (origin_that_says("old").await?, origin_that_says("new").await?);
    let file = ConfigFile::serving(&old.url(), "", "")?;
    let cache = file.serve().await?;
    assert_eq!(counted(&cache).await?, [0, 0]);
    let mut client = Client::connect(cache.address()).await?;
    assert_eq!(client.ask(&Request::get("/a")).await?.text(), "old");
    let blog =
        format!("[[site]]\nid = \"blog\"\nhosts = [\"blog.example\"]\norigin = \"{}\"", old.url());
    file.rewrite(&serving(&new.url(), "", &blog))?;
    cache.signal(Signal::Hup).await?;
    cache
        .wait_stderr("configuration reloaded sites_unchanged=0 sites_changed=1 sites_added=1")
        .await?;
    // The connection and the stored entry stay; new fetches use the new origin.
    let stored = client.ask(&Request::get("/a")).await?;
    assert!(is_hit(&stored) && stored.text() == "old", "{stored:?}");
    assert_eq!(client.ask(&Request::get("/b")).await?.text(), "new");
    let on_blog = Request::get("/a").field("Host", "blog.example");
    assert_eq!(client.ask(&on_blog).await?.text(), "old");
    assert_eq!(counted(&cache).await?, [1, 0]);
    assert_eq!((old.requests(), new.requests()), (2, 1));
    Ok(())
}

#[tokio::test]
async fn one_error_in_the_file_leaves_everything_unchanged() -> anyhow::Result<()> {
    let (old, new) = (origin_that_says("old").await?, origin_that_says("new").await?);
    let file = ConfigFile::serving(&old.url(), "", "")?;
    let cache = file.serve().await?;
    file.rewrite(&serving(&new.url(), "thread = 2", "fetch_timeout = 3"))?;
    cache.signal(Signal::Hup).await?;
    let name = file.path.display();
    cache.wait_stderr(&format!("the previous one stays in effect: {name}:3:1: thread: ")).await?;
    cache.wait_stderr(&format!("{name}:7:17: site[0].fetch_timeout: ")).await?;
    assert_eq!(get(&cache, "/a").await?.text(), "old");
    assert_eq!(counted(&cache).await?, [0, 1]);

    let (status, told) = reload(&cache).await?;
    let errors = told["errors"].as_array().map(Vec::len);
    assert_eq!((status, errors), (400, Some(2)), "{told}");
    assert!(told["errors"][0].as_str().is_some_and(|e| e.contains(":3:1: thread: ")), "{told}");
    std::fs::remove_file(&file.path)?;
    let (status, told) = reload(&cache).await?;
    assert_eq!((status, told["errors"].as_array().map(Vec::len)), (400, Some(1)), "{told}");
    assert_eq!(get(&cache, "/b").await?.text(), "old");
    assert_eq!((counted(&cache).await?, new.requests()), ([0, 3], 0));

    file.rewrite(&serving(&new.url(), "", ""))?;
    assert_eq!(reload(&cache).await?.0, 200);
    assert_eq!(get(&cache, "/c").await?.text(), "new");
    Ok(())
}

#[tokio::test]
async fn options_that_need_a_restart_are_named_and_the_others_take_effect() -> anyhow::Result<()> {
    let (old, new) = (origin_that_says("old").await?, origin_that_says("new").await?);
    let file = ConfigFile::serving(&old.url(), "threads = 1\n[memory]\nsize = \"64MiB\"", "")?;
    let cache = file.serve().await?;
    let memory = "threads = 2\n[memory]\nsize = \"32MiB\"\nin_flight_max = \"16MiB\"";
    file.rewrite(&serving(&new.url(), memory, ""))?;
    cache.signal(Signal::Hup).await?;
    cache.wait_stderr("only after a restart: threads, memory.size").await?;
    assert_eq!(get(&cache, "/a").await?.text(), "new");

    let same = json!({ "unchanged": 1, "changed": 0, "added": 0, "removed": 0 });
    let expected = json!({
        "sites": same,
        "listeners": same,
        "needs_restart": ["threads", "memory.size"],
    });
    assert_eq!(reload(&cache).await?, (200, expected));
    assert!(is_hit(&get(&cache, "/a").await?));
    Ok(())
}

#[tokio::test]
async fn only_an_admitted_post_reloads() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "", "")?;
    let cache = file.serve().await?;
    assert_eq!(get_admin(&cache, "/reload").await?.status, 405);
    let plain = to_admin(&cache, "POST", "/reload")?;
    let admin = admin_of(&cache)?;
    assert_eq!(ask(admin, &plain).await?.status, 415);
    let foreign = asking(&cache)?.field("Origin", "http://evil.example");
    assert_eq!(ask(admin, &foreign).await?.status, 403);
    assert_eq!(counted(&cache).await?, [0, 0]);
    assert_eq!(ask(admin, &asking(&cache)?.body("{}")).await?.status, 200);
    assert_eq!(counted(&cache).await?, [1, 0]);
    Ok(())
}

#[tokio::test]
async fn without_a_file_a_reload_is_an_error() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    cache.signal(Signal::Hup).await?;
    cache.wait_stderr("stays in effect: there is no configuration file to reload").await?;
    let (status, told) = reload(&cache).await?;
    assert_eq!(status, 400);
    assert!(told["errors"][0].as_str().is_some_and(|e| e.contains("--config")), "{told}");
    assert_eq!(get(&cache, "/").await?.status, 200);
    assert_eq!(counted(&cache).await?, [0, 2]);
    Ok(())
}

#[tokio::test]
async fn flags_and_the_demo_origin_override_a_changed_file() -> anyhow::Result<()> {
    let (flag, other) = (origin_that_says("flag").await?, origin_that_says("other").await?);
    let file = ConfigFile::serving(&other.url(), "", "")?;
    let config = ["serve", "--config", &file.path.display().to_string()];
    let cache = forebay(config).args(ANYWHERE).args(["--origin", &flag.url()]).start().await?;
    let demo = forebay(config).args(ANYWHERE).args(["--demo"]).start().await?;
    file.rewrite(&serving(&other.url(), "log = \"warn\"", "expose_errors = true"))?;
    for cache in [&cache, &demo] {
        let (status, told) = reload(cache).await?;
        assert_eq!((status, &told["needs_restart"]), (200, &json!([])), "{told}");
    }
    assert_eq!(get(&cache, "/a").await?.text(), "flag");
    assert_eq!(get(&demo, "/items/a").await?.status, 200);
    assert_eq!(other.requests(), 0);
    Ok(())
}

/// Sends bytes that cause a message at the level `debug`.
async fn send_nonsense(cache: &Launched) -> anyhow::Result<()> {
    let mut client = Client::connect(cache.address()).await?;
    client.send_raw(b"nonsense\r\n\r\n").await?;
    client.read_to_close().await?;
    Ok(())
}

#[tokio::test]
async fn log_level_and_access_log_follow_the_changed_file() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "", "")?;
    let mut cache = file.serve().await?;
    get(&cache, "/unseen").await?;
    file.rewrite(&serving(&origin.url(), "log = \"debug\"\naccess_log = \"json\"", ""))?;
    assert_eq!(reload(&cache).await?.0, 200);
    get(&cache, "/seen-as-json").await?;
    let line: Value = serde_json::from_str(&cache.wait_stdout("/seen-as-json").await?)?;
    assert_eq!(line["target"], "/seen-as-json");
    send_nonsense(&cache).await?;
    cache
        .wait_stderr(
            "client request rejected before parsing: it violates a framing rule or a \
                       limit",
        )
        .await?;

    file.rewrite(&serving(&origin.url(), "access_log = \"common\"", ""))?;
    assert_eq!(reload(&cache).await?.0, 200);
    get(&cache, "/seen-as-a-line").await?;
    let line = cache.wait_stdout("/seen-as-a-line").await?;
    assert!(line.contains("\"GET /seen-as-a-line HTTP/1.1\" 200 "), "{line}");
    file.rewrite(&serving(&origin.url(), "", ""))?;
    assert_eq!(reload(&cache).await?.0, 200);
    get(&cache, "/unseen").await?;
    send_nonsense(&cache).await?;
    cache.signal(Signal::Term).await?;
    // Captured output may lag, but everything before this line has been captured.
    cache.wait_stderr("stopping").await?;
    cache.wait_exit(END_MAX).await?;
    assert!(!cache.stdout().iter().any(|line| line.contains("/unseen")), "{:?}", cache.stdout());
    let stderr = cache.stderr();
    let calm = stderr.iter().rev().take_while(|line| !line.contains("configuration reloaded"));
    assert!(calm.clone().count() > 0, "{stderr:#?}");
    assert!(!calm.clone().any(|line| line.contains("DEBUG")), "{stderr:#?}");
    Ok(())
}

#[tokio::test]
async fn a_new_token_takes_effect_and_a_token_cannot_be_removed() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = "admin_token_file = \"token\"";
    let file = ConfigFile::serving(&origin.url(), top, "")?;
    let token = file.folder.path().join("token");
    std::fs::write(&token, "first")?;
    let cache = file.serve().await?;
    let with = async |token: &str| -> anyhow::Result<(u16, Value)> {
        let request = asking(&cache)?.field("Authorization", format!("Bearer {token}"));
        told(&ask(admin_of(&cache)?, &request).await?)
    };
    std::fs::write(&token, "second")?;
    assert_eq!((with("second").await?.0, with("first").await?.0), (401, 200));
    assert_eq!((with("first").await?.0, with("second").await?.0), (401, 200));
    file.rewrite(&serving(&origin.url(), "", ""))?;
    let (status, told) = with("second").await?;
    assert_eq!((status, &told["needs_restart"]), (200, &json!(["admin_token_file"])));
    assert_eq!((reload(&cache).await?.0, with("second").await?.0), (401, 200));
    Ok(())
}

/// Number of reloads while clients send requests.
const RELOADS: usize = 20;

/// Number of clients, each with one connection.
const CLIENTS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_of_rules_fail_no_request_and_apply_to_each_as_a_whole() -> anyhow::Result<()> {
    let origin = origin_that_says("page").await?;
    let rules = |edition: usize| {
        let rule = |n: usize| {
            format!(
                "[[site.rule]]\nname = \"r{n}\"\nwhen.path = \"/p/**\"\n\
                 client_response.set = {{ x-edition-{n} = \"{edition}\" }}\n"
            )
        };
        (0..100).map(rule).collect::<String>()
    };
    let file = ConfigFile::serving(&origin.url(), "", &rules(0))?;
    let cache = file.serve().await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (is_over, address) = (is_over.clone(), cache.address());
            tokio::spawn(async move {
                let mut connection = Client::connect(address).await?;
                let mut answered = 0_u64;
                loop {
                    let target = format!("/p/{}", answered % 8 + client as u64);
                    let reply = connection.ask(&Request::get(&target)).await?;
                    let first = reply.field("x-edition-0").unwrap_or_default();
                    let last = reply.field("x-edition-99").unwrap_or_default();
                    let is_whole = !first.is_empty() && first == last;
                    anyhow::ensure!(reply.status == 200 && is_whole, "{reply:?}");
                    answered += 1;
                    if is_over.load(Ordering::Relaxed) {
                        return Ok(answered);
                    }
                }
            })
        })
        .collect();
    for edition in 1..=RELOADS {
        file.rewrite(&serving(&origin.url(), "", &rules(edition)))?;
        assert_eq!(reload(&cache).await?.0, 200, "{edition}");
        let reply = get(&cache, "/p/0").await?;
        assert_eq!(reply.field("x-edition-0"), Some(&*edition.to_string()));
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await?? > 0);
    }
    assert_eq!(counted(&cache).await?, [RELOADS as u64, 0]);
    Ok(())
}
