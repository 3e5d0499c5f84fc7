//! Host names that a site answers for.

use std::fmt;

/// Maximum length of a host name as text (RFC 1035 section 2.3.4: 255 octets on the wire).
const NAME_MAX: usize = 253;
/// Maximum length of one label (RFC 1035 section 2.3.4).
const LABEL_MAX: usize = 63;

/// One entry of a site's `hosts`: lower case, without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// One name or address; an IPv6 address is in brackets.
    Exact(String),
    /// Every subdomain of this name, without the name itself; written `*.name`.
    Below(String),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the option's path.
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

/// Error in a pattern, as the rest of a sentence.
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
        Some("means every host; remove `hosts` instead")
    } else if name.contains("://") || name.contains('/') {
        Some("must be a host name without scheme and path")
    } else if name.contains('*') {
        Some("may have a \"*\" only as its first label, as in \"*.shop.example\"")
    } else if name.contains(':') {
        Some("must not have a port; a site answers on every address of `listen`")
    } else if !name.is_ascii() {
        Some("must be written in its ASCII form (xn--…)")
    } else if !name.bytes().all(legal) {
        Some("has a character that is not allowed in a host name")
    } else if name.len() > NAME_MAX || name.split('.').any(|label| label.len() > LABEL_MAX) {
        Some("is too long: a host name has at most 253 characters, and each label at most 63")
    } else if name.split('.').any(str::is_empty) {
        Some("must not have an empty label or a dot at its end")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_an_exact_name_or_has_one_leading_star() {
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
    fn an_invalid_pattern_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "empty label"),
            ("*", "remove `hosts`"),
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
        assert!(HostPattern::parse(&"a".repeat(64)).unwrap_err().contains("too long"));
        assert!(HostPattern::parse(&"a.".repeat(127)).unwrap_err().contains("too long"));
    }
}
