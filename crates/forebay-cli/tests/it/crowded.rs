//! More clients than the limit on open files allows.

use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::Launch;

use crate::world::{ANYWHERE, BINARY, fresh_origin, metric, wait_requests};

/// Shell script that lowers the limit on open files and then runs forebay.
const LIMITED: &str = "ulimit -n 128 && exec \"$0\" \"$@\"";

/// Number of client connections that this limit leaves.
const CLIENTS: usize = 64;

#[tokio::test]
async fn above_the_connection_limit_clients_get_503() -> anyhow::Result<()> {
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
    for _ in 0..3 {
        let mut late = Client::connect(cache.address()).await?;
        let reply = late.ask(&Request::get("/a")).await?;
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
        assert_eq!(&late.read_to_close().await?.bytes[..], b"");
    }
    cache.wait_stderr("further connections get 503").await?;
    assert_eq!(metric(&cache, "forebay_refused_total", "limit=\"connections\"").await?, 3);
    // Connected clients are served, and the admin listener has its own limit.
    for client in &mut clients {
        assert_eq!(client.ask(&Request::get("/a")).await?.status, 200);
    }
    wait_requests(&cache, "site=\"default\"", 2 * CLIENTS as u64).await?;
    clients.pop();
    loop {
        let mut next = Client::connect(cache.address()).await?;
        let status = next.ask(&Request::get("/a")).await?.status;
        if status == 200 {
            break;
        }
        // The cache may not have noticed the closed connection yet.
        assert_eq!(status, 503);
    }
    assert_eq!(origin.requests(), 1);
    Ok(())
}
