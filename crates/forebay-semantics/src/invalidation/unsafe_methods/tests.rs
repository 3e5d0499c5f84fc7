use super::*;
use http::HeaderValue;

fn others(target: &str, lines: &[(&'static str, &str)]) -> Vec<String> {
    let headers = lines
        .iter()
        .map(|(name, value)| {
            (
                http::HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        })
        .collect();
    let authority = "shop.example";
    let target = Target { scheme: "http", authority, path_and_query: target };
    also_invalidated(target, &headers).into_vec()
}

#[test]
fn unknown_methods_are_unsafe() {
    // RFC 9111 section 4.4.
    for safe in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"] {
        let method = Method::from_bytes(safe.as_bytes()).unwrap();
        assert!(is_safe(&method) && !invalidates(&method, StatusCode::OK), "{safe}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get", "query"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for (status, expected) in [
            (200, true),
            (204, true),
            (299, true),
            (303, true),
            (100, false),
            (400, false),
            (404, false),
            (500, false),
            (999, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(invalidates(&method, status), expected, "{method} {status}");
        }
    }
}

#[test]
fn references_are_resolved_against_the_target() {
    // RFC 3986 section 5.4 has most of these, with this base.
    let rows = [
        ("/g", "/g"),
        ("g", "/b/c/g"),
        ("./g", "/b/c/g"),
        ("g/", "/b/c/g/"),
        ("?y", "/b/c/d;p?y"),
        ("g?y", "/b/c/g?y"),
        ("g?y#s", "/b/c/g?y"),
        (";x", "/b/c/;x"),
        (".", "/b/c/"),
        ("./", "/b/c/"),
        ("..", "/b/"),
        ("../g", "/b/g"),
        ("../..", "/"),
        ("../../../g", "/g"),
        ("/./g", "/g"),
        ("/../g", "/g"),
        ("g.", "/b/c/g."),
        ("..g", "/b/c/..g"),
        ("./g/.", "/b/c/g/"),
        ("g/../h", "/b/c/h"),
        ("g?y/../x", "/b/c/g?y/../x"),
        ("a//b", "/b/c/a//b"),
        ("./x:y", "/b/c/x:y"),
        ("/x:y", "/x:y"),
        ("//shop.example/g", "/g"),
        ("http://shop.example/g?x", "/g?x"),
        ("HTTP://SHOP.example:80/g", "/g"),
        ("http://shop.example", "/"),
        ("http://shop.example?x", "/?x"),
    ];
    for (reference, expected) in rows {
        assert_eq!(others("/b/c/d;p?q", &[("location", reference)]), [expected], "{reference}");
        let content = others("/b/c/d;p?q", &[("content-location", reference)]);
        assert_eq!(content, [expected], "{reference}");
    }
}

#[test]
fn references_to_other_origins_and_to_the_target_itself_add_nothing() {
    // RFC 9111 section 4.4.
    for reference in [
        "",
        "#s",
        "d;p?q",
        "http://shop.example/b/c/d;p?q",
        "https://shop.example/g",
        "http://shop.example:8080/g",
        "http://other.example/g",
        "//other.example/g",
        "http://user@shop.example/g",
        "http://shop.example.evil/g",
        "http:g",
        "http:/g",
        "mailto:a@b",
        "g #s",
        "/g h",
        "/gü",
    ] {
        let none: Vec<String> = Vec::new();
        assert_eq!(others("/b/c/d;p?q", &[("location", reference)]), none, "{reference}");
    }
    let long = format!("/{}", "x".repeat(REFERENCE_MAX));
    assert!(others("/", &[("location", &long)]).is_empty());
    assert!(others("/", &[("location", "/a"), ("location", "/b")]).is_empty());
}

#[test]
fn location_and_content_location_yield_each_target_once() {
    assert_eq!(others("/", &[("location", "/a"), ("content-location", "/b")]), ["/a", "/b"]);
    assert_eq!(others("/", &[("location", "/a"), ("content-location", "a")]), ["/a"]);
}

#[test]
fn default_ports_equal_no_port() {
    let mut answer = HeaderMap::new();
    answer.insert(LOCATION, HeaderValue::from_static("https://shop.example/g"));
    let target = |authority| Target { scheme: "https", authority, path_and_query: "/" };
    assert_eq!(also_invalidated(target("shop.example:443"), &answer).as_slice(), ["/g"]);
    assert!(also_invalidated(target("shop.example:80"), &answer).is_empty());
}

type Lines<'a> = &'a [(&'a str, &'a str)];

#[test]
fn a_post_response_stands_for_get_with_location_and_freshness() {
    // RFC 9110 section 9.3.3.
    let target = Target { scheme: "http", authority: "shop.example", path_and_query: "/a?b" };
    let fresh = ("cache-control", "max-age=60");
    let here = ("content-location", "/a?b");
    let rows: [(u16, Lines<'_>, bool); 12] = [
        (200, &[here, fresh], true),
        (200, &[("content-location", ""), fresh], true),
        (200, &[("content-location", "http://shop.example/a?b"), fresh], true),
        (200, &[here, ("expires", "0")], true),
        (200, &[here, ("cdn-cache-control", "max-age=60")], true),
        (200, &[here], false),
        (200, &[here, ("expires", "0"), ("cdn-cache-control", "foo")], false),
        (200, &[fresh], false),
        (200, &[("content-location", "/a"), fresh], false),
        (200, &[("content-location", "http://other.example/a?b"), fresh], false),
        (200, &[here, here, fresh], false),
        (201, &[here, fresh], false),
    ];
    for (status, lines, expected) in rows {
        let headers = lines.iter().map(|(name, value)| {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        let headers: HeaderMap = headers.collect();
        let status = StatusCode::from_u16(status).unwrap();
        let stands = stands_for_get(target, ResponseRef { status, headers: &headers });
        assert_eq!(stands, expected, "{status} {lines:?}");
    }
}
