//! Content negotiation: the format of `GET /metrics`, and compression.

use forebay_http::metrics::MetricsFormat;
use http::header::{ACCEPT, ACCEPT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue};

use crate::small_server::{Answer, text};

/// Returns the format that the client prefers. A client that states none gets the Prometheus text
/// format.
pub(super) fn preferred(headers: &HeaderMap) -> MetricsFormat {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let accepted: Vec<&str> = lines.flat_map(|line| line.split(',')).collect();
    let openmetrics = quality(&accepted, "application/openmetrics-text");
    let ranges = ["text/plain", "text/*", "*/*"];
    let plain = ranges.into_iter().find_map(|range| quality(&accepted, range)).unwrap_or(0.0);
    match openmetrics {
        Some(openmetrics) if openmetrics > plain => MetricsFormat::OpenMetrics,
        _ => MetricsFormat::Prometheus,
    }
}

/// Returns `true` if the client accepts gzip.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let accepted: Vec<&str> = lines.flat_map(|line| line.split(',')).collect();
    quality(&accepted, "gzip").is_some_and(|quality| quality > 0.0)
}

/// Returns the weight of a media range or a content coding (RFC 9110 section 12.4.2); `None` if it
/// is not listed.
fn quality(accepted: &[&str], wanted: &str) -> Option<f32> {
    let mut qualities = accepted.iter().filter_map(|member| {
        let mut parts = member.split(';').map(str::trim);
        let is_wanted = parts.next()?.eq_ignore_ascii_case(wanted);
        let weight = parts.filter_map(|part| part.strip_prefix("q=")).next_back();
        is_wanted.then(|| weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
    });
    let first = qualities.next()?;
    Some(qualities.fold(first, f32::max))
}

/// Builds the response with the metrics.
pub(super) fn answer(format: MetricsFormat, metrics: String) -> Answer {
    let kind = match format {
        MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };
    let mut response = text(kind, metrics);
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_sent_only_to_clients_that_prefer_it() {
        let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,\
                       application/openmetrics-text;version=0.0.1;q=0.4,\
                       text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (None, MetricsFormat::Prometheus),
            (Some("*/*"), MetricsFormat::Prometheus),
            (Some("text/html, application/xml;q=0.9, */*;q=0.8"), MetricsFormat::Prometheus),
            (Some("application/openmetrics-text"), MetricsFormat::OpenMetrics),
            (Some("application/openmetrics-text;q=0"), MetricsFormat::Prometheus),
            (Some("application/openmetrics-text, text/plain"), MetricsFormat::Prometheus),
            (Some(scraper), MetricsFormat::OpenMetrics),
        ] {
            let headers = accept.map(|accept| (ACCEPT, HeaderValue::from_static(accept)));
            assert_eq!(preferred(&headers.into_iter().collect()), expected, "{accept:?}");
        }
    }
}
