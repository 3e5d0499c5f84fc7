//! Closed sets of label values.

use http::Method;

/// Source of a response, as the label `cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheResult {
    /// Answered from storage with a fresh response.
    Hit,
    /// Answered from storage with a stale response, during its refresh.
    Stale,
    /// Stored response that the origin confirmed (304).
    Revalidated,
    /// Fetched from the origin.
    Miss,
    /// Answered by the fetch of another request.
    Collapsed,
    /// Response of the origin that may not be shared.
    Pass,
    /// Stale response in place of a failed fetch.
    Fallback,
    /// Forwarded past the cache.
    Bypass,
    /// Switch to another protocol.
    Tunnel,
    /// Response of a rule.
    Rule,
    /// Redirect to https.
    Redirect,
    /// Rejected request.
    Refused,
    /// Error response of the cache.
    Error,
}

impl CacheResult {
    /// Every value, in the order of declaration.
    pub const ALL: [Self; 13] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Miss,
        Self::Collapsed,
        Self::Pass,
        Self::Fallback,
        Self::Bypass,
        Self::Tunnel,
        Self::Rule,
        Self::Redirect,
        Self::Refused,
        Self::Error,
    ];

    /// Returns the value of the label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Collapsed => "collapsed",
            Self::Pass => "pass",
            Self::Fallback => "fallback",
            Self::Bypass => "bypass",
            Self::Tunnel => "tunnel",
            Self::Rule => "rule",
            Self::Redirect => "redirect",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// End of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection took the last byte.
    Complete,
    /// The client closed its connection or reset the stream.
    ClientGone,
    /// The origin or a tier broke the body off.
    OriginBroke,
    /// The client read too slowly.
    TooSlow,
    /// The process stopped before the last byte.
    Stopped,
}

impl End {
    /// Every end of a truncated response.
    pub(crate) const TRUNCATED: [Self; 4] =
        [Self::ClientGone, Self::OriginBroke, Self::TooSlow, Self::Stopped];

    /// Returns the value of the label `end`; `None` for a complete response.
    #[must_use]
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::ClientGone => Some("client-gone"),
            Self::OriginBroke => Some("origin-broke"),
            Self::TooSlow => Some("too-slow"),
            Self::Stopped => Some("stopped"),
        }
    }
}

/// Method of a request, as the label `method`. Unknown methods share one label, so that clients
/// cannot create labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodLabel(u8);

impl MethodLabel {
    const NAMES: [&'static str; 11] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "other",
        "-",
    ];

    /// GET.
    pub(crate) const GET: Self = Self(0);
    /// HEAD.
    pub(crate) const HEAD: Self = Self(1);
    const OTHER: u8 = 9;
    /// Method of a message that is not a valid request.
    pub(crate) const UNKNOWN: Self = Self(10);

    /// Returns the label of a method.
    pub(crate) fn of(method: &Method) -> Self {
        match method {
            // The comparison of the two most frequent methods needs no text.
            method if *method == Method::GET => Self::GET,
            method if *method == Method::HEAD => Self::HEAD,
            method => {
                let known = Self::NAMES[..usize::from(Self::OTHER)]
                    .iter()
                    .position(|name| *name == method.as_str());
                Self(known.and_then(|at| u8::try_from(at).ok()).unwrap_or(Self::OTHER))
            }
        }
    }

    /// Returns the method with this number; see [`number`](Self::number).
    pub(crate) fn numbered(number: u8) -> Self {
        Self(number.min(Self::UNKNOWN.0))
    }

    /// Returns the number of the method, below 16.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// Returns the value of the label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        Self::NAMES[self.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_values_are_listed_in_order_and_differ() {
        for (place, cache) in CacheResult::ALL.into_iter().enumerate() {
            assert_eq!(cache as usize, place);
        }
        let mut labels = CacheResult::ALL.map(CacheResult::label).to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), CacheResult::ALL.len());
        assert!(End::TRUNCATED.iter().all(|end| end.label().is_some()));
    }

    #[test]
    fn unknown_methods_share_a_label() {
        let label = |name: &[u8]| MethodLabel::of(&Method::from_bytes(name).unwrap()).label();
        assert_eq!(
            [label(b"GET"), label(b"HEAD"), label(b"CONNECT"), label(b"BREW"), label(b"other")],
            ["GET", "HEAD", "CONNECT", "other", "other"]
        );
        assert_eq!(MethodLabel::UNKNOWN.label(), "-");
    }
}
