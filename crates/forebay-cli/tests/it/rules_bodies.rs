//! Rules about bodies, in the real binary: GraphQL operations, and cuts of JSON.

use forebay_testkit::client::{Reply, Request};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::rules::{ask_with, example, numbered, sent, serve, status};
use crate::world::{ask, get, is_hit, written};

async fn post(cache: &Launched, body: &str, tenant: &str) -> anyhow::Result<Reply> {
    let request = Request::new("POST", "/graphql").field("Content-Type", "application/json");
    let reply =
        ask(cache.address(), &request.field("X-Tenant", tenant).body(body.to_owned())).await?;
    written(cache).await?;
    Ok(reply)
}

#[tokio::test]
async fn queries_by_post_are_stored_and_mutations_are_not() -> anyhow::Result<()> {
    let origin = numbered(&[]).await?;
    let cache = example(&origin, "06-graphql.toml").await?;
    let (query, other) = (r#"{"query":"{ a }"}"#, r#"{"query":"query B { b }"}"#);
    assert!(!is_hit(&post(&cache, query, "1").await?));
    let hit = post(&cache, query, "1").await?;
    assert!(is_hit(&hit), "{}", status(&hit));
    assert!(!is_hit(&post(&cache, other, "1").await?), "another body is another key");
    assert!(!is_hit(&post(&cache, query, "2").await?), "another tenant is another key");
    assert!(is_hit(&post(&cache, query, "1").await?), "a query invalidates nothing");
    let fetched = origin.requests();
    let bodies = [
        r#"{"query":"mutation { a }"}"#,
        r#"{"query":"{ a }","query":"mutation { a }"}"#,
        r#"{"query":"query A { a } mutation B { b }","operationName":"B"}"#,
        r#"[{"query":"{ a }"}]"#,
        "no json",
    ];
    for body in bodies {
        for _ in 0..2 {
            let reply = post(&cache, body, "1").await?;
            assert!(status(&reply).contains("fwd=method"), "{body}: {}", status(&reply));
        }
    }
    assert_eq!(origin.requests(), fetched + 2 * bodies.len() as u64);
    assert!(!is_hit(&post(&cache, query, "1").await?), "a mutation invalidates the target");
    Ok(())
}

/// Origin of one JSON body, with a strong validator.
async fn json_origin() -> anyhow::Result<Origin> {
    let body = r#"{ "id": 1, "secret": "s3", "items": [ {"n":1,"secret":2}, {"n": 1.0e2} ] }"#;
    let answer = move |received: &Received| {
        let body = match received.path() {
            "/api/bad" => "{ \"secret\": ",
            _ => body,
        };
        let answer = Answer::ok(body).field("Content-Type", "application/json");
        answer
            .field("Cache-Control", "max-age=60")
            .field("ETag", "\"v1\"")
            .field("Content-Digest", "sha-256=:x:")
    };
    Ok(Origin::start(answer).await?)
}

const CUT: &str = "[[site.rule]]\nname = \"cut\"\nwhen.path = \"/api/**\"\n\
                   json.remove = [\"/secret\", \"/items/*/secret\"]\n";

#[tokio::test]
async fn json_is_cut_before_it_is_stored_or_passed_on() -> anyhow::Result<()> {
    let origin = json_origin().await?;
    let cache = serve(&origin, CUT).await?;
    let expected = r#"{ "id": 1, "items": [ {"n":1}, {"n": 1.0e2} ] }"#;
    for n in 0..2 {
        let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=0-9")];
        let part = ask_with(&cache, "/api/x", &fields[..1]).await?;
        assert_eq!((part.status, &*part.text()), (200, expected));
        assert_eq!(is_hit(&part), n == 1, "{}", status(&part));
        assert_eq!(part.field("etag"), Some("W/\"v1\""));
        assert_eq!(part.field("content-digest"), None);
        written(&cache).await?;
    }
    assert_eq!(sent(&origin.first()?, "accept-encoding").as_deref(), Some("identity"));
    // Requests past the cache, parts, and other spellings of the path reveal nothing either.
    let post = ask(cache.address(), &Request::new("POST", "/api/y").body("x")).await?;
    assert_eq!(post.text(), expected);
    for target in ["/api/part", "/x/../api/z", "/%61pi/z"] {
        let reply = ask_with(&cache, target, &[("Range", "bytes=0-60")]).await?;
        assert!(!reply.text().contains("s3"), "{target}: {}", reply.text());
    }
    assert!(get(&cache, "/other").await?.text().contains("s3"));
    Ok(())
}

#[tokio::test]
async fn json_that_cannot_be_cut_is_not_stored() -> anyhow::Result<()> {
    let origin = json_origin().await?;
    let cache = serve(&origin, &format!("{CUT}json.max = \"60B\"\n")).await?;
    for target in ["/api/bad", "/api/long"] {
        assert_eq!(get(&cache, target).await?.status, 502, "{target}");
    }
    let cache = serve(&origin, &format!("{CUT}json.on_error = \"pass\"\n")).await?;
    let first = get(&cache, "/api/bad").await?;
    assert_eq!((first.status, &*first.text()), (200, "{ \"secret\": "));
    assert!(status(&first).ends_with("detail=edit-failed"), "{}", status(&first));
    assert!(!is_hit(&get(&cache, "/api/bad").await?));
    Ok(())
}
