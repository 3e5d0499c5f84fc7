//! Access rules of the admin listener: host name, token, origin and content type of a request.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use crate::admin_token::Token;

/// Host names and token that the admin listener accepts.
pub(super) struct Guard {
    /// `None` for a Unix socket, which no page of a browser reaches.
    names: Option<Names>,
    token: Arc<Token>,
}

/// Values of `Host` that name a listener.
struct Names {
    address: String,
    /// True if the loopback names reach the listener.
    is_local: bool,
}

impl Names {
    fn of(address: SocketAddr) -> Self {
        let is_local = address.ip().is_loopback() || address.ip().is_unspecified();
        Self { address: address.to_string(), is_local }
    }

    /// Returns `true` if `host` names the listener. A loopback name may have any port, because an
    /// SSH tunnel has its own; no name server answers for these names.
    fn have(&self, host: &str) -> bool {
        let is_loopback = |host: &str| {
            ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| name.eq_ignore_ascii_case(host))
        };
        let without_port = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        self.address == host || (self.is_local && is_loopback(without_port))
    }
}

/// Reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownHost,
    BadToken,
    CrossOrigin,
    NotJson,
}

impl Refusal {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::BadToken => StatusCode::UNAUTHORIZED,
            Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::UnknownHost => {
                "The Host header does not name the admin listener; use its IP address and port, or \
                 localhost."
            }
            Self::BadToken => {
                "A token is required: send the one in admin_token_file as Authorization: Bearer \
                 TOKEN."
            }
            Self::CrossOrigin => {
                "A page of another site sent this request; only the dashboard and programs may \
                 purge or reload."
            }
            Self::NotJson => {
                "The Content-Type of a POST to the admin listener must be application/json."
            }
        }
    }
}

impl Guard {
    /// Creates the rules of a listener at this address; `None` is a Unix socket.
    pub(super) fn new(address: Option<SocketAddr>, token: Arc<Token>) -> Self {
        Self { names: address.map(Names::of), token }
    }

    /// Checks a request against the rules, in the order of the variants of [`Refusal`].
    ///
    /// # Errors
    /// The first rule that the request breaks.
    pub(super) fn admit(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = only(headers, &HOST).ok_or(Refusal::UnknownHost)?;
        let token = self.token.current();
        // With a token, any host name is accepted: the operator may have given the listener one.
        if token.is_none() && !self.names.as_ref().is_none_or(|names| names.have(host)) {
            return Err(Refusal::UnknownHost);
        }
        if let Some(token) = &token {
            let given = only(headers, &AUTHORIZATION).and_then(|v| v.strip_prefix("Bearer "));
            if !given.is_some_and(|given| {
                equal_in_constant_time(given.trim().as_bytes(), token.as_bytes())
            }) {
                return Err(Refusal::BadToken);
            }
        }
        if method == Method::GET || method == Method::HEAD {
            return Ok(());
        }
        let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        let of_origin = |origin: &str| {
            let own = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            own == Some(host)
        };
        if origin.is_some_and(|origin| !of_origin(origin)) {
            return Err(Refusal::CrossOrigin);
        }
        let kind = only(headers, &CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(Refusal::NotJson) }
    }
}

/// Value of a field that occurs exactly once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

/// Compares two tokens in a time that does not depend on where they differ.
fn equal_in_constant_time(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |seen, (a, b)| seen | (a ^ b));
    given.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn only_own_names_are_answered_on_a_loopback_address() {
        let guard = Guard::new(Some(SocketAddr::from(([127, 0, 0, 1], 8081))), Token::new(None));
        let admit = |host| guard.admit(&Method::GET, &headers(&[("host", host)]));
        assert_eq!(admit("127.0.0.1:8081"), Ok(()));
        assert_eq!(admit("LOCALHOST:8081"), Ok(()));
        assert_eq!(admit("rebound.example:8081"), Err(Refusal::UnknownHost));
        assert_eq!(admit("localhost:9081"), Ok(()), "an SSH tunnel");
        assert_eq!(admit("[::1]:9081"), Ok(()));
        assert_eq!(admit("127.0.0.1"), Ok(()));
        for host in ["localhost.example:8081", "127.0.0.1.example", "127.0.0.2:8081", "", ":8081"] {
            let host = HeaderValue::from_str(host).unwrap();
            let headers = [(HOST, host.clone())].into_iter().collect();
            assert_eq!(guard.admit(&Method::GET, &headers), Err(Refusal::UnknownHost), "{host:?}");
        }
        assert_eq!(guard.admit(&Method::GET, &HeaderMap::new()), Err(Refusal::UnknownHost));
    }

    #[test]
    fn changes_come_as_json_and_from_no_other_site() {
        let guard = Guard::new(Some(SocketAddr::from(([127, 0, 0, 1], 8081))), Token::new(None));
        let host = ("host", "localhost:8081");
        let json = ("content-type", "application/json; charset=utf-8");
        let admit = |fields: &[_]| guard.admit(&Method::POST, &headers(fields));
        assert_eq!(admit(&[host, json]), Ok(()));
        assert_eq!(admit(&[host]), Err(Refusal::NotJson));
        assert_eq!(admit(&[host, ("content-type", "text/plain")]), Err(Refusal::NotJson));
        assert_eq!(admit(&[host, json, ("origin", "http://localhost:8081")]), Ok(()));
        assert_eq!(
            admit(&[host, json, ("origin", "http://evil.example")]),
            Err(Refusal::CrossOrigin)
        );
        assert_eq!(admit(&[host, json, ("origin", "null")]), Err(Refusal::CrossOrigin));
    }

    #[test]
    fn a_token_is_compared_whole() {
        let token = Token::new(Some("secret".into()));
        let guard = Guard::new(Some(SocketAddr::from(([10, 0, 0, 1], 8081))), token.clone());
        let admit =
            |token| guard.admit(&Method::GET, &headers(&[("host", "x"), ("authorization", token)]));
        assert_eq!(admit("Bearer secret"), Ok(()));
        for wrong in ["Bearer secre", "Bearer secrets", "Bearer ", "secret", "Basic secret"] {
            assert_eq!(admit(wrong), Err(Refusal::BadToken), "{wrong}");
        }
        assert!(token.replace(Some("other")));
        assert_eq!(admit("Bearer secret"), Err(Refusal::BadToken));
        assert_eq!(admit("Bearer other"), Ok(()));
    }

    #[test]
    fn a_token_that_was_asked_for_once_is_asked_for_until_the_end() {
        let token = Token::new(None);
        assert!(token.replace(None));
        assert!(token.replace(Some("secret")));
        assert!(!token.replace(None));
        assert_eq!(token.current().as_deref(), Some("secret"));
    }
}
