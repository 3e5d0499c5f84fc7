//! Listeners that a reload adds, changes and removes.

use std::net::SocketAddr;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use serde_json::{Value, json};

use crate::load::{Load, request};
use crate::world::{ConfigFile, END_MAX, admin_of, ask, fresh_origin, nowhere, to_admin};

/// Number of reloads under load.
const RELOADS: usize = 20;

/// Connections per second during these reloads.
const RATE: u32 = 100;

/// Number of connections that wait in the listen queue of a removed listener.
const QUEUED: usize = 40;

/// Configuration with listeners on these addresses.
fn listening(origin: &Origin, addresses: &[SocketAddr], more: &str) -> String {
    let listen: Vec<String> = addresses.iter().map(|one| format!("\"{one}\"")).collect();
    format!(
        "listen = [{}]\nadmin = \"127.0.0.1:0\"\n{more}\n[[site]]\nid = \"shop\"\norigin = \"{}\"\n",
        listen.join(", "),
        origin.url()
    )
}

async fn reload(cache: &Launched) -> anyhow::Result<(u16, Value)> {
    let request = to_admin(cache, "POST", "/reload")?.field("Content-Type", "application/json");
    let reply = ask(admin_of(cache)?, &request).await?;
    Ok((reply.status, serde_json::from_slice(reply.body())?))
}

/// Numbers of listeners that a reload left unchanged, changed, added and removed.
async fn reload_listeners(cache: &Launched) -> anyhow::Result<[u64; 4]> {
    let (status, told) = reload(cache).await?;
    anyhow::ensure!(status == 200 && told["needs_restart"] == json!([]), "{status} {told}");
    let count = |name: &str| told["listeners"][name].as_u64().unwrap_or(u64::MAX);
    Ok(["unchanged", "changed", "added", "removed"].map(count))
}

#[tokio::test]
async fn a_reload_adds_changes_and_removes_listeners() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let (a, b) = (nowhere()?, nowhere()?);
    let file = ConfigFile::of(&listening(&origin, &[a], ""))?;
    let cache = file.serve().await?;
    let mut kept = Client::connect(a).await?;
    assert_eq!(kept.ask(&Request::get("/")).await?.status, 200);

    file.rewrite(&listening(&origin, &[a, b], ""))?;
    assert_eq!(reload_listeners(&cache).await?, [1, 0, 1, 0]);
    request(b, 0).await?;
    // The same address without HTTP/2 is the same socket with other rules.
    let table = format!("[[listener]]\naddress = \"{b}\"\nprotocols = [\"http/1.1\"]");
    file.rewrite(&listening(&origin, &[a], &table))?;
    assert_eq!(reload_listeners(&cache).await?, [1, 1, 0, 0]);
    request(b, 0).await?;

    file.rewrite(&listening(&origin, &[b], ""))?;
    assert_eq!(reload_listeners(&cache).await?, [0, 1, 0, 1]);
    assert!(Client::connect(a).await.is_err(), "a removed listener accepts connections");
    // Its connections stay.
    assert_eq!(kept.ask(&Request::get("/")).await?.status, 200);
    request(b, 0).await
}

#[tokio::test]
async fn a_listener_that_cannot_be_bound_leaves_everything_unchanged() -> anyhow::Result<()> {
    let (origin, other) = (fresh_origin().await?, fresh_origin().await?);
    let a = nowhere()?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let file = ConfigFile::of(&listening(&origin, &[a], ""))?;
    let cache = file.serve().await?;
    file.rewrite(&listening(&other, &[taken.local_addr()?], ""))?;
    let (status, told) = reload(&cache).await?;
    let sentence = told["errors"][0].as_str().unwrap_or_default().to_owned();
    assert_eq!(status, 400, "{told}");
    assert!(sentence.contains(&format!("cannot listen on {}", taken.local_addr()?)), "{told}");
    request(a, 0).await?;
    assert_eq!((origin.requests(), other.requests()), (1, 0));
    Ok(())
}

/// Configuration with listeners for operators on these addresses.
fn operated(origin: &Origin, admin: SocketAddr, probe: SocketAddr, more: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"{admin}\"\nprobe = \"{probe}\"\n{more}\n\
         [[site]]\nid = \"shop\"\norigin = \"{}\"\n",
        origin.url()
    )
}

async fn reload_at(admin: SocketAddr) -> anyhow::Result<(u16, Value)> {
    let request = Request::new("POST", "/reload").field("Host", admin.to_string());
    let reply = ask(admin, &request.field("Content-Type", "application/json")).await?;
    Ok((reply.status, serde_json::from_slice(reply.body())?))
}

async fn is_live(operator: SocketAddr) -> bool {
    let request = Request::get("/livez").field("Host", operator.to_string());
    ask(operator, &request).await.is_ok_and(|reply| reply.status == 200)
}

#[tokio::test]
async fn a_reload_moves_the_listeners_of_operators() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let [a, b, c, d] = [nowhere()?, nowhere()?, nowhere()?, nowhere()?];
    let file = ConfigFile::of(&operated(&origin, a, b, ""))?;
    let _cache = file.serve().await?;
    let further = format!("[[listener]]\naddress = \"{b}\"\nrole = \"admin\"");
    // Another kind of listener on the same address.
    file.rewrite(&operated(&origin, a, c, &further))?;
    let (status, told) = reload_at(a).await?;
    assert_eq!((status, &told["needs_restart"]), (200, &json!(["admin"])), "{told}");
    assert!(is_live(a).await && is_live(b).await && !is_live(c).await);

    file.rewrite(&operated(&origin, c, d, ""))?;
    let (status, told) = reload_at(a).await?;
    assert_eq!((status, &told["needs_restart"]), (200, &json!([])), "{told}");
    assert!(is_live(c).await && is_live(d).await);
    assert!(!is_live(a).await && !is_live(b).await, "removed listeners answer");

    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    file.rewrite(&operated(&origin, c, taken.local_addr()?, "shutdown_delay = \"1s\""))?;
    let (status, told) = reload_at(c).await?;
    let sentence = told["errors"][0].as_str().unwrap_or_default().to_owned();
    let expected = format!("probe listener cannot listen on {}", taken.local_addr()?);
    assert!(status == 400 && sentence.contains(&expected), "{status} {told}");
    assert!(is_live(c).await && is_live(d).await);
    Ok(())
}

#[tokio::test]
async fn a_reload_changes_the_durations_of_a_stop() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let text = |times: &str| listening(&origin, &["127.0.0.1:0".parse().unwrap()], times);
    let file = ConfigFile::of(&text("shutdown_delay = \"10m\"\ndrain_max = \"1h\""))?;
    let mut cache = file.serve().await?;
    let mut client = Client::connect(cache.address()).await?;
    client.send(&Request::get("/")).await?;
    origin.wait_requests(1).await?;
    file.rewrite(&text("shutdown_delay = \"1ms\"\ndrain_max = \"100ms\""))?;
    assert_eq!(reload_listeners(&cache).await?, [1, 0, 0, 0]);
    cache.signal(Signal::Term).await?;
    assert!(cache.wait_exit(END_MAX).await?.success());
    Ok(())
}

#[tokio::test]
async fn listeners_that_need_the_first_certificate_need_a_restart() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let (a, b) = (nowhere()?, nowhere()?);
    let file = ConfigFile::of(&listening(&origin, &[a], ""))?;
    let cache = file.serve().await?;
    let names = vec!["shop.example".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names)?;
    std::fs::write(file.folder.path().join("cert.pem"), cert.pem())?;
    std::fs::write(file.folder.path().join("key.pem"), signing_key.serialize_pem())?;
    let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"";
    let table = format!("{tls}\n[[listener]]\naddress = \"{b}\"\ntls = true");
    file.rewrite(&listening(&origin, &[a], &table))?;
    let (status, told) = reload(&cache).await?;
    assert_eq!((status, &told["needs_restart"]), (200, &json!(["tls", "listen"])), "{told}");
    request(a, 0).await
}

#[tokio::test]
async fn connections_in_the_queue_of_a_removed_listener_are_answered() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let (a, b) = (nowhere()?, nowhere()?);
    let file = ConfigFile::of(&listening(&origin, &[a, b], ""))?;
    let cache = file.serve().await?;
    request(a, 0).await?;
    file.rewrite(&listening(&origin, &[b], ""))?;
    cache.signal(Signal::Stop).await?;
    let mut clients = Vec::new();
    for _ in 0..QUEUED {
        let mut client = Client::connect(a).await?;
        client.send(&Request::get("/0")).await?;
        clients.push(client);
    }
    cache.signal(Signal::Hup).await?;
    cache.signal(Signal::Cont).await?;
    for mut client in clients {
        assert_eq!(client.reply().await?.status, 200);
    }
    cache.wait_stderr("listeners_removed=1").await?;
    assert!(Client::connect(a).await.is_err(), "a removed listener accepts connections");
    Ok(())
}

#[tokio::test]
async fn no_request_fails_while_listeners_are_added_and_removed() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let (a, b) = (nowhere()?, nowhere()?);
    let [alone, both] = [&[a][..], &[a, b]].map(|some| listening(&origin, some, ""));
    let file = ConfigFile::of(&alone)?;
    let cache = file.serve().await?;
    let load = Load::of_connections(RATE, a);
    for number in 0..RELOADS {
        let is_added = number % 2 == 0;
        file.rewrite(if is_added { &both } else { &alone })?;
        let expected = if is_added { [1, 0, 1, 0] } else { [1, 0, 0, 1] };
        assert_eq!(reload_listeners(&cache).await?, expected);
        assert_eq!(request(b, number).await.is_ok(), is_added);
    }
    load.end().await?.assert_none_failed();
    Ok(())
}
