//! `forebay explain`, and `/explain` of the admin listener.

use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use serde_json::Value;

use crate::world::{
    ConfigFile, admin_of, ask, forebay, get, get_admin, metric, nowhere, serve, to_admin, written,
};

/// Runs the command; returns its exit code and its output.
async fn explain(cache: &Launched, args: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let admin = format!("http://{}", admin_of(cache)?);
    let launch = forebay(["explain", "--admin", &admin]).args(args.iter().copied());
    let done = launch.finish().await?;
    let lines: Vec<String> = done.stdout.into_iter().chain(done.stderr).collect();
    Ok((done.status.code(), lines.join("\n")))
}

/// Origin of a page with a cookie, and of others that are fresh for a minute.
async fn origin() -> anyhow::Result<Origin> {
    let origin = Origin::start(|asked| {
        let answer = Answer::ok("hello").field("Cache-Control", "max-age=60");
        match asked.path() {
            "/cookie" => answer.field("Set-Cookie", "session=hidden"),
            _ => answer,
        }
    });
    Ok(origin.await?)
}

#[tokio::test]
async fn the_command_says_what_a_request_would_do_and_why() -> anyhow::Result<()> {
    let origin = origin().await?;
    let cache = serve(&origin).await?;
    let url = "http://test.example/a";
    let (code, text) = explain(&cache, &[url, "--exit-code"]).await?;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("would     load from the origin"), "{text}");
    assert!(text.contains("Cache-Status: forebay; fwd=uri-miss"), "{text}");
    assert_eq!(origin.requests(), 0);
    get(&cache, "/a").await?;
    written(&cache).await?;
    let (code, text) = explain(&cache, &[url, "--exit-code"]).await?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("would     be served from storage, without waiting"), "{text}");
    assert!(text.contains("lifetime 60 s by Cache-Control: max-age=60"), "{text}");
    let no_cache = [url, "-H", "Cache-Control: no-cache"];
    let (code, text) = explain(&cache, &no_cache).await?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("request-revalidate: Cache-Control: no-cache in the request"), "{text}");
    get(&cache, "/cookie").await?;
    let (_, text) = explain(&cache, &["http://test.example/cookie"]).await?;
    assert!(text.contains("set-cookie: Set-Cookie") && !text.contains("hidden"), "{text}");
    assert_eq!(origin.requests(), 2);
    let (_, json) = explain(&cache, &[url, "--json"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    assert_eq!((&json["would"]["outcome"], &json["site"]), (&"served".into(), &"default".into()));
    Ok(())
}

#[tokio::test]
async fn a_live_request_is_sent_once_a_second_and_stores_nothing() -> anyhow::Result<()> {
    let origin = origin().await?;
    let cache = serve(&origin).await?;
    let args = ["http://test.example/cookie", "--live"];
    let (code, text) = explain(&cache, &args).await?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no, by the response of the origin now"), "{text}");
    assert!(text.contains("live      status 200") && !text.contains("hidden"), "{text}");
    let body = r#"{"url":"http://test.example/a"}"#;
    let post = || to_admin(&cache, "POST", "/explain");
    let json = "application/json";
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let request = post()?.field("Content-Type", json).body(body);
        statuses.push(ask(admin_of(&cache)?, &request).await?.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    let asked = statuses.iter().filter(|status| **status == 200).count() as u64;
    assert_eq!(origin.requests(), 1 + asked);
    assert_eq!(metric(&cache, "forebay_tier_entries", "memory").await?, 0);
    assert_eq!(ask(admin_of(&cache)?, &post()?.body(body)).await?.status, 415);
    let wrong = post()?.field("Content-Type", json).body("{}");
    assert_eq!(ask(admin_of(&cache)?, &wrong).await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn a_request_that_cannot_be_explained_is_an_error() -> anyhow::Result<()> {
    let origin = origin().await?;
    let cache = serve(&origin).await?;
    for (query, status) in [
        ("", 400),
        ("?url=nonsense", 400),
        ("?url=http%3A%2F%2Fa%2F&header=nonsense", 400),
        ("?url=http%3A%2F%2Fa%2F&other=1", 400),
        ("?url=http%3A%2F%2Fa%2F", 200),
    ] {
        let reply = get_admin(&cache, &format!("/explain{query}")).await?;
        assert_eq!(reply.status, status, "{query}");
    }
    let put = to_admin(&cache, "PUT", "/explain")?.field("Content-Type", "application/json");
    assert_eq!(ask(admin_of(&cache)?, &put).await?.status, 405);
    let (code, text) = explain(&cache, &["/a"]).await?;
    assert!(code == Some(1) && text.contains("The URL must be complete"), "{text}");
    let admin = format!("http://{}", nowhere()?);
    let failed = forebay(["explain", "http://a/", "--admin", &admin]).finish().await?;
    assert!(failed.stderr[0].contains("no cache answers at"), "{:?}", failed.stderr);
    Ok(())
}

#[tokio::test]
async fn an_explanation_needs_the_token() -> anyhow::Result<()> {
    let origin = origin().await?;
    let folder = tempfile::tempdir()?;
    let token = folder.path().join("token");
    std::fs::write(&token, "a-long-enough-token-of-an-operator\n")?;
    let top = format!("admin_token_file = \"{}\"", token.display());
    let file = ConfigFile::serving(&origin.url(), &top, "")?;
    let cache = file.serve().await?;
    let url = "http://test.example/a";
    let (code, text) = explain(&cache, &[url]).await?;
    assert!(code == Some(1) && text.contains("A token is required"), "{text}");
    let token = token.display().to_string();
    let (code, text) = explain(&cache, &[url, "--token-file", &token]).await?;
    assert_eq!(code, Some(0), "{text}");
    Ok(())
}

#[tokio::test]
async fn entries_on_disk_are_explained_without_a_use() -> anyhow::Result<()> {
    let origin = origin().await?;
    let folder = tempfile::tempdir()?;
    let top = format!(
        "[memory]\nsize = \"16MiB\"\n[disk]\npath = \"{}\"\nsize = \"64MiB\"",
        folder.path().display()
    );
    let file = ConfigFile::serving(&origin.url(), &top, "")?;
    let cache = file.serve().await?;
    get(&cache, "/a").await?;
    written(&cache).await?;
    let before = metric(&cache, "forebay_lookups_total", "").await?;
    let (_, json) = explain(&cache, &["http://test.example/a", "--json"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    let tiers = json["stored"].as_array().into_iter().flatten().map(|entry| &entry["tier"]);
    assert_eq!(tiers.collect::<Vec<_>>(), ["memory", "disk"], "{json:#}");
    assert_eq!(metric(&cache, "forebay_lookups_total", "").await?, before);
    Ok(())
}
