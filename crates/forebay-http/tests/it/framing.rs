//! Tests of ambiguous requests: 400, a closed connection, and no request to the origin.

use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::server::TestServer;

/// Sent after every rejected request; must not be read as a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Start of most requests below.
const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\n";
/// Start of a request without a body.
const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n";

/// Requests that two parsers could read as different messages: name, start and rest.
const AMBIGUOUS: [(&str, &str, &str); 26] = [
    (
        "both, length first",
        POST,
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "both, coding first",
        POST,
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    ),
    ("two lengths", POST, "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
    ("one length twice", POST, "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    ("a list of lengths", POST, "Content-Length: 3, 3\r\n\r\nabc"),
    ("a signed length", POST, "Content-Length: +3\r\n\r\nabc"),
    ("a length of nothing", POST, "Content-Length:\r\n\r\n"),
    ("a huge length", POST, "Content-Length: 99999999999999999999\r\n\r\n"),
    ("a coding we do not know", POST, "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", POST, "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("identity", POST, "Transfer-Encoding: identity\r\n\r\n"),
    (
        "a coding in 1.0",
        "",
        "POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a bad chunk", POST, "Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n"),
    ("a chunk that is too long", POST, "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"),
    (
        "a length as a trailer",
        POST,
        "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n",
    ),
    ("a folded line", GET, "X-A: 1\r\n b\r\n\r\n"),
    ("a space before the colon", GET, "Content-Length : 3\r\n\r\n"),
    ("a NUL in a value", GET, "X-A: \0\r\n\r\n"),
    ("a NUL in the target", "", "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two hosts", GET, "Host: b\r\n\r\n"),
    ("no host", "", "GET /x HTTP/1.1\r\n\r\n"),
    ("an empty host", "", "GET /x HTTP/1.1\r\nHost:\r\n\r\n"),
    ("a host with a path", "", "GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ("a bare line feed", "", "GET /x HTTP/1.1\nHost: a\n\n"),
    ("a bare carriage return", GET, "X-A: b\rX-C: d\r\n\r\n"),
    ("a fragment", "", "GET /x#y HTTP/1.1\r\nHost: a\r\n\r\n"),
];

#[tokio::test]
async fn ambiguous_requests_get_400_and_a_closed_connection() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("reached")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    for (what, start, rest) in AMBIGUOUS {
        let mut client = Client::connect(server.address).await?;
        client.send_raw(format!("{start}{rest}{SMUGGLED}").as_bytes()).await?;
        let reply = client.reply().await?;
        assert_eq!((reply.status, reply.field("connection")), (400, Some("close")), "{what}");
        let closed = client.read_to_close().await?;
        assert_eq!((&closed.bytes[..], closed.broke), (&b""[..], None), "{what}");
    }
    assert_eq!(origin.requests(), 0);
    assert_eq!(origin.counts().connections, 0);
    Ok(())
}

#[tokio::test]
async fn a_body_that_becomes_invalid_is_rejected_and_never_complete_at_the_origin()
-> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("reached")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client
        .send_raw(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await?;
    server.wait_in_flight(1).await?;
    client.send_raw(format!("zz\r\n{SMUGGLED}").as_bytes()).await?;
    let reply = client.reply().await?;
    assert_eq!((reply.status, reply.field("connection")), (400, Some("close")));
    assert_eq!(&client.read_to_close().await?.bytes[..], b"");
    assert!(origin.received().iter().all(|received| !received.complete));
    assert_eq!(origin.requests_to("/smuggled"), 0);
    Ok(())
}

#[tokio::test]
async fn requests_above_the_size_limits_are_rejected_and_the_connection_closed()
-> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("reached")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let long = format!("/{}", "a".repeat(16 << 10));
    let fields = (0..101).fold(Request::get("/x"), |request, _| request.field("X-A", "b"));
    let rows = [
        (414, Request::get(&long)),
        (431, Request::get("/x").field("X-A", "b".repeat(64 << 10))),
        (431, fields),
    ];
    for (status, request) in rows {
        let mut client = Client::connect(server.address).await?;
        client.send(&request).await?;
        let reply = client.reply().await?;
        assert_eq!((reply.status, reply.field("connection")), (status, Some("close")));
        assert_eq!(&client.read_to_close().await?.bytes[..], b"");
    }
    assert_eq!(origin.requests(), 0);
    let longest = format!("/{}", "a".repeat((16 << 10) - 1));
    assert_eq!(
        Client::connect(server.address).await?.ask(&Request::get(&longest)).await?.status,
        200
    );
    assert_eq!(origin.first()?.target, longest);
    Ok(())
}
