//! Request of a client, and the requests to the origin that it leads to.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use forebay_core::{KeyRef, may_fall_back};
use forebay_engine::{Audience, Clock, Entry, Head, LoadError, Loaded, Select};
use http::header::{HeaderName, IF_RANGE, RANGE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use tokio::time::{Instant, sleep_until};

use super::decision::DecisionRecorder;
use super::selecting::selecting;
use super::{ClientFields, HandedResult};
use crate::client::logged_path;
use crate::client::peer::Peer;
use crate::compress::stored;
use crate::origin::{LoadUrgency, Outgoing};
use crate::record::{LoadTrace, RequestId};
use crate::request_guard::Interims;
use crate::rules::{RequestRules, RuleChanges, Values};
use crate::site::Site;
use crate::site::tags::HostOrigin;
use crate::stored::head::Answer;

/// Field with durations of one request (W3C Server Timing).
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Addition to `fetch_timeout` for a whole load. The timeout of a single exchange has a more
/// precise error message and gets the time to report it.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(5);

/// Client's request with its site, as needed for requests to the origin.
pub(crate) struct ClientRequest {
    pub(crate) site: Arc<Site>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Target of the key, which the origin gets too.
    pub(crate) target: PathAndQuery,
    /// Normalised authority of the key.
    pub(crate) authority: Box<str>,
    /// Header fields of the client's request.
    pub(crate) fields: ClientFields,
    pub(crate) peer: Peer,
    /// Channel of interim responses to the client that started the load.
    pub(crate) interims: Interims,
    /// Rules of the site that match the request.
    pub(crate) rules: RequestRules,
    /// Changes by rules that affect whether the response is stored.
    pub(crate) changes: RuleChanges,
    /// Id of the request, which the origin gets too.
    pub(crate) id: RequestId,
    /// Recorder of decisions.
    pub(crate) recorder: DecisionRecorder,
    /// Urgency of the load.
    pub(crate) urgency: LoadUrgency,
    /// Trace of the load, if requests are traced.
    pub(crate) trace: Option<Arc<LoadTrace>>,
    /// Duration of the first load that has ended.
    pub(crate) origin_time: OnceLock<Duration>,
    /// Result of a request that the direct path has sent. It replaces the first request of the load.
    pub(crate) handed: Option<Arc<HandedResult>>,
}

impl Select for ClientRequest {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let name = self.rules.selecting_name(&self.site, name);
        selecting(&self.fields, &self.peer, &self.site, name)
    }
}

impl ClientRequest {
    /// Limits a load of this key to `fetch_timeout` plus [`TIMEOUT_MARGIN`], and traces it. The
    /// future of a load is large, so it stays where it is.
    ///
    /// The first wait ends by `fetch_timeout` of the site or earlier, by a timer of the exchange or of the
    /// circuit breaker, and most loads end with it. So the timer of the load starts with the second
    /// wait, unless a rule shortens the time.
    pub(super) async fn with_timeout(
        &self,
        method: &Method,
        key: KeyRef<'_>,
        mut load: Pin<&mut impl Future<Output = Result<Loaded, LoadError>>>,
    ) -> Result<Loaded, LoadError> {
        let span = self.begin_span(method, Some(key));
        let patience = self.rules.fetch_timeout(&self.site);
        let sent_ago = self.sent_ago().unwrap_or_default();
        let due = Instant::now() + (patience + TIMEOUT_MARGIN).saturating_sub(sent_ago);
        let begun = self.clock.exact().saturating_sub(sent_ago);
        let is_shortened = patience < self.site.settings.fetch_timeout;
        let (mut needs_timer, mut timer) = (self.handed.is_some() || is_shortened, None);
        let loaded = poll_fn(|cx| {
            if let Poll::Ready(loaded) = load.as_mut().poll(cx) {
                return Poll::Ready(loaded);
            }
            if !mem::replace(&mut needs_timer, true) {
                return Poll::Pending;
            }
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            timer.as_mut().poll(cx).map(|()| Err(LoadError::TimedOut(patience)))
        })
        .await;
        let _ = self.origin_time.set(self.clock.exact().saturating_sub(begun));
        if let Some(span) = span {
            span.end_load(&loaded);
        }
        loaded
    }

    /// Records whether the stored response may be served if the load does not start.
    pub(super) fn note_stale(&self, prior: Option<&Entry>) {
        if self.site.settings.origin.budget.is_none() {
            return;
        }
        let failure = LoadError::OverBudget.trouble(&self.site.settings.demand);
        if prior.is_some_and(|prior| may_fall_back(&prior.meta, failure, self.clock.now())) {
            self.urgency.set_has_stale();
        }
    }

    /// Logs a failed load whose stored response may be served stale instead. Other failures are
    /// logged with the error response that the client gets.
    pub(super) fn log_failure(
        &self,
        method: &Method,
        prior: Option<&Entry>,
        loaded: &Result<Loaded, LoadError>,
    ) {
        let (Some(prior), Err(error) | Ok(Loaded::Failed { error, .. })) = (prior, loaded) else {
            return;
        };
        let (now, settings) = (self.clock.now(), &self.site.settings);
        let failure = error.trouble(&settings.demand);
        let is_refreshed_in_background = prior.meta.is_fresh(now)
            || prior.meta.staleness(now) <= prior.meta.lifetime().stale_while_revalidate;
        if !is_refreshed_in_background && !may_fall_back(&prior.meta, failure, now) {
            return;
        }
        let code = crate::origin::code(error);
        let Some(suppressed) = self.site.warnings.admit(code, now) else { return };
        tracing::warn!(
            site = &*settings.id,
            %method,
            host = &*self.authority,
            path = logged_path(self.target.as_str()),
            request = %self.id,
            code,
            cause = %error,
            served = "stored",
            suppressed,
            "origin fetch failed: clients get the stored response"
        );
    }

    /// Returns the parsed header fields of the client's request.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.fields.parsed()
    }

    /// Returns the scheme and the authority of the key.
    pub(crate) fn host_origin(&self) -> HostOrigin<'_> {
        HostOrigin { scheme: self.peer.scheme, authority: &self.authority }
    }

    /// Returns the target that the origin gets.
    pub(crate) fn origin_target(&self) -> PathAndQuery {
        let edited = self.rules.origin_target(&self.site, self.target.as_str());
        edited.unwrap_or_else(|| self.target.clone())
    }

    /// Returns the values of placeholders.
    pub(crate) fn values(&self) -> Values<'_> {
        Values {
            id: &self.site.settings.id,
            authority: &self.authority,
            target: self.target.as_str(),
            headers: Some(self.headers()),
            peer: Some(&self.peer),
            response: None,
        }
    }

    /// Sends the GET of a load for a report, and returns the head of the response as it would be
    /// judged. The body is dropped, and nothing is stored.
    pub(crate) async fn probe(&self) -> Result<Answer, LoadError> {
        let patience = self.rules.fetch_timeout(&self.site);
        let request = Outgoing::Built(Box::new(self.question(|_| {})), None);
        let asked = self.ask_once(request, Audience::Single);
        let received = tokio::time::timeout(patience + TIMEOUT_MARGIN, asked).await;
        let received = received.unwrap_or(Err(LoadError::TimedOut(patience)))?;
        let (parts, _) = received.response.into_parts();
        let mut answer = Answer { status: parts.status, headers: parts.headers };
        self.take_cookies(&mut answer);
        Ok(answer)
    }

    /// Creates the head of an entry from a response. The derived forms of `prior` are kept if it has
    /// the same body.
    pub(super) fn stored_head(&self, answer: &mut Answer, prior: Option<&Entry>) -> Head {
        // It measures one request; a hit would repeat it.
        answer.headers.remove(SERVER_TIMING);
        stored::head(self.site.settings.compress.as_ref(), answer, prior)
    }

    /// Adds the client's `Range` and `If-Range`.
    pub(super) fn take_range(&self, fields: &mut HeaderMap) {
        if self.rules.may_cut_json(&self.site) {
            return;
        }
        for name in [RANGE, IF_RANGE] {
            for value in self.headers().get_all(&name) {
                fields.append(name.clone(), value.clone());
            }
        }
    }
}
