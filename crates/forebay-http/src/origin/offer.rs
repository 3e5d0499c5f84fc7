//! Versions of HTTP that a new connection may have.

use crate::settings::OriginProtocols;

/// ALPN identifiers (RFC 7301; RFC 9113 section 3.1).
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Versions of HTTP that a connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    Http1,
    /// HTTP/2, which TLS has to agree on.
    Http2,
    /// Version that TLS agrees on, HTTP/2 preferred.
    Http2First,
    /// Version that TLS agrees on, HTTP/1.1 preferred.
    Http1First,
    /// HTTP/2 without an agreement (RFC 9113 section 3.3).
    PriorKnowledge,
    /// None of the allowed versions is possible.
    Nothing,
}

impl Offer {
    /// Returns the versions for an endpoint. Without TLS there is no agreement.
    pub(super) const fn of(protocols: OriginProtocols, has_tls: bool) -> Self {
        match protocols {
            OriginProtocols::PriorKnowledge if !has_tls => Self::PriorKnowledge,
            OriginProtocols::PriorKnowledge => Self::Nothing,
            OriginProtocols::Http2 if has_tls => Self::Http2,
            OriginProtocols::Http2 => Self::Nothing,
            OriginProtocols::Http2First if has_tls => Self::Http2First,
            OriginProtocols::Http1First if has_tls => Self::Http1First,
            OriginProtocols::Http1 | OriginProtocols::Http2First | OriginProtocols::Http1First => {
                Self::Http1
            }
        }
    }

    /// Returns these versions without HTTP/2.
    pub(super) const fn without_http2(self) -> Self {
        match self {
            Self::Http1 | Self::Http2First | Self::Http1First => Self::Http1,
            Self::Http2 | Self::PriorKnowledge | Self::Nothing => Self::Nothing,
        }
    }

    /// Returns `true` if the connection may be one of HTTP/2.
    pub(super) const fn has_http2(self) -> bool {
        !matches!(self, Self::Http1 | Self::Nothing)
    }

    /// Returns the ALPN identifiers, the preferred one first.
    pub(super) const fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http2 | Self::PriorKnowledge => &[H2],
            Self::Http2First => &[H2, HTTP_1_1],
            Self::Http1First => &[HTTP_1_1, H2],
            Self::Http1 | Self::Nothing => &[HTTP_1_1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_agrees_on_http2_and_prior_knowledge_needs_no_tls() {
        let rows = [
            (OriginProtocols::Http1, Offer::Http1, Offer::Http1),
            (OriginProtocols::Http2First, Offer::Http2First, Offer::Http1),
            (OriginProtocols::Http1First, Offer::Http1First, Offer::Http1),
            (OriginProtocols::Http2, Offer::Http2, Offer::Nothing),
            (OriginProtocols::PriorKnowledge, Offer::Nothing, Offer::PriorKnowledge),
        ];
        for (protocols, with_tls, without) in rows {
            assert_eq!(Offer::of(protocols, true), with_tls);
            assert_eq!(Offer::of(protocols, false), without);
        }
        for (offer, expected) in [
            (Offer::Http2First, Offer::Http1),
            (Offer::Http2, Offer::Nothing),
            (Offer::PriorKnowledge, Offer::Nothing),
        ] {
            assert!(offer.has_http2());
            assert_eq!(offer.without_http2(), expected);
            assert!(!expected.has_http2());
        }
    }
}
