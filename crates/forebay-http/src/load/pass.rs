//! Fetch of an unshared response without a flight of the engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::{Audience, LoadError, PurgesSoFar};
use forebay_semantics::storable::Refusal;
use http::{Response, StatusCode};
use parking_lot::Mutex;

use super::{ClientRequest, Received};
use crate::record::RequestId;
use crate::site::Site;
use crate::stored::head::Answer;

/// Result of a fetch for one client.
pub(crate) enum Fetched {
    /// The response is unshared, and has arrived whole.
    Passed(PassedResponse),
    /// The ordinary path must handle the result.
    NeedsFlight(Box<Result<Received, LoadError>>),
}

/// Response that was not stored.
pub(crate) struct PassedResponse {
    pub(crate) answer: Answer,
    pub(crate) body: Bytes,
    /// Reasons against storing it.
    pub(crate) refusal: Refusal,
}

/// Request that the direct path has sent to the origin, and hands over to the ordinary path.
pub(crate) struct HandedRequest {
    /// Time of the request, on the clock of the engine.
    pub(crate) begun: Duration,
    /// Id of the request, which the origin got.
    pub(crate) id: RequestId,
    pub(crate) result: Arc<HandedResult>,
}

/// Result of a request that the direct path has sent to the origin.
pub(crate) struct HandedResult {
    /// Site whose origin got the request.
    site: Arc<Site>,
    /// Time at which it was sent, on the clock of the engine.
    sent: Duration,
    result: Mutex<Option<Result<Received, LoadError>>>,
}

impl HandedResult {
    /// Creates the result of a request that was sent at `sent` to the origin of a site. `purges` were
    /// counted before.
    pub(crate) fn new(
        result: Result<Received, LoadError>,
        site: Arc<Site>,
        sent: Duration,
        purges: PurgesSoFar,
    ) -> Self {
        let early = |received| Received { purges_at_send: Some(purges), ..received };
        Self { site, sent, result: Mutex::new(Some(result.map(early))) }
    }

    /// Returns the result once, then `None`. A site that was reloaded meanwhile may have another
    /// origin, and gets none.
    pub(super) fn take(&self, site: &Arc<Site>) -> Option<Result<Received, LoadError>> {
        self.result.lock().take().filter(|_| Arc::ptr_eq(&self.site, site))
    }
}

impl fmt::Debug for HandedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedResult").finish_non_exhaustive()
    }
}

impl ClientRequest {
    /// Returns the time since the direct path has sent this request, if it did.
    pub(super) fn sent_ago(&self) -> Option<Duration> {
        Some(self.clock.exact().saturating_sub(self.handed.as_ref()?.sent))
    }

    /// Fetches the response for this client alone, from `sent` on. A whole response that may not be
    /// stored, is no failure and has a status that `suits` is passed.
    pub(crate) async fn fetch_for_one(
        &self,
        sent: Duration,
        suits: impl Fn(StatusCode) -> bool,
    ) -> Fetched {
        let (build, encode) = (|| self.question(|_| {}), || self.encoded_question());
        let outgoing = self.unconditional_question(&build, &encode);
        let asked = self.ask_at(sent, outgoing, Audience::Single).await;
        let Received { response, delay, purges_at_send } = match asked {
            Ok(received) => received,
            Err(error) => {
                let _ = self.origin_time.set(self.clock.exact().saturating_sub(sent));
                return Fetched::NeedsFlight(Box::new(Err(error)));
            }
        };
        let _ = self.origin_time.set(delay);
        let (parts, mut body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        if let Err(refusal) = self.evaluate(&answer)
            && !self.is_failure(&answer)
            && suits(answer.status)
            && let Some(body) = body.take_whole()
        {
            return Fetched::Passed(PassedResponse { answer, body, refusal });
        }
        let mut response = Response::new(body);
        (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
        Fetched::NeedsFlight(Box::new(Ok(Received { response, delay, purges_at_send })))
    }
}
