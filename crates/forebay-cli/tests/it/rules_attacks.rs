//! Known tricks of cache deception and cache poisoning, without rules and with every example.
//!
//! Sources: Gil, "Web Cache Deception Attack" (2017); Kettle, "Practical Web Cache Poisoning" (2018) and
//! "Web Cache Entanglement" (2020); Nguyen and others, "Your Cache Has Fallen" (CPDoS, 2019); Mirheidari
//! and others, "Cached and Confused" (2020); Doyhenard, "Gotta cache 'em all" (2024).

use forebay_testkit::client::Request;
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::rules::{ask_with, example, serve};
use crate::world::{ask, written};

/// Number of rules that match no request.
const UNMATCHED: usize = 100;

/// Every example, no rules at all, [`UNMATCHED`] rules, and `No-Vary-Search`.
const CONFIGURATIONS: [&str; 15] = [
    "",
    "unmatched",
    "no-vary-search",
    "01-wordpress.toml",
    "02-shop.toml",
    "03-api.toml",
    "04-images.toml",
    "05-nextjs.toml",
    "06-graphql.toml",
    "07-search.toml",
    "08-single-page-application.toml",
    "09-npm-mirror.toml",
    "10-tiles.toml",
    "11-news.toml",
    "12-microservices.toml",
];

async fn cache(origin: &Origin, configuration: &str) -> anyhow::Result<Launched> {
    match configuration {
        "" => serve(origin, "").await,
        "unmatched" => serve(origin, &unmatched()).await,
        "no-vary-search" => serve(origin, "no_vary_search = true\n").await,
        file => example(origin, file).await,
    }
}

fn unmatched() -> String {
    let rule = |n: usize| {
        let lines = match n % 4 {
            0 => format!("when.path = \"/none-{n}/**\"\nttl = \"1h\"\nkeep_cookies = []\n"),
            1 => format!("when.path_regex = \"^/none-{n}/[0-9]+$\"\nstore = false\n"),
            2 => format!("when = {{ path = \"/none-{n}\", cookie = [\"a\"] }}\nbypass = true\n"),
            _ => format!("when.header = {{ x-none-{n} = \"1\" }}\nbrowser_ttl = \"1h\"\n"),
        };
        format!("[[site.rule]]\nname = \"none-{n}\"\n{lines}")
    };
    (0..UNMATCHED).map(rule).collect()
}

/// Paths of deception: the origin sends the page of the user, and a cache that reads the path in
/// another way takes it for a static file.
const DECEPTIONS: [(&str, &str); 40] = [
    ("Gil 2017: file below the page", "/account/x.css"),
    ("Gil 2017: picture below the page", "/account/x.jpg"),
    ("Gil 2017: font below the page", "/account/a/b.woff2"),
    ("Mirheidari 2020: encoded slash", "/account%2Fx.css"),
    ("Mirheidari 2020: encoded line break", "/account%0Ax.css"),
    ("Mirheidari 2020: encoded semicolon", "/account%3Bx.css"),
    ("Mirheidari 2020: encoded hash", "/account%23x.css"),
    ("Mirheidari 2020: encoded question mark", "/account%3Fx.css"),
    ("Mirheidari 2020: encoded NUL", "/account%00x.css"),
    ("Doyhenard 2024: semicolon", "/account;x.css"),
    ("Doyhenard 2024: format suffix", "/account.css"),
    ("Doyhenard 2024: dollar", "/account$x.css"),
    ("Doyhenard 2024: out of a static folder", "/static/..%2faccount"),
    ("Doyhenard 2024: out of an asset folder", "/assets/..%2faccount.js"),
    ("Doyhenard 2024: plain dot segments", "/static/../account"),
    ("Doyhenard 2024: encoded dots", "/img/%2e%2e/account"),
    ("Doyhenard 2024: into a static folder", "/account/..%2fstatic/x.css"),
    ("Doyhenard 2024: all encoded", "/account%2f%2e%2e%2fstatic%2fx.css"),
    ("Doyhenard 2024: name of a known file", "/account/robots.txt"),
    ("Doyhenard 2024: backslash", "/account%5cx.css"),
    ("Mirheidari 2020: encoded letter", "/%61ccount/x.css"),
    ("Mirheidari 2020: upper case escape", "/account%2fx.js"),
    ("Mirheidari 2020: encoded space", "/account%20x.css"),
    ("Mirheidari 2020: encoded tab", "/account%09x.css"),
    ("Mirheidari 2020: encoded ampersand", "/account%26x.css"),
    ("Mirheidari 2020: encoded twice", "/account%252fx.css"),
    ("Doyhenard 2024: encoded dot", "/account/x%2ecss"),
    ("Doyhenard 2024: encoded suffix", "/account%2ecss"),
    ("Doyhenard 2024: empty parameter", "/account;/x.css"),
    ("Doyhenard 2024: parameter of the file", "/account/;x.css"),
    ("Doyhenard 2024: parameter with a suffix", "/account;a=b.css"),
    ("Doyhenard 2024: dots behind a parameter", "/static/..;/account/x.css"),
    ("Doyhenard 2024: encoded way out", "/static/%2e%2e%2faccount%2fx.css"),
    ("Doyhenard 2024: dot segment before the file", "/account/./x.css"),
    ("Doyhenard 2024: encoded dot segment", "/account/%2e/x.css"),
    ("Doyhenard 2024: two slashes before the file", "/account//x.css"),
    ("Doyhenard 2024: encoded slashes", "/account%2f%2fx.css"),
    ("Doyhenard 2024: backslashes", "/account%5c%5cx.css"),
    ("Kettle 2020: two slashes", "//account/x.css"),
    ("Kettle 2020: file in the query", "/account?x.css"),
];

/// Credentials of the victim.
const VICTIM: [(&str, &str); 3] = [
    ("Cookie", "sid=victim"),
    ("Cookie", "a=1; wordpress_logged_in_x=victim; sid=victim"),
    ("Authorization", "Bearer victim"),
];

#[tokio::test]
async fn no_deception_reveals_the_page_of_another_user() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let field = |name| received.fields.first(name).unwrap_or_default().to_owned();
        let page = format!("page of {} {}", field("cookie"), field("authorization"));
        // A page without cache directives, whose date invites a heuristic lifetime.
        Answer::ok(page)
            .field("Content-Type", "text/html")
            .field("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
    })
    .await?;
    for configuration in CONFIGURATIONS {
        let cache = cache(&origin, configuration).await?;
        for (trick, path) in DECEPTIONS {
            for (n, credential) in VICTIM.into_iter().enumerate() {
                let separator = if path.contains('?') { '&' } else { '?' };
                // Each trial has a key of its own, unless the rules remove the parameter.
                for target in [path.to_owned(), format!("{path}{separator}trial={n}")] {
                    ask_with(&cache, &target, &[credential]).await?;
                    written(&cache).await?;
                    for other in [&[][..], &[("Cookie", "sid=thief")]] {
                        let seen = ask_with(&cache, &target, other).await?;
                        let is_leak = seen.text().contains("victim");
                        assert!(!is_leak, "{configuration}: {trick}: {}", seen.text());
                    }
                }
            }
        }
    }
    Ok(())
}

/// Request fields of the attacker that must not change what others get.
const POISONS: [(&str, &str, &str); 16] = [
    ("Kettle 2018: forwarded host", "X-Forwarded-Host", "evil"),
    ("Kettle 2018: forwarded scheme", "X-Forwarded-Proto", "evil"),
    ("Kettle 2018: forwarded port", "X-Forwarded-Port", "evil"),
    ("Kettle 2018: original URL", "X-Original-URL", "/evil"),
    ("Kettle 2018: rewritten URL", "X-Rewrite-URL", "/evil"),
    ("Kettle 2018: Forwarded", "Forwarded", "host=evil;for=6.6.6.6"),
    ("Kettle 2018: address of the client", "X-Forwarded-For", "6.6.6.6"),
    ("Kettle 2018: real address", "X-Real-IP", "6.6.6.6"),
    ("Nguyen 2019: method override", "X-HTTP-Method-Override", "EVIL"),
    ("Kettle 2020: hop-by-hop removal of the host", "Connection", "host, evil"),
    ("Kettle 2020: certificate", "Client-Cert", ":ZXZpbA==:"),
    ("Kettle 2020: proxy credentials", "Proxy-Authorization", "Basic evil"),
    ("Kettle 2018: cookie", "Cookie", "language=evil"),
    ("Nguyen 2019: part of the page", "Range", "bytes=0-3"),
    ("Nguyen 2019: condition", "If-None-Match", "\"evil\""),
    ("Nguyen 2019: expectation", "Expect", "evil"),
];

/// Targets of the attacker, and the target of the victim that they must not answer.
const CLOAKED: [(&str, &str, &str); 8] = [
    ("Kettle 2020: parameter behind a semicolon", "/p?a=1;b=evil", "/p?a=1"),
    ("Kettle 2020: second value", "/p?a=1&a=evil", "/p?a=1"),
    ("Kettle 2020: encoded name", "/p?a=1&%62=evil", "/p?a=1"),
    ("Kettle 2020: value of another parameter", "/p?utm=1;a=evil", "/p?utm=1"),
    ("Kettle 2020: encoded path", "/p%3fa=evil", "/p"),
    ("Kettle 2020: encoded slash", "/p%2fevil", "/p"),
    ("Kettle 2020: delimiter of a key", "/p?x=a__evil", "/p?x=a"),
    ("Kettle 2020: parameter that is not keyed", "/q?utm_content=evil", "/q"),
];

#[tokio::test]
async fn no_poison_reaches_another_client() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let lines: Vec<String> =
            received.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let page = format!("{} {} {}", received.method, received.target, lines.join("\n"));
        let page = page.replace(received.fields.first("x-request-id").unwrap_or_default(), "");
        // Every parameter counts as irrelevant, although the page contains it.
        Answer::ok(page)
            .field("No-Vary-Search", "params")
            .field("Content-Type", "text/html")
            .field("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
    })
    .await?;
    for configuration in CONFIGURATIONS {
        let cache = cache(&origin, configuration).await?;
        for (n, (trick, name, value)) in POISONS.into_iter().enumerate() {
            let target = format!("/page-{n}");
            ask_with(&cache, &target, &[(name, value)]).await?;
            written(&cache).await?;
            let seen = ask_with(&cache, &target, &[]).await?;
            let text = seen.text().to_ascii_lowercase();
            let is_poisoned = ["evil", "6.6.6.6", "zxzpba"].iter().any(|w| text.contains(w));
            assert!(!is_poisoned && seen.status == 200, "{configuration}: {trick}: {text}");
        }
        for (trick, attack, target) in CLOAKED {
            ask_with(&cache, attack, &[]).await?;
            written(&cache).await?;
            let seen = ask_with(&cache, target, &[]).await?;
            assert!(!seen.text().contains("evil"), "{configuration}: {trick}: {}", seen.text());
        }
        // Kettle 2020: a GET with a body; Nguyen 2019: a header that is too large.
        let fat = Request::get("/fat").body("evil=1");
        ask(cache.address(), &fat).await?;
        let large = "e".repeat(70_000);
        // The cache may close the connection before the whole field is sent.
        if let Ok(refused) = ask_with(&cache, "/fat", &[("X-Large", &large)]).await {
            assert_eq!(refused.status, 431, "{configuration}");
        }
        written(&cache).await?;
        let seen = ask_with(&cache, "/fat", &[]).await?;
        assert!(
            seen.status == 200 && !seen.text().contains("content-length: 6"),
            "{configuration}"
        );
    }
    Ok(())
}

/// Number of users of each example.
const USERS: usize = 100;

/// Targets that each user requests; some are private in an example, some are shared.
const VISITED: [&str; 8] = [
    "/",
    "/v1/me/profile",
    "/v1/catalogue/1",
    "/account",
    "/graphql",
    "/search?q=a",
    "/img/a.png",
    "/@acme/package",
];

#[tokio::test]
async fn no_user_gets_the_response_of_another() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let field = |name| received.fields.first(name).unwrap_or_default().to_owned();
        let page = format!("[{}][{}]", field("cookie"), field("authorization"));
        // A response that its origin marks as private for one user, or says nothing about.
        let is_marked = received.serial.is_multiple_of(2);
        let answer = Answer::ok(page).field("Content-Type", "text/plain");
        if is_marked { answer.field("Cache-Control", "private, max-age=60") } else { answer }
    })
    .await?;
    for configuration in CONFIGURATIONS {
        let cache = cache(&origin, configuration).await?;
        for target in VISITED {
            for user in 0..USERS {
                let cookie = format!("sid=user{user}.");
                let token = format!("Bearer user{user}.");
                let fields: [(&str, &str); 2] = [("Cookie", &cookie), ("Authorization", &token)];
                // A third of the users has one of the credentials, a third both.
                let fields = match user % 3 {
                    0 => &fields[..1],
                    1 => &fields[1..],
                    _ => &fields[..],
                };
                let seen = ask_with(&cache, target, fields).await?.text().into_owned();
                let others = seen.replace(&format!("user{user}."), "");
                assert!(!others.contains("user"), "{configuration} {target} user{user}: {seen}");
            }
            written(&cache).await?;
            for _ in 0..2 {
                let seen = ask_with(&cache, target, &[]).await?.text().into_owned();
                assert!(!seen.contains("user"), "{configuration} {target}: {seen}");
            }
        }
    }
    Ok(())
}
