//! URL of a site's origin server.

use http::Uri;
use http::uri::{Authority, Scheme};
use std::fmt;

/// Default port of `http` URLs (RFC 9110 section 4.2.1).
const HTTP_PORT: u16 = 80;

/// URL of an origin: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginUrl {
    /// Scheme; always `http`, because this version does not support TLS to origins.
    pub(crate) scheme: Scheme,
    /// Host and port as typed.
    pub(crate) authority: Authority,
}

impl OriginUrl {
    /// Reads the URL of an origin.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the option's path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Self::parts(text).map_err(|reason| format!("\"{text}\" {reason}"))
    }

    fn parts(text: &str) -> Result<Self, &'static str> {
        const EXAMPLE: &str = "is not a URL such as \"http://127.0.0.1:3000\"";
        // The parser of `Uri` silently drops a fragment, which is an error here.
        if text.contains('#') {
            return Err("must not have a fragment");
        }
        let parts = text.parse::<Uri>().map_err(|_| EXAMPLE)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(EXAMPLE);
        };
        if scheme == Scheme::HTTPS {
            return Err("uses TLS, which this version does not support for origins; use an \
                        http:// URL");
        }
        if scheme != Scheme::HTTP {
            return Err("must begin with http://");
        }
        if authority.as_str().contains('@') {
            return Err("must not carry a user name or password");
        }
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err("must not have a path or query; those of the client are forwarded");
        }
        if authority.port_u16() == Some(0)
            || (authority.port_u16().is_none() && has_port(&authority))
        {
            return Err("has an invalid port; it must be a number from 1 to 65535");
        }
        Ok(Self { scheme, authority })
    }

    /// Host and port to connect to; the port is always present.
    pub(crate) fn address(&self) -> String {
        let port = self.authority.port_u16().unwrap_or(HTTP_PORT);
        format!("{}:{port}", self.authority.host())
    }
}

/// Returns whether text follows the host. `Authority::port_u16` is `None` for an invalid port too.
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
    fn an_invalid_origin_url_is_refused_with_its_reason() {
        for (url, reason) in [
            ("", "not a URL"),
            ("127.0.0.1:3000", "not a URL"),
            ("/path", "not a URL"),
            ("http://", "not a URL"),
            ("https://shop.internal", "does not support for origins"),
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
