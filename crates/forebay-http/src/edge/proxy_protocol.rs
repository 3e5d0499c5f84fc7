//! PROXY protocol, versions 1 and 2: a header with which a proxy names the client of a connection.
//!
//! The header is required where it is enabled: a listener that accepts connections with and without
//! it would let every client choose its address.

use std::io;
use std::time::Duration;

use forebay_semantics::{PeerAddress, Scheme};
use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Maximum time for a proxy to send the whole header. It is the first thing that a proxy sends.
const READ_MAX: Duration = Duration::from_secs(5);

/// Maximum length of a header in bytes: several times the length with the fields that HAProxy adds.
const LENGTH_MAX: usize = 4 << 10;

/// Length of the fixed part of version 2, which ends with the length of the rest.
const V2_FIXED: usize = 16;

/// First bytes of version 2.
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Maximum length of version 1.
const V1_LENGTH_MAX: usize = 107;

/// Facts that a PROXY header states about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyFacts {
    /// Address of the client; `None` if the header names none: for a connection of the proxy
    /// itself, such as a health check, or of an unknown kind.
    pub source: Option<PeerAddress>,
    /// `Https` if the header (version 2) states that the client used TLS, or else `None`.
    pub scheme: Option<Scheme>,
}

/// Reason for which a connection without a valid PROXY header is closed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The bytes are not a valid PROXY header.
    #[error("the connection does not begin with a valid PROXY header")]
    Invalid,
    /// The header is longer than the maximum.
    #[error("the PROXY header is longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// The header was not complete within 5 s.
    #[error("the PROXY header did not arrive within {READ_MAX:?}")]
    TooSlow,
    /// The connection failed or ended before the end of the header.
    #[error("the connection ended before the end of the PROXY header: {0}")]
    Closed(#[from] io::Error),
}

/// Reads the header of a connection within 5 s, and not one byte more.
///
/// # Errors
/// If the connection does not begin with a valid header in time; it must be closed then.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<ProxyFacts, ProxyHeaderError> {
    let header = timeout(READ_MAX, read_bytes(stream)).await;
    let header = header.map_err(|_| ProxyHeaderError::TooSlow)??;
    parse(&header)
}

/// Parses a complete header.
///
/// # Errors
/// If it is not a valid header, or bytes follow it.
pub fn parse(header: &[u8]) -> Result<ProxyFacts, ProxyHeaderError> {
    let (parsed, length) = ProxyHeader::parse(header, ParseConfig::default())
        .map_err(|_: Error| ProxyHeaderError::Invalid)?;
    if length != header.len() {
        return Err(ProxyHeaderError::Invalid);
    }
    let source = parsed.proxied_address().map(|proxied| proxied.source.ip().into());
    let is_tls = parsed.ssl().is_some_and(|ssl| ssl.client_ssl());
    Ok(ProxyFacts { source, scheme: is_tls.then_some(Scheme::Https) })
}

async fn read_bytes<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, ProxyHeaderError> {
    let mut header = vec![0; V2_SIGNATURE.len()];
    stream.read_exact(&mut header).await?;
    if header.starts_with(b"PROXY ") {
        return read_line(stream, header).await;
    }
    if header != V2_SIGNATURE {
        return Err(ProxyHeaderError::Invalid);
    }
    header.resize(V2_FIXED, 0);
    stream.read_exact(&mut header[V2_SIGNATURE.len()..]).await?;
    let rest = usize::from(u16::from_be_bytes([header[V2_FIXED - 2], header[V2_FIXED - 1]]));
    if V2_FIXED + rest > LENGTH_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    header.resize(V2_FIXED + rest, 0);
    stream.read_exact(&mut header[V2_FIXED..]).await?;
    Ok(header)
}

/// Reads the rest of a line of version 1. Only its end tells its length, so it is read byte by
/// byte.
async fn read_line<S: AsyncRead + Unpin>(
    stream: &mut S,
    mut line: Vec<u8>,
) -> Result<Vec<u8>, ProxyHeaderError> {
    while line.last() != Some(&b'\n') {
        if line.len() >= V1_LENGTH_MAX {
            return Err(ProxyHeaderError::Invalid);
        }
        line.push(stream.read_u8().await?);
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;
    use proxy_header::{ProxiedAddress, SslInfo, Tlv};

    use super::*;

    fn address(text: &str) -> PeerAddress {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn v2(source: &str, destination: &str, tlvs: Vec<Tlv<'_>>) -> Vec<u8> {
        let proxied = ProxiedAddress::stream(source.parse().unwrap(), destination.parse().unwrap());
        let mut bytes = Vec::new();
        ProxyHeader::with_tlvs(Some(proxied), tlvs).encode_v2(&mut bytes).unwrap();
        bytes
    }

    /// Reads a header that is followed by a request.
    async fn read_before(header: &[u8]) -> Result<ProxyFacts, ProxyHeaderError> {
        let request = b"GET / HTTP/1.1\r\n";
        let bytes = [header, request].concat();
        let mut stream = &bytes[..];
        let facts = read(&mut stream).await?;
        assert_eq!(stream, request, "not one byte of the request is read");
        Ok(facts)
    }

    #[tokio::test]
    async fn both_versions_name_the_client() {
        let tls = Tlv::Ssl(SslInfo::new(true, false, false, 0));
        let mut local = Vec::new();
        ProxyHeader::with_local().encode_v2(&mut local).unwrap();
        let rows = [
            (b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n".to_vec(), Some("203.0.113.9"), None),
            (b"PROXY TCP6 2001:db8::9 ::1 4711 443\r\n".to_vec(), Some("2001:db8::9"), None),
            (b"PROXY UNKNOWN\r\n".to_vec(), None, None),
            (b"PROXY UNKNOWN ::1 ::1 1 2\r\n".to_vec(), None, None),
            (v2("203.0.113.9:4711", "10.0.0.1:443", vec![]), Some("203.0.113.9"), None),
            (v2("[2001:db8::9]:1", "[::1]:2", vec![]), Some("2001:db8::9"), None),
            (
                v2("203.0.113.9:4711", "10.0.0.1:443", vec![tls]),
                Some("203.0.113.9"),
                Some(Scheme::Https),
            ),
            (local, None, None),
        ];
        for (header, source, scheme) in rows {
            let expected = ProxyFacts { source: source.map(address), scheme };
            assert_eq!(read_before(&header).await.unwrap(), expected, "{header:?}");
        }
    }

    #[tokio::test]
    async fn everything_else_is_refused() {
        let long = [&V2_SIGNATURE[..], &[0x21, 0x11, 0x10, 0x00], &[0; 0x1000]].concat();
        let line = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
        let rows: [&[u8]; 8] = [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00",
            b"PROXY TCP4 203.0.113.9 10.0.0.1 4711\r\n",
            b"PROXY TCP4 203.0.113.999 10.0.0.1 4711 443\r\n",
            b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\n",
            &line,
            &long,
        ];
        for header in rows {
            let refused = read(&mut &header[..]).await;
            assert!(refused.is_err(), "{:?}", String::from_utf8_lossy(header));
        }
        let cut = read(&mut &b"PROXY TCP4 203"[..]).await;
        assert!(matches!(cut, Err(ProxyHeaderError::Closed(_))));
        let long = read(&mut &long[..]).await;
        assert!(matches!(long, Err(ProxyHeaderError::TooLong)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_header_is_refused() {
        let (mut proxy, mut stream) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut proxy, b"PROXY TCP4 ").await.unwrap();
        assert!(matches!(read(&mut stream).await, Err(ProxyHeaderError::TooSlow)));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..3) {
            let start: &[u8] = match kind {
                0 => &[],
                1 => b"PROXY TCP6 ",
                _ => &V2_SIGNATURE,
            };
            let _ = parse(&[start, &bytes].concat());
        }
    }
}
