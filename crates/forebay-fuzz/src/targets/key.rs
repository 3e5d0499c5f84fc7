//! Target: normalization of authority and target for the key and the origin.

use std::sync::{Arc, LazyLock};

use forebay_http::key::{inner_target, primary, target};
use forebay_http::normalise_authority;
use forebay_http::{Site, SiteSettings};
use forebay_semantics::Scheme;
use http::uri::Authority;

use crate::run::{Outcome, Target};

/// Fuzz target for the normalization of authority and target.
pub const TARGET: Target = Target { check, outcomes_min: 8 };

/// Checks an input of two lines: the authority and the target.
fn check(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let (authority, asked) = text.split_once('\n').unwrap_or((&text, ""));
    let normal = normalise_authority(Scheme::Http, authority);
    assert_authority(authority, normal.as_deref());
    let rooted = asked.starts_with('/') && asked.is_ascii();
    let marks = SITES.iter().map(|site| rooted.then(|| assert_target(site, asked)).flatten());
    let marks: Vec<_> = marks.collect();
    Outcome::of((normal.map(|normal| normal.contains(':')), marks))
}

fn assert_authority(text: &str, normal: Option<&str>) {
    assert_eq!(
        normalise_authority(Scheme::Http, &text.to_ascii_lowercase()).as_deref(),
        normal,
        "lower case"
    );
    assert_eq!(
        normalise_authority(Scheme::Http, &text.to_ascii_uppercase()).as_deref(),
        normal,
        "upper case"
    );
    let Some(normal) = normal else { return };
    assert_eq!(normalise_authority(Scheme::Http, normal).as_deref(), Some(normal), "twice is once");
    assert!(!normal.is_empty() && !normal.contains(['@', '/', '?', '#', ' ']), "{normal:?}");
    assert!(!normal.ends_with(":80") && !normal.ends_with(':'), "{normal:?}");
    assert!(!normal.bytes().any(|byte| byte.is_ascii_uppercase()), "{normal:?}");
    let parsed = normal.parse::<Authority>();
    assert!(parsed.is_ok(), "{normal:?}: {parsed:?}");
    if !normal.contains("]:") && !normal.rsplit(']').next().is_some_and(|end| end.contains(':')) {
        let with_port = format!("{normal}:80");
        let without = normalise_authority(Scheme::Http, &with_port);
        assert_eq!(without.as_deref(), Some(normal), "the port that goes without saying");
    }
}

/// Asserts properties of a site's normalized target; returns a mark of the result.
fn assert_target(site: &Site, asked: &str) -> Option<(bool, bool)> {
    let made = target(site, asked)?;
    assert!(made.starts_with(['/', '*']), "{made}");
    assert!(made.len() <= asked.len() + 1, "{made}");
    assert_eq!(inner_target(site, &made), made, "twice is once");
    if let Some((path, query)) = made.split_once('?') {
        let swapped = query.rsplit('&').collect::<Vec<_>>().join("&");
        let swapped = inner_target(site, &format!("{path}?{swapped}")).into_owned();
        assert!(!site.settings.sort_query || swapped == made, "{swapped} and {made}");
        let is_ignored = |name: &str| name.starts_with("utm_") || name == "fbclid";
        let ignores = !site.settings.ignore_query.is_empty();
        let name = |parameter: &str| is_ignored(parameter.split('=').next().unwrap_or_default());
        assert!(!ignores || !query.split('&').any(name), "{made}");
    }
    let key = primary(site, Scheme::Http, "shop.example", &made);
    let parts: Vec<&[u8]> = key.borrowed().parts().collect();
    let expected = [site.settings.id.as_bytes(), b"http", b"shop.example"];
    assert_eq!(parts, [&expected[..], &[made.as_bytes()]].concat(), "the key holds just these");
    Some((made.contains('?'), made == asked))
}

/// Sites: plain, with ignored parameters, sorted, and all of these with a prefix.
static SITES: LazyLock<[Arc<Site>; 4]> = LazyLock::new(|| {
    let plain = SiteSettings::new("fuzz", Authority::from_static("127.0.0.1:1"));
    let ignore_query: Vec<Box<str>> = vec!["utm_*".into(), "fbclid".into()];
    let ignoring = SiteSettings { ignore_query, ..plain.clone() };
    let sorted = SiteSettings { sort_query: true, ..plain.clone() };
    let all = SiteSettings { prefix: Some("/shop".into()), sort_query: true, ..ignoring.clone() };
    [plain, ignoring, sorted, all].map(Site::new)
});
