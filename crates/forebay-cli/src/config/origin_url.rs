//! Where a site's answers come from.

use http::Uri;
use http::uri::{Authority, Scheme};
use std::fmt;

/// What an `http` URL means when it names no port (RFC 9110 section 4.2.1).
const HTTP_PORT: u16 = 80;

/// The URL of an origin: scheme, host and port, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginUrl {
    /// `http`, until this version speaks TLS to origins.
    pub(crate) scheme: Scheme,
    /// Host and port as they were written.
    pub(crate) authority: Authority,
}

impl OriginUrl {
    /// Reads an origin's URL; the error is the rest of a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Self::parts(text).map_err(|reason| format!("\"{text}\" {reason}"))
    }

    fn parts(text: &str) -> Result<Self, &'static str> {
        const EXAMPLE: &str = "is not a URL such as \"http://127.0.0.1:3000\"";
        // The parser of `Uri` drops a fragment in silence, and a fragment is a mistake here.
        if text.contains('#') {
            return Err("must not have a fragment");
        }
        let parts = text.parse::<Uri>().map_err(|_| EXAMPLE)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(EXAMPLE);
        };
        if scheme == Scheme::HTTPS {
            return Err("is known syntax, but this version does not speak TLS to origins yet; \
                        use an http:// origin");
        }
        if scheme != Scheme::HTTP {
            return Err("must begin with http://");
        }
        if authority.as_str().contains('@') {
            return Err("must not carry a user name or password");
        }
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err("must not have a path or query; the client's are sent to the origin");
        }
        if authority.port_u16() == Some(0)
            || (authority.port_u16().is_none() && has_port(&authority))
        {
            return Err("has a port that is not a number from 1 to 65535");
        }
        Ok(Self { scheme, authority })
    }

    /// Host and port to connect to, the port always there.
    pub(crate) fn address(&self) -> String {
        let port = self.authority.port_u16().unwrap_or(HTTP_PORT);
        format!("{}:{port}", self.authority.host())
    }
}

/// Whether something stands where a port would: `port_u16` is also silent about a bad one.
fn has_port(authority: &Authority) -> bool {
    authority.as_str().len() > authority.host().len()
}

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_always_has_a_port() {
        for (url, address, shown) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://shop.internal/", "shop.internal:80", "http://shop.internal"),
            ("HTTP://shop.internal", "shop.internal:80", "http://shop.internal"),
            ("http://[::1]:81", "[::1]:81", "http://[::1]:81"),
            ("http://[::1]", "[::1]:80", "http://[::1]"),
        ] {
            let origin = OriginUrl::parse(url).unwrap();
            assert_eq!(origin.address(), address);
            assert_eq!(origin.to_string(), shown);
        }
    }

    #[test]
    fn what_an_origin_cannot_be_is_said() {
        for (url, reason) in [
            ("", "not a URL"),
            ("127.0.0.1:3000", "not a URL"),
            ("/path", "not a URL"),
            ("http://", "not a URL"),
            ("https://shop.internal", "does not speak TLS to origins yet"),
            ("ftp://shop.internal", "must begin with http://"),
            ("http://me:secret@shop.internal", "user name"),
            ("http://shop.internal/base", "path or query"),
            ("http://shop.internal/?a", "path or query"),
            ("http://shop.internal/#a", "fragment"),
            ("http://shop.internal:0", "port"),
            ("http://shop.internal:70000", "port"),
            ("http://shop.internal:", "port"),
        ] {
            let error = OriginUrl::parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
