//! Whatever bytes a peer sends: no panic, results inside their bounds, time linear in the length.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, UNIX_EPOCH};

use forebay_core::{Demand, Stale, WallTime};
use forebay_semantics::coding::encoded::{add_vary, encode_fields, may_encode};
use forebay_semantics::coding::media_types::{MediaTypePattern, MediaTypes};
use forebay_semantics::coding::negotiation::negotiate;
use forebay_semantics::coding::{Coding, Codings};
use forebay_semantics::date::http_date;
use forebay_semantics::directives::SCOPE_FIELDS_MAX;
use forebay_semantics::freshen::{HeadValidation, validate_by_head};
use forebay_semantics::multipart::Multipart;
use forebay_semantics::partial::{ContentRange, received_range};
use forebay_semantics::policy::Policy;
use forebay_semantics::range::{Wanted, ranges};
use forebay_semantics::storable::check_storable;
use forebay_semantics::trailers::strip_trailers;
use forebay_semantics::vary::SELECTING_FIELDS_MAX;
use forebay_semantics::{
    Directives, RequestRef, ResponseRef, Rules, Scheme, Scope, Selects, SingleRange, Target,
    also_invalidated, demand, forwarding, hop, initial_age, lifetime, range, selecting_value,
    selects, storable, validate,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Length in bytes of a field value at the limit of a request head.
const LONG: usize = 64 * 1024;

/// Maximum duration (RFC 9111 section 1.2.2).
const SPAN_MAX: Duration = Duration::from_secs(1 << 31);

const NAMES: [&str; 30] = [
    "accept-encoding",
    "accept-language",
    "age",
    "authorization",
    "cache-control",
    "cdn-cache-control",
    "connection",
    "content-length",
    "content-location",
    "content-range",
    "date",
    "etag",
    "expires",
    "forebay-cache-control",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "keep-alive",
    "last-modified",
    "location",
    "pragma",
    "range",
    "set-cookie",
    "transfer-encoding",
    "vary",
    "via",
    "x-forwarded-for",
    "x-other",
    "x_forwarded_host",
];

/// Tokens that reach the inner branches of the parsers.
const WORDS: [&str; 50] = [
    "max-age",
    "s-maxage",
    "no-cache",
    "no-store",
    "private",
    "public",
    "max-stale",
    "min-fresh",
    "stale-if-error",
    "must-understand",
    "=",
    "\"",
    "\\",
    ",",
    ";",
    " ",
    "\t",
    "*",
    "W/",
    "\"a\"",
    "bytes=",
    "0",
    "1",
    "9999999999999999999999",
    "-",
    ".",
    "/",
    "..",
    "?",
    "#",
    "//",
    ":",
    "http://shop.example",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "GMT",
    "close",
    "x-other",
    "1.1 forebay",
    "bytes 0-4/10",
    "bytes ",
    "/*",
    "gzip",
    "en-US",
    ";q=0.5",
    ";q=",
    "(",
    ")",
    "?0",
];

fn value() -> impl Strategy<Value = HeaderValue> {
    let words = vec(select(&WORDS[..]), 0..24).prop_map(|words| words.concat().into_bytes());
    let bytes = vec(any::<u8>(), 0..80);
    prop_oneof![words, bytes].prop_map(|mut bytes| {
        // Control characters never get past the parser of the head.
        bytes.retain(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 127));
        HeaderValue::from_bytes(&bytes).expect("control characters were removed")
    })
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let field = (select(&NAMES[..]), value());
    vec(field, 0..10).prop_map(|fields| {
        fields.into_iter().map(|(name, value)| (HeaderName::from_static(name), value)).collect()
    })
}

fn assert_bounded(scope: &Option<Scope>) {
    if let Some(Scope::Fields(names)) = scope {
        assert!(!names.is_empty() && names.len() <= SCOPE_FIELDS_MAX);
    }
}

proptest! {
    #[test]
    fn reading_a_response_gives_bounded_results(
        request in headers(),
        response in headers(),
        status in 100u16..1000,
        received in any::<u64>(),
        delay in any::<u64>(),
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        let answered = ResponseRef { status, headers: &response };
        let asked = RequestRef { method: &Method::GET, headers: &request };
        let rules = Rules::default();
        let received = WallTime::from_secs(received);
        let said = Policy::of(&response).said;
        assert_bounded(&said.no_cache);
        assert_bounded(&said.private);
        let lifetime = lifetime(answered, &rules, received);
        prop_assert!(lifetime.fresh <= SPAN_MAX);
        prop_assert!(lifetime.stale_while_revalidate <= SPAN_MAX);
        prop_assert!(lifetime.stale_if_error <= SPAN_MAX);
        if lifetime.stale == Stale::Forbidden {
            prop_assert!((lifetime.stale_while_revalidate + lifetime.stale_if_error).is_zero());
        }
        prop_assert!(initial_age(&response, received, Duration::from_secs(delay)) <= SPAN_MAX);
        let types = MediaTypes::new(MediaTypePattern::parse("text/*"));
        if let Some(coding) = negotiate(&request, Codings::new(Coding::ALL)) {
            let mut encoded = response.clone();
            encode_fields(&mut encoded, coding, Some(1));
            add_vary(&mut encoded);
            let encoded = ResponseRef { status, headers: &encoded };
            prop_assert!(!may_encode(encoded, &types));
        }
        if storable(asked, answered, &rules).is_ok() {
            prop_assert!(said.private.is_none());
            prop_assert!(!said.no_store || said.must_understand);
            prop_assert!(!Directives::of_request(&request).no_store);
            prop_assert!(selects(&response) != Selects::Everything);
            let earliest = forebay_semantics::lifetime(answered, &rules, WallTime::default());
            let useful = !earliest.fresh.is_zero()
                || !earliest.stale_while_revalidate.is_zero()
                || !earliest.stale_if_error.is_zero()
                || validate::validator(&response).is_some();
            prop_assert!(useful);
        }
        if let Ok(kept) = check_storable(asked, answered, &rules, received) {
            prop_assert!(kept.lifetime.fresh <= SPAN_MAX);
            prop_assert!(said.private != Some(Scope::Whole));
            let mut stored = response.clone();
            let own = kept.withheld.remove_from(&mut stored);
            prop_assert_eq!(own.is_empty(), stored.len() == response.len());
        }
    }

    #[test]
    fn reading_a_request_gives_bounded_results(
        request in headers(),
        stored in headers(),
        length in any::<u64>(),
    ) {
        let wanted = demand(&request, &Demand::default());
        prop_assert!(wanted.max_age.is_none_or(|span| span <= SPAN_MAX));
        prop_assert!(wanted.min_fresh.is_none_or(|span| span <= SPAN_MAX));
        if let SingleRange::Part { first, last } = range(&request, &stored, StatusCode::OK, length) {
            prop_assert!(first <= last && last < length);
        }
        match ranges(&request, &stored, StatusCode::OK, length) {
            Wanted::Several(spans) => {
                let sent: u64 = spans.iter().map(|span| span.len()).sum();
                let multipart = Multipart::new(&spans, length, &stored, 1);
                prop_assert!(sent <= length && multipart.content_length() > sent);
            }
            Wanted::One(span) => prop_assert!(span.first <= span.last && span.last < length),
            Wanted::Whole | Wanted::Unsatisfiable => {}
        }
        if validate::client_has_it(&request, StatusCode::OK, &stored) {
            let conditional = request.contains_key("if-none-match")
                || request.contains_key("if-modified-since");
            prop_assert!(conditional);
        }
        if let Selects::By(vary) = selects(&stored) {
            prop_assert!(vary.names().len() <= SELECTING_FIELDS_MAX);
            for name in vary.names() {
                let is_there = request.contains_key(name);
                prop_assert_eq!(selecting_value(&request, name).is_some(), is_there);
            }
        }
    }

    #[test]
    fn rewriting_a_head_leaves_nothing_behind(
        mut request in headers(),
        stored in headers(),
        fresh in headers(),
    ) {
        let merged = validate::merge_not_modified(&stored, &fresh);
        prop_assert_eq!(merged.get("set-cookie"), stored.get("set-cookie"));
        prop_assert!(!merged.contains_key("age") || fresh.contains_key("age"));
        let told = validate::not_modified_fields(&stored);
        prop_assert!(told.len() <= stored.len());
        prop_assert!(validate::confirms(&stored, &stored));
        prop_assert!(validate::confirms(&stored, &HeaderMap::new()));
        let head = ResponseRef { status: StatusCode::OK, headers: &stored };
        let own = validate_by_head(head, &stored, None);
        let length = stored.get("content-length");
        prop_assert!(own == HeadValidation::Same || length.is_some(), "it agrees with itself");
        let part = ResponseRef { status: StatusCode::PARTIAL_CONTENT, headers: &fresh };
        if let Some(range) = received_range(part) {
            prop_assert_eq!(ContentRange::read(range.to_value().as_bytes()), Some(range));
        }
        let mut trailers = fresh.clone();
        strip_trailers(&mut trailers);
        prop_assert!(!trailers.contains_key("content-length") && !trailers.contains_key("etag"));
        hop::strip_hop_by_hop(&mut request);
        for name in ["connection", "keep-alive", "transfer-encoding"] {
            prop_assert!(!request.contains_key(name));
        }
        validate::strip_conditions(&mut request);
        if let Some(validator) = validate::validator(&stored) {
            validate::make_conditional(&mut request, &validator);
            let sent = request.get("if-none-match").map(HeaderValue::as_bytes);
            prop_assert_eq!(sent, validator.tag.as_deref());
        }
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let sender = forwarding::Sender {
            client: peer.into(),
            proxies: &[],
            scheme: Scheme::Http,
            certificate: None,
            claim: None,
            is_forwarded_added: false,
        };
        let mut forwarded = HeaderMap::new();
        forwarding::write_forwarded(&request, |_| true, &sender, None, &mut forwarded);
        prop_assert_eq!(forwarded.get_all("x-forwarded-for").into_iter().count(), 1);
        prop_assert!(!forwarded.contains_key("x_forwarded_host"));
    }

    #[test]
    fn what_becomes_invalid_is_a_path_of_the_same_origin(
        answer in headers(),
        path in "[a-z./?]{0,20}",
    ) {
        let target =
            Target { scheme: "http", authority: "shop.example", path_and_query: &path };
        for other in also_invalidated(target, &answer) {
            prop_assert!(other.starts_with('/'), "{other}");
            let (path, _) = other.split_once('?').unwrap_or((&other, ""));
            prop_assert!(!path.split('/').any(|segment| segment == ".."), "{other}");
            prop_assert!(!other.contains('#'));
        }
    }

    #[test]
    fn the_order_of_directives_does_not_matter(
        said in vec(select(&[
            "max-age=1", "max-age=60", "max-age=x", "s-maxage=5", "s-maxage", "min-fresh=1",
            "min-fresh=9", "max-stale", "max-stale=3", "no-cache", "no-cache=\"a, b\"",
            "no-cache=\"c\"", "private=\"a\"", "private", "no-store", "public", "x=\"1, 2\"",
            "stale-if-error=4", "stale-if-error=x",
        ][..]), 0..12).prop_flat_map(|said| (Just(said.clone()), Just(said).prop_shuffle())),
        cut in 0usize..12,
    ) {
        let (said, shuffled) = said;
        let one = said.join(", ");
        let (start, end) = shuffled.split_at(cut.min(shuffled.len()));
        let lines = |lines: &[String]| -> HeaderMap {
            let name = http::header::CACHE_CONTROL;
            let value = |line| HeaderValue::from_str(line).unwrap();
            lines.iter().map(|line| (name.clone(), value(line))).collect()
        };
        let one = Directives::of_response(&lines(&[one]));
        let other = Directives::of_response(&lines(&[start.join(" ,"), end.join(",,")]));
        prop_assert_eq!(one, other);
    }

    #[test]
    fn every_printed_date_is_read_back(secs in 0u64..253_402_300_800) {
        let printed = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(secs));
        let expected = Some(WallTime::from_secs(secs));
        prop_assert_eq!(http_date(printed.as_bytes()), expected);
        prop_assert_eq!(http_date(printed.to_ascii_uppercase().as_bytes()), expected);
    }

    #[test]
    fn two_parsers_never_read_two_dates_from_one_text(
        text in select(&WORDS[33..36]),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = text.as_bytes().to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let text = String::from_utf8_lossy(&bytes);
        let theirs = httpdate::parse_http_date(&text);
        // Each is lenient where the other is not: here about case and weekdays, there about the
        // space before the time.
        if let (Ok(theirs), Some(ours)) = (theirs, http_date(&bytes)) {
            let secs = theirs.duration_since(UNIX_EPOCH).unwrap().as_secs();
            prop_assert_eq!(ours, WallTime::from_secs(secs));
        }
    }
}

/// Lines on which a quadratic parser would take billions of steps, at 64 KiB each.
#[test]
fn adversarial_lines_are_read_in_linear_time() {
    for piece in [
        "\"",
        "\\\"",
        "\"\\\"",
        "a=\"",
        "a;",
        "a,a;",
        "a=(a ",
        "bytes=0-1,",
        "gzip,",
        "en;q=0,",
        ",",
        "\",",
        "a,",
        "W/",
        "W/\"",
        "\"a\",",
        "=",
        " ",
        "../",
        "9",
    ] {
        let line = HeaderValue::from_str(&piece.repeat(LONG / piece.len())).unwrap();
        let headers: HeaderMap =
            NAMES.iter().map(|name| (HeaderName::from_static(name), line.clone())).collect();
        let said = Directives::of_request(&headers);
        assert_bounded(&said.private);
        let answered = ResponseRef { status: StatusCode::OK, headers: &headers };
        let received = WallTime::from_secs(1);
        assert!(lifetime(answered, &Rules::default(), received).fresh <= SPAN_MAX);
        assert!(initial_age(&headers, received, Duration::ZERO) <= SPAN_MAX);
        assert_eq!(range(&headers, &headers, StatusCode::OK, 10), SingleRange::Whole);
        assert_eq!(ranges(&headers, &headers, StatusCode::OK, 10), Wanted::Whole);
        for name in ["accept-encoding", "accept-language"] {
            assert!(selecting_value(&headers, name).is_some());
        }
        // Either answer is right for some of the lines; it has to come.
        let _ = validate::client_has_it(&headers, StatusCode::OK, &headers);
        let target = Target { scheme: "http", authority: "a", path_and_query: "/" };
        assert!(also_invalidated(target, &headers).is_empty());
        assert!(!hop::loops(&headers));
        let mut stripped = headers.clone();
        hop::strip_hop_by_hop(&mut stripped);
        assert!(!stripped.contains_key("connection"));
    }
}
