//! Features that a site must enable: responses stored by request body, and cache groups.

use forebay_testkit::client::Request;
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::world::{ConfigFile, admin_of, ask, forebay, get, is_hit};

const OPT_INS: &str = "cache_methods = [\"QUERY\", \"POST\"]\ncache_groups = true";

/// Response to a read: fresh, and member of a group. A change has no lifetime and names the group.
fn answer(asked: &Received) -> Answer {
    if asked.path() == "/change" {
        return Answer::status(204).field("Cache-Group-Invalidation", "\"stock\"");
    }
    let answer = Answer::ok(format!("{} {}", asked.method, asked.path()));
    answer.field("Cache-Control", "max-age=60").field("Cache-Groups", "\"stock\"")
}

async fn serve(site: &str) -> anyhow::Result<(Origin, Launched)> {
    let origin = Origin::start(answer).await?;
    let file = ConfigFile::serving(&origin.url(), "", site)?;
    let cache = file.serve().await?;
    Ok((origin, cache))
}

async fn send(cache: &Launched, method: &str, body: &'static str) -> anyhow::Result<bool> {
    let request = Request::new(method, "/search").field("Content-Type", "text/plain").body(body);
    let reply = ask(cache.address(), &request).await?;
    assert_eq!((reply.status, &*reply.text()), (200, &*format!("{method} /search")));
    Ok(is_hit(&reply))
}

#[tokio::test]
async fn responses_are_stored_by_request_body_and_purged_by_url() -> anyhow::Result<()> {
    let (origin, cache) = serve(OPT_INS).await?;
    for method in ["QUERY", "POST"] {
        assert!(!send(&cache, method, "red").await? && send(&cache, method, "red").await?);
        assert!(!send(&cache, method, "blue").await?);
    }
    assert_eq!(origin.requests(), 4);
    let admin = format!("http://{}", admin_of(&cache)?);
    let url = "http://test.example/search";
    let launch = forebay(["purge", "--hard", "--url", url, "--admin", &admin]);
    assert!(launch.finish().await?.status.success());
    assert!(!send(&cache, "QUERY", "red").await? && send(&cache, "QUERY", "red").await?);
    assert_eq!(origin.requests(), 5);
    Ok(())
}

#[tokio::test]
async fn a_change_invalidates_the_groups_that_it_names() -> anyhow::Result<()> {
    let (origin, cache) = serve(OPT_INS).await?;
    get(&cache, "/a").await?;
    assert!(is_hit(&get(&cache, "/a").await?));
    assert!(!send(&cache, "QUERY", "red").await? && send(&cache, "QUERY", "red").await?);
    let change = Request::new("POST", "/change").body("x");
    assert_eq!(ask(cache.address(), &change).await?.status, 204);
    assert!(!is_hit(&get(&cache, "/a").await?));
    assert!(!send(&cache, "QUERY", "red").await?);
    assert_eq!(origin.requests(), 5);
    Ok(())
}

#[tokio::test]
async fn both_features_are_off_by_default() -> anyhow::Result<()> {
    let (origin, cache) = serve("").await?;
    get(&cache, "/a").await?;
    for method in ["QUERY", "POST"] {
        assert!(!send(&cache, method, "red").await? && !send(&cache, method, "red").await?);
    }
    ask(cache.address(), &Request::new("POST", "/change").body("x")).await?;
    assert!(is_hit(&get(&cache, "/a").await?));
    assert_eq!(origin.requests(), 6);
    Ok(())
}
