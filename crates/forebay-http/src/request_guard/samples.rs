//! Valid and invalid messages for the tests of the scanner and of the stream.

use super::{
    BODY_MAX, BODY_OVERHEAD_MAX, FIELDS_MAX, FramingError, HEAD_MAX, Phase, Scanner, TARGET_MAX,
};

/// Stream of well-framed requests.
pub(super) struct Good {
    pub(super) bytes: Vec<u8>,
    pub(super) requests: u64,
}

/// Invalid stream: `until` is well-framed, and the first invalid byte is at the start of `from`.
pub(super) struct Bad {
    pub(super) until: Vec<u8>,
    pub(super) from: Vec<u8>,
    pub(super) why: FramingError,
}

impl Bad {
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.until.as_slice(), &self.from].concat()
    }

    pub(super) fn in_body(&self) -> bool {
        let mut scanner = Scanner::default();
        scanner.feed(&self.until).expect("the part before the fault is good");
        scanner.phase() == Phase::Body
    }
}

pub(super) const PLAIN: &str = "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n";

pub(super) fn good() -> Vec<Good> {
    let rows: &[(u64, &str)] = &[
        (1, PLAIN),
        (1, "GET / HTTP/1.0\r\n\r\n"),
        (1, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (1, "OPTIONS * HTTP/1.1\r\nhOsT:\t a.example:8080 \t\r\nX:\r\nY: \r\n\r\n"),
        (1, "GET / HTTP/1.1\r\nHost:\r\nX-Host: b, c\r\nHosts: d\r\n\r\n"),
        (1, "GET http://[::1]:80/a?b=c%20d|e HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
        (1, "GET /\u{e9}\"{}^\\[]?\u{e9}`{}?'^ HTTP/1.1\r\nHost: a\r\nX: \u{e9}\ty\r\n\r\n"),
        (1, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 \r\n\r\n\n\0\r:x"),
        (1, "POST / HTTP/1.1\r\nHost: a\r\nCONTENT-LENGTH: 0003\r\n\r\nabc"),
        (2, "POST / HTTP/1.1\r\nContent-Length: 0\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n"),
        (
            2,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\na\r\n\r\n0000A;x=y\r\n0123456789\r\n1 ; q=\"\\\"; \t\" ;z\r\n\0\r\n0\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            1,
            "POST / HTTP/1.1\r\nHost: a\r\ntransfer-ENCODING:\tCHUNKED \r\n\r\n\
             0\r\nX-Sum: 1\r\nUpgrade: x\r\nY:\r\n\r\n",
        ),
        (
            2,
            "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\n\
             aGET /next HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            3,
            "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n\
             GET /3 HTTP/1.0\r\n\r\n",
        ),
    ];
    let mut good: Vec<Good> = rows
        .iter()
        .map(|&(requests, bytes)| Good { bytes: bytes.as_bytes().to_vec(), requests })
        .collect();
    let filled = filled_head(HEAD_MAX);
    good.push(Good { bytes: [filled.as_slice(), PLAIN.as_bytes()].concat(), requests: 2 });
    let target = "/".repeat(TARGET_MAX);
    let fields = "X:\r\n".repeat(FIELDS_MAX - 1);
    let long = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{PLAIN}");
    good.push(Good { bytes: long.into_bytes(), requests: 2 });
    let trailers = format!("{}0\r\n{}", chunked(), filled_trailers(BODY_OVERHEAD_MAX));
    good.push(Good { bytes: trailers.into_bytes(), requests: 1 });
    good
}

/// Returns a head of exactly `size` bytes.
pub(super) fn filled_head(size: usize) -> Vec<u8> {
    let (start, end) = ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n\r\n");
    let filler = "x".repeat(size - start.len() - end.len());
    [start, &filler, end].concat().into_bytes()
}

/// Returns trailers of exactly `size` bytes, including the empty line.
fn filled_trailers(size: usize) -> String {
    format!("X: {}\r\n\r\n", "x".repeat(size - "X: \r\n\r\n".len()))
}

fn chunked() -> &'static str {
    "POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
}

#[expect(clippy::too_many_lines, reason = "one table, a row per rule")]
pub(super) fn bad() -> Vec<Bad> {
    use FramingError::*;
    const HOST: &str = "GET /bad HTTP/1.1\r\nHost: a\r\n";
    const POST: &str = "POST /bad HTTP/1.1\r\nHost: a\r\n";
    let mut rows: Vec<(FramingError, String, String)> = Vec::new();
    let mut row = |why, start: &str, until: &str, from: &str| {
        rows.push((why, format!("{start}{until}"), from.to_owned()));
    };

    // The request line.
    row(RequestLine, "", "", " GET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "", "\u{16}\u{3}\u{1}\u{2}hello");
    row(RequestLine, "", "\r\n\r\n\r\n\r\n", "\r\nGET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET", "\t/bad HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET ", " /bad HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad", "\r\n\r\n");
    row(RequestLine, "", "GET /bad", "#part HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad ", " HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad ", "word HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad HTTP/1.", "2\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "PRI * HTTP/", "2.0\r\n\r\nSM\r\n\r\n");
    row(RequestLine, "", "GET /bad ", "http/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad HTTP/1.1", " \r\nHost: a\r\n\r\n");
    row(RequestLine, "", "G", "(T /bad HTTP/1.1\r\nHost: a\r\n\r\n");

    row(RequestLine, "", "GET /b<d", " HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad`", " HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET /bad?a>b", " HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET *bad/", " HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET http:///bad", " HTTP/1.1\r\nHost: a\r\n\r\n");
    row(RequestLine, "", "GET http://a@/bad", " HTTP/1.1\r\nHost: a\r\n\r\n");

    // Line endings and control bytes.
    row(LineEnding, "", "", "\nGET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
    row(LineEnding, "", "\r", "GET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
    row(LineEnding, "", "GET /bad", "\nHost: a\r\n\r\n");
    row(LineEnding, "", "GET /bad HTTP/1.1", "\nHost: a\n\n");
    row(LineEnding, "", "GET /bad HTTP/1.1\r", "Host: a\r\n\r\n");
    row(LineEnding, HOST, "X: y", "\nZ: z\r\n\r\n");
    row(LineEnding, HOST, "X: y\r", "z\r\n\r\n");
    row(LineEnding, HOST, "X: y\r", "\r\n\r\n");
    row(LineEnding, HOST, "", "\n\r\n\r\n");
    row(LineEnding, HOST, "\r", "\r\n\r\n");
    row(LineEnding, HOST, "X", "\n\r\n");
    row(LineEnding, HOST, "Content-Length: 1", "\n\r\nx\r\n\r\n");
    row(Nul, "", "", "\0\r\n\r\n");
    row(Nul, "", "GET /b", "\0d HTTP/1.1\r\nHost: a\r\n\r\n");
    row(Nul, HOST, "X: a", "\0b\r\n\r\n");
    row(Nul, HOST, "X", "\0b: c\r\n\r\n");
    row(Nul, "GET /bad HTTP/1.1\r\n", "Host: a", "\0b\r\n\r\n");

    // Field lines.
    row(Fold, "GET /bad HTTP/1.1\r\n", "", " Host: a\r\n\r\n");
    row(Fold, HOST, "X: a\r\n", " b\r\n\r\n");
    row(Fold, HOST, "X: a\r\n", "\tb\r\n\r\n");
    row(FieldName, HOST, "", ": empty\r\n\r\n");
    row(FieldName, HOST, "X", " : y\r\n\r\n");
    row(FieldName, HOST, "X", "\t: y\r\n\r\n");
    row(FieldName, POST, "Content-Length", " : 3\r\n\r\nabc\r\n\r\n");
    row(FieldName, HOST, "no-colon", "\r\n\r\n");
    row(FieldName, HOST, "", "\"x\": y\r\n\r\n");
    row(FieldName, HOST, "X", "\u{e9}: y\r\n\r\n");

    row(FieldValue, HOST, "X: a", "\u{1}b\r\n\r\n");
    row(FieldValue, HOST, "X: 0123456789abcdef\t0123456789abcdef", "\u{7f}b\r\n\r\n");
    row(FieldValue, HOST, "X: \u{e9}\t", "\u{1b}\r\n\r\n");
    row(FieldValue, chunked(), "0\r\nX: y", "\u{8}\r\n\r\n");

    // The host.
    row(Host, "GET /bad HTTP/1.1\r\n", "\r", "\n\r\n");
    row(Host, "GET /bad HTTP/1.1\r\n", "X: y\r\n\r", "\n");
    row(Host, HOST, "Host", ": a\r\n\r\n");
    row(Host, HOST, "X: y\r\nhOST", ": b\r\n\r\n");
    row(Host, "GET /bad HTTP/1.0\r\nHost: a\r\n", "Host", ": b\r\n\r\n");
    row(Host, "GET /bad HTTP/1.1\r\n", "Host: a ", "b\r\n\r\n");
    row(Host, "GET /bad HTTP/1.1\r\n", "Host: user", "@a\r\n\r\n");
    row(Host, "GET /bad HTTP/1.1\r\n", "Host: a", "/b\r\n\r\n");
    row(Host, "GET /bad HTTP/1.1\r\n", "Host: a", "\u{e9}\r\n\r\n");

    // The framing fields.
    row(ContentLength, POST, "Content-Length: 3\r\nContent-Length", ": 3\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: 3\r\ncontent-length", ": 4\r\n\r\nabcd\r\n\r\n");
    row(ContentLength, POST, "Content-Length: 3", ", 3\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: 3 ", "3\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: ", "+3\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: ", "-3\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: 0", "x3\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: ", "\"3\"\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length:", "\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: \t", "\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: 922337203685477580", "8\r\n\r\nabc\r\n\r\n");
    row(ContentLength, POST, "Content-Length: 1844674407370955161", "9\r\n\r\nabc\r\n\r\n");
    row(BothFramings, POST, "Content-Length: 3\r\nTransfer-Encoding", ": chunked\r\n\r\n0\r\n\r\n");
    row(BothFramings, POST, "Transfer-Encoding: chunked\r\nContent-Length", ": 3\r\n\r\n0\r\n\r\n");
    row(BothFramings, POST, "Content-Length: 0\r\ntransfer-encoding", ": x\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: ", "identity\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: ", "gzip, chunked\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: chunked", ", chunked\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: chunked", ";q=1\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: chunked ", ",\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: chunke", "\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding:", "\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: ", "\u{b}chunked\r\n\r\n0\r\n\r\n");
    row(TransferEncoding, POST, "Transfer-Encoding: ", "\"chunked\"\r\n\r\n0\r\n\r\n");
    row(
        TransferEncoding,
        POST,
        "Transfer-Encoding: chunked\r\nTransfer-Encoding",
        ": chunked\r\n\r\n0\r\n\r\n",
    );
    row(
        TransferEncoding,
        "POST /bad HTTP/1.0\r\n",
        "Transfer-Encoding",
        ": chunked\r\n\r\n0\r\n\r\n",
    );

    // Chunks and their separators.
    row(Chunk, chunked(), "", "\r\n\r\n");
    row(Chunk, chunked(), "", "x\r\n\r\n");
    row(Chunk, chunked(), "", "-1\r\n\r\n");
    row(Chunk, chunked(), "0", "x3\r\nabc\r\n0\r\n\r\n");
    row(Chunk, chunked(), "", " 3\r\nabc\r\n0\r\n\r\n");
    row(Chunk, chunked(), "3 ", "\r\nabc\r\n0\r\n\r\n");
    row(Chunk, chunked(), "3 ", "3\r\nabc\r\n0\r\n\r\n");
    row(Chunk, chunked(), "0000000000000003", "0\r\nabc\r\n0\r\n\r\n");
    row(Chunk, chunked(), "3\r\nabc", "d\r\n0\r\n\r\n");
    row(Chunk, chunked(), "0;a=\"", "\r\n\r\n");
    row(Chunk, chunked(), "0;a=\"\\", "\r\n\r\n");
    row(Chunk, chunked(), "0;", "\u{b}\r\n\r\n");
    row(LineEnding, chunked(), "3", "\nabc\r\n0\r\n\r\n");
    row(LineEnding, chunked(), "3\r", "\r\nabc\r\n0\r\n\r\n");
    row(LineEnding, chunked(), "3;a", "\nabc\r\n0\r\n\r\n");
    row(LineEnding, chunked(), "3\r\nabc", "\n0\r\n\r\n");
    row(LineEnding, chunked(), "3\r\nabc\r", "0\r\n\r\n");
    row(LineEnding, chunked(), "0\r\n", "\n\r\n\r\n");
    row(LineEnding, chunked(), "0\r\n\r", "\r\n\r\n");
    row(LineEnding, chunked(), "0\r\nX: y", "\n\r\n");
    row(Nul, chunked(), "0;a", "\0\r\n\r\n");
    row(Nul, chunked(), "0\r\nX: ", "\0\r\n\r\n");
    row(FieldName, chunked(), "0\r\nGET", " /smuggled HTTP/1.1\r\n\r\n");
    row(Fold, chunked(), "0\r\nX: y\r\n", " z\r\n\r\n");
    row(Trailer, chunked(), "0\r\nContent-Length", ": 3\r\n\r\n");
    row(Trailer, chunked(), "0\r\nTransfer-Encoding", ": chunked\r\n\r\n");
    row(Trailer, chunked(), "0\r\nhost", ": b\r\n\r\n");

    // The bounds.
    let extension = ";".repeat(BODY_OVERHEAD_MAX);
    row(BodyOverhead, chunked(), &format!("0{extension}"), ";\r\n\r\n");
    let half = ";".repeat(BODY_OVERHEAD_MAX / 2);
    row(BodyOverhead, chunked(), &format!("1{half}\r\nx\r\n0{half}\r\n"), "\r\n");
    let trailers = filled_trailers(BODY_OVERHEAD_MAX + 1);
    let (until, from) = trailers.split_at(BODY_OVERHEAD_MAX);
    row(BodyOverhead, chunked(), &format!("0\r\n{until}"), from);
    let head = String::from_utf8(filled_head(HEAD_MAX + 1)).unwrap();
    row(HeadTooLarge, "", &head[..HEAD_MAX - 1], &head[HEAD_MAX - 1..]);
    let fields = "X:\r\n".repeat(FIELDS_MAX - 1);
    row(TooManyFields, HOST, &fields, "X:\r\n\r\n");
    row(TooManyFields, chunked(), &format!("0\r\n{fields}X:\r\n"), "X:\r\n\r\n");
    let target = "a".repeat(TARGET_MAX - 1);
    row(TargetTooLong, "", &format!("GET /{target}"), "a HTTP/1.1\r\nHost: a\r\n\r\n");
    row(TargetTooLong, "", &format!("GET /?<{}", &target[2..]), "a HTTP/1.1\r\nHost: a\r\n\r\n");
    let length = format!("Content-Length: {}", BODY_MAX + 1);
    row(BodyTooLarge, POST, &length, "\r\n\r\nabc\r\n\r\n");
    row(BodyTooLarge, chunked(), "1000000000", "1\r\nabc\r\n\r\n");
    row(BodyTooLarge, chunked(), "1\r\nx\r\n100000000", "0\r\nabc\r\n\r\n");

    let bad = rows.into_iter().map(|(why, until, from)| Bad {
        until: until.into_bytes(),
        from: from.into_bytes(),
        why,
    });
    bad.collect()
}
