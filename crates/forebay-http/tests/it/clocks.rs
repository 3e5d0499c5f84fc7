//! Tests of wall clock jumps while entries are stored: freshness and `Age` follow the monotonic
//! clock.

use std::time::Duration;

use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::server::TestServer;

const HOUR: i64 = 3_600;

fn told(reply: &Reply) -> (u16, String, String) {
    let field = |name| reply.field(name).unwrap_or_default().to_owned();
    (reply.status, field("age"), field("cache-status"))
}

fn expected(status: u16, age: &str, cache_status: &str) -> (u16, String, String) {
    (status, age.to_owned(), cache_status.to_owned())
}

#[tokio::test]
async fn a_wall_clock_jump_does_not_change_freshness() -> anyhow::Result<()> {
    for jump in [HOUR, -HOUR] {
        let answer = Answer::ok("a").field("Cache-Control", "max-age=60, stale-if-error=600");
        let origin = Origin::always(answer).await?;
        let settings = [("stale_on_disconnect_max", "\"0s\"")];
        let server = TestServer::start(origin.address(), &settings).await?;
        let mut client = Client::connect(server.address).await?;
        client.ask(&Request::get("/a")).await?;

        server.clock.jump_wall(jump);
        server.clock.step(Duration::from_secs(59));
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!(told(&reply), expected(200, "59", "forebay; hit; ttl=1"), "{jump}");

        server.clock.jump_wall(-2 * jump);
        server.clock.step(Duration::from_secs(1));
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!((reply.status, origin.requests()), (200, 2), "fresh for too long: {jump}");

        origin.shut().await?;
        server.clock.jump_wall(2 * jump);
        server.clock.step(Duration::from_secs(60 + 599));
        let reply = client.ask(&Request::get("/a")).await?;
        let stale = "forebay; hit; ttl=-599; detail=load-failed";
        assert_eq!(told(&reply), expected(200, "659", stale), "{jump}");

        server.clock.jump_wall(-jump);
        server.clock.step(Duration::from_secs(3));
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!(reply.status, 502, "stale for too long: {jump}");
    }
    Ok(())
}
