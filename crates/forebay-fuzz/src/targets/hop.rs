//! Target: hop-by-hop fields, `Via`, and forwarding fields that clients may forge.

use std::net::{IpAddr, Ipv4Addr};

use forebay_semantics::Scheme;
use forebay_semantics::forwarding::{Sender, write_forwarded};
use forebay_semantics::hop::{PASSES_MAX, add_via, loops, strip_hop_by_hop};
use forebay_semantics::trailers::{announced, strip_trailers};
use http::header::TRAILER;
use http::{HeaderMap, HeaderValue, Version};

use crate::block::{Block, backwards};
use crate::run::{Outcome, Target};

/// Fields that `Connection` cannot remove.
const KEPT: &[&str] = &[
    "authorization",
    "cache-control",
    "content-length",
    "cookie",
    "host",
    "range",
    "set-cookie",
    "vary",
    "x-forwarded-for",
];

/// Fields that are never forwarded.
const GONE: &[&str] =
    &["connection", "keep-alive", "proxy-authorization", "te", "transfer-encoding", "upgrade"];

/// Fuzz target for hop-by-hop fields, `Via`, trailers and forwarding fields.
pub const TARGET: Target = Target { check, outcomes_min: 8 };

fn check(input: &[u8]) -> Outcome {
    let headers = Block::read(input).headers;
    let mut stripped = headers.clone();
    strip_hop_by_hop(&mut stripped);
    assert_stripped(&headers, &stripped);
    assert_counted(&stripped);
    assert_announced(&headers);
    let told = assert_told(&stripped);
    let removed = headers.keys_len() - stripped.keys_len();
    Outcome::of((removed.min(4), stripped.keys_len().min(4), loops(&headers), told.min(2)))
}

fn assert_stripped(headers: &HeaderMap, stripped: &HeaderMap) {
    let mut twice = stripped.clone();
    strip_hop_by_hop(&mut twice);
    assert_eq!(twice, *stripped, "twice is once");
    let mut turned = backwards(headers);
    strip_hop_by_hop(&mut turned);
    assert!(turned.keys().all(|name| stripped.contains_key(name)), "lines in another order");
    assert!(GONE.iter().all(|name| !stripped.contains_key(*name)), "{stripped:?}");
    for (name, _) in stripped {
        assert!(stripped.get_all(name).iter().eq(headers.get_all(name).iter()), "{name} changed");
    }
    let options: Vec<Vec<u8>> = headers
        .get_all("connection")
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(|option| option.trim_ascii().to_ascii_lowercase())
        .collect();
    for name in headers.keys() {
        let is_named = options.iter().any(|option| option == name.as_str().as_bytes());
        let is_ours = KEPT.contains(&name.as_str());
        assert!(!is_ours || stripped.contains_key(name), "{name} was taken away");
        let is_plain = name.as_str().starts_with("x-a");
        assert!(!is_plain || stripped.contains_key(name) != is_named, "{name}");
    }
}

/// Asserts that announced trailers are allowed, and are announced again unchanged.
fn assert_announced(headers: &HeaderMap) {
    let Some(value) = announced(headers) else { return };
    let names = value.to_str().expect("names are plain text").split(", ");
    let mut trailers: HeaderMap =
        names.map(|name| (name.parse().expect("a name"), HeaderValue::from_static("x"))).collect();
    let before = trailers.clone();
    strip_trailers(&mut trailers);
    assert_eq!(trailers, before, "nothing that has to go is announced");
    let again: HeaderMap = [(TRAILER, value.clone())].into_iter().collect();
    assert_eq!(announced(&again), Some(value));
}

/// Asserts that each pass through the cache counts once.
fn assert_counted(headers: &HeaderMap) {
    let mut passing = headers.clone();
    let mut passes = 0;
    while !loops(&passing) {
        assert!(passes <= PASSES_MAX, "it goes in circles for ever");
        add_via(&mut passing, Version::HTTP_11);
        passes += 1;
    }
    add_via(&mut passing, Version::HTTP_10);
    assert!(loops(&passing), "one more pass is no fewer");
}

/// Asserts that the origin gets the known forwarding fields and none that the client forged;
/// returns the number of forged ones.
fn assert_told(headers: &HeaderMap) -> usize {
    let mut told = HeaderMap::new();
    let sender = Sender {
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)).into(),
        proxies: &[],
        scheme: Scheme::Http,
        certificate: None,
        claim: None,
        is_forwarded_added: false,
    };
    let host = headers.get("host").and_then(|host| host.to_str().ok());
    write_forwarded(headers, |_| true, &sender, host, &mut told);
    let is_claim = |name: &str| name.replace('_', "-").starts_with("x-forwarded");
    for (name, value) in told.iter().filter(|(name, _)| is_claim(name.as_str())) {
        let known = match name.as_str() {
            "x-forwarded-for" => value == "192.0.2.7",
            "x-forwarded-proto" => value == "http",
            "x-forwarded-host" => host.is_some_and(|host| value == host),
            _ => false,
        };
        assert!(known, "{name}: {value:?}");
        assert_eq!(told.get_all(name).iter().count(), 1, "{name}");
    }
    assert!(!told.contains_key("forwarded") && told.contains_key("x-forwarded-for"));
    headers.keys().filter(|name| is_claim(name.as_str())).count()
}
