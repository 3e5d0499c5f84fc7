//! Handshakes while certificates change, and their resumption.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use forebay_tls::certificate::CertificateFiles;
use forebay_tls::server::{ClientCertificates, MinVersion, TlsServer, TlsSettings};
use forebay_tls::store::{CertificateSources, CertificateStore};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

const NAME: &str = "a.example";

/// Server with a certificate in a file, and the authority that signs further ones.
struct World {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    store: Arc<CertificateStore>,
    server: TlsServer,
    client: Arc<ClientConfig>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(root.der().to_vec())).unwrap();
        let client = ClientConfig::builder_with_provider(forebay_tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        write(folder.path(), &issuer, 0);
        let path = folder.path().join("a.pem");
        let files = CertificateFiles { certificate: path.clone(), key: path };
        let sources = CertificateSources { files: vec![files], ..CertificateSources::default() };
        let store = CertificateStore::load(&sources).unwrap();
        let settings = TlsSettings {
            min_version: MinVersion::Tls12,
            protocols: Vec::new(),
            client_certificates: ClientCertificates::Off,
            authority: None,
            handshake_timeout: Duration::from_secs(30),
        };
        let server = TlsServer::new(&settings, store.clone(), Arc::new(Semaphore::new(8)));
        Self { folder, issuer, store, server: server.unwrap(), client: Arc::new(client) }
    }

    /// Connects and reads a byte, after which the client has its ticket. Returns `true` if both
    /// sides resumed a session.
    async fn connect(&self) -> bool {
        let (near, far) = duplex(16 << 10);
        let accept = async {
            let mut shaken = self.server.accept(far).await.unwrap();
            shaken.stream.write_all(b"x").await.unwrap();
            let _ = shaken.stream.read(&mut [0]).await;
            shaken.is_resumed
        };
        let connect = async {
            let connector = TlsConnector::from(self.client.clone());
            let name = ServerName::try_from(NAME).unwrap();
            let mut stream = connector.connect(name, near).await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
        };
        let (of_server, of_client) = tokio::join!(accept, connect);
        assert_eq!(of_server, of_client);
        of_server
    }
}

/// Replaces the certificate and its key, as a renewal does: by one rename.
fn write(folder: &Path, issuer: &Issuer<'_, KeyPair>, number: u64) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let new = folder.join("new");
    std::fs::write(&new, key.serialize_pem() + &certificate.pem()).unwrap();
    // Two changes within the resolution of the file system's clock are still two.
    let modified = SystemTime::now() + Duration::from_secs(number);
    File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
    std::fs::rename(&new, folder.join("a.pem")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_certificate_changes_fail_no_handshake() {
    const CHANGES: u64 = 1_000;
    let world = Arc::new(World::new());
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = (0..2).map(|_| {
        let (world, is_over) = (world.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut handshakes = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                world.connect().await;
                handshakes += 1;
            }
            handshakes
        })
    });
    let clients: Vec<_> = clients.collect();
    let changer = world.clone();
    let changed = tokio::task::spawn_blocking(move || {
        let mut changed = 0;
        for number in 1..=CHANGES {
            write(changer.folder.path(), &changer.issuer, number);
            let (replaced, errors) = changer.store.refresh();
            assert!(errors.is_empty(), "{errors:?}");
            changed += replaced as u64;
        }
        changed
    });
    assert_eq!(changed.await.unwrap(), CHANGES);
    is_over.store(true, Ordering::Relaxed);
    let mut handshakes = 0;
    for client in clients {
        handshakes += client.await.unwrap();
    }
    assert!(handshakes > 100, "{handshakes} handshakes");
    assert_eq!(world.store.loads(), (CHANGES + 1, 0));
}

#[tokio::test]
async fn sessions_are_resumed_also_after_a_change_of_the_certificate() {
    let world = World::new();
    let mut resumed = 0;
    for number in 0..200 {
        if number == 100 {
            write(world.folder.path(), &world.issuer, 1);
            assert_eq!(world.store.refresh().0, 1);
        }
        resumed += u32::from(world.connect().await);
    }
    assert!(resumed >= 190, "{resumed} of 200 sessions are resumed");
}
