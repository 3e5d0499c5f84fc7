//! `GET /tail`, a stream of lines, and `GET /top`, the lists of the last minutes.

use std::sync::Arc;

use futures_util::stream;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::{Answer, json_answer, problem};
use crate::live::{LineFormat, Live, TailRefused};
use crate::small_server;

/// Maximum number of rows of a list.
const ROWS_MAX: usize = 100;

/// Streams the lines of the responses that the query selects: `where`, `format`.
pub(super) fn tail(live: &Arc<Live>, query: &str) -> Answer {
    let (mut selection, mut format) = (String::new(), LineFormat::Json);
    for (name, value) in parameters(query) {
        let named = LineFormat::ALL.into_iter().find(|format| format.name() == value);
        match (&*name, named) {
            ("where", _) => selection = value,
            ("format", Some(named)) => format = named,
            _ => {
                let sentence = "Use the parameters where and format (text, json or logfmt).";
                return problem(StatusCode::BAD_REQUEST, sentence);
            }
        }
    }
    match live.tail(&selection, format) {
        Ok(lines) => {
            let lines = stream::unfold(lines, |mut lines| async move {
                lines.recv().await.map(|piece| (piece, lines))
            });
            small_server::stream("text/event-stream", lines)
        }
        Err(TailRefused::Expression(error)) => problem(StatusCode::BAD_REQUEST, &error),
        Err(TailRefused::TooMany) => {
            problem(StatusCode::SERVICE_UNAVAILABLE, "There are 16 tails already. End one of them.")
        }
    }
}

/// Returns the lists; `rows` is the maximum number of rows of each.
pub(super) fn top(live: &Arc<Live>, query: &str) -> Answer {
    let mut rows = ROWS_MAX;
    for (name, value) in parameters(query) {
        match value.parse() {
            Ok(number) if name == "rows" => rows = ROWS_MAX.min(number),
            _ => return problem(StatusCode::BAD_REQUEST, "The only parameter is rows, a number."),
        }
    }
    json_answer(StatusCode::OK, &json!(live.top(rows)))
}

fn parameters(query: &str) -> Vec<(String, String)> {
    let decoded =
        |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let parameters = parameters.map(|it| it.split_once('=').unwrap_or((it, "")));
    parameters.map(|(name, value)| (decoded(name), decoded(value))).collect()
}
