//! `forebay tail` and `forebay top`: they print what the clients did.

use std::collections::BTreeMap;

use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use serde_json::Value;

use crate::world::{admin_of, forebay, get, get_admin, serve};

/// Maximum number of tries until the feed is open.
const TRIES_MAX: usize = 1_000;

async fn origin() -> anyhow::Result<Origin> {
    let origin = Origin::start(|asked| match asked.path() {
        "/private" => Answer::ok("mine").field("Cache-Control", "private"),
        "/broken" => Answer::status(500),
        _ => Answer::ok("hello").field("Cache-Control", "max-age=60"),
    });
    Ok(origin.await?)
}

/// Sends a known load: 30 hits of `/hot`, 10 of `/warm`, 4 of `/private`, 2 of `/broken`.
async fn load(cache: &Launched) -> anyhow::Result<()> {
    for (path, count) in [("/hot", 30), ("/warm?token=hidden", 10), ("/private", 4), ("/broken", 2)]
    {
        for _ in 0..count {
            get(cache, path).await?;
        }
    }
    Ok(())
}

fn rows(top: &Value, list: &str) -> BTreeMap<String, f64> {
    let rows = top["lists"][list].as_array().into_iter().flatten();
    let row = |row: &Value| {
        let count = row["count"].as_f64().unwrap_or_default();
        (row["name"].as_str().unwrap_or_default().to_owned(), count)
    };
    rows.map(row).collect()
}

#[tokio::test]
async fn top_prints_what_the_load_generator_did() -> anyhow::Result<()> {
    let origin = origin().await?;
    let cache = serve(&origin).await?;
    // The first question opens the feed.
    assert_eq!(get_admin(&cache, "/top").await?.status, 200);
    load(&cache).await?;
    let admin = format!("http://{}", admin_of(&cache)?);
    let mut top = Value::Null;
    for _ in 0..TRIES_MAX {
        let done = forebay(["top", "--once", "--json", "--admin", &admin]).finish().await?;
        top = serde_json::from_str(&done.stdout.join("\n"))?;
        if top["responses"] == 46 {
            break;
        }
    }
    let requests = rows(&top, "requests");
    let url = |path: &str| format!("test.example{path}");
    assert_eq!(requests.get(&url("/hot")), Some(&30.0), "{top:#}");
    assert_eq!(requests.get(&url("/warm?token=REDACTED")), Some(&10.0), "{top:#}");
    let bytes = rows(&top, "bytes");
    assert_eq!((bytes[&url("/hot")], bytes[&url("/private")]), (150.0, 16.0));
    let misses = rows(&top, "misses");
    assert_eq!(misses[&format!("uri-miss {}", url("/hot"))], 1.0);
    assert_eq!(misses[&format!("uri-miss {}", url("/private"))], 4.0, "{top:#}");
    assert_eq!(rows(&top, "not_storable")[&format!("private {}", url("/private"))], 4.0);
    assert_eq!(rows(&top, "clients")["127.0.0.1"], 46.0);
    assert_eq!(top["origins"]["default"]["loads"], 8, "{top:#}");
    assert!(!top.to_string().contains("hidden"));
    let done = forebay(["top", "--once", "--admin", &admin]).finish().await?;
    let text = done.stdout.join("\n");
    assert!(text.starts_with("46 responses in "), "{text}");
    assert!(text.contains("          30  test.example/hot"), "{text}");
    assert_eq!(get_admin(&cache, "/top?rows=x").await?.status, 400);
    Ok(())
}

/// Loads are counted before anyone asks for the lists; their tags have a list of their own.
#[tokio::test]
async fn lists_of_loads_are_counted_without_a_viewer() -> anyhow::Result<()> {
    let tagged = Answer::ok("hello").field("Cache-Control", "max-age=60");
    let origin = Origin::always(tagged.field("Cache-Tag", "red,blue")).await?;
    let cache = serve(&origin).await?;
    for path in ["/a?token=hidden", "/b", "/b"] {
        get(&cache, path).await?;
    }
    let top: Value = serde_json::from_slice(get_admin(&cache, "/top").await?.body())?;
    let expected = [("blue".to_owned(), 2.0), ("red".to_owned(), 2.0)];
    assert_eq!(rows(&top, "tags"), BTreeMap::from(expected), "{top:#}");
    let misses = rows(&top, "misses");
    assert_eq!(misses["uri-miss test.example/a?token=REDACTED"], 1.0, "{top:#}");
    assert_eq!(misses["uri-miss test.example/b"], 1.0);
    assert_eq!(top["origins"]["default"]["loads"], 2);
    assert!(rows(&top, "requests").is_empty() && !top.to_string().contains("hidden"), "{top:#}");
    Ok(())
}

#[tokio::test]
async fn tail_prints_the_selected_responses() -> anyhow::Result<()> {
    let origin = origin().await?;
    let cache = serve(&origin).await?;
    let admin = format!("http://{}", admin_of(&cache)?);
    let tail = |selection: &'static str, lines: &'static str| {
        forebay(["tail", "--admin", &admin, "--format", "json"])
            .args(["--where", selection, "--lines", lines])
            .finish()
    };
    let selected = tail("status>=500 and site=default", "4");
    let hits = tail("cache=hit and target~token", "12");
    // A response is in the stream once the tail has begun.
    let client = async {
        for _ in 0..TRIES_MAX {
            load(&cache).await?;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    let both = async { tokio::join!(selected, hits) };
    let (selected, hits) = tokio::select! {
        done = both => done,
        sent = client => anyhow::bail!("the tails do not end: {sent:?}"),
    };
    for (done, field, value) in
        [(selected?, "status", Value::from(500)), (hits?, "cache", "hit".into())]
    {
        assert_eq!(done.status.code(), Some(0), "{:?}", done.stderr);
        assert!(done.stdout.len() >= 4);
        for line in &done.stdout {
            let line: Value = serde_json::from_str(line)?;
            assert_eq!(line[field], value, "{line}");
            assert!(!line.to_string().contains("hidden"), "{line}");
        }
    }
    let wrong = forebay(["tail", "--admin", &admin, "--where", "statu=200"]).finish().await?;
    assert_eq!(wrong.status.code(), Some(1));
    let said = &wrong.stderr[0];
    assert!(said.contains("column 1: there is no field `statu`; did you mean `status`?"), "{said}");
    Ok(())
}
