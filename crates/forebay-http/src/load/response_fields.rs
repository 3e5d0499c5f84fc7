//! Fields of an origin's response, as they are evaluated and forwarded.

use std::time::{Duration, UNIX_EPOCH};

use forebay_core::WallTime;
use forebay_semantics::{CopyFields as _, FieldLines as _, FieldSink, RawFields, hop};
use http::header::DATE;
use http::{HeaderMap, Version};

/// Fields that are not forwarded, beside the hop-by-hop fields. RFC 7838 section 3: with `Alt-Svc`,
/// another server of the origin would bypass this cache.
const NOT_FORWARDED: [&str; 1] = ["alt-svc"];

/// Normalises the fields of a response before it is evaluated: removes hop-by-hop fields and
/// `Alt-Svc`, adds `Via` and a missing `Date`.
pub(crate) fn normalise_fields(headers: &mut HeaderMap, received: WallTime) {
    hop::strip_hop_by_hop(headers);
    for name in NOT_FORWARDED {
        headers.remove(name);
    }
    let has_date = headers.contains_key(DATE);
    add_missing(headers, has_date, received);
}

/// Writes the fields of a response as [`normalise_fields`] leaves them: without hop-by-hop fields and
/// `Alt-Svc`, with `Via`, and with `Date` if it is missing. Each `Connection` line must be
/// `keep-alive`, because the fields that it names are not removed.
pub(crate) fn write_normalised(fields: &RawFields, received: WallTime, sink: &mut impl FieldSink) {
    let is_dropped = |name: &[u8]| NOT_FORWARDED.iter().any(|other| other.as_bytes() == name);
    let is_kept = |name: &[u8]| !hop::is_hop_by_hop(name) && !is_dropped(name);
    fields.copy_to(is_kept, sink);
    add_missing(sink, fields.has(&DATE), received);
}

fn add_missing(fields: &mut impl FieldSink, has_date: bool, received: WallTime) {
    hop::add_via(fields, Version::HTTP_11);
    // RFC 9110 section 6.6.1: a recipient with a clock adds the time of receipt as Date.
    if !has_date {
        let at = UNIX_EPOCH + Duration::from_secs(received.as_secs());
        fields.add_text(&DATE, &httpdate::fmt_http_date(at));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fields of origins: kept, replaced and dropped.
    const FIELDS: [(&str, &str); 9] = [
        ("Alt-Svc", "h3"),
        ("Cache-Control", "private"),
        ("connection", "Keep-Alive"),
        ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Keep-Alive", "timeout=5"),
        ("set-cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Trailer", "x"),
        ("via", "1.0 other"),
    ];

    proptest! {
        #[test]
        fn raw_fields_are_written_as_parsed_ones_are_tidied(
            lines in prop::collection::vec(prop::sample::select(&FIELDS[..]), 0..8),
        ) {
            let head: String = lines.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            let slices = head.lines().filter_map(|line| line.split_once('='));
            let slices = slices.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let raw = RawFields::copied(head.as_bytes(), slices);
            let received = WallTime::from_secs(784_111_777);
            let (mut tidied, mut written) = (raw.to_map(), HeaderMap::new());
            normalise_fields(&mut tidied, received);
            write_normalised(&raw, received, &mut written);
            prop_assert_eq!(tidied, written);
        }
    }
}
