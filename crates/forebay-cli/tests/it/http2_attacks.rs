//! Published attacks over HTTP/2: none reaches the origin, or it is harmless there.

use forebay_testkit::client::Request;
use forebay_testkit::http2::{GOAWAY, HEADERS, field, frame, head};
use forebay_testkit::origin::{Answer, Origin};

use crate::http2::{FLOOD, goaway, send};
use crate::world::{ask, metric, serve};

/// Field lines of a request, with its pseudo-header fields.
type Lines = &'static [(&'static str, &'static str)];

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const PATH: (&str, &str) = (":path", "/bad");
const HOST: (&str, &str) = (":authority", "a.example");

/// J. Kettle, "HTTP/2: The Sequel is Always Worse", 2021.
const SEQUEL: &str = "The Sequel is Always Worse";

/// Source of an attack, and its request. None of them may reach the origin.
const REFUSED: &[(&str, Lines)] = &[
    // A length or coding that an HTTP/1 origin would believe after the translation.
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("content-length", "5")]),
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("transfer-encoding", "chunked")]),
    (
        "CVE-2021-21295",
        &[METHOD, SCHEME, PATH, HOST, ("content-length", "1"), ("content-length", "2")],
    ),
    // Lines injected by a value, a name or a pseudo-header field.
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("x", "a\r\ntransfer-encoding: chunked")]),
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("x", "a\nb: c")]),
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("x", "a\0b")]),
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("x: y\r\nz", "a")]),
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("x y", "a")]),
    (SEQUEL, &[METHOD, SCHEME, PATH, HOST, ("", "a")]),
    (SEQUEL, &[METHOD, SCHEME, (":path", "/bad HTTP/1.1\r\nhost: b.example\r\nx: "), HOST]),
    (SEQUEL, &[METHOD, SCHEME, (":path", "/bad b"), HOST]),
    (SEQUEL, &[METHOD, SCHEME, PATH, (":authority", "a.example\r\nx: y")]),
    (SEQUEL, &[METHOD, (":scheme", "http://b.example/?"), PATH, HOST]),
    (
        "CVE-2021-33193",
        &[(":method", "GET /other HTTP/1.1\r\nhost: b.example\r\nx: y"), SCHEME, PATH, HOST],
    ),
    ("CVE-2021-33193", &[(":method", "GET /other"), SCHEME, PATH, HOST]),
    ("RFC 9113 section 8.3", &[(":method", ""), SCHEME, PATH, HOST]),
    // Pseudo-header fields that are repeated, unknown, missing or late.
    ("RFC 9113 section 8.3", &[METHOD, METHOD, SCHEME, PATH, HOST]),
    ("RFC 9113 section 8.3", &[METHOD, SCHEME, PATH, PATH, HOST]),
    ("RFC 9113 section 8.3", &[METHOD, SCHEME, PATH, HOST, HOST]),
    ("RFC 9113 section 8.3", &[METHOD, SCHEME, PATH, HOST, (":other", "a")]),
    ("RFC 9113 section 8.3", &[METHOD, SCHEME, PATH, HOST, (":status", "200")]),
    ("RFC 9113 section 8.3", &[METHOD, SCHEME, HOST, ("x", "y"), PATH]),
    ("RFC 9113 section 8.3.1", &[SCHEME, PATH, HOST]),
    ("RFC 9113 section 8.3.1", &[METHOD, SCHEME, HOST]),
    ("RFC 9113 section 8.3.1", &[METHOD, SCHEME, (":path", ""), HOST]),
    ("RFC 9113 section 8.3.1", &[METHOD, SCHEME, (":path", "*"), HOST]),
    ("RFC 9113 section 8.3.1", &[METHOD, SCHEME, PATH, HOST, ("host", "b.example")]),
    ("RFC 9113 section 8.3.1", &[METHOD, SCHEME, PATH]),
    ("RFC 8441", &[(":method", "CONNECT"), (":protocol", "websocket"), SCHEME, PATH, HOST]),
    ("RFC 9113 section 8.5", &[(":method", "CONNECT"), (":authority", "127.0.0.1:22")]),
    // Fields of a connection.
    ("RFC 9113 section 8.2.2", &[METHOD, SCHEME, PATH, HOST, ("connection", "close")]),
    ("RFC 9113 section 8.2.2", &[METHOD, SCHEME, PATH, HOST, ("proxy-connection", "close")]),
    ("RFC 9113 section 8.2.2", &[METHOD, SCHEME, PATH, HOST, ("keep-alive", "1")]),
    ("J. Nardone, h2c smuggling, 2020", &[METHOD, SCHEME, PATH, HOST, ("upgrade", "h2c")]),
    ("RFC 9113 section 8.2.2", &[METHOD, SCHEME, PATH, HOST, ("te", "gzip")]),
    ("RFC 9113 section 8.2.1", &[METHOD, SCHEME, PATH, HOST, ("X-Upper", "a")]),
];

#[tokio::test]
async fn no_malformed_request_reaches_the_origin() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "no-store")).await?;
    let cache = serve(&origin).await?;
    for (source, lines) in REFUSED {
        let block: Vec<u8> = lines.iter().flat_map(|(name, value)| field(name, value)).collect();
        let bytes = [frame(HEADERS, 5, 1, &block), frame(GOAWAY, 0, 0, &[0; 8])].concat();
        let frames = send(cache.address(), &bytes).await?;
        assert!(!frames.is_empty(), "{source}: {lines:?}");
        assert_eq!(origin.requests(), 0, "{source}: {lines:?}");
    }
    // The server itself is unharmed.
    assert_eq!(ask(cache.address(), &Request::get("/")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn what_reaches_the_origin_has_one_meaning() -> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let cookies: Vec<&str> = asked.fields.all("cookie").collect();
        Answer::ok(format!("{}|{}", asked.target, cookies.join("|")))
            .field("Cache-Control", "no-store")
    });
    let origin = origin.await?;
    let cache = serve(&origin).await?;
    let rows: [(&str, &str, Lines, &str); 5] = [
        // CVE-2016-10711 and its like: crumbs that a proxy passes on apart.
        ("RFC 9113 section 8.2.3", "/a", &[("cookie", "a=1"), ("cookie", "b=2")], "/a|a=1; b=2"),
        (SEQUEL, "/a", &[("x-forwarded-host", "b.example")], "/a|"),
        (SEQUEL, "//b.example/a", &[], "//b.example/a|"),
        (SEQUEL, "/a/../b", &[], "/a/../b|"),
        // The http crate drops a fragment, so that neither key nor origin has it.
        (SEQUEL, "/a#/b", &[], "/a|"),
    ];
    for (source, path, fields, expected) in rows {
        let bytes = [frame(HEADERS, 5, 1, &head(path, fields)), frame(GOAWAY, 0, 0, &[0; 8])];
        let frames = send(cache.address(), &bytes.concat()).await?;
        let is_there = frames.iter().any(|(_, payload)| payload == expected.as_bytes());
        assert!(is_there, "{source}: {path} {fields:?}: {frames:?}");
    }
    for received in origin.received() {
        assert_eq!(received.fields.all("host").count(), 1, "{received:?}");
    }
    Ok(())
}

#[tokio::test]
async fn streams_that_the_server_must_reset_are_limited() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "no-store")).await?;
    let cache = serve(&origin).await?;
    // CVE-2025-8671 (MadeYouReset): each stream ends by an error of the client.
    let flood: Vec<u8> = (0..u32::try_from(FLOOD / 2)?)
        .flat_map(|number| {
            let stream = number * 2 + 1;
            let open = frame(HEADERS, 4, stream, &head("/cold", &[]));
            [open, frame(8, 0, stream, &[0, 0, 0, 0])].concat()
        })
        .collect();
    let frames = send(cache.address(), &flood).await?;
    assert!(goaway(&frames).is_some_and(|code| code != 0), "{:?}", frames.last());
    let loads = metric(&cache, "forebay_loads_total", "").await? + origin.requests();
    assert!(loads <= 300, "{loads} loads");
    Ok(())
}

#[tokio::test]
async fn a_small_block_that_expands_is_refused() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "no-store")).await?;
    let cache = serve(&origin).await?;
    // CVE-2016-6581 (HPACK bomb): one entry of 3,000 bytes in the table, named 10,000 times.
    let mut block = head("/bomb", &[]);
    block.extend([0x40, 1, b'x', 0x7f, 0xb9, 0x16]);
    block.extend([b'y'; 3_000]);
    block.extend([0xbe; 10_000]);
    let bytes = [frame(HEADERS, 5, 1, &block), frame(GOAWAY, 0, 0, &[0; 8])].concat();
    let frames = send(cache.address(), &bytes).await?;
    assert!(!frames.is_empty());
    assert_eq!(origin.requests(), 0);
    Ok(())
}
