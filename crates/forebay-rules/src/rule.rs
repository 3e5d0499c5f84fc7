//! Rules as they are written: conditions and settings.

use std::fmt;

use forebay_semantics::{Networks, Scheme};
use http::Method;

use crate::glob::{NamePattern, PathGlob, TextGlob};
use crate::graphql::Operation;
use crate::pattern::Pattern;
use crate::setting::{Kind, KindSet, Setting, StatusTest};

/// Rule of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name of the rule, unique in the site.
    pub name: Box<str>,
    /// Alternatives: the rule matches if all conditions of one of them hold. Empty: it matches every
    /// request.
    pub when: Vec<Vec<Condition>>,
    /// The rule does not match if one of these holds.
    pub unless: Vec<Condition>,
    /// Settings, at most one of each kind.
    pub settings: Vec<Setting>,
}

/// Condition on the request of the client before any edit, or on the response at the phase of the
/// setting. Of a list of values, one must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Glob of the whole path, without the prefix of the site.
    Path(Vec<PathGlob>),
    /// Expression found in the path, without the prefix of the site.
    PathRegex(Vec<Pattern>),
    /// Expression found in path and query, without the prefix of the site.
    UrlRegex(Vec<Pattern>),
    /// Ending of the path's last segment; letter case does not matter.
    Extension(Vec<Extension>),
    /// Host of the request, without port.
    Host(Vec<HostName>),
    /// Scheme of the request.
    Scheme(Vec<Scheme>),
    /// Method of the request; HEAD counts as GET.
    Method(Vec<Method>),
    /// Parameters of the query, with their names and values decoded.
    Query(Tests),
    /// Cookies of the request.
    Cookie(Tests),
    /// Fields of the request.
    Header(Tests),
    /// Address of the client.
    Client(Networks),
    /// Device of the client, by `User-Agent`.
    Device(Vec<Device>),
    /// Operation in the JSON body of a POST.
    GraphQl(Vec<Operation>),
    /// Status of the response.
    Status(Vec<StatusTest>),
    /// Media type of the response, without parameters.
    ContentType(Vec<TextGlob>),
    /// Fields of the response.
    ResponseHeader(Tests),
}

/// Ending of the last segment of a path, after its last dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// This ending, in lower case and without the dot.
    Exact(Box<str>),
    /// Any ending; a segment without one does not match.
    Any,
}

/// Host, or all subdomains of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostName {
    /// This host, in lower case.
    Exact(Box<str>),
    /// Every subdomain of this domain at any depth, in lower case; not the domain itself.
    Below(Box<str>),
}

impl HostName {
    /// Returns true if the pattern matches a host in lower case without a port.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *host,
            Self::Below(domain) => host
                .strip_suffix(&**domain)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

/// Tests of query parameters, cookies or header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tests {
    /// One of these names is present.
    Any(Vec<NamePattern>),
    /// All of these tests hold.
    All(Vec<(NamePattern, ValueTest)>),
}

impl Tests {
    /// Returns the names in the tests.
    pub fn names(&self) -> impl Iterator<Item = &NamePattern> {
        let (any, all) = match self {
            Self::Any(names) => (names.as_slice(), &[][..]),
            Self::All(tests) => (&[][..], tests.as_slice()),
        };
        any.iter().chain(all.iter().map(|(name, _)| name))
    }
}

/// Test of the values under one name: of query parameters, cookies, or header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueTest {
    /// A value with the name is present.
    Present,
    /// No value with the name is present.
    Absent,
    /// A value matches one of these patterns; letter case matters except in header fields.
    Globs(Vec<TextGlob>),
    /// The expression is found in a value.
    Regex(Pattern),
}

/// Class of device, which is guessed from words in `User-Agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// Phone.
    Mobile,
    /// Tablet.
    Tablet,
    /// Desktop computer, and everything else.
    Desktop,
    /// Crawler.
    Bot,
}

impl Device {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Mobile, Self::Tablet, Self::Desktop, Self::Bot];

    /// Returns the class in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mobile => "mobile",
            Self::Tablet => "tablet",
            Self::Desktop => "desktop",
            Self::Bot => "bot",
        }
    }

    /// Returns the class for a value of `User-Agent`, from a fixed table.
    #[must_use]
    pub fn of(user_agent: &[u8]) -> Self {
        const BOTS: [&[u8]; 5] = [b"bot", b"crawl", b"spider", b"slurp", b"facebookexternalhit"];
        let has = |word: &[u8]| {
            user_agent.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
        };
        if BOTS.iter().any(|word| has(word)) {
            Self::Bot
        } else if has(b"ipad") || has(b"tablet") || has(b"android") && !has(b"mobile") {
            Self::Tablet
        } else if has(b"mobi") || has(b"iphone") || has(b"android") {
            Self::Mobile
        } else {
            Self::Desktop
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Condition {
    /// Returns the name in the configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::PathRegex(_) => "path_regex",
            Self::UrlRegex(_) => "url_regex",
            Self::Extension(_) => "extension",
            Self::Host(_) => "host",
            Self::Scheme(_) => "scheme",
            Self::Method(_) => "method",
            Self::Query(_) => "query",
            Self::Cookie(_) => "cookie",
            Self::Header(_) => "header",
            Self::Client(_) => "client",
            Self::Device(_) => "device",
            Self::GraphQl(_) => "graphql",
            Self::Status(_) => "status",
            Self::ContentType(_) => "content_type",
            Self::ResponseHeader(_) => "response_header",
        }
    }

    /// Returns true if the condition reads the body of the request.
    #[must_use]
    pub const fn is_of_body(&self) -> bool {
        matches!(self, Self::GraphQl(_))
    }

    /// Returns true if the condition reads the response.
    #[must_use]
    pub const fn is_of_response(&self) -> bool {
        matches!(self, Self::Status(_) | Self::ContentType(_) | Self::ResponseHeader(_))
    }
}

impl Rule {
    /// Returns the rule's setting of a kind, if it has one.
    #[must_use]
    pub fn setting(&self, kind: Kind) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.kind() == kind)
    }

    /// Returns the kinds of the rule's settings.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        let kinds: Vec<Kind> = self.settings.iter().map(Setting::kind).collect();
        KindSet::of(&kinds)
    }

    /// Returns true if the rule matches only GraphQL queries, which read data.
    #[must_use]
    pub fn is_of_queries(&self) -> bool {
        let reads = |condition: &Condition| match condition {
            Condition::GraphQl(kinds) => kinds.iter().all(|kind| *kind == Operation::Query),
            _ => false,
        };
        !self.when.is_empty() && self.when.iter().all(|when| when.iter().any(reads))
    }

    /// Returns all conditions, those of `unless` included.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.when.iter().flatten().chain(&self.unless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_recognized_by_their_user_agent() {
        let rows = [
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Mobile/15E148",
                Device::Mobile,
            ),
            ("Mozilla/5.0 (Linux; Android 14; Pixel 8) Mobile Safari/537.36", Device::Mobile),
            ("Mozilla/5.0 (Linux; Android 13; SM-X700) Safari/537.36", Device::Tablet),
            ("Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X)", Device::Tablet),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Firefox/120.0", Device::Desktop),
            ("Mozilla/5.0 (compatible; Googlebot/2.1)", Device::Bot),
            ("", Device::Desktop),
        ];
        for (agent, expected) in rows {
            assert_eq!(Device::of(agent.as_bytes()), expected, "{agent}");
        }
    }
}
