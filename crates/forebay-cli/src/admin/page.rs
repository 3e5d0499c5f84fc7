//! Files of the dashboard. They are compressed when forebay is built, and contain no data.

use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

use super::format;
use crate::small_server::{Answer, text};

/// Rules for the browser: only files of this listener, and no code in texts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' \
                      data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Caching of a file whose path changes with its content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// Path of the files other than the page; the digest of all of them follows.
const FOLDER: &str = "/assets/";

/// File of the dashboard.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    raw: &'static [u8],
    gzip: &'static [u8],
}

// The build script writes `PAGE`, `FILES` and `DIGEST`.
include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Returns the page.
pub(super) fn page(headers: &HeaderMap) -> Answer {
    answer(&PAGE, headers)
}

/// Returns `true` if the path is of a file of the dashboard.
pub(super) fn is_file(path: &str) -> bool {
    find(path).is_some()
}

/// Returns a file of the dashboard.
pub(super) fn file(path: &str, headers: &HeaderMap) -> Option<Answer> {
    let mut answer = answer(find(path)?, headers);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(FOR_EVER));
    Some(answer)
}

fn find(path: &str) -> Option<&'static PageFile> {
    let name = path.strip_prefix(FOLDER)?.strip_prefix(DIGEST)?.strip_prefix('/')?;
    FILES.iter().find(|file| file.name == name)
}

fn answer(file: &'static PageFile, headers: &HeaderMap) -> Answer {
    let is_compressed = format::accepts_gzip(headers);
    let mut answer = text(file.kind, if is_compressed { file.gzip } else { file.raw });
    let fields = answer.headers_mut();
    if is_compressed {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    fields.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let sum = |of: fn(&PageFile) -> usize| FILES.iter().chain([&PAGE]).map(of).sum::<usize>();
        let (raw, gzip) = (sum(|file| file.raw.len()), sum(|file| file.gzip.len()));
        assert!(raw <= 130_000 && gzip <= 60_000, "{raw} bytes, {gzip} with gzip");
        let names: Vec<_> = FILES.iter().map(|file| file.name).collect();
        assert!(names.contains(&"main.js") && names.contains(&"style.css"), "{names:?}");
    }

    #[test]
    fn a_path_with_another_digest_is_unknown() {
        assert!(is_file(&format!("/assets/{DIGEST}/main.js")));
        for path in ["/assets/main.js", "/assets/0/main.js", "/assets/", "/main.js"] {
            assert!(!is_file(path), "{path}");
        }
        assert!(!is_file(&format!("/assets/{DIGEST}/../main.js")));
    }
}
