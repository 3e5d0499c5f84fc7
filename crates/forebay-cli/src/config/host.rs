//! Which hosts a site answers for.

use std::fmt;

/// RFC 1035 section 2.3.4: a name has at most 255 octets on the wire, 253 as text.
const NAME_MAX: usize = 253;
/// RFC 1035 section 2.3.4.
const LABEL_MAX: usize = 63;

/// One entry of a site's `hosts`: lower case, without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// Exactly this name or address (an IPv6 address in brackets).
    Exact(String),
    /// Every name below this one, but not the name itself; written `*.name`.
    Below(String),
}

impl HostPattern {
    /// Reads a pattern; the error is the rest of a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(reason) = fault(&lower) {
            return Err(format!("\"{text}\" {reason}"));
        }
        Ok(match lower.strip_prefix("*.") {
            Some(name) => Self::Below(name.to_owned()),
            None => Self::Exact(lower),
        })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// What is wrong with a pattern, as the rest of a sentence.
fn fault(pattern: &str) -> Option<&'static str> {
    if let Some(inside) = pattern.strip_prefix('[') {
        let address = inside.strip_suffix(']').map(str::parse::<std::net::Ipv6Addr>);
        return match address {
            Some(Ok(_)) => None,
            _ => Some("is not an IPv6 address in brackets"),
        };
    }
    let name = pattern.strip_prefix("*.").unwrap_or(pattern);
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if pattern == "*" {
        Some("is every host; leave `hosts` out instead")
    } else if name.contains("://") || name.contains('/') {
        Some("must be a host alone, without scheme and path")
    } else if name.contains('*') {
        Some("may have a \"*\" only as its first label, as in \"*.shop.example\"")
    } else if name.contains(':') {
        Some("must not have a port; a site answers on every port that `listen` names")
    } else if !name.is_ascii() {
        Some("must be written in its ASCII form (xn--…)")
    } else if !name.bytes().all(legal) {
        Some("has a character that no host name has")
    } else if name.len() > NAME_MAX || name.split('.').any(|label| label.len() > LABEL_MAX) {
        Some("is longer than a host name can be")
    } else if name.split('.').any(str::is_empty) {
        Some("must not have an empty label (nor a dot at its end)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_and_one_leading_star() {
        let exact = |name: &str| Ok(HostPattern::Exact(name.into()));
        assert_eq!(HostPattern::parse("Shop.Example"), exact("shop.example"));
        assert_eq!(HostPattern::parse("localhost"), exact("localhost"));
        assert_eq!(HostPattern::parse("127.0.0.1"), exact("127.0.0.1"));
        assert_eq!(HostPattern::parse("[::1]"), exact("[::1]"));
        let below = HostPattern::parse("*.Shop.example").unwrap();
        assert_eq!(below, HostPattern::Below("shop.example".into()));
        assert_eq!(below.to_string(), "*.shop.example");
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "empty label"),
            ("*", "leave `hosts` out"),
            ("*.", "empty label"),
            ("*.*.example", "first label"),
            ("shop.*", "first label"),
            ("a*.example", "first label"),
            ("shop.example:8080", "port"),
            ("http://shop.example", "without scheme"),
            ("shop.example/a", "without scheme and path"),
            ("shop..example", "empty label"),
            ("shop.example.", "empty label"),
            ("sh op", "character"),
            ("müller.example", "ASCII form"),
            ("[::1", "IPv6"),
            ("[::1]:80", "IPv6"),
        ] {
            let error = HostPattern::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(HostPattern::parse(&"a".repeat(64)).unwrap_err().contains("longer"));
        assert!(HostPattern::parse(&"a.".repeat(127)).unwrap_err().contains("longer"));
    }
}
