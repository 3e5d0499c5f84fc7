//! Rules of a site, in the real binary: one test for each phase, and for each guarantee.

use std::time::Duration;

use forebay_testkit::client::{Reply, Request};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::world::{ConfigFile, ask, get, is_hit, written};

/// Starts a cache with these rules, as lines below `[[site]]`.
pub(crate) async fn serve(origin: &Origin, rules: &str) -> anyhow::Result<Launched> {
    ConfigFile::serving(&origin.url(), "", rules)?.serve().await
}

/// Origin that answers with the number of the request, and these fields.
pub(crate) async fn numbered(
    fields: &'static [(&'static str, &'static str)],
) -> anyhow::Result<Origin> {
    let answer = move |received: &Received| {
        let answer = Answer::ok(received.serial.to_string());
        fields.iter().fold(answer, |answer, (name, value)| answer.field(name, *value))
    };
    Ok(Origin::start(answer).await?)
}

pub(crate) async fn ask_with(
    cache: &Launched,
    target: &str,
    fields: &[(&str, &str)],
) -> anyhow::Result<Reply> {
    let request = fields
        .iter()
        .fold(Request::get(target), |request, (name, value)| request.field(name, *value));
    ask(cache.address(), &request).await
}

pub(crate) fn status(reply: &Reply) -> &str {
    reply.field("cache-status").unwrap_or_default()
}

pub(crate) fn sent(received: &Received, name: &str) -> Option<String> {
    received.fields.first(name).map(str::to_owned)
}

#[tokio::test]
async fn client_request_shapes_target_and_fields_for_key_and_origin() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60"), ("Vary", "X-Debug")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"pages\"\nwhen.path = \"/p/**\"\nignore_query = [\"utm_*\"]\n\
         sort_query = true\nclient_request.remove = [\"x-debug\"]\n\
         client_request.set = { x-site = \"{id}\" }\n\
         [[site.rule]]\nname = \"old\"\nwhen.path = \"/old/**\"\n\
         rewrite = { from = \"^/old/(.*)$\", to = \"/p/$1\" }\n",
    )
    .await?;
    get(&cache, "/p/x?b=1&utm_source=y&a=2").await?;
    written(&cache).await?;
    let first = origin.first()?;
    assert_eq!(first.target, "/p/x?a=2&b=1");
    assert_eq!(sent(&first, "x-site").as_deref(), Some("shop"));
    // The removed field selects no variant, because the origin does not see it.
    let again = ask_with(&cache, "/p/x?a=2&b=1&utm_x", &[("X-Debug", "1")]).await?;
    assert!(is_hit(&again) && again.text() == "1", "{}", status(&again));
    get(&cache, "/old/x?c").await?;
    assert_eq!(origin.received()[1].target, "/p/x?c");
    Ok(())
}

#[tokio::test]
async fn a_rule_ends_requests_with_redirects_and_responses() -> anyhow::Result<()> {
    let origin = numbered(&[]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"moved\"\nwhen.path = \"/old/**\"\n\
         redirect = { from = \"^/old(/.*)$\", to = \"$1\", status = 301 }\n\
         [[site.rule]]\nname = \"robots\"\nwhen.path = \"/robots.txt\"\n\
         respond = { body = \"User-agent: *\\n\" }\nclient_response.set = { x-a = \"{status}\" }\n",
    )
    .await?;
    let moved = get(&cache, "/old/x").await?;
    assert_eq!((moved.status, moved.field("location")), (301, Some("/x")));
    assert_eq!(moved.field("cache-control"), Some("no-store"));
    // Guarantee G9: a redirect does not leave the host by a second slash.
    for target in ["/old//evil.example", "/old/\\evil.example"] {
        assert_eq!(get(&cache, target).await?.status, 400, "{target}");
    }
    let robots = get(&cache, "/robots.txt").await?;
    assert_eq!((robots.status, &*robots.text()), (200, "User-agent: *\n"));
    assert_eq!(robots.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(robots.field("x-a"), Some("200"));
    assert_eq!(status(&robots), "forebay; fwd=bypass; detail=rule");
    assert_eq!(origin.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn cache_request_settings_affect_the_lookup() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"deaf\"\nwhen.path = \"/deaf\"\nclient_cache_control = \"ignore\"\n\
         [[site.rule]]\nname = \"edit\"\nwhen.path = \"/edit\"\n\
         cache_request.remove = [\"cache-control\", \"pragma\"]\n\
         [[site.rule]]\nname = \"user\"\nwhen.cookie = [\"sid\"]\nbypass = true\n",
    )
    .await?;
    for target in ["/deaf", "/edit"] {
        get(&cache, target).await?;
        written(&cache).await?;
        let reload = [("Cache-Control", "no-cache"), ("Pragma", "no-cache")];
        assert!(is_hit(&ask_with(&cache, target, &reload).await?), "{target}");
    }
    let fetched = origin.requests();
    get(&cache, "/page").await?;
    written(&cache).await?;
    let bypassed = ask_with(&cache, "/page", &[("Cookie", "sid=1; a=2")]).await?;
    assert_eq!(status(&bypassed), "forebay; fwd=bypass; fwd-status=200; detail=rule");
    let last = origin.received().pop().expect("a request");
    assert_eq!(sent(&last, "cookie").as_deref(), Some("sid=1; a=2"), "a bypass keeps cookies");
    assert_eq!(origin.requests(), fetched + 2);
    Ok(())
}

#[tokio::test]
async fn origin_request_edits_reach_the_origin_alone() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60")]).await?;
    let config = ConfigFile::serving(
        &origin.url(),
        "",
        "[[site.rule]]\nname = \"tiles\"\nwhen.path = \"/t/**\"\n\
         origin_request.set = { authorization = { file = \"token\" } }\n\
         origin_request.query = { key = { file = \"token\" }, v = \"1 2\" }\n",
    )?;
    std::fs::write(config.folder.path().join("token"), "s3cret\n")?;
    let cache = config.serve().await?;
    let reply = get(&cache, "/t/1?a=1&key=x").await?;
    written(&cache).await?;
    let first = origin.first()?;
    assert_eq!(first.target, "/t/1?a=1&key=s3cret&v=1%202");
    assert_eq!(sent(&first, "authorization").as_deref(), Some("s3cret"));
    assert!(!String::from_utf8_lossy(reply.body()).contains("s3cret"));
    assert!(is_hit(&get(&cache, "/t/1?a=1&key=x").await?), "the key has the client's target");
    Ok(())
}

#[tokio::test]
async fn origin_response_settings_decide_what_is_stored() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "no-cache"), ("X-Powered-By", "x")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"ttl\"\nwhen.path = \"/ttl/**\"\nkeep_cookies = []\nttl = \"1h\"\n\
         origin_response.remove = [\"x-powered-by\"]\norigin_response.set = { x-path = \"{path}\" }\n\
         [[site.rule]]\nname = \"never\"\nwhen.path = \"/ttl/never\"\nstore = false\n",
    )
    .await?;
    let first = ask_with(&cache, "/ttl/a", &[("Cookie", "a=1")]).await?;
    written(&cache).await?;
    assert_eq!(sent(&origin.first()?, "cookie"), None, "guarantee G2");
    assert_eq!((first.field("x-powered-by"), first.field("x-path")), (None, Some("/ttl/a")));
    let again = ask_with(&cache, "/ttl/a", &[("Cookie", "a=2")]).await?;
    assert!(is_hit(&again), "{}", status(&again));
    assert_eq!(again.field("x-path"), Some("/ttl/a"));
    get(&cache, "/ttl/never").await?;
    written(&cache).await?;
    let never = get(&cache, "/ttl/never").await?;
    assert!(status(&never).ends_with("detail=rule") || !is_hit(&never), "{}", status(&never));
    Ok(())
}

/// Rules that shape one response only, and rules that may shape a GET, each for its path.
const RULES_OF_POSTS: &str = r#"
[[site.rule]]
name = "all"
client_response.set = { x-a = "1" }
[[site.rule]]
name = "old"
when.header = ["x-old"]
client_cache_control = "ignore"
[[site.rule]]
name = "ttl"
when.path = "/ttl/**"
keep_cookies = []
ttl = "1h"
[[site.rule]]
name = "user"
when = { path = "/user", cookie = ["sid"] }
bypass = true
[[site.rule]]
name = "get"
when = { path = "/get", method = "GET" }
store = false
[[site.rule]]
name = "late"
when = { path = "/late", status = 404 }
ttl = "1h"
"#;

#[tokio::test]
async fn the_response_to_a_post_is_stored_only_if_no_rule_may_shape_a_get() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        Answer::ok(received.serial.to_string())
            .field("Cache-Control", "max-age=60")
            .field("Content-Location", received.target.clone())
    })
    .await?;
    let cache = serve(&origin, RULES_OF_POSTS).await?;
    let shaped = ["/ttl/a", "/user", "/get", "/late"].map(|target| (target, false));
    for (target, expected) in [("/a", true)].into_iter().chain(shaped) {
        let posted = ask(cache.address(), &Request::new("POST", target)).await?;
        assert_eq!(status(&posted).contains("stored"), expected, "{target}: {}", status(&posted));
        assert_eq!(posted.field("x-a"), Some("1"), "{target}");
        written(&cache).await?;
        let read = get(&cache, target).await?;
        assert_eq!(read.text() == posted.text(), expected, "{target}: {}", status(&read));
    }
    Ok(())
}

#[tokio::test]
async fn responses_of_storage_and_all_responses_are_edited() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60"), ("X-Hidden", "1")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"all\"\ncache_response.set = { x-stored = \"yes\" }\n\
         client_response.remove = [\"x-hidden\"]\nbrowser_ttl = \"5s\"\n\
         client_response.set = { x-agent = \"{header.user-agent}\", x-device = \"{device}\" }\n",
    )
    .await?;
    let first = ask_with(&cache, "/a", &[("User-Agent", "curl")]).await?;
    written(&cache).await?;
    assert_eq!((first.field("x-stored"), first.field("x-hidden")), (None, None));
    assert_eq!(first.field("cache-control"), Some("max-age=5"));
    assert_eq!(first.field("x-agent"), Some("curl"));
    let hit = ask_with(&cache, "/a", &[("User-Agent", "Googlebot")]).await?;
    assert!(is_hit(&hit), "{}", status(&hit));
    assert_eq!((hit.field("x-stored"), hit.field("x-hidden")), (Some("yes"), None));
    // Guarantee G1: the edit is of this client's response, and was not stored.
    assert_eq!((hit.field("x-agent"), hit.field("x-device")), (Some("Googlebot"), Some("bot")));
    let age: u64 = hit.field("age").unwrap_or_default().parse()?;
    assert_eq!(hit.field("cache-control"), Some(&*format!("max-age={}", age + 5)));
    Ok(())
}

#[tokio::test]
async fn a_forced_lifetime_shares_only_anonymous_fetches() -> anyhow::Result<()> {
    let origin = numbered(&[]).await?;
    let rule = "[[site.rule]]\nname = \"all\"\nttl = \"1h\"\n";
    let cache = serve(&origin, rule).await?;
    // Guarantee G3.
    let rows = [
        ("/cookie", ("Cookie", "sid=1"), "unkeyed-credentials"),
        ("/authorization", ("Authorization", "Bearer x"), "authorization"),
    ];
    for (target, field, code) in rows {
        let own = ask_with(&cache, target, &[field]).await?;
        assert!(status(&own).ends_with(&format!("detail={code}")), "{}", status(&own));
        let other = get(&cache, target).await?;
        assert!(!is_hit(&other), "{target}");
    }
    get(&cache, "/anonymous").await?;
    written(&cache).await?;
    assert!(is_hit(&ask_with(&cache, "/anonymous", &[("Cookie", "sid=2")]).await?));
    Ok(())
}

#[tokio::test]
async fn prohibitions_hold_unless_they_are_ignored_by_name() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let value = received.path().trim_start_matches('/').replace('_', "-");
        let answer = Answer::ok("x");
        match &*value {
            "set-cookie" => answer.field("Set-Cookie", "sid=1"),
            value => answer.field("Cache-Control", value),
        }
    })
    .await?;
    let words = ["private", "no-store", "set-cookie"];
    let forced = "[[site.rule]]\nname = \"all\"\nttl = \"1h\"\nkeep_cookies = []\n";
    // Guarantee G4.
    let cache = serve(&origin, forced).await?;
    for word in words {
        let target = format!("/{word}");
        get(&cache, &target).await?;
        written(&cache).await?;
        assert!(!is_hit(&get(&cache, &target).await?), "{word}");
    }
    for word in words {
        let cache = serve(&origin, &format!("{forced}unsafe_ignore = [\"{word}\"]\n")).await?;
        for other in words {
            let target = format!("/{other}");
            get(&cache, &target).await?;
            written(&cache).await?;
            let hit = is_hit(&get(&cache, &target).await?);
            assert_eq!(hit, other == word, "{other} with unsafe_ignore = {word}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_stripped_cookie_reaches_no_other_client() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60"), ("Set-Cookie", "sid=1")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"always\"\nwhen.path = \"/always\"\nstrip_set_cookie = \"always\"\n\
         [[site.rule]]\nname = \"stored\"\nwhen.path = \"/stored/**\"\n\
         strip_set_cookie = \"stored\"\ndrop_cookies = [\"sid\"]\n",
    )
    .await?;
    let rows = [("/always", None), ("/stored/a", Some("sid=1"))];
    for (target, expected) in rows {
        let first = get(&cache, target).await?;
        assert_eq!(first.field("set-cookie"), expected, "{target}");
        written(&cache).await?;
        let second = get(&cache, target).await?;
        assert!(is_hit(&second), "{target}: {}", status(&second));
        assert_eq!(second.field("set-cookie"), None, "{target}");
    }
    // A client whose own cookie was dropped would lose its session.
    let own = ask_with(&cache, "/stored/b", &[("Cookie", "sid=9")]).await?;
    assert_eq!(own.field("set-cookie"), None);
    Ok(())
}

#[tokio::test]
async fn conditions_that_are_not_in_the_key_split_it() -> anyhow::Result<()> {
    let origin = numbered(&[]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"beta\"\nwhen = { path = \"/p\", header = [\"x-beta\"] }\n\
         ttl = \"1h\"\norigin_response.set = { x-beta = \"yes\" }\n\
         [[site.rule]]\nname = \"all\"\nttl = \"1h\"\n",
    )
    .await?;
    let beta = [("X-Beta", "1")];
    let first = ask_with(&cache, "/p", &beta).await?;
    written(&cache).await?;
    let other = get(&cache, "/p").await?;
    assert!(!is_hit(&other), "the edited response is of another key");
    assert_eq!((first.field("x-beta"), other.field("x-beta")), (Some("yes"), None));
    written(&cache).await?;
    assert!(is_hit(&get(&cache, "/p").await?) && is_hit(&ask_with(&cache, "/p", &beta).await?));
    // A purge of the URL reaches both.
    let url = format!("http://127.0.0.1:{}/p", cache.address().port());
    let body = format!("{{\"url\":\"{url}\",\"hard\":true}}");
    let purge = crate::world::to_admin(&cache, "POST", "/purge")?
        .field("Content-Type", "application/json")
        .body(body);
    let host = format!("127.0.0.1:{}", cache.address().port());
    let ask_at = |fields: &'static [(&'static str, &'static str)]| {
        let request = Request::get("/p").without_host().field("Host", host.clone());
        fields.iter().fold(request, |request, (name, value)| request.field(name, *value))
    };
    for request in [ask_at(&[]), ask_at(&[("X-Beta", "1")])] {
        ask(cache.address(), &request).await?;
        written(&cache).await?;
        assert!(is_hit(&ask(cache.address(), &request).await?));
    }
    assert_eq!(ask(crate::world::admin_of(&cache)?, &purge).await?.status, 200);
    for request in [ask_at(&[]), ask_at(&[("X-Beta", "1")])] {
        assert!(!is_hit(&ask(cache.address(), &request).await?));
        written(&cache).await?;
    }
    Ok(())
}

#[tokio::test]
async fn no_encoding_of_a_bypassed_path_is_looked_up() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60, public")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"account\"\nwhen.path = \"/account/**\"\nbypass = true\n",
    )
    .await?;
    // Guarantee G7.
    for target in [
        "/account",
        "/account/x.css",
        "/%61ccount/x",
        "/account%2fx.css",
        "/account;x.css",
        "/x/../account",
        "/x/%2e%2e/account",
        "//account",
        "/./account",
        "/account/%2e/x",
        "/account//x",
        "/account%5cx",
    ] {
        for _ in 0..2 {
            let reply = get(&cache, target).await?;
            assert!(status(&reply).ends_with("detail=rule") || reply.status == 400, "{target}");
            written(&cache).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_page_under_the_path_of_a_file_is_not_stored() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let control = if received.path().starts_with("/public") { ", public" } else { "" };
        let kind = if received.path().contains("real") { "text/css" } else { "text/html" };
        let control = format!("max-age=60{control}");
        Answer::ok("x").field("Cache-Control", control).field("Content-Type", kind)
    })
    .await?;
    let cache = serve(&origin, "").await?;
    let rows =
        [("/account/x.css", false), ("/public/x.css", true), ("/real.css", true), ("/p", true)];
    for (target, expected) in rows {
        let first = get(&cache, target).await?;
        let is_refused = status(&first).ends_with("detail=type-mismatch");
        assert_eq!(is_refused, !expected, "{target}: {}", status(&first));
        written(&cache).await?;
        assert_eq!(is_hit(&get(&cache, target).await?), expected, "{target}");
    }
    Ok(())
}

#[tokio::test]
async fn transformations_are_rules_with_the_edits_of_one_phase() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60")]).await?;
    let cache = serve(
        &origin,
        "[[site.transform]]\nurl = \"^/a\"\nphase = \"client-response\"\nset = { x-a = \"1\" }\n\
         [[site.transform]]\nphase = \"origin-request\"\nremove = [\"x-debug\"]\n",
    )
    .await?;
    let reply = ask_with(&cache, "/a", &[("X-Debug", "1")]).await?;
    assert_eq!(reply.field("x-a"), Some("1"));
    assert_eq!(get(&cache, "/b").await?.field("x-a"), None);
    assert_eq!(sent(&origin.first()?, "x-debug"), None);
    Ok(())
}

/// The transformations of the README of Speedis: set and delete fields in each of its six phases,
/// `setCacheControlByStatusCode`, and JSON paths.
#[tokio::test]
async fn the_transformations_of_speedis_work_in_all_six_phases() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let users = r#"[{"name": "a", "hash": "s3cret"}, {"name": "b", "hash": "s3cret"}]"#;
        let serial = received.serial.to_string();
        let answer = Answer::ok(users).field("X-Serial", serial).field("X-Powered-By", "x");
        let answer = answer.field("Content-Type", "application/json");
        answer.field("Cache-Control", "no-cache").field("X-Internal", "1")
    })
    .await?;
    let transform = |phase: &str, edits: &str| {
        format!("[[site.transform]]\nurl = \"^/users\"\nphase = \"{phase}\"\n{edits}\n")
    };
    let rules = [
        "[[site.rule]]\nname = \"users\"\nwhen.url_regex = \"^/users\"\nkeep_cookies = []\n\
         ttl = { \"200\" = \"1h\", \"404\" = \"1m\" }\njson.remove = [\"/*/hash\"]\n"
            .to_owned(),
        transform("client-request", "set = { x-client = \"c\" }\nremove = [\"x-debug\"]"),
        transform("cache-request", "remove = [\"cache-control\"]"),
        transform("origin-request", "set = { x-origin = \"o\" }"),
        transform("origin-response", "set = { x-entry = \"e\" }\nremove = [\"x-powered-by\"]"),
        transform("cache-response", "set = { x-hit = \"h\" }\nremove = [\"x-internal\"]"),
        transform("client-response", "set = { x-all = \"a\" }\nremove = [\"x-serial\"]"),
    ];
    let cache = serve(&origin, &rules.concat()).await?;
    let asked = [("X-Debug", "1"), ("Cache-Control", "no-cache")];
    let first = ask_with(&cache, "/users", &asked).await?;
    written(&cache).await?;
    let hit = ask_with(&cache, "/users", &asked).await?;
    let received = origin.first()?;
    let seen = ["x-client", "x-origin", "x-debug"].map(|name| sent(&received, name));
    assert_eq!(seen, [Some("c".to_owned()), Some("o".to_owned()), None]);
    assert_eq!((origin.requests(), is_hit(&hit)), (1, true), "{}", status(&hit));
    let names = ["x-entry", "x-powered-by", "x-hit", "x-internal", "x-all", "x-serial"];
    let fields = |reply: &Reply| names.map(|name| reply.field(name).map(str::to_owned));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(fields(&first), [some("e"), None, None, some("1"), some("a"), None]);
    assert_eq!(fields(&hit), [some("e"), None, some("h"), None, some("a"), None]);
    for reply in [&first, &hit] {
        assert_eq!(reply.text(), r#"[{"name": "a"}, {"name": "b"}]"#);
    }
    assert_eq!(get(&cache, "/other").await?.field("x-all"), None);
    Ok(())
}

#[tokio::test]
async fn reloads_of_immutable_entries_are_hits() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60, immutable"), ("Age", "5")]).await?;
    let cache = serve(&origin, "").await?;
    get(&cache, "/a").await?;
    written(&cache).await?;
    let reload = ask_with(&cache, "/a", &[("Cache-Control", "max-age=0")]).await?;
    assert!(is_hit(&reload), "{}", status(&reload));
    // RFC 8246 section 2: no-cache demands validation.
    let forced = ask_with(&cache, "/a", &[("Cache-Control", "no-cache")]).await?;
    assert!(!is_hit(&forced), "{}", status(&forced));
    let plain = numbered(&[("Cache-Control", "max-age=60"), ("Age", "5")]).await?;
    let cache = serve(&plain, "").await?;
    get(&cache, "/a").await?;
    written(&cache).await?;
    assert!(!is_hit(&ask_with(&cache, "/a", &[("Cache-Control", "max-age=0")]).await?));
    Ok(())
}

#[tokio::test]
async fn forced_fetches_are_limited() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60"), ("Age", "5")]).await?;
    let cache = serve(&origin, "client_reloads_max = \"0/s\"\n").await?;
    get(&cache, "/a").await?;
    written(&cache).await?;
    for directive in ["no-cache", "max-age=0", "min-fresh=100"] {
        let reply = ask_with(&cache, "/a", &[("Cache-Control", directive)]).await?;
        assert!(status(&reply).ends_with("detail=reload-limited"), "{}", status(&reply));
    }
    assert_eq!(origin.requests(), 1);
    Ok(())
}

/// Starts a cache with one of the examples in front of `origin`.
pub(crate) async fn example(origin: &Origin, name: &str) -> anyhow::Result<Launched> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules");
    let text = std::fs::read_to_string(folder.join(name))?;
    let text = text.replace("http://127.0.0.1:3000", &origin.url());
    let ports = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";
    let config = ConfigFile::of(&format!("{ports}{text}"))?;
    for secret in ["tile-key", "service-token"] {
        std::fs::copy(folder.join(secret), config.folder.path().join(secret))?;
    }
    config.serve().await
}

#[test]
fn the_page_of_examples_prints_each_configuration() -> anyhow::Result<()> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/rules-by-example.md"))?;
    let mut printed = 0;
    for file in std::fs::read_dir(root.join("examples/rules"))? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let block = format!("\n```toml\n{}```\n", std::fs::read_to_string(&path)?);
            assert!(page.contains(&block), "{} differs from the page", path.display());
            printed += 1;
        }
    }
    assert_eq!((printed, page.matches("```toml").count()), (12, 12));
    Ok(())
}

#[tokio::test]
async fn the_examples_share_what_they_describe() -> anyhow::Result<()> {
    type Row = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);
    // Requests of which all but the first are hits, with the cookies of another visitor.
    let cookie = &[("Cookie", "_ga=2")];
    let rows: [Row; 11] = [
        ("02-shop.toml", &["/p?b=1&a=2", "/p?a=2&b=1"], cookie),
        ("03-api.toml", &["/v1/catalogue/1", "/v1/catalogue/1"], &[("Authorization", "Bearer x")]),
        ("05-nextjs.toml", &["/p?_rsc=1", "/p"], &[("Next-Url", "/other")]),
        ("09-npm-mirror.toml", &["/left-pad", "/left-pad"], &[("Authorization", "Bearer x")]),
        ("11-news.toml", &["/", "/"], &[("Cache-Control", "no-cache")]),
        ("01-wordpress.toml", &["/post?utm_source=a", "/post?utm_source=b&fbclid=1"], cookie),
        ("04-images.toml", &["/img/a?w=1&x=2", "/img/a?w=1"], cookie),
        ("07-search.toml", &["/search?q=a&page=2&utm=1", "/search?page=2&q=a"], cookie),
        ("08-single-page-application.toml", &["/a/b", "/c", "/"], cookie),
        ("10-tiles.toml", &["/base/1/2/3.png", "/base/1/2/3.png?x"], cookie),
        ("12-microservices.toml", &["/a", "/a"], &[]),
    ];
    for (name, targets, fields) in rows {
        let origin = numbered(&[("Set-Cookie", "seen=1")]).await?;
        let plain = numbered(&[]).await?;
        let stated = numbered(&[("Cache-Control", "max-age=60")]).await?;
        let origin = match &name[..2] {
            "01" => origin,
            "02" | "05" => stated,
            _ => plain,
        };
        let cache = example(&origin, name).await?;
        let (first, others) = targets.split_first().expect("two targets");
        let reply = ask_with(&cache, first, fields).await?;
        assert_eq!((reply.status, is_hit(&reply)), (200, false), "{name}");
        assert_eq!(reply.field("set-cookie"), None, "{name}");
        written(&cache).await?;
        for target in others {
            let reply = ask_with(&cache, target, fields).await?;
            assert!(is_hit(&reply), "{name} {target}: {}", status(&reply));
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_examples_keep_apart_what_is_private() -> anyhow::Result<()> {
    let origin = numbered(&[]).await?;
    let cache = example(&origin, "01-wordpress.toml").await?;
    let rows: [(&str, &[(&str, &str)]); 5] = [
        ("/post", &[("Cookie", "wordpress_logged_in_x=1")]),
        ("/cart/1", &[]),
        ("/wp-admin", &[]),
        ("/%63art/x.css", &[]),
        ("/post?add-to-cart=1", &[]),
    ];
    for (target, fields) in rows {
        for _ in 0..2 {
            let reply = ask_with(&cache, target, fields).await?;
            assert!(status(&reply).ends_with("detail=rule"), "{target}: {}", status(&reply));
        }
    }
    let cache = example(&origin, "08-single-page-application.toml").await?;
    for target in ["/api/x", "/file.js"] {
        get(&cache, target).await?;
        assert_eq!(origin.received().pop().map(|last| last.target).as_deref(), Some(target));
    }
    Ok(())
}

#[tokio::test]
async fn a_shorter_fetch_timeout_holds_on_a_connection_that_is_kept() -> anyhow::Result<()> {
    let answer = |received: &Received| match received.path() {
        "/hangs" => Answer::hang(),
        _ => Answer::ok("answered"),
    };
    let origin = Origin::start(answer).await?;
    let rule =
        "[[site.rule]]\nname = \"quick\"\nwhen.path = \"/hangs\"\nfetch_timeout = \"200ms\"\n";
    // Each thread has connections of its own.
    let cache = ConfigFile::serving(&origin.url(), "threads = 1", rule)?.serve().await?;
    assert_eq!(get(&cache, "/a").await?.status, 200);
    // The timeout of the site is 30 s, and a call becomes slow after 5 s.
    let failed = tokio::time::timeout(Duration::from_secs(4), get(&cache, "/hangs")).await;
    assert_eq!((failed??.status, origin.requests()), (504, 2));
    Ok(())
}
