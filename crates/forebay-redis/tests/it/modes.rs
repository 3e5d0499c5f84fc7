//! Connection modes: sockets, users, TLS, a Cluster, Sentinels.

use forebay_engine::Tier;
use forebay_redis::{EndpointSettings, Login, Servers, Settings, TlsSettings};
use forebay_testkit::redis::{RedisLaunch, TlsIdentity, start_cluster, start_sentinel};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::fixture::{Fixture, key, patient, server};

const BODY: &[u8] = b"the body";

/// Stores, reads and removes entries.
async fn works(fixture: &Fixture) {
    for number in 0..20 {
        let key = key(&format!("/{number}"));
        fixture.put(&key, BODY).await.unwrap();
        assert_eq!(fixture.body(&key).await.as_deref(), Some(BODY));
        assert!(fixture.remove(&key).await.unwrap());
        assert_eq!(fixture.get(&key).await.unwrap(), None);
    }
    fixture.put(&key("/last"), &vec![b'x'; 1 << 20]).await.unwrap();
    assert_eq!(fixture.body(&key("/last")).await.unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let server = RedisLaunch::new().socket().start().await.unwrap();
    let url = format!("unix://{}", server.socket().display());
    works(&Fixture::new(Settings::new(patient(url))).await).await;
}

#[tokio::test]
async fn a_user_comes_from_the_settings_or_the_url() {
    let user = "user cache on >secret ~forebay:* +@read +@write +@connection +@scripting +time";
    let launch = RedisLaunch::new().config(user).config("requirepass other");
    let server = launch.start().await.unwrap();
    let url = format!("redis://cache:secret@{}", server.address());
    works(&Fixture::new(Settings::new(patient(url))).await).await;
    let login = Login { user: Some("cache".into()), password: "secret".into() };
    let endpoint = EndpointSettings { login: Some(login), ..patient(server.url()) };
    works(&Fixture::new(Settings::new(endpoint)).await).await;
}

/// A certificate authority with certificates for the server `localhost` and a client.
struct Certificates {
    authority: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (server, client) = (signed("localhost"), signed("client"));
    Certificates { authority, server, client }
}

#[tokio::test]
async fn tls_requires_trusted_certificates() {
    let certificates = certificates();
    let (certificate, key) = certificates.server.clone();
    let authority = certificates.authority.clone();
    let identity =
        TlsIdentity { authority: authority.clone(), certificate, key, wants_clients: true };
    let server = RedisLaunch::new().tls(identity).start().await.unwrap();
    let (certificate, key) = &certificates.client;
    let client = Some((certificate.clone().into_bytes(), key.clone().into_bytes()));
    let tls = |authority: Option<String>, client| {
        Settings::new(EndpointSettings {
            tls: TlsSettings { authority: authority.map(String::into_bytes), client },
            ..patient(server.tls_url().unwrap())
        })
    };
    works(&Fixture::new(tls(Some(authority.clone()), client.clone())).await).await;

    // An unknown server certificate, and a missing client certificate.
    let stranger = Fixture::connect(tls(None, client.clone()));
    stranger.notices.wait("certificate", 1).await;
    let unknown = Fixture::connect(tls(Some(authority), None));
    unknown.notices.wait("rediss://localhost", 1).await;
    for fixture in [stranger, unknown] {
        assert!(!fixture.tier.endpoints()[0].is_up);
        assert!(fixture.get(&crate::fixture::key("/")).await.is_err());
    }
}

#[test]
fn invalid_certificates_are_refused_before_connecting() {
    let tls = TlsSettings { authority: None, client: Some((b"x".to_vec(), b"y".to_vec())) };
    let endpoint = EndpointSettings { tls, ..EndpointSettings::at("rediss://host") };
    let clock = std::sync::Arc::new(forebay_engine::SystemClock);
    let made =
        forebay_redis::Redis::connect(Settings::new(endpoint), clock, std::sync::Arc::new(()));
    let said = made.err().unwrap().to_string();
    assert!(
        said.starts_with("TLS to the Redis server rediss://host:6379 cannot be set up: "),
        "{said}"
    );
}

#[tokio::test]
async fn a_cluster_of_three_acts_as_one() {
    let servers = start_cluster(3).await.unwrap();
    let urls = vec![servers[0].url(), servers[1].url()];
    let endpoint = EndpointSettings { servers: Servers::Cluster(urls), ..patient("") };
    let fixture = Fixture::new(Settings::new(endpoint)).await;
    works(&fixture).await;
    for number in 0..30 {
        fixture.put(&key(&format!("/kept/{number}")), BODY).await.unwrap();
    }
    let keys: Vec<_> = (0..31).map(|number| key(&format!("/kept/{number}"))).collect();
    let found = fixture.tier.open_many(&keys).await.unwrap();
    let there: Vec<_> = found.iter().map(Option::is_some).collect();
    assert_eq!((there.len(), there.iter().position(|there| !there)), (31, Some(30)));
    for server in &servers {
        let count = crate::fixture::number(server, &["DBSIZE"]).await;
        assert!(count > 0, "each of them has a part");
    }
}

#[tokio::test]
async fn when_a_master_dies_the_one_that_sentinels_name_takes_its_place() {
    let master = server().await;
    let _replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let sentinel = start_sentinel("main", &master, 1).await.unwrap();
    let servers = Servers::Sentinel { master: "main".into(), nodes: vec![sentinel.url()] };
    let endpoint = EndpointSettings { servers, ..patient("") };
    let fixture = Fixture::new(Settings::new(endpoint)).await;
    works(&fixture).await;
    master.kill().await.unwrap();
    fixture.until(|tier| !tier.endpoints()[0].is_up).await;
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    // The first connection may still lead to a replica.
    fixture.put_until_stored(&key("/"), BODY).await;
    works(&fixture).await;
}
