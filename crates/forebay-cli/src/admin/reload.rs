//! `POST /reload`.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::{Answer, json_answer};
use crate::reload::Reload;

/// Reloads the configuration and answers with the result. The request body is not read.
pub(super) async fn answer(reload: &Arc<Reload>) -> Answer {
    match reload.now().await {
        Ok(outcome) => {
            let sites = json!({
                "unchanged": outcome.sites.unchanged,
                "changed": outcome.sites.changed,
                "added": outcome.sites.added,
                "removed": outcome.sites.removed,
            });
            let listeners = json!({
                "unchanged": outcome.listeners.unchanged,
                "changed": outcome.listeners.changed,
                "added": outcome.listeners.added,
                "removed": outcome.listeners.removed,
            });
            let reply = json!({
                "sites": sites,
                "listeners": listeners,
                "needs_restart": outcome.needs_restart,
            });
            json_answer(StatusCode::OK, &reply)
        }
        Err(sentences) => {
            let reply = json!({ "error": "The configuration was not reloaded; the previous one \
                                          stays in effect.", "errors": sentences });
            json_answer(StatusCode::BAD_REQUEST, &reply)
        }
    }
}
