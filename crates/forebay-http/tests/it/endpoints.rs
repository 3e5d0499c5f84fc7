//! Tests of origins with several endpoints.

use std::time::Duration;

use forebay_http::{Balance, EndpointAddress, EndpointSettings, SiteSettings};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::server::{TestServer, site};

pub(crate) fn answer(name: &'static str) -> Answer {
    Answer::ok(name).field("Cache-Control", "no-store")
}

/// Returns the settings of a site with these servers.
pub(crate) fn balanced(origins: &[&Origin], balance: Balance) -> anyhow::Result<SiteSettings> {
    let mut settings = site(origins[0].address())?;
    let endpoint = |origin: &&Origin| {
        let authority = origin.address().to_string().parse()?;
        anyhow::Ok(EndpointSettings {
            address: EndpointAddress::Tcp(authority),
            tls: None,
            weight: 1,
        })
    };
    settings.origin.endpoints = origins.iter().map(endpoint).collect::<Result<_, _>>()?;
    settings.origin.balance = balance;
    Ok(settings)
}

async fn three() -> anyhow::Result<[Origin; 3]> {
    Ok([
        Origin::always(answer("a")).await?,
        Origin::always(answer("b")).await?,
        Origin::always(answer("c")).await?,
    ])
}

pub(crate) async fn server_of(settings: SiteSettings) -> anyhow::Result<TestServer> {
    let unused = Origin::always(answer("unused")).await?;
    let server = TestServer::start(unused.address(), &[]).await?;
    server.service.reload(&[settings]);
    Ok(server)
}

#[tokio::test]
async fn least_spreads_requests_by_weight() -> anyhow::Result<()> {
    let [a, b, c] = three().await?;
    let mut settings = balanced(&[&a, &b, &c], Balance::Least)?;
    settings.origin.endpoints[2].weight = 8;
    let server = server_of(settings).await?;
    let mut client = Client::connect(server.address).await?;
    for number in 0..200 {
        let reply = client.ask(&Request::get(&format!("/{number}"))).await?;
        assert_eq!(reply.status, 200);
    }
    let counts = [a.requests(), b.requests(), c.requests()];
    assert_eq!(counts.iter().sum::<u64>(), 200);
    assert!(counts[2] > 120 && counts[0] > 0 && counts[1] > 0, "{counts:?}");
    let connections = [&a, &b, &c].map(|origin| origin.counts().connections);
    assert_eq!(connections, [1, 1, 1], "each server has a pool of its own");
    Ok(())
}

/// Requests that a slow server has not answered count until the end of their bodies.
#[tokio::test]
async fn least_avoids_a_server_whose_responses_do_not_end() -> anyhow::Result<()> {
    let slow = Answer::ok(vec![7; 100]).drip(100, Duration::from_secs(600));
    let (slow, fast) = (Origin::always(slow).await?, Origin::always(answer("fast")).await?);
    let server = server_of(balanced(&[&slow, &fast], Balance::Least)?).await?;
    let mut clients = Vec::new();
    for number in 0..100 {
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get(&format!("/{number}"))).await?;
        assert_eq!(client.head().await?.status, 200);
        clients.push(client);
    }
    let counts = (slow.requests(), fast.requests());
    assert!((1..=5).contains(&counts.0), "{counts:?}");
    Ok(())
}

/// A server that takes a hundred times as long gets at most one in twenty requests.
#[tokio::test]
async fn least_sends_few_requests_to_a_server_that_is_slow() -> anyhow::Result<()> {
    let slow = |millis| answer("x").delay(Duration::from_millis(millis));
    let slow_one = Origin::always(slow(500)).await?;
    let (b, c) = (Origin::always(slow(5)).await?, Origin::always(slow(5)).await?);
    let server = server_of(balanced(&[&slow_one, &b, &c], Balance::Least)?).await?;
    let address = server.address;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..16 {
        clients.spawn(async move {
            let mut connection = Client::connect(address).await?;
            for number in 0..100 {
                let reply = connection.ask(&Request::get(&format!("/{client}/{number}"))).await?;
                anyhow::ensure!(reply.status == 200);
            }
            Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let counts = [&slow_one, &b, &c].map(Origin::requests);
    assert!(counts[0] * 20 <= counts.iter().sum(), "{counts:?}");
    Ok(())
}

#[tokio::test]
async fn hash_asks_the_same_server_for_a_path_and_moves_few_keys() -> anyhow::Result<()> {
    let [a, b, c] = three().await?;
    let server = server_of(balanced(&[&a, &b, &c], Balance::Hash)?).await?;
    let mut client = Client::connect(server.address).await?;
    let mut ask = async || {
        let mut asked = Vec::new();
        for number in 0..100 {
            let reply = client.ask(&Request::get(&format!("/{number}"))).await?;
            asked.push(reply.text().to_string());
        }
        anyhow::Ok(asked)
    };
    let before = ask().await?;
    assert_eq!(ask().await?, before);
    assert!([&a, &b, &c].iter().all(|origin| origin.requests() > 20));
    server.service.reload(&[balanced(&[&a, &c], Balance::Hash)?]);
    let after = ask().await?;
    let pairs = || before.iter().zip(&after);
    assert!(pairs().all(|(before, after)| before == after || before == "b"));
    assert!(pairs().any(|(before, after)| before != after));
    Ok(())
}

#[tokio::test]
async fn first_uses_one_server_and_a_reload_keeps_its_connection() -> anyhow::Result<()> {
    let [a, b, c] = three().await?;
    let server = server_of(balanced(&[&a, &b], Balance::First)?).await?;
    let mut client = Client::connect(server.address).await?;
    for _ in 0..10 {
        assert_eq!(client.ask(&Request::get("/")).await?.text(), "a");
    }
    server.service.reload(&[balanced(&[&c, &a], Balance::First)?]);
    assert_eq!(client.ask(&Request::get("/")).await?.text(), "c");
    server.service.reload(&[balanced(&[&a], Balance::First)?]);
    assert_eq!(client.ask(&Request::get("/")).await?.text(), "a");
    assert_eq!((a.requests(), a.counts().connections, b.requests()), (11, 1, 0));
    Ok(())
}
