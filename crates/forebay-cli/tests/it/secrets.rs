//! Planted secrets are in nothing that the cache writes or shows about requests.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_testkit::client::Request;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{ConfigFile, END_MAX, admin_of, ask, forebay, get_admin, metric, wait_requests};

/// Part of every secret. Base64 of user names and passwords has the second form.
const SECRET: &str = "hunter2";
const BASIC: &str = "bWU6aHVudGVyMg";

/// Pages of the admin listener that show something about requests.
const PAGES: [&str; 9] = [
    "/",
    "/livez",
    "/readyz",
    "/healthz",
    "/metrics",
    "/history",
    "/notices",
    "/top",
    "/explain?url=http%3A%2F%2Ftest.example%2Fa%3Ftoken%3Dhunter2&header=Cookie:%20sid%3Dhunter2",
];

/// Maximum time until a tail has all lines.
const TAIL_MAX: Duration = Duration::from_secs(20);

/// Maximum number of polls of a metric.
const POLLS_MAX: usize = 20_000;

/// Requests of the test for each path.
const ROUNDS: usize = 3;

/// Requests with all secrets, also in places that make them errors.
fn requests(path: &str) -> [Request; 3] {
    let with = |target: String| {
        Request::get(&target)
            .field("Host", "test.example")
            .field("Cookie", format!("sid={SECRET}"))
            .field("Referer", format!("http://me:{SECRET}@other.example/c?{SECRET}"))
            .field("X-Api-Key", SECRET)
    };
    let query = format!("token={SECRET}&b=1&PassWord={SECRET}&api_key={SECRET}");
    [
        with(format!("{path}?{query}")),
        with(format!("{path}?{query}")).field("Authorization", format!("Basic {BASIC}==")),
        with(format!("http://me:{SECRET}@test.example{path}?{query}")),
    ]
}

fn leaks(text: &str) -> bool {
    text.contains(SECRET) || text.contains(BASIC)
}

/// Opens a tail of all responses, and returns once it has begun.
async fn tail(cache: &Launched) -> anyhow::Result<TcpStream> {
    let admin = admin_of(cache)?;
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(format!("GET /tail HTTP/1.1\r\nHost: {admin}\r\n\r\n").as_bytes()).await?;
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(": tail") {
        anyhow::ensure!(stream.read_buf(&mut text).await? > 0, "the tail has ended");
    }
    Ok(stream)
}

/// Reads a tail up to this number of lines.
async fn lines_of(tail: &mut TcpStream, count: u64) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let reading = async {
        while (String::from_utf8_lossy(&text).matches("\"target\"").count() as u64) < count {
            anyhow::ensure!(tail.read_buf(&mut text).await? > 0, "the tail has ended");
        }
        Ok(())
    };
    let read = tokio::time::timeout(TAIL_MAX, reading).await;
    read.unwrap_or_else(|_| anyhow::bail!("lines are missing"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn planted_secrets_are_in_no_log_page_feed_span_or_explanation() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/broken" => Answer::close(),
        "/private" => Answer::ok("mine").field("Set-Cookie", format!("id={SECRET}")),
        _ => Answer::ok("hello").field("Cache-Control", "max-age=60"),
    })
    .await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("access.log");
    let top = format!(
        "log = \"debug\"\naccess_log = \"json\"\n[access]\nfile = \"{}\"\n\
         [trace]\nendpoint = \"{}\"\nsample = 1.0",
        log.display(),
        collector.url()
    );
    let file = ConfigFile::serving(&origin.url(), &top, "")?;
    let mut cache = file.serve().await?;
    assert_eq!(get_admin(&cache, "/top").await?.status, 200);
    let mut tail = tail(&cache).await?;
    let mut sent = 0_u64;
    for path in ["/a", "/private", "/broken"].iter().cycle().take(3 * ROUNDS) {
        for request in requests(path) {
            ask(cache.address(), &request).await?;
            sent += 1;
        }
    }
    wait_requests(&cache, "", sent).await?;
    let mut shown = BTreeMap::new();
    for page in PAGES {
        shown.insert(page.to_owned(), get_admin(&cache, page).await?.text().into_owned());
    }
    shown.insert("tail".to_owned(), lines_of(&mut tail, sent).await?);
    let exported = "result=\"exported\"";
    for _ in 0..POLLS_MAX {
        if metric(&cache, "forebay_spans_total", exported).await? >= sent {
            break;
        }
    }
    assert!(metric(&cache, "forebay_spans_total", exported).await? >= sent, "spans are missing");
    let spans: Vec<u8> = collector.received().iter().flat_map(|it| it.body.to_vec()).collect();
    shown.insert("spans".to_owned(), String::from_utf8_lossy(&spans).into_owned());
    let url = format!("http://test.example/private?token={SECRET}");
    let admin = format!("http://{}", admin_of(&cache)?);
    let header = format!("Cookie: sid={SECRET}");
    for live in [&["--json"][..], &["--live"]] {
        let command = forebay(["explain", &url, "--admin", &admin, "--header", &header]);
        let done = command.args(live.iter().copied()).finish().await?;
        shown.insert(format!("explain {live:?}"), done.stdout.join("\n"));
    }
    cache.signal(Signal::Term).await?;
    cache.wait_exit(END_MAX).await?;
    shown.insert("stderr".to_owned(), cache.stderr().join("\n"));
    shown.insert("access log".to_owned(), std::fs::read_to_string(&log)?);
    for (name, text) in &shown {
        assert!(!text.is_empty() && !leaks(text), "{name}: {text}");
    }
    for name in ["access log", "tail", "spans"] {
        assert!(shown[name].contains("token=REDACTED&b=1"), "{name}: {}", shown[name]);
    }
    Ok(())
}
