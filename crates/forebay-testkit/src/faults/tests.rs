use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::*;

/// Maximum wait for bytes that must arrive.
const SOON: Duration = Duration::from_secs(5);

/// Time after which bytes that have not arrived are considered held back.
const A_WHILE: Duration = Duration::from_millis(60);

/// Echo server behind a proxy.
async fn echo() -> FaultProxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.into_split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    FaultProxy::start(address).await.unwrap()
}

async fn said(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    heard(stream, text.len()).await
}

async fn heard(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    timeout(SOON, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn hears_nothing(stream: &mut TcpStream) -> bool {
    timeout(A_WHILE, stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn without_faults_it_passes_everything_on_and_counts() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let long = "x".repeat(300_000);
    let (mut read, mut write) = stream.split();
    let mut echoed = String::new();
    let writing = async {
        write.write_all(long.as_bytes()).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let (_, length) = tokio::join!(writing, read.read_to_string(&mut echoed));
    assert_eq!((length.unwrap(), echoed == long), (300_000, true));
    assert_eq!(proxy.passed(Direction::ToServer), 300_000);
    assert_eq!((proxy.accepted(), proxy.passed(Direction::ToClient)), (1, 300_000));
}

#[tokio::test]
async fn each_direction_has_its_latency() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    for (there, back) in [(40, 0), (0, 40), (20, 20)] {
        proxy.change(|faults| {
            faults.to_server.latency = Duration::from_millis(there);
            faults.to_client.latency = Duration::from_millis(back);
        });
        let began = Instant::now();
        assert_eq!(said(&mut stream, "hello").await, "hello");
        assert!(began.elapsed() >= Duration::from_millis(40), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn frozen_bytes_arrive_later_and_dropped_bytes_never() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(said(&mut stream, "one").await, "one");
    proxy.set(Faults::flow(Flow::Frozen));
    stream.write_all(b"two").await.unwrap();
    assert!(hears_nothing(&mut stream).await);
    proxy.set(Faults::default());
    assert_eq!(heard(&mut stream, 3).await, "two");
    proxy.change(|faults| faults.to_client.flow = Flow::BlackHole);
    stream.write_all(b"lost").await.unwrap();
    assert!(hears_nothing(&mut stream).await);
    proxy.set(Faults::default());
    stream.write_all(b"three").await.unwrap();
    assert!(hears_nothing(&mut stream).await);
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(said(&mut other, "four").await, "four");
}

#[tokio::test]
async fn connections_are_reset_refused_and_closed_by_half() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(said(&mut stream, "one").await, "one");
    proxy.reset_all();
    let error = timeout(SOON, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(said(&mut stream, "two").await, "two");
    let passed = proxy.passed(Direction::ToServer);
    proxy.half_close_all(Direction::ToClient);
    let error = timeout(SOON, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    stream.write_all(b"still").await.unwrap();
    while proxy.passed(Direction::ToServer) < passed + 5 {
        tokio::task::yield_now().await;
    }

    proxy.change(|faults| faults.refuses = true);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(timeout(SOON, stream.read_u8()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_limited_rate_delays_bytes() {
    let proxy = echo().await;
    proxy.change(|faults| faults.to_client.bytes_per_second = Some(100_000));
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let (began, text) = (Instant::now(), "x".repeat(10_000));
    assert_eq!(said(&mut stream, &text).await, text);
    assert!(began.elapsed() >= Duration::from_millis(80), "{:?}", began.elapsed());
}
