//! Files of the dashboard, the history and the live streams.

use forebay_testkit::launch::Launched;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::world::{ConfigFile, admin_of, ask, fresh_origin, get, get_admin, serve, to_admin};

/// Maximum number of polls of the history.
const ASKED_MAX: usize = 20_000;

/// Maximum number of open live streams.
const STREAMS_MAX: usize = 64;

async fn json(cache: &Launched, path: &str) -> anyhow::Result<Value> {
    let reply = get_admin(cache, path).await?;
    anyhow::ensure!(reply.status == 200, "{path}: {} {}", reply.status, reply.text());
    Ok(serde_json::from_slice(reply.body())?)
}

fn sum(history: &Value, name: &str) -> u64 {
    let values = history["counts"][name].as_array().into_iter().flatten();
    values.filter_map(Value::as_u64).sum()
}

#[tokio::test]
async fn the_page_and_its_files_need_no_token_and_are_compressed() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("token"), "secret\n")?;
    let top = format!("admin_token_file = \"{}\"", folder.path().join("token").display());
    let cache = ConfigFile::serving(&origin.url(), &top, "")?.serve().await?;
    let page = get_admin(&cache, "/").await?;
    let text = page.text();
    let file = text.split(['"', '\'']).find(|part| part.ends_with("/main.js"));
    let file = format!("/{}", file.map(str::to_owned).unwrap_or_default());
    let plain = get_admin(&cache, &file).await?;
    assert_eq!((plain.status, plain.field("content-encoding")), (200, None), "{file}");
    let asked = to_admin(&cache, "GET", &file)?.field("Accept-Encoding", "br, gzip");
    let packed = ask(admin_of(&cache)?, &asked).await?;
    assert_eq!(packed.field("content-encoding"), Some("gzip"));
    assert!(packed.body().len() < plain.body().len());
    assert_eq!(packed.field("cache-control"), Some("public, max-age=31536000, immutable"));
    for reply in [&page, &plain, &packed] {
        assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
        let policy = reply.field("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
    }
    assert_eq!(get_admin(&cache, "/assets/0/main.js").await?.status, 401);
    for path in ["/history", "/events", "/notices"] {
        assert_eq!(get_admin(&cache, path).await?.status, 401, "{path}");
        let with = to_admin(&cache, "GET", path)?.field("Authorization", "Bearer other");
        assert_eq!(ask(admin_of(&cache)?, &with).await?.status, 401, "{path}");
    }
    let head = to_admin(&cache, "POST", &file)?
        .field("Authorization", "Bearer secret")
        .field("Content-Type", "application/json");
    assert_eq!(ask(admin_of(&cache)?, &head).await?.status, 405);
    Ok(())
}

#[tokio::test]
async fn the_history_counts_every_response_once() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    for path in ["/a", "/a", "/a", "/b"] {
        get(&cache, path).await?;
    }
    for path in ["/history", "/history?site=default&span=15m"] {
        let mut history = Value::Null;
        for _ in 0..ASKED_MAX {
            history = json(&cache, path.split('?').next().unwrap_or(path)).await?;
            if sum(&history, "hit") + sum(&history, "miss") == 4 {
                break;
            }
        }
        let history = if path.contains('?') { json(&cache, path).await? } else { history };
        let counts = ["hit", "miss", "loads", "loads_failed", "why_not_stored", "error"];
        assert_eq!(counts.map(|name| sum(&history, name)), [2, 2, 2, 0, 2, 0], "{path} {history}");
        assert_eq!((&history["step"], &history["sites"][0]), (&1.into(), &"default".into()));
        assert_eq!(sum(&history, "body_bytes"), 4 * "hello".len() as u64);
        assert!(
            history["latencies_us"]["miss_p99"].to_string().bytes().any(|b| b.is_ascii_digit())
        );
    }
    assert_eq!(get_admin(&cache, "/history?site=nobody").await?.status, 404);
    assert_eq!(get_admin(&cache, "/history?span=1y").await?.status, 400);
    assert_eq!(json(&cache, "/history?span=24h").await?["step"], 60);
    Ok(())
}

#[tokio::test]
async fn a_live_stream_sends_one_small_event_a_second() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    get(&cache, "/").await?;
    let url = format!("http://{}/events?site=default", admin_of(&cache)?);
    let output = Command::new("curl").args(["-sSN", "--max-time", "4", &url]).output().await?;
    let text = String::from_utf8(output.stdout)?;
    let events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    assert!(events.len() >= 3, "{text}");
    let mut last = 0;
    for event in &events {
        assert!(event.len() <= 4 << 10, "{} bytes", event.len());
        let (id, data) = event.split_once("\ndata: ").unwrap_or_default();
        let event: Value = serde_json::from_str(data)?;
        assert_eq!(id.strip_prefix("id: "), Some(&*event["t"].to_string()));
        // The first event may be of the start.
        assert!(event["state"] == "ready" || last == 0, "{event}");
        assert_eq!(event["site"], "default");
        assert_eq!(event["tiers"][0]["name"], "memory");
        assert_eq!(event["origins"][0]["site"], "default");
        let second = event["t"].as_u64().unwrap_or_default();
        assert!(second > last, "{second} after {last}");
        last = second;
    }
    let newest = events.last().and_then(|event| event.split_once("data: "));
    let newest: Value = serde_json::from_str(newest.unwrap_or_default().1)?;
    assert_eq!(newest["sites"], 1);
    Ok(())
}

#[tokio::test]
async fn live_streams_have_a_bound() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let admin = admin_of(&cache)?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET /events HTTP/1.1\r\nHost: {admin}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        assert_eq!(&status, b"HTTP/1.1 200");
        streams.push(stream);
    }
    let refused = get_admin(&cache, "/events").await?;
    assert_eq!(refused.status, 503);
    drop(streams);
    Ok(())
}

#[tokio::test]
async fn a_degraded_cache_says_why_and_since_when() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = "[redis]\nurl = \"redis://127.0.0.1:1\"\n";
    let cache = ConfigFile::serving(&origin.url(), top, "")?.serve().await?;
    let mut health = json(&cache, "/healthz").await?;
    assert_eq!(
        (&health["state"], &health["reasons"][0]["because"]),
        (&"degraded".into(), &"tier-bypassed".into())
    );
    assert_eq!(health["reasons"][0]["name"], "redis");
    let since = health["reasons"][0]["since"].clone();
    health = json(&cache, "/healthz").await?;
    assert_eq!(health["reasons"][0]["since"], since);
    let mut degraded = 0;
    for _ in 0..ASKED_MAX {
        degraded = crate::world::metric(&cache, "forebay_degraded", "tier-bypassed").await?;
        if degraded == 1 {
            break;
        }
    }
    assert_eq!(degraded, 1);
    Ok(())
}

#[tokio::test]
async fn notices_have_purges() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let purge = to_admin(&cache, "POST", "/purge")?.field("Content-Type", "application/json");
    let purged = ask(admin_of(&cache)?, &purge.body(r#"{"tag":"t1"}"#)).await?;
    assert_eq!(purged.status, 200);
    let notices = json(&cache, "/notices").await?;
    let text = notices["notices"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("purge carried out kind=tag value=t1 reach=soft"), "{notices}");
    assert_eq!(notices["notices"][0]["level"], "purge");
    Ok(())
}
