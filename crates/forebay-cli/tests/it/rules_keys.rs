//! Key parts of rules, private caches per user, and purges by requests, in the real binary.

use forebay_testkit::client::Request;
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin, Received};
use forebay_testkit::redis::RedisLaunch;

use crate::cluster::{Caches, purge as purge_at, wait_until};
use crate::rules::{ask_with, numbered, sent, serve, status};
use crate::world::{ConfigFile, ask, get, is_hit, metric, written};

const MAX_AGE: &[(&str, &str)] = &[("Cache-Control", "max-age=60")];

/// Asks twice with the first fields, and once with the second. Returns whether the last two are hits.
async fn pair(
    cache: &Launched,
    target: &str,
    one: &[(&str, &str)],
    other: &[(&str, &str)],
) -> anyhow::Result<(bool, bool)> {
    ask_with(cache, target, one).await?;
    written(cache).await?;
    let again = is_hit(&ask_with(cache, target, one).await?);
    let other = is_hit(&ask_with(cache, target, other).await?);
    written(cache).await?;
    Ok((again, other))
}

#[tokio::test]
async fn fields_and_cookies_in_the_key_keep_responses_apart() -> anyhow::Result<()> {
    let origin = numbered(MAX_AGE).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"key\"\nkeep_cookies = []\n\
         key.headers = [\"x-app\", { x-country = [\"de\", \"fr\"] }]\nkey.cookies = [\"currency\"]\n\
         origin_response.set = { x-for = \"{header.x-app}\" }\n",
    )
    .await?;
    let rows: [(&str, &str, &str, bool); 6] = [
        ("X-App", "1", "2", false),
        ("Cookie", "currency=EUR; a=1", "currency=USD; a=1", false),
        ("Cookie", "currency=EUR; a=1", "b=2; currency=EUR", true),
        ("X-Country", "de", "fr", false),
        ("X-Country", "xx", "yy", true),
        ("X-Other", "1", "2", true),
    ];
    for (n, (name, one, other, shared)) in rows.into_iter().enumerate() {
        let target = format!("/{n}");
        let found = pair(&cache, &target, &[(name, one)], &[(name, other)]).await?;
        assert_eq!(found, (true, shared), "{name}: {one} and {other}");
    }
    // Guarantee G2: the origin sees the values in the key, and no others.
    let received = origin.received();
    let to = |path: &str| received.iter().find(|one| one.path() == path).expect("a request");
    assert_eq!(sent(to("/1"), "cookie").as_deref(), Some("currency=EUR"));
    assert_eq!(sent(to("/3"), "x-country").as_deref(), Some("de"));
    assert_eq!(sent(to("/4"), "x-country"), None);
    let reply = ask_with(&cache, "/0", &[("X-App", "1")]).await?;
    assert_eq!(reply.field("x-for"), Some("1"));
    assert_eq!(reply.field("vary"), Some("x-app, x-country, cookie"));
    Ok(())
}

#[tokio::test]
async fn language_type_and_device_are_chosen_for_key_and_origin() -> anyhow::Result<()> {
    let fields = &[("Cache-Control", "max-age=60"), ("Vary", "User-Agent, Accept")];
    let origin = numbered(fields).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"key\"\nkey.language = [\"en\", \"de\"]\n\
         key.accept = [\"image/avif\", \"image/webp\"]\nkey.device = true\n",
    )
    .await?;
    let phone = "Mozilla/5.0 (iPhone) Mobile/15E148";
    let rows = [
        ("Accept-Language", "de-AT,de;q=0.9", "fr, de;q=0.5", true),
        ("Accept-Language", "de", "en", false),
        ("Accept", "image/avif,*/*", "text/html, image/avif", true),
        ("Accept", "image/avif", "image/webp", false),
        ("User-Agent", phone, "Mozilla/5.0 (Linux; Android 14) Mobile", true),
        ("User-Agent", phone, "Mozilla/5.0 (X11)", false),
    ];
    for (n, (name, one, other, shared)) in rows.into_iter().enumerate() {
        let target = format!("/{n}");
        let found = pair(&cache, &target, &[(name, one)], &[(name, other)]).await?;
        assert_eq!(found, (true, shared), "{name}: {one} and {other}");
    }
    let received = origin.received();
    let to = |path: &str| received.iter().find(|one| one.path() == path).expect("a request");
    assert_eq!(sent(to("/0"), "accept-language").as_deref(), Some("de"));
    assert_eq!(sent(to("/2"), "accept").as_deref(), Some("image/avif"));
    assert_eq!(sent(to("/4"), "x-device").as_deref(), Some("mobile"));
    assert_eq!(sent(to("/2"), "x-device").as_deref(), Some("desktop"));
    Ok(())
}

#[tokio::test]
async fn a_keyed_value_that_the_origin_does_not_get_is_not_in_the_key() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let country = received.fields.first("x-country").unwrap_or("none").to_owned();
        let device = received.fields.first("x-device").unwrap_or("none").to_owned();
        Answer::ok(format!("{country} {device}")).field("Cache-Control", "max-age=60")
    })
    .await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"key\"\nkey = { headers = [\"x-country\"], device = true }\n",
    )
    .await?;
    // A field that Connection names is not forwarded. It would poison the key of another value.
    let attack = [("Connection", "x-country, x-device"), ("X-Country", "de"), ("X-Device", "bot")];
    assert_eq!(ask_with(&cache, "/p", &attack).await?.text(), "none desktop");
    written(&cache).await?;
    assert_eq!(ask_with(&cache, "/p", &[("X-Country", "de")]).await?.text(), "de desktop");
    // Guarantee G2: a long value bypasses the cache, and another request is not affected.
    let long = "x".repeat(257);
    let bypassed = ask_with(&cache, "/p", &[("X-Country", &long)]).await?;
    assert!(status(&bypassed).contains("fwd=bypass"), "{}", status(&bypassed));
    Ok(())
}

#[tokio::test]
async fn keyed_cookies_and_missing_echoes_are_not_stored() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let answer = Answer::ok(received.serial.to_string()).field("Cache-Control", "max-age=60");
        match received.path() {
            "/cookie" => answer.field("Set-Cookie", "currency=EUR; Path=/"),
            "/other" => answer.field("Set-Cookie", "seen=1"),
            "/echo" => answer.field("X-Id", received.fields.first("x-id").unwrap_or("").to_owned()),
            _ => answer.field("X-Id", "fixed"),
        }
    })
    .await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"key\"\nkey = { cookies = [\"currency\"], headers = [\"x-id\"] }\n\
         strip_set_cookie = \"always\"\nunsafe_ignore = [\"set-cookie\"]\n\
         [[site.rule]]\nname = \"echo\"\nwhen.path = [\"/echo\", \"/fixed\"]\nrequire_echo = \"x-id\"\n",
    )
    .await?;
    let id = [("X-Id", "7")];
    // Guarantee G6.
    for (target, code) in [("/cookie", Some("keyed-cookie")), ("/fixed", Some("no-echo"))] {
        let reply = ask_with(&cache, target, &id).await?;
        let detail = status(&reply).rsplit_once("detail=").map(|(_, detail)| detail);
        assert_eq!(detail, code, "{target}");
        written(&cache).await?;
        assert!(!is_hit(&ask_with(&cache, target, &id).await?), "{target}");
    }
    for target in ["/other", "/echo"] {
        assert_eq!(pair(&cache, target, &id, &[]).await?, (true, false), "{target}");
    }
    Ok(())
}

#[tokio::test]
async fn each_user_has_a_cache_of_their_own() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let user = received.fields.first("authorization").unwrap_or("nobody").to_owned();
        let answer = Answer::ok(format!("{user} {}", received.serial));
        match received.path() {
            "/me/private" => answer.field("Cache-Control", "private, max-age=60"),
            "/me/no-store" => answer.field("Cache-Control", "no-store"),
            _ => answer,
        }
    })
    .await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"me\"\nwhen.path = \"/me/**\"\nper_user = \"authorization\"\n\
         keep_cookies = []\nttl = \"30s\"\n",
    )
    .await?;
    let (ann, bob) = (("Authorization", "Bearer ann"), ("Authorization", "Bearer bob"));
    for target in ["/me/a", "/me/private"] {
        // Guarantee G5.
        assert_eq!(pair(&cache, target, &[ann], &[bob]).await?, (true, false), "{target}");
        for (user, name) in [(ann, "Bearer ann"), (bob, "Bearer bob")] {
            let own = ask_with(&cache, target, &[user, ("Cookie", "_ga=1")]).await?;
            assert!(is_hit(&own) && own.text().starts_with(name), "{target}: {}", own.text());
        }
    }
    assert_eq!(pair(&cache, "/me/no-store", &[ann], &[ann]).await?, (false, false));
    // Without a credential there is no user, and `private` prohibits storing.
    assert_eq!(pair(&cache, "/me/private", &[], &[]).await?, (false, false));
    assert_eq!(pair(&cache, "/me/a", &[], &[]).await?, (true, true));
    Ok(())
}

#[tokio::test]
async fn another_credential_ends_the_private_cache() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "private, max-age=60")]).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"me\"\nper_user = { cookie = \"sid\" }\nttl = \"30s\"\n",
    )
    .await?;
    let rows: [(&[(&str, &str)], bool); 4] = [
        (&[("Cookie", "sid=1")], true),
        (&[("Cookie", "sid=1; other=2")], false),
        (&[("Cookie", "sid=1"), ("Authorization", "Basic eA==")], false),
        (&[("Cookie", "other=2")], false),
    ];
    for (n, (fields, stored)) in rows.into_iter().enumerate() {
        let target = format!("/{n}");
        assert_eq!(pair(&cache, &target, fields, fields).await?, (stored, stored), "{fields:?}");
    }
    Ok(())
}

#[tokio::test]
async fn fields_of_other_products_control_storing_and_are_removed() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let answer = Answer::ok(received.serial.to_string());
        match received.path() {
            "/surrogate" => answer
                .field("Surrogate-Control", "max-age=60")
                .field("Cache-Control", "private, no-store"),
            "/accel" => answer.field("X-Accel-Expires", "60").field("Cache-Control", "max-age=0"),
            "/private" => answer.field("X-Accel-Expires", "60").field("Cache-Control", "private"),
            _ => answer.field("X-Accel-Expires", "0").field("Cache-Control", "max-age=60"),
        }
    })
    .await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"fields\"\n\
         targeted_fields = [\"surrogate-control\", \"x-accel-expires\"]\n",
    )
    .await?;
    for (target, stored) in
        [("/surrogate", true), ("/accel", true), ("/private", false), ("/zero", false)]
    {
        for n in 0..2 {
            let reply = get(&cache, target).await?;
            assert_eq!(is_hit(&reply), n == 1 && stored, "{target}: {}", status(&reply));
            for name in ["surrogate-control", "x-accel-expires", "cdn-cache-control"] {
                assert_eq!(reply.field(name), None, "{target}: {name}");
            }
            written(&cache).await?;
        }
    }
    Ok(())
}

async fn purge(cache: &Launched, target: &str, fields: &[(&str, &str)]) -> anyhow::Result<u16> {
    let request = Request::new("PURGE", target);
    let request = fields.iter().fold(request, |request, (name, value)| request.field(name, *value));
    Ok(ask(cache.address(), &request).await?.status)
}

#[tokio::test]
async fn a_purge_request_reaches_all_key_parts() -> anyhow::Result<()> {
    let origin = numbered(MAX_AGE).await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"key\"\nkey.headers = [\"x-app\"]\nignore_query = [\"utm\"]\n\
         [[site.rule]]\nname = \"purge\"\nwhen = { method = \"PURGE\", client = [\"127.0.0.1\"] }\n\
         purge.hard = true\n",
    )
    .await?;
    for app in ["1", "2"] {
        let fields = [("X-App", app)];
        assert!(pair(&cache, "/p", &fields, &[("X-App", "3")]).await?.0);
    }
    // Guarantee G10.
    assert_eq!(purge(&cache, "/p?utm=x", &[]).await?, 200);
    for app in ["1", "2", "3"] {
        assert!(!is_hit(&ask_with(&cache, "/p", &[("X-App", app)]).await?), "{app}");
    }
    written(&cache).await?;
    // An unsafe request reaches them as well.
    ask(cache.address(), &Request::new("POST", "/p").body("x")).await?;
    for app in ["1", "2", "3"] {
        assert!(!is_hit(&ask_with(&cache, "/p", &[("X-App", app)]).await?), "{app}");
    }
    Ok(())
}

#[tokio::test]
async fn a_purge_needs_a_right() -> anyhow::Result<()> {
    let origin = numbered(MAX_AGE).await?;
    let config = ConfigFile::serving(
        &origin.url(),
        "",
        "[[site.rule]]\nname = \"away\"\nwhen = { method = \"PURGE\", client = [\"192.0.2.1\"] }\n\
         purge.hard = true\n\
         [[site.rule]]\nname = \"token\"\nwhen = { path = \"/t/**\", method = \"PURGE\" }\n\
         purge = { hard = true, token_file = \"token\", token_header = \"x-token\" }\n",
    )?;
    std::fs::write(config.folder.path().join("token"), "s3cret\n")?;
    let cache = config.serve().await?;
    // Guarantee G11: a purge without a right is refused, and not forwarded.
    for fields in [&[][..], &[("X-Token", "s3cre")], &[("X-Token", "s3cret"), ("X-Token", "a")]] {
        assert_eq!(purge(&cache, "/t/x", fields).await?, 403, "{fields:?}");
    }
    assert_eq!(purge(&cache, "/x", &[("X-Token", "s3cret")]).await?, 403);
    assert_eq!(origin.requests(), 0);
    assert_eq!(pair(&cache, "/t/x", &[], &[]).await?, (true, true));
    assert_eq!(purge(&cache, "/t/x", &[("X-Token", "s3cret")]).await?, 200);
    assert!(!is_hit(&get(&cache, "/t/x").await?));
    Ok(())
}

#[tokio::test]
async fn tags_of_rules_are_purged() -> anyhow::Result<()> {
    let origin = Origin::start(|received: &Received| {
        let tag = format!("cat_{},all", received.path().trim_start_matches('/'));
        let answer = Answer::ok(received.serial.to_string()).field("X-Magento-Tags", tag);
        answer.field("Cache-Control", "max-age=60")
    })
    .await?;
    let cache = serve(
        &origin,
        "[[site.rule]]\nname = \"tags\"\ntag_fields = [\"x-magento-tags\"]\ntags = [\"shop\"]\n\
         [[site.rule]]\nname = \"purge\"\nwhen = { method = \"PURGE\", client = [\"127.0.0.1\"] }\n\
         purge = { hard = true, tags = \"x-magento-tags-pattern\", format = \"magento\" }\n",
    )
    .await?;
    let rows = [
        ("((^|,)cat_a(,|$))", [false, true, true]),
        ("((^|,)cat_a(,|$))|((^|,)cat_b(,|$))", [false, false, true]),
        ("((^|,)shop(,|$))", [false; 3]),
        (".*", [false; 3]),
    ];
    for (pattern, hits) in rows {
        for target in ["/a", "/b", "/c"] {
            get(&cache, target).await?;
        }
        written(&cache).await?;
        let fields = [("X-Magento-Tags-Pattern", pattern)];
        assert_eq!(purge(&cache, "/", &fields).await?, 200, "{pattern}");
        for (target, expected) in ["/a", "/b", "/c"].into_iter().zip(hits) {
            assert_eq!(is_hit(&get(&cache, target).await?), expected, "{pattern} {target}");
        }
        written(&cache).await?;
    }
    assert_eq!(purge(&cache, "/", &[("X-Magento-Tags-Pattern", "a|b")]).await?, 400);
    Ok(())
}

/// Guarantee G10 on every instance.
#[tokio::test]
async fn a_purge_of_a_url_reaches_all_key_parts_on_every_instance() -> anyhow::Result<()> {
    let origin = numbered(MAX_AGE).await?;
    let redis = RedisLaunch::new().start().await?;
    let rules = "[[site.rule]]\nname = \"key\"\nkey = { headers = [\"x-app\"], cookies = [\"c\"] }\n\
                 keep_cookies = []\nignore_query = [\"utm\"]\n\
                 [[site.rule]]\nname = \"beta\"\nwhen.header = { x-beta = \"1\" }\nmax_ttl = \"50s\"\n";
    let caches = Caches::start_with(3, &origin, &redis.url(), "", rules).await?;
    let parts: [&[(&str, &str)]; 5] = [
        &[],
        &[("X-App", "1")],
        &[("X-App", "2"), ("Cookie", "c=1")],
        &[("Cookie", "c=2; other=3")],
        &[("X-Beta", "1")],
    ];
    for (round, is_hard) in [(1, false), (2, true)] {
        let mut before = Vec::new();
        for fields in parts {
            // One instance fetches, and the others have it from Redis.
            for cache in caches.all() {
                ask_with(cache, "/p", fields).await?;
                written(cache).await?;
                let hit = ask_with(cache, "/p", fields).await?;
                assert!(is_hit(&hit), "{fields:?}");
                before.push(hit.text().into_owned());
            }
        }
        let url = ["--url", "http://test.example/p?utm=x", "--hard"];
        let args = if is_hard { &url[..] } else { &url[..2] };
        let (code, said) = purge_at(caches.at(1), args).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("instances: 3"), "{said}");
        // The keys of the URL and of its parts; the bus carries them after the tags.
        let begun = std::time::Instant::now();
        for other in [caches.at(0), caches.at(2)] {
            let received = "forebay_invalidations_received_total";
            while metric(other, received, "kind=\"key\"").await? < 2 * round {
                wait_until(begun, "the purge is received").await?;
            }
        }
        for fields in parts {
            for cache in caches.all() {
                let seen = ask_with(cache, "/p", fields).await?;
                assert!(!before.contains(&seen.text().into_owned()), "{round} {fields:?}");
                written(cache).await?;
            }
        }
    }
    Ok(())
}
