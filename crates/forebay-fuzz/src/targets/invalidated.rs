//! Target: invalidation by unsafe requests, compared with the RFC's algorithm.

use forebay_semantics::{Target as Asked, also_invalidated};
use http::HeaderMap;

use crate::block::{Block, one};
use crate::run::{Outcome, Target};

const AUTHORITY: &str = "shop.example";

/// Maximum length of a reference that is read.
const REFERENCE_READ: usize = 8 * 1024;

/// Fuzz target for the targets that `Location` and `Content-Location` invalidate.
pub const TARGET: Target = Target { check, outcomes_min: 6 };

fn check(input: &[u8]) -> Outcome {
    let (request, answer) = Block::pair(input);
    let target = request.text("target").filter(|target| is_target(target)).unwrap_or("/a/b");
    let asked = Asked { scheme: "http", authority: AUTHORITY, path_and_query: target };
    let found = also_invalidated(asked, &answer.headers);
    assert!(found.len() <= 2, "{found:?}");
    assert!(found.len() < 2 || found[0] != found[1], "each once: {found:?}");
    for other in &found {
        assert_target(asked, other);
    }
    for name in ["location", "content-location"] {
        assert_resolved(asked, &answer.headers, name);
    }
    let foreign = Asked { authority: "elsewhere.example", ..asked };
    let absolute = answer.headers.values().all(|value| value.as_bytes().starts_with(b"http://s"));
    if absolute {
        assert!(also_invalidated(foreign, &answer.headers).is_empty(), "of another origin");
    }
    let queries = found.iter().filter(|other| other.contains('?')).count();
    Outcome::of((found.len(), queries, answer.headers.len().min(3)))
}

/// Returns whether the HTTP front end accepts `text` as path and query.
fn is_target(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

fn assert_target(asked: Asked<'_>, other: &str) {
    assert!(other.starts_with('/') && !other.contains('#'), "{other}");
    assert_ne!(other, asked.path_and_query, "that one is invalid anyway");
    let path = other.split_once('?').map_or(other, |(path, _)| path);
    assert!(!path.split('/').any(|segment| matches!(segment, "." | "..")), "{other}");
    let absolute = format!("http://{}{other}", asked.authority);
    if absolute.len() > REFERENCE_READ {
        return;
    }
    let again = one("location", absolute.as_bytes()).map(|only| also_invalidated(asked, &only));
    assert_eq!(again.as_deref(), Some(&[other.to_owned()][..]), "written and read again");
}

/// Asserts that a reference that is only a path resolves as in RFC 3986 section 5.2.
fn assert_resolved(asked: Asked<'_>, answer: &HeaderMap, name: &'static str) {
    let mut lines = answer.get_all(name).into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return };
    let Ok(reference) = line.to_str() else { return };
    let is_path = !reference.contains([' ', '\t', ':', '?', '#']) && !reference.starts_with("//");
    if !is_path || reference.is_empty() || reference.len() > 1024 {
        return;
    }
    let base = asked.path_and_query.split_once('?').map_or(asked.path_and_query, |(path, _)| path);
    let merged = match (reference.starts_with('/'), base.rfind('/')) {
        (false, Some(slash)) => format!("{}{reference}", &base[..=slash]),
        _ => reference.to_owned(),
    };
    let expected = without_dot_segments(&merged);
    let only = one(name, reference.as_bytes()).unwrap_or_default();
    let found = also_invalidated(asked, &only);
    let is_same = expected == asked.path_and_query;
    assert_eq!(found.first(), (!is_same).then_some(&expected), "{reference:?} from {base:?}");
}

/// Removes dot segments (RFC 3986 section 5.2.4, steps 2A to 2E). The path begins with a slash.
fn without_dot_segments(path: &str) -> String {
    let (mut input, mut output) = (path.to_owned(), String::new());
    while !input.is_empty() {
        if input.starts_with("/./") || input == "/." {
            input = format!("/{}", input.get(3..).unwrap_or_default());
        } else if input.starts_with("/../") || input == "/.." {
            input = format!("/{}", input.get(4..).unwrap_or_default());
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |at| at + 1);
            output.push_str(&input[..end]);
            input.drain(..end);
        }
    }
    output
}
