//! `Server-Timing` in responses to clients (W3C Server Timing), for sites that enable it.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderValue, Response};

use crate::load::SERVER_TIMING;
use crate::record::{CacheResult, Timing};
use crate::response::body::ResponseBody;
use crate::site::Site;

/// Notes the duration of the origin request of a response, and whether the site sends durations.
pub(super) fn note(response: &mut Response<ResponseBody>, site: &Site, origin: Option<Duration>) {
    let is_sent = site.settings.server_timing;
    response.body_mut().set_timing(Timing { origin, is_sent });
}

/// Adds the source of a response, the time to its head, and the time of its origin request.
#[cold]
pub(super) fn add(response: &mut Response<ResponseBody>, cache: CacheResult, head: Duration) {
    let mut value = format!("cache;desc={}, head;dur={}", cache.label(), Milliseconds(head));
    if let Some(origin) = response.body().timing().origin {
        // Writing to a string cannot fail.
        let _ = write!(value, ", origin;dur={}", Milliseconds(origin));
    }
    if let Ok(value) = HeaderValue::try_from(value) {
        // A response that is not stored keeps the field of its origin.
        response.headers_mut().append(SERVER_TIMING, value);
    }
}

/// Duration in milliseconds, to the microsecond.
struct Milliseconds(Duration);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1_000, micros % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn durations_are_in_milliseconds() {
        let mut response = Response::new(ResponseBody::whole(Bytes::new()));
        let origin = Some(Duration::from_micros(1_234_567));
        response.body_mut().set_timing(Timing { origin, is_sent: true });
        add(&mut response, CacheResult::Miss, Duration::from_micros(1_250_009));
        let expected = "cache;desc=miss, head;dur=1250.009, origin;dur=1234.567";
        assert_eq!(response.headers()[SERVER_TIMING], expected);
    }
}
