//! `forebay check FILE --explain URL --json` compared with what the running cache does.

use std::collections::HashSet;

use forebay_testkit::client::Request;
use forebay_testkit::origin::{Answer, Origin, Received};
use serde_json::Value;

use crate::world::{BINARY, ConfigFile, ask, is_hit, written};

/// Number of requests; `cargo xtask soak rules-explain` sets it.
const CASES: &str = "FOREBAY_EXPLAIN_CASES";
const CASES_DEFAULT: u64 = 60;

const RULES: &str = r#"
[[site.rule]]
name = "pages"
when.path = "/p/**"
ignore_query = ["utm_*"]
keep_cookies = ["currency"]
key.cookies = ["currency"]
ttl = "10h"

[[site.rule]]
name = "search"
when.path = "/search"
keep_query = ["q", "page"]
sort_query = true
keep_cookies = []
ttl = "2h"

[[site.rule]]
name = "account"
when = [{ path = "/p/account/**" }, { cookie = ["session"] }]
bypass = true

[[site.rule]]
name = "open"
when.path = "/p/account/open"
bypass = false

[[site.rule]]
name = "app"
when.path = ["/p/app/**", "/plain"]
key.headers = ["x-app", { x-country = ["de"] }]
key.language = ["en", "de"]

[[site.rule]]
name = "beta"
when = { path = "/p/**", header = { x-beta = "1" } }
max_ttl = "1h"

[[site.rule]]
name = "moved"
when.path = "/old/**"
redirect = { from = "^/old/(.*)$", to = "/p/$1", status = 301 }

[[site.rule]]
name = "robots"
when.path = "/robots.txt"
respond = { body = "none" }
"#;

const PATHS: [&str; 14] = [
    "/p/1",
    "/p/2",
    "/p/app/x",
    "/p/account/me",
    "/p/account/open",
    "/p/x/../account/me",
    "/p/%61ccount/me",
    "//p/1",
    "/search",
    "/plain",
    "/other",
    "/old/a",
    "/robots.txt",
    "/p/app;x/y",
];

const QUERIES: [&str; 8] =
    ["", "", "?utm_source=x", "?q=1&page=2", "?page=2&q=1", "?q=1&utm_a=2", "?a=1", "?Q=1"];

const FIELDS: [(&str, &str); 11] = [
    ("Cookie", "currency=EUR"),
    ("Cookie", "currency=USD; _ga=1"),
    ("Cookie", "_ga=1; a=2"),
    ("Cookie", "session=s"),
    ("X-App", "1"),
    ("X-App", "2"),
    ("X-Country", "de"),
    ("X-Country", "fr"),
    ("Accept-Language", "de, en;q=0.5"),
    ("Accept-Language", "fr"),
    ("X-Beta", "1"),
];

/// Numbers that are equal in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % end
    }
}

/// Fields of one request: at most one with each name.
fn fields(numbers: &mut Numbers) -> Vec<(&'static str, &'static str)> {
    let mut fields: Vec<(&str, &str)> = Vec::new();
    for _ in 0..numbers.below(4) {
        let field = FIELDS[numbers.below(FIELDS.len())];
        if fields.iter().all(|(name, _)| *name != field.0) {
            fields.push(field);
        }
    }
    fields
}

async fn explained(
    file: &ConfigFile,
    target: &str,
    fields: &[(&str, &str)],
) -> anyhow::Result<Value> {
    let mut command = tokio::process::Command::new(BINARY);
    command.arg("check").arg(&file.path).args(["--json", "--client", "127.0.0.1"]);
    command.args(["--explain", &format!("http://test.example{target}")]);
    for (name, value) in fields {
        command.args(["-H", &format!("{name}: {value}")]);
    }
    let output = command.output().await?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the lifetime in seconds that the explained settings give a response with a day of its own.
fn lifetime(explained: &Value) -> f64 {
    let settings = explained["settings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let value = |name: &str| {
        let setting = settings.iter().find(|setting| setting["name"] == name)?;
        setting["value"].as_str()
    };
    match (value("max_ttl"), value("ttl")) {
        (Some("1h"), _) => 3_600.0,
        (None, Some("2h")) => 7_200.0,
        (None, Some("10h")) => 36_000.0,
        (None, None) => 86_400.0,
        other => panic!("{other:?}"),
    }
}

/// Returns true if a response is stored with about this lifetime: those of rules are spread by 5 %.
fn is_stored_for(said: &str, seconds: f64) -> bool {
    let ttl = said.split("; ").find_map(|part| part.strip_prefix("ttl=")?.parse::<f64>().ok());
    said.contains("; stored")
        && ttl.is_some_and(|ttl| (ttl - seconds).abs() <= seconds * 0.05 + 1.0)
}

#[tokio::test]
async fn an_explanation_of_rules_equals_what_the_cache_does() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        Answer::ok(received.serial.to_string()).field("Cache-Control", "max-age=86400")
    })
    .await?;
    let file = ConfigFile::serving(&origin.url(), "", RULES)?;
    let cache = file.serve().await?;
    let cases = std::env::var(CASES).ok().and_then(|cases| cases.parse().ok());
    let (mut numbers, mut stored, mut hits) = (Numbers(7), HashSet::new(), 0);
    for case in 0..cases.unwrap_or(CASES_DEFAULT) {
        let path = PATHS[numbers.below(PATHS.len())];
        let target = format!("{path}{}", QUERIES[numbers.below(QUERIES.len())]);
        let fields = fields(&mut numbers);
        let what = format!("case {case}: {target} {fields:?}");
        let explained = explained(&file, &target, &fields).await?;
        let lookup = explained["lookup"].as_str().unwrap_or_default();
        let before = origin.requests();
        let request = fields
            .iter()
            .fold(Request::get(&target), |request, (name, value)| request.field(name, *value));
        let reply = ask(cache.address(), &request).await?;
        written(&cache).await?;
        let said = reply.field("cache-status").unwrap_or_default();
        let what = format!("{what}\n{said}\n{explained:#}");
        if let Some(ended) =
            lookup.strip_prefix("no: redirect ").or_else(|| lookup.strip_prefix("no: response "))
        {
            assert_eq!(reply.status.to_string(), ended, "{what}");
            assert_eq!(origin.requests(), before, "{what}");
            continue;
        }
        if lookup == "yes" && !stored.insert(explained["key"].to_string()) {
            assert!(is_hit(&reply) && origin.requests() == before, "{what}");
            hits += 1;
            continue;
        }
        assert_eq!(origin.requests(), before + 1, "{what}");
        let received = origin.received().pop().unwrap_or_else(|| panic!("{what}"));
        assert_eq!(received.target, explained["target"].as_str().unwrap_or_default(), "{what}");
        let sent = fields.iter().find(|(name, _)| *name == "Cookie").map_or("", |(_, value)| value);
        let is_dropped = |cookie: &&str| {
            let dropped = explained["dropped_cookies"].as_array().into_iter().flatten();
            let name = cookie.split('=').next();
            dropped.clone().any(|one| one.as_str() == name)
        };
        let kept: Vec<&str> =
            sent.split("; ").filter(|one| !one.is_empty() && !is_dropped(one)).collect();
        assert_eq!(received.fields.first("cookie").unwrap_or_default(), kept.join("; "), "{what}");
        match lookup {
            "yes" => assert!(is_stored_for(said, lifetime(&explained)), "{what}"),
            _ => assert!(said.contains("fwd=bypass") && lookup == "no: bypass (account)", "{what}"),
        }
    }
    assert!(hits > 0, "some keys are equal");
    Ok(())
}
