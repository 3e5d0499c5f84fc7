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
