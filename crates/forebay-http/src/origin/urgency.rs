//! Urgency of a request to an origin: which request goes first when not all may be sent.

use std::sync::OnceLock;

use forebay_engine::Waiting;
use forebay_semantics::FieldLines;
use http::HeaderName;

/// Header field with the urgency of a request (RFC 9218 section 4.1).
const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// Urgency of a request in the background (RFC 9218 section 4.1): 7, the last one.
const BACKGROUND: &str = "u=7";

/// Rank of a request to an origin. A lower rank waits while requests of a higher one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// A client waits for the response.
    Foreground,
    /// Clients have a stored response meanwhile.
    Refresh,
    /// The client has asked for a transfer in the background, such as a warm-up.
    WarmUp,
}

impl Rank {
    pub(super) const COUNT: usize = 3;
}

/// Urgency of a request to an origin. The default is a client that waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Urgency {
    waiting: Option<Waiting>,
    is_background: bool,
    /// Set if a stored response answers the client when the budget of the origin is used up.
    pub(super) has_stale: bool,
}

impl Urgency {
    /// Lets no further client wait for the load, which is about to fail.
    pub(super) fn close(&self) {
        self.waiting.iter().for_each(Waiting::close);
    }

    /// Returns the rank now. It rises to [`Rank::Foreground`] when other clients wait for the load.
    pub(super) fn rank(&self) -> Rank {
        let waiting = self.waiting.as_ref();
        if waiting.is_some_and(Waiting::has_followers) {
            return Rank::Foreground;
        }
        match (self.is_background, waiting.is_some_and(Waiting::is_refresh)) {
            (true, _) => Rank::WarmUp,
            (false, true) => Rank::Refresh,
            (false, false) => Rank::Foreground,
        }
    }
}

/// Urgency of the load of one client's request, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct LoadUrgency {
    waiting: OnceLock<Waiting>,
    has_stale: OnceLock<()>,
}

impl LoadUrgency {
    /// Records the handle that shows who waits for the load.
    pub(crate) fn begins(&self, waiting: Waiting) {
        // A retry of the load by another flight keeps the first handle.
        let _ = self.waiting.set(waiting);
    }

    /// Returns `true` if clients have a stored response meanwhile.
    pub(crate) fn is_refresh(&self) -> bool {
        self.waiting.get().is_some_and(Waiting::is_refresh)
    }

    /// Records that a stored response may be served if the load fails.
    pub(crate) fn set_has_stale(&self) {
        let _ = self.has_stale.set(());
    }

    /// Returns the urgency of a request with these header fields of the client.
    pub(crate) fn of(&self, headers: &impl FieldLines) -> Urgency {
        Urgency {
            waiting: self.waiting.get().cloned(),
            is_background: is_background(headers),
            has_stale: self.has_stale.get().is_some(),
        }
    }
}

/// Returns `true` if the client has asked for a transfer in the background. This lowers the rank of
/// its own request only, so every client may do so.
fn is_background(headers: &impl FieldLines) -> bool {
    let value = headers.lines(&PRIORITY).next().filter(|value| value.is_ascii());
    let value = value.and_then(|value| str::from_utf8(value).ok());
    value.is_some_and(|value| value.split(',').any(|member| member.trim() == BACKGROUND))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn the_last_urgency_of_rfc_9218_is_the_background() {
        for (value, expected) in [
            ("u=7", Rank::WarmUp),
            ("u=7, i", Rank::WarmUp),
            ("i,u=7", Rank::WarmUp),
            ("u=6", Rank::Foreground),
            ("u=77", Rank::Foreground),
            ("", Rank::Foreground),
        ] {
            let headers = HeaderMap::from_iter([(PRIORITY, http::HeaderValue::from_static(value))]);
            assert_eq!(LoadUrgency::default().of(&headers).rank(), expected, "{value}");
        }
    }
}
