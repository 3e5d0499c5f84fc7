//! Parts of requests that logs and live views hide.

use std::borrow::Cow;
use std::net::IpAddr;

use forebay_semantics::PeerAddress;
use memchr::{memchr, memchr2};

use crate::config::ClientIp;
use crate::config::resolved::Privacy;

/// Value in place of a secret one.
const REDACTED: &str = "REDACTED";

/// Rules for the parts of requests that logs and live views hide.
#[derive(Clone, Debug)]
pub(crate) struct Redaction {
    client_ip: ClientIp,
    keeps_query: bool,
    /// Names of further secret parameters in lower case; a trailing `*` matches any ending.
    names: Vec<String>,
}

impl Redaction {
    /// Creates the rules of a configuration.
    pub(crate) fn of(privacy: &Privacy) -> Self {
        let names = privacy.redact_query.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { client_ip: privacy.client_ip, keeps_query: privacy.keeps_query, names }
    }

    /// Returns a target whose secret parameters are redacted, without user information.
    pub(crate) fn target<'a>(&self, target: &'a str) -> Cow<'a, str> {
        let target = without_user(target);
        let Some(end) = memchr(b'?', target.as_bytes()) else { return target };
        let (path, query) = (&target[..end], &target[end + 1..]);
        if !self.keeps_query {
            return Cow::Owned(path.to_owned());
        }
        if !self.has_secret(query.as_bytes()) {
            return target;
        }
        let redacted = |parameter: &str| {
            let name = name_of(parameter.as_bytes());
            match self.is_secret(name) {
                true => format!("{}={REDACTED}", &parameter[..name.len()]),
                false => parameter.to_owned(),
            }
        };
        let query: Vec<_> = query.split('&').map(redacted).collect();
        Cow::Owned(format!("{path}?{}", query.join("&")))
    }

    /// Returns the part of an address that may be shown, if there is one.
    pub(crate) fn address(&self, address: PeerAddress) -> Option<PeerAddress> {
        match (self.client_ip, address) {
            (ClientIp::Off, _) => None,
            (ClientIp::Prefix, PeerAddress::Ip(ip)) => Some(PeerAddress::Ip(prefix(ip))),
            _ => Some(address),
        }
    }

    /// Returns `true` if a parameter of the query is secret.
    fn has_secret(&self, mut query: &[u8]) -> bool {
        loop {
            let end = memchr2(b'=', b'&', query).unwrap_or(query.len());
            let (name, value) = query.split_at(end);
            if self.is_secret(name) {
                return true;
            }
            match memchr(b'&', value) {
                Some(next) => query = &value[next + 1..],
                None => return false,
            }
        }
    }

    /// Returns `true` if the name ends with a secret word or has one between other characters than
    /// letters. A name with escapes may hide any word.
    fn is_secret(&self, name: &[u8]) -> bool {
        let is_listed = |listed: &String| match listed.strip_suffix('*') {
            Some(beginning) => name.get(..beginning.len()).is_some_and(|it| same(it, beginning)),
            None => same(name, listed),
        };
        // Most names are one word of letters.
        let has_parts = name.iter().any(|byte| !byte.is_ascii_alphabetic());
        let mut parts = name.split(|byte| !byte.is_ascii_alphabetic());
        let is_secret = |word: &[u8]| secrets_like(word).iter().any(|secret| same(word, secret));
        secrets_like(name).iter().any(|secret| ends_with(name, secret))
            || (has_parts && (name.contains(&b'%') || parts.any(is_secret)))
            || self.names.iter().any(is_listed)
    }
}

/// Returns the words with the last letter of `name` whose values are secret, in names of parameters.
/// `session` covers `session_id`, and `key` covers `api-key`. Few names have such a letter.
const fn secrets_like(name: &[u8]) -> &'static [&'static str] {
    match name.last() {
        Some(b'n' | b'N') => &["token", "session"],
        Some(b'y' | b'Y') => &["key"],
        Some(b'g' | b'G') => &["sig"],
        Some(b'd' | b'D') => &["password"],
        Some(b'e' | b'E') => &["code"],
        Some(b't' | b'T') => &["jwt", "secret"],
        Some(b'h' | b'H') => &["auth"],
        _ => &[],
    }
}

fn ends_with(name: &[u8], secret: &str) -> bool {
    let start = name.len().checked_sub(secret.len());
    start.is_some_and(|start| same(&name[start..], secret))
}

/// Returns a referer without its query, fragment and user information.
pub(super) fn referer(referer: &str) -> Cow<'_, str> {
    without_user(referer.split(['?', '#']).next().unwrap_or_default())
}

/// Returns the network of an address: /24 of IPv4, /48 of IPv6.
fn prefix(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) & 0xffff_ff00).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 80 << 80).into()),
    }
}

/// Compares names, whose letters may have either case.
const fn same(one: &[u8], other: &str) -> bool {
    one.eq_ignore_ascii_case(other.as_bytes())
}

fn name_of(parameter: &[u8]) -> &[u8] {
    let end = parameter.iter().position(|byte| *byte == b'=');
    &parameter[..end.unwrap_or(parameter.len())]
}

/// Removes `user:password@` of a URL.
fn without_user(url: &str) -> Cow<'_, str> {
    if url.starts_with('/') {
        return Cow::Borrowed(url);
    }
    let Some((scheme, rest)) = url.split_once("://") else { return Cow::Borrowed(url) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => Cow::Owned(format!("{scheme}://{host}{path}")),
        None => Cow::Borrowed(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redaction(client_ip: ClientIp, keeps_query: bool, names: &[&str]) -> Redaction {
        let redact_query = names.iter().map(|&name| name.to_owned()).collect();
        Redaction::of(&Privacy { client_ip, keeps_query, redact_query })
    }

    #[test]
    fn secret_parameters_are_redacted() {
        let redaction = redaction(ClientIp::Full, true, &["Mail", "u_*"]);
        for (shown, expected) in [
            ("/a", "/a"),
            ("/a?b=1&page=2", "/a?b=1&page=2"),
            ("/a?token=x&b=1", "/a?token=REDACTED&b=1"),
            ("/a?b=1&API-Key=x", "/a?b=1&API-Key=REDACTED"),
            ("/a?access_token=x", "/a?access_token=REDACTED"),
            ("/a?session_id=x&X-Amz-Sig=y", "/a?session_id=REDACTED&X-Amz-Sig=REDACTED"),
            ("/a?authToken=x", "/a?authToken=REDACTED"),
            ("/a?%74oken=x", "/a?%74oken=REDACTED"),
            ("/a?monkeys=2", "/a?monkeys=2"),
            ("/a?mail=x&mails=y&U_name=z", "/a?mail=REDACTED&mails=y&U_name=REDACTED"),
            ("http://me:pw@shop.example/a?jwt=x", "http://shop.example/a?jwt=REDACTED"),
        ] {
            assert_eq!(redaction.target(shown), expected);
        }
    }

    #[test]
    fn a_query_can_be_dropped() {
        let redaction = redaction(ClientIp::Full, false, &[]);
        assert_eq!(redaction.target("/a?b=1?c"), "/a");
        assert_eq!(redaction.target("http://me:pw@shop.example/a?b=1"), "http://shop.example/a");
        assert_eq!(redaction.target("/a"), "/a");
    }

    #[test]
    fn addresses_are_shown_as_far_as_configured() {
        let shown = |client_ip, ip: &str| {
            let address = PeerAddress::from(ip.parse::<IpAddr>().unwrap());
            let address = redaction(client_ip, true, &[]).address(address);
            address.map(|address| address.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(ClientIp::Full, "192.0.2.17"), some("192.0.2.17"));
        assert_eq!(shown(ClientIp::Prefix, "192.0.2.17"), some("192.0.2.0"));
        assert_eq!(shown(ClientIp::Prefix, "2001:db8:1:2:3::4"), some("2001:db8:1::"));
        assert_eq!(shown(ClientIp::Off, "192.0.2.17"), None);
        let local = redaction(ClientIp::Prefix, true, &[]).address(PeerAddress::Unix);
        assert_eq!(local, Some(PeerAddress::Unix));
    }

    #[test]
    fn a_referer_has_no_query_and_no_user() {
        assert_eq!(referer("https://me:pw@a.example/b?token=x#y"), "https://a.example/b");
        assert_eq!(referer("https://a.example/b@c"), "https://a.example/b@c");
    }
}
