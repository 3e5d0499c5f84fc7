//! Interim responses of an origin on their way to a client (RFC 9110 section 15.2).

use std::sync::Arc;

use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::door::Door;

const HINT: (&str, &str) = ("Link", "</style.css>; rel=preload");

fn fresh(body: &str) -> Answer {
    Answer::ok(body.to_owned()).field("Cache-Control", "max-age=60")
}

/// The interim responses before a reply.
fn statuses(reply: &Reply) -> Vec<u16> {
    reply.interim.iter().map(|interim| interim.status).collect()
}

/// Reads up to the end of the next head.
async fn head(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let byte = tokio::time::timeout(forebay_testkit::client::PATIENCE, stream.read_u8());
        text.push(char::from(byte.await??));
    }
    Ok(text)
}

#[tokio::test]
async fn a_hint_comes_while_the_answer_is_being_made() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| fresh("late").interim(103, &[HINT]).wait(&held)).await?;
    let door = Door::open(origin.address(), &[]).await?;
    for path in ["/load", "/forward?no-store"] {
        let mut stream = TcpStream::connect(door.address).await?;
        let method = if path == "/load" { "GET" } else { "POST" };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: test.example\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let hint = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\
                    via: 1.1 forebay\r\n\r\n";
        assert_eq!(head(&mut stream).await?, hint);
    }
    assert!(!gate.is_open(), "neither answer was there");
    Ok(())
}

#[tokio::test]
async fn fields_of_the_origins_connection_and_of_framing_stay_here() -> anyhow::Result<()> {
    let fields = [
        ("Connection", "x-hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "5"),
        ("X-End", "to end"),
    ];
    let origin = Origin::start(move |_| fresh("body").interim(199, &fields)).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut stream = TcpStream::connect(door.address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test.example\r\n\r\n").await?;
    let expected = "HTTP/1.1 199 \r\nx-end: to end\r\nvia: 1.1 forebay\r\n\r\n";
    assert_eq!(head(&mut stream).await?, expected);
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 200 OK\r\n"));
    Ok(())
}

#[tokio::test]
async fn a_hit_has_none_of_them_and_neither_has_an_old_client() -> anyhow::Result<()> {
    let origin = Origin::start(|_| fresh("x").interim(102, &[]).interim(103, &[HINT])).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
    let miss = client.ask(&Request::get("/a")).await?;
    assert_eq!((statuses(&miss), &*miss.text()), (vec![102, 103], "x"));
    let hit = client.ask(&Request::get("/a")).await?;
    assert_eq!((statuses(&hit), &*hit.text()), (vec![], "x"));
    let mut old = Client::connect(door.address).await?;
    old.send_raw(b"GET /b HTTP/1.0\r\nHost: test.example\r\n\r\n").await?;
    let reply = old.reply().await?;
    assert_eq!((statuses(&reply), &*reply.text()), (vec![], "x"));
    assert_eq!(origin.requests(), 2);
    Ok(())
}

/// What is on its way to hyper when a hint comes, and what comes behind it, stays whole.
#[tokio::test]
async fn pipelined_answers_and_their_hints_come_in_order() -> anyhow::Result<()> {
    const LARGE: usize = 3 << 20;
    let origin = Origin::start(|received| match received.path() {
        "/large" => fresh(&"l".repeat(LARGE)),
        path => fresh(path).interim(103, &[("Link", path)]).interim(102, &[]),
    })
    .await?;
    let door = Door::open(origin.address(), &[("memory", "\"64MiB\"")]).await?;
    Client::connect(door.address).await?.ask(&Request::get("/large")).await?;
    let mut client = Client::connect(door.address).await?;
    for round in 0..8 {
        client.send(&Request::get("/large")).await?;
        client.send(&Request::get(&format!("/{round}"))).await?;
        client.send(&Request::get(&format!("/{round}"))).await?;
    }
    for round in 0..8 {
        let large = client.reply().await?;
        assert_eq!((statuses(&large), large.body_length()), (vec![], LARGE as u64));
        let miss = client.reply().await?;
        let path = format!("/{round}");
        assert_eq!((statuses(&miss), &*miss.text()), (vec![103, 102], &*path));
        assert_eq!(miss.interim[0].fields.first("link"), Some(&*path));
        let hit = client.reply().await?;
        assert_eq!((statuses(&hit), &*hit.text()), (vec![], &*path));
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_waits_with_its_body_is_told_once_to_go_on() -> anyhow::Result<()> {
    let origin = Origin::start(|_| {
        Answer::ok("done").interim(100, &[]).interim(103, &[HINT]).interim(100, &[])
    })
    .await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut stream = TcpStream::connect(door.address).await?;
    let expecting = b"POST /x HTTP/1.1\r\nHost: test.example\r\nContent-Length: 4\r\n\
                      Expect: 100-continue\r\n\r\n";
    stream.write_all(expecting).await?;
    assert_eq!(head(&mut stream).await?, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"data").await?;
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 103 Early Hints\r\n"));
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 200 OK\r\n"));
    Ok(())
}

/// The load goes on when its client has its answer, and what it hears then is for nobody: neither
/// for that client nor for the answer that the connection makes next.
#[tokio::test]
async fn a_hint_for_an_answer_that_was_given_already_is_for_nobody() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |received| match (received.path(), received.serial) {
        ("/stale", 1) => {
            Answer::ok("old").field("Cache-Control", "max-age=1, stale-while-revalidate=99")
        }
        ("/stale", _) => fresh("new").wait(&held).interim(103, &[HINT]),
        _ => fresh("next").wait(&held),
    })
    .await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
    client.ask(&Request::get("/stale")).await?;
    door.clock.step(std::time::Duration::from_secs(5));
    let stale = client.ask(&Request::get("/stale")).await?;
    assert_eq!((statuses(&stale), &*stale.text()), (vec![], "old"));
    client.send(&Request::get("/next")).await?;
    origin.wait_requests(3).await?;
    gate.open();
    let next = client.reply().await?;
    assert_eq!((statuses(&next), &*next.text()), (vec![], "next"));
    Ok(())
}

/// A flight belongs to nobody: its leader may leave between a hint and the answer.
#[tokio::test]
async fn a_leader_that_leaves_after_a_hint_spoils_nothing() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        fresh("shared").interim(103, &[HINT]).wait(&held).interim(103, &[HINT])
    })
    .await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut leader = TcpStream::connect(door.address).await?;
    leader.write_all(b"GET / HTTP/1.1\r\nHost: test.example\r\n\r\n").await?;
    assert!(head(&mut leader).await?.starts_with("HTTP/1.1 103"));
    let mut follower = Client::connect(door.address).await?;
    follower.send(&Request::get("/")).await?;
    door.wait_in_flight(2).await?;
    drop(leader);
    door.wait_in_flight(1).await?;
    gate.open();
    let reply = follower.reply().await?;
    assert_eq!(&*reply.text(), "shared");
    assert_eq!(origin.requests(), 1);
    Ok(())
}

/// 64 KiB for one client: what is more is left out and counted, and the answer comes.
#[tokio::test]
async fn hints_do_not_pile_up() -> anyhow::Result<()> {
    let large = Arc::new("l".repeat(6_000));
    let origin = Origin::start(move |_| {
        (0..16).fold(fresh("body"), |answer, _| answer.interim(103, &[("Link", &*large)]))
    })
    .await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
    let reply = client.ask(&Request::get("/")).await?;
    assert_eq!((statuses(&reply), &*reply.text()), (vec![103; 10], "body"));
    assert_eq!(door.counters.lost_interims(), 6);
    door.wait_metric("forebay_refused_total{limit=\"interims\"} 6").await
}

/// Its answer would break off as well; what is taken of the origin's answer goes to others.
#[tokio::test]
async fn a_client_that_reads_nothing_is_given_up_and_holds_up_nobody() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/large" => fresh(&"l".repeat(16 << 20)),
        _ => fresh("shared").interim(103, &[HINT]),
    })
    .await?;
    let settings = [("write_window", "\"300ms\""), ("memory", "\"64MiB\"")];
    let door = Door::open(origin.address(), &settings).await?;
    Client::connect(door.address).await?.ask(&Request::get("/large")).await?;
    let mut deaf = TcpStream::connect(door.address).await?;
    let both = "GET /large HTTP/1.1\r\nHost: test.example\r\n\r\nGET / HTTP/1.1\r\nHost: test.example\r\n\r\n";
    deaf.write_all(both.as_bytes()).await?;
    door.wait_metric("forebay_refused_total{limit=\"slow-reader\"} 1").await?;
    let mut other = Client::connect(door.address).await?;
    assert_eq!(other.ask(&Request::get("/")).await?.text(), "shared");
    assert_eq!(door.counters.lost_interims(), 0);
    Ok(())
}
