//! More clients than the system has files for.

use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::Launch;

use crate::world::{ANYWHERE, BINARY, fresh_origin, metric};

/// How many files the process may have open; a shell sets the limit before it becomes forebay.
const LIMITED: &str = "ulimit -n 128 && exec \"$0\" \"$@\"";

/// What is left of them for clients.
const CLIENTS: usize = 64;

#[tokio::test]
async fn beyond_the_bound_clients_wait_until_another_one_leaves() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = Launch::binary("/bin/sh")
        .args(["-c", LIMITED, BINARY, "serve", "--origin", &origin.url()])
        .args(ANYWHERE)
        .start()
        .await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(cache.address()).await?;
        assert_eq!(client.ask(&Request::get("/a")).await?.status, 200);
        clients.push(client);
    }
    cache.wait_stderr("accepting pauses").await?;
    let mut late = Client::connect(cache.address()).await?;
    late.send(&Request::get("/a")).await?;
    // Those who are in are served, and the admin listener is not concerned.
    for client in &mut clients {
        assert_eq!(client.ask(&Request::get("/a")).await?.status, 200);
    }
    assert_eq!(metric(&cache, "forebay_requests_total", "").await?, 2 * CLIENTS as u64);
    clients.pop();
    assert_eq!(late.reply().await?.status, 200);
    assert_eq!(origin.requests(), 1);
    Ok(())
}
