//! `GET /history`, `GET /events` and `GET /notices`: what the dashboard shows.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::history::Span;
use super::{AdminState, Answer, json_answer, monitor, problem};
use crate::log::{Notice, rfc_3339};
use crate::small_server;

/// Returns the history of a site, or of all sites together.
pub(super) fn history(state: &AdminState, query: &str) -> Answer {
    let span = parameter(query, "span").unwrap_or_else(|| "15m".to_owned());
    let Some(span) = Span::parse(&span) else {
        return problem(StatusCode::BAD_REQUEST, "The parameter span is 15m or 24h.");
    };
    let site = parameter(query, "site");
    match state.monitor.history().lock().shown(site.as_deref(), span) {
        Some(shown) => small_server::text("application/json", shown),
        None => problem(
            StatusCode::NOT_FOUND,
            "This site has no history: no site has this id, or it had no request since the start.",
        ),
    }
}

/// Sends the newest second of a site, or of all sites together, and then each further second.
pub(super) fn events(state: &Arc<AdminState>, query: &str) -> Answer {
    let Ok(permit) = state.monitor.streams.clone().try_acquire_owned() else {
        return problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many live streams are open on the admin listener (64); close a dashboard.",
        );
    };
    let mut ticks = state.monitor.ticks();
    ticks.mark_changed();
    let viewer =
        Viewer { state: state.clone(), site: parameter(query, "site"), ticks, _permit: permit };
    small_server::stream("text/event-stream", stream::unfold(viewer, Viewer::next))
}

/// Reader of a live stream.
struct Viewer {
    state: Arc<AdminState>,
    site: Option<String>,
    ticks: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Viewer {
    /// Waits for the next second. A reader that is too slow misses the seconds in between.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        self.ticks.changed().await.ok()?;
        let second = *self.ticks.borrow_and_update();
        let event = monitor::event(&self.state, self.site.as_deref());
        Some((format!("id: {second}\ndata: {event}\n\n").into(), self))
    }
}

/// Returns the last warnings, errors and purges, the newest first.
pub(super) fn notices(state: &AdminState) -> Answer {
    let shown = |notice: Notice| {
        let Notice { at, level, text } = notice;
        json!({ "at": rfc_3339(at), "level": level, "text": text })
    };
    let notices: Vec<_> = state.log.notices.last().into_iter().map(shown).collect();
    json_answer(StatusCode::OK, &json!({ "notices": notices }))
}

/// Value of a parameter of a query; `None` if it is absent or empty.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let value = percent_decode_str(value).decode_utf8_lossy();
    (!value.is_empty()).then(|| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        assert_eq!(parameter("site=a%20b&span=24h", "site").as_deref(), Some("a b"));
        assert_eq!(parameter("site=&span=24h", "span").as_deref(), Some("24h"));
        assert_eq!(parameter("site=&span=24h", "site"), None);
        assert_eq!(parameter("website=a", "site"), None);
    }
}
