//! URL of a site's origin server.

use forebay_http::EndpointAddress;
use http::Uri;
use http::uri::{Authority, Scheme};
use std::fmt;
use std::path::PathBuf;

/// Beginning of the URL of a Unix socket.
const UNIX: &str = "unix:";

/// URL of an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OriginUrl {
    /// Server behind a host and a port.
    Server {
        /// `http` or `https`.
        scheme: Scheme,
        /// Host and port as typed.
        authority: Authority,
    },
    /// Unix socket, without TLS.
    Unix(PathBuf),
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
        if let Some(path) = text.strip_prefix(UNIX) {
            return match path.starts_with('/') && !path.starts_with("//") {
                true => Ok(Self::Unix(path.into())),
                false => Err("must have an absolute path, such as \"unix:/run/app.sock\""),
            };
        }
        // The parser of `Uri` silently drops a fragment, which is an error here.
        if text.contains('#') {
            return Err("must not have a fragment");
        }
        let parts = text.parse::<Uri>().map_err(|_| EXAMPLE)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(EXAMPLE);
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err("must begin with http://, https:// or unix:/");
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
        Ok(Self::Server { scheme, authority })
    }

    /// Address to connect to; the port of a server is always present.
    pub(crate) fn address(&self) -> EndpointAddress {
        match self {
            Self::Unix(path) => EndpointAddress::Unix(path.clone()),
            Self::Server { scheme, authority } => {
                let default = if *scheme == Scheme::HTTPS { 443 } else { 80 };
                let port = authority.port_u16().unwrap_or(default);
                let address = format!("{}:{port}", authority.host()).parse();
                EndpointAddress::Tcp(address.unwrap_or_else(|_| authority.clone()))
            }
        }
    }

    /// Host of a server, without brackets.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Server { authority, .. } => {
                Some(authority.host().trim_start_matches('[').trim_end_matches(']'))
            }
        }
    }

    /// Returns `true` if the connection uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Server { scheme, .. } if *scheme == Scheme::HTTPS)
    }
}

/// Returns whether text follows the host. `Authority::port_u16` is `None` for an invalid port too.
fn has_port(authority: &Authority) -> bool {
    authority.as_str().len() > authority.host().len()
}

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { scheme, authority } => write!(f, "{scheme}://{authority}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
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
            ("https://shop.internal", "shop.internal:443", "https://shop.internal"),
            ("unix:/run/app.sock", "unix:/run/app.sock", "unix:/run/app.sock"),
        ] {
            let origin = OriginUrl::parse(url).unwrap();
            assert_eq!(origin.address().label(), address);
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
            ("ftp://shop.internal", "must begin with http://, https:// or unix:/"),
            ("unix:app.sock", "absolute path"),
            ("unix://run/app.sock", "absolute path"),
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
