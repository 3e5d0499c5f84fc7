//! Probe listener, and `forebay probe`.

use anyhow::Context;
use forebay_testkit::client::Request;

use crate::world::{ConfigFile, ask, forebay, fresh_origin, nowhere};

#[tokio::test]
async fn a_probe_needs_no_token_and_no_host() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = "probe = \"127.0.0.1:0\"\nadmin_token_file = \"token\"";
    let file = ConfigFile::serving(&origin.url(), top, "")?;
    std::fs::write(file.folder.path().join("token"), "secret")?;
    let cache = file.serve().await?;
    let probe = cache.probe().context("no probe listener")?;
    let rows = [
        ("GET", "/livez", 200, "live\n"),
        ("GET", "/readyz", 200, "ready\n"),
        ("HEAD", "/readyz", 200, ""),
        ("POST", "/readyz", 405, "method\n"),
        ("GET", "/", 404, "unknown\n"),
        ("GET", "/metrics", 404, "unknown\n"),
        ("POST", "/purge", 404, "unknown\n"),
    ];
    for (method, path, status, word) in rows {
        let request = Request::new(method, path).field("Host", "any.example");
        let reply = ask(probe, &request).await?;
        assert_eq!((reply.status, reply.text().as_ref()), (status, word), "{method} {path}");
    }
    Ok(())
}

#[tokio::test]
async fn the_probe_command_has_an_exit_code() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = ConfigFile::serving(&origin.url(), "probe = \"127.0.0.1:0\"", "")?.serve().await?;
    let probe = cache.probe().context("no probe listener")?;
    let admin = cache.admin().context("no admin listener")?;
    let asked = async |url: String| forebay(["probe"]).args([url]).finish().await;
    for ready in [format!("http://{probe}"), format!("http://{admin}/")] {
        let done = asked(ready).await?;
        assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0), "{done:?}");
    }
    let missing = asked(format!("http://{probe}/nothing")).await?;
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    let silent = asked(format!("http://{}", nowhere()?)).await?;
    assert_eq!(silent.status.code(), Some(1), "{silent:?}");
    assert!(silent.stderr[0].contains("not ready: nothing answers at http://"), "{silent:?}");
    Ok(())
}
