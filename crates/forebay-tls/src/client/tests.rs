use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Authority, and certificates that it signs.
struct Signer(CertifiedIssuer<'static, KeyPair>);

impl Signer {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for `origin.example` that expires in this year.
    fn write(&self, folder: &Path, stem: &str, end: i32) -> CertificateFiles {
        let mut params = CertificateParams::new(vec!["origin.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(end, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let files = CertificateFiles {
            certificate: folder.join(format!("{stem}.pem")),
            key: folder.join(format!("{stem}.key")),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    fn write_authority(&self, folder: &Path, stem: &str) -> PathBuf {
        let path = folder.join(format!("{stem}-ca.pem"));
        std::fs::write(&path, self.0.pem()).unwrap();
        path
    }
}

fn trusting(authority: &Path) -> ClientSettings {
    let authorities = Authorities::File(authority.to_owned());
    ClientSettings { authorities, verify: true, certificate: None }
}

/// Connects a client to a server with these files; `clients` is the authority of client
/// certificates. Returns what arrived, or the failure.
async fn exchange(
    client: ClientSettings,
    name: &'static str,
    server: &CertificateFiles,
    clients: Option<&Path>,
) -> Result<String, Option<TlsFailure>> {
    let text = std::fs::read(&server.key).unwrap();
    let key = rustls::pki_types::pem::PemObject::from_pem_slice(&text).unwrap();
    let chain = read_certificates(&server.certificate).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(crate::provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = roots(&Authorities::File(path.to_owned()), &mut DefaultHasher::new());
            let provider = crate::provider();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.unwrap(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = builder.with_single_cert(chain, key).unwrap();
    let (near, far) = duplex(64 << 10);
    let accepted = tokio::spawn(async move {
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(far).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    });
    let received = async {
        let name = ServerName::try_from(name).unwrap();
        let mut stream =
            TlsClient::new(client).unwrap().connect(name, near, &[b"http/1.1"]).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    let received = received.await.map_err(|error: io::Error| TlsFailure::of(&error));
    let _ = accepted.await.unwrap();
    received
}

#[tokio::test]
async fn each_failure_of_verification_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (signer, stranger) = (Signer::new("own"), Signer::new("stranger"));
    let namesake = Signer::new("own").write_authority(folder.path(), "namesake");
    let good = signer.write(folder.path(), "good", 2040);
    let expired = signer.write(folder.path(), "expired", 2021);
    let authority = signer.write_authority(folder.path(), "own");
    let other = stranger.write_authority(folder.path(), "other");
    let unverified = ClientSettings { verify: false, ..trusting(&other) };
    let shown = ClientSettings { certificate: Some(good.clone()), ..trusting(&authority) };
    let (right, wrong) = ("origin.example", "other.example");
    let rows = [
        (trusting(&authority), right, &good, None, Ok("hello")),
        (trusting(&authority), right, &expired, None, Err(TlsFailure::Expired)),
        (trusting(&authority), wrong, &good, None, Err(TlsFailure::WrongName)),
        (trusting(&other), right, &good, None, Err(TlsFailure::UnknownAuthority)),
        (trusting(&namesake), right, &good, None, Err(TlsFailure::UnknownAuthority)),
        (unverified, wrong, &expired, None, Ok("hello")),
        (
            trusting(&authority),
            right,
            &good,
            Some(&*authority),
            Err(TlsFailure::NoClientCertificate),
        ),
        (shown, right, &good, Some(&*authority), Ok("hello")),
    ];
    for (client, name, server, clients, expected) in rows {
        let shown = format!("{client:?} {name} {server:?}");
        let came = exchange(client, name, server, clients).await;
        assert_eq!(came.as_deref().map_err(|failure| *failure), expected.map_err(Some), "{shown}");
    }
}

#[test]
fn each_unusable_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::new("own");
    let pair = signer.write(folder.path(), "pair", 2040);
    let other = signer.write(folder.path(), "other", 2040);
    let authority = signer.write_authority(folder.path(), "own");
    let mismatch = CertificateFiles { key: other.key, ..pair.clone() };
    let missing = CertificateFiles { certificate: folder.path().join("none"), ..pair.clone() };
    let with = |certificate| ClientSettings { certificate, ..trusting(&authority) };
    let rows = [
        (trusting(&folder.path().join("none")), ClientFile::Authorities, "none cannot be read"),
        (trusting(&pair.key), ClientFile::Authorities, "contains no certificate in PEM form"),
        (with(Some(mismatch)), ClientFile::Key, "does not belong to the certificate"),
        (with(Some(missing)), ClientFile::Certificate, "none cannot be read"),
    ];
    for (settings, role, expected) in rows {
        let error = TlsClient::new(settings).unwrap_err();
        assert_eq!(error.role, role, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A reload keeps the connections of an unchanged client only.
#[test]
fn a_client_with_another_file_content_is_another_client() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Signer::new("own").write_authority(folder.path(), "own");
    let first = TlsClient::new(trusting(&authority)).unwrap();
    assert_eq!(first, TlsClient::new(trusting(&authority)).unwrap());
    Signer::new("own").write_authority(folder.path(), "own");
    assert_ne!(first, TlsClient::new(trusting(&authority)).unwrap());
}
