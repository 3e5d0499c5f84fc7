//! Requests that forebay forwarded, read by an independent parser: llhttp in Node.
//!
//! Two parsers that disagree about the end of a request are the cause of request smuggling (CWE-444;
//! J. Kettle, "HTTP Desync Attacks", 2019). Clients send mutated requests. Node must see exactly the
//! requests that forebay's access log has, find no error in them, and each client must get only
//! responses to what it sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_testkit::client::Request;
use forebay_testkit::launch::Launched;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::world::{ask, forebay};

/// Number of forwarded requests of one cache; the soak `parsers` has 100 caches.
const FORWARDED: u64 = 1_000;

/// Maximum number of clients of one cache. Each writes a line to the log, or two.
const CLIENTS_MAX: u64 = 4_000;

/// Clients that are open at once.
const AT_ONCE: u64 = 16;

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Maximum time until the log has all requests that were aborted.
const AGREE_MAX: Duration = Duration::from_secs(5);

const AGREE_POLL: Duration = Duration::from_millis(50);

/// Server that answers each request with its target, and counts what it sees and fails to parse.
const SERVER: &str = r#"
const http = require('http');
const seen = {};
const errors = [];
const answer = (request, response) => {
  if (request.url === '/report') {
    return response.end(JSON.stringify({ seen, errors }));
  }
  seen[request.url] = (seen[request.url] || 0) + 1;
  request.on('data', () => {});
  request.on('error', () => {});
  request.on('end', () => {
    response.setHeader('Cache-Control', 'no-store');
    response.end('<' + request.url + '>');
  });
};
const server = http.createServer(answer);
// Node answers 417 to an unknown expectation by itself.
server.on('checkExpectation', answer);
server.on('clientError', (error, socket) => {
  // A connection that forebay aborts is no error of the parser, and llhttp knows a fixed list of
  // methods.
  const ignored = ['HPE_INVALID_EOF_STATE', 'HPE_INVALID_METHOD'];
  if (error.code && error.code.startsWith('HPE_') && !ignored.includes(error.code)) {
    errors.push(error.code + ' ' + (error.rawPacket || '').toString('latin1').slice(0, 400));
  }
  socket.destroy();
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"#;

/// Requests before their mutation; `ID` is the number of the client.
const BASES: &[&str] = &[
    "GET /ID HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n",
    "POST /ID HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nhello worldsGET /s-ID HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /ID HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /s-ID HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT /ID HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX-T: v\r\n\r\n",
    "POST /ID HTTP/1.1\r\nHost: a\r\nContent-Length: 42\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /s-ID HTTP/1.1\r\nHost: a\r\nX: yyyyyyy\r\n\r\n",
    "DELETE /ID HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, x-a\r\nX-A: 1\r\n\r\nGET /s-ID HTTP/1.0\r\n\r\n",
];

/// Pieces that a mutation inserts: those of published desync attacks.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"0",
    b"\x0b",
    b"\xff",
    b"Content-Length: 0\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: +5\r\n",
    b"content-length:\t3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b" folded\r\n",
    b"0\r\n\r\n",
    b"0\n\n",
    b"1\r\nZ\r\n",
    b"0x5\r\nhello\r\n",
    b"ffffffffffffffff0\r\n",
    b"Expect: 100-continue\r\n",
    b"GET /s-ID HTTP/1.1\r\nHost: a\r\n\r\n",
    b"Upgrade: h2c\r\nConnection: upgrade\r\n",
    b"Trailer: Content-Length\r\n",
];

/// Random numbers of a seed (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap_or_default() % bound
    }
}

/// Mutated request of a client.
fn mutated(id: u64, dice: &mut Dice) -> Vec<u8> {
    let text = BASES[dice.below(BASES.len())].replace("ID", &id.to_string());
    let mut bytes = text.into_bytes();
    for _ in 0..dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(4) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => {
                bytes.remove(at);
            }
            2 => {
                let piece = PIECES[dice.below(PIECES.len())].to_vec();
                let piece = String::from_utf8(piece)
                    .map_or_else(std::string::FromUtf8Error::into_bytes, |text| {
                        text.replace("ID", &id.to_string()).into_bytes()
                    });
                // Before a line, where a field can be.
                let line =
                    bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(at, |n| n + 1);
                bytes.splice(line..line, piece);
            }
            _ => {
                let piece = PIECES[dice.below(PIECES.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Sends bytes, ends its side, and checks that each response is to a part of them.
async fn converse(address: SocketAddr, sent: Vec<u8>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut received = Vec::new();
    // The server may close while the client writes.
    let _ = stream.write_all(&sent).await;
    let _ = stream.shutdown().await;
    let reading = timeout(WAIT_MAX, stream.read_to_end(&mut received)).await;
    let shown = || String::from_utf8_lossy(&sent).into_owned();
    ensure!(reading.is_ok(), "no end of the connection after {:?}", shown());
    let text = String::from_utf8_lossy(&received);
    for target in text.split('<').skip(1).filter_map(|rest| rest.split_once('>')) {
        let is_own = sent.windows(target.0.len()).any(|part| part == target.0.as_bytes());
        ensure!(is_own, "response to {} after {:?}", target.0, shown());
    }
    Ok(())
}

async fn node() -> anyhow::Result<(Child, SocketAddr)> {
    let mut command = Command::new("node");
    command.args(["-e", SERVER]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("start node")?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let line = timeout(WAIT_MAX, lines.next_line()).await??.context("node does not start")?;
    Ok((child, SocketAddr::from(([127, 0, 0, 1], line.parse()?))))
}

/// Requests that Node has seen by target, and those that it cannot parse.
async fn report(node: SocketAddr) -> anyhow::Result<(BTreeMap<String, u64>, Vec<Value>)> {
    let report = ask(node, &Request::get("/report")).await?;
    let report: Value = serde_json::from_str(&report.text())?;
    let seen = report["seen"].as_object().context("no requests")?;
    let seen = seen.iter().map(|(url, count)| (url.clone(), count.as_u64().unwrap_or_default()));
    Ok((seen.collect(), report["errors"].as_array().context("no errors")?.clone()))
}

/// Lines of the access log by target: all, and those of complete responses from the origin.
#[derive(Default)]
struct Logged {
    all: BTreeMap<String, u64>,
    forwarded: BTreeMap<String, u64>,
}

impl Logged {
    fn of(lines: &[String]) -> Self {
        let mut logged = Self::default();
        for line in lines {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let target = line["target"].as_str().unwrap_or_default();
            *logged.all.entry(target.to_owned()).or_default() += 1;
            if line["origin_status"].is_number() {
                *logged.forwarded.entry(target.to_owned()).or_default() += 1;
            }
        }
        logged
    }

    /// Compares with the requests that Node has seen.
    fn compare(&self, seen: &BTreeMap<String, u64>) -> anyhow::Result<()> {
        let of = |counts: &BTreeMap<String, u64>, target: &String| {
            counts.get(target).copied().unwrap_or_default()
        };
        for (target, count) in &self.forwarded {
            ensure!(of(seen, target) >= *count, "{target}: Node has not seen it {count} times");
        }
        for (target, count) in seen {
            let logged = of(&self.all, target);
            ensure!(*count <= logged, "{target}: {count} seen, {logged} logged");
        }
        Ok(())
    }
}

/// Sends mutated requests until [`FORWARDED`] of them were forwarded, and compares.
async fn round(seed: u64) -> anyhow::Result<u64> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (_node, origin) = node().await?;
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\naccess_log = \"json\"\n\
         [[site]]\nid = \"a\"\norigin = \"http://{origin}\"\n"
    );
    let cache = forebay(["serve"]).config(&config)?.start().await?;
    let mut id = 0;
    loop {
        for _ in 0..16 {
            let clients = (0..AT_ONCE).map(|_| {
                id += 1;
                tokio::spawn(converse(cache.address(), mutated(id, &mut dice)))
            });
            for client in clients.collect::<Vec<_>>() {
                client.await??;
            }
        }
        let (seen, errors) = report(origin).await?;
        ensure!(errors.is_empty(), "Node cannot parse {errors:#?}");
        let forwarded = seen.values().sum::<u64>();
        if forwarded < FORWARDED {
            ensure!(id < CLIENTS_MAX, "only {forwarded} of {id} requests forwarded");
            continue;
        }
        let last = ask(cache.address(), &Request::get("/last")).await?;
        ensure!(last.status == 200, "the last request gets {}", last.status);
        cache.wait_stdout("/last").await?;
        compare_in_time(&cache, origin).await?;
        return Ok(forwarded);
    }
}

/// Compares the log with what Node has seen, until they agree: the cache logs an aborted request
/// after it closes the connection of the client.
async fn compare_in_time(cache: &Launched, origin: SocketAddr) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let (seen, _) = report(origin).await?;
        match Logged::of(&cache.stdout()).compare(&seen) {
            Err(_) if begun.elapsed() < AGREE_MAX => tokio::time::sleep(AGREE_POLL).await,
            compared => return compared,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_sees_exactly_the_requests_that_were_forwarded() -> anyhow::Result<()> {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let wanted = number("FOREBAY_FORWARDED", FORWARDED);
    let mut seed = number("FOREBAY_FUZZ_SEED", u64::from(std::process::id()));
    let mut forwarded = 0;
    while forwarded < wanted {
        forwarded += round(seed).await.with_context(|| format!("FOREBAY_FUZZ_SEED={seed}"))?;
        seed += 1;
    }
    println!("{forwarded} requests");
    Ok(())
}
