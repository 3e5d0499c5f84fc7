//! Fetch of an unshared response without a flight of the engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Audience, LoadError, PurgesSoFar};
use forebay_semantics::storable::Unstorable;
use http::{Response, StatusCode};
use parking_lot::Mutex;

use super::judge::is_failure;
use super::{ClientRequest, Received};
use crate::origin::{OriginBody, OriginResponse, PlainResponse};
use crate::record::RequestId;
use crate::site::Site;

/// Result of a fetch for one client.
pub(crate) enum Fetched {
    /// The response may not be stored, and has arrived whole.
    Passed(PassedResponse),
    /// The ordinary path must handle the result.
    NeedsFlight(Box<Result<Received, LoadError>>),
}

/// Response that was not stored.
pub(crate) struct PassedResponse {
    pub(crate) response: Box<PlainResponse>,
    /// First reason against storing it.
    pub(crate) unstorable: Unstorable,
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

    /// Fetches a response that no other client shares. `sent` is the time now. A plain response is
    /// passed if it may not be stored, is no failure, and `accepts` returns `true` for its status. Call
    /// it only for a request without a trace and a site without rules and transforms.
    pub(crate) async fn fetch_for_one(
        &self,
        sent: Duration,
        accepts: impl Fn(StatusCode) -> bool,
    ) -> Fetched {
        let (build, encode) = (|| self.question(|_| {}), || self.encoded_question());
        let outgoing = self.unconditional_question(&build, &encode);
        let fetched = self.site.origin.fetch(outgoing, Audience::Single).await;
        let delay = self.clock.exact().saturating_sub(sent);
        let _ = self.origin_time.set(delay);
        let response = match fetched {
            Ok(OriginResponse::Plain(response)) => response,
            Ok(OriginResponse::Hyper(response)) => return self.hand_over(response, delay).await,
            Err(error) => return Fetched::NeedsFlight(Box::new(Err(error))),
        };
        match self.refusal_of_plain(&response) {
            Some(unstorable) if !is_failure(response.status) && accepts(response.status) => {
                Fetched::Passed(PassedResponse { response, unstorable })
            }
            _ => self.hand_over(response.into_http(), delay).await,
        }
    }

    /// Prepares a response for the ordinary path.
    async fn hand_over(&self, response: Response<OriginBody>, delay: Duration) -> Fetched {
        // Boxed, because otherwise each pass would reserve space for it.
        Fetched::NeedsFlight(Box::new(Box::pin(self.receive(response, delay)).await))
    }
}
