//! An answer that came to another question, stored as what a GET would bring: that to a POST, or
//! the whole in place of a part.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::{Company, Entry, Head, Load, LoadError, Loaded, Passed, Select, Watch};
use http::{HeaderMap, Response};
use parking_lot::Mutex;

use super::HttpLoad;
use crate::head::Answer;
use crate::origin::OriginBody;

/// An answer that is here already, for a flight to bring.
#[derive(Clone)]
pub(crate) struct ReceivedLoad {
    load: HttpLoad,
    here: Arc<Here>,
}

struct Here {
    watched: PurgeWatch,
    answer: Mutex<Option<(Response<OriginBody>, Duration)>>,
}

/// The purges that were seen while an answer was on its way.
pub(crate) struct PurgeWatch {
    /// Dispatch before the answer was asked for. If it has seen a purge that was not brought about by
    /// that answer, nobody knows which of the two is the newer.
    pub(crate) watch: Watch,
    /// How many purges of its own key that answer has brought about.
    pub(crate) own: u64,
    /// How many purges that answer has brought about which name no key.
    pub(crate) logged: u64,
}

impl ReceivedLoad {
    /// The load whose answer it is would otherwise ask for it.
    pub(crate) fn new(
        load: HttpLoad,
        answer: (Response<OriginBody>, Duration),
        watched: PurgeWatch,
    ) -> Self {
        Self { load, here: Arc::new(Here { watched, answer: Mutex::new(Some(answer)) }) }
    }

    /// Fields of the answer that are for its client alone, once it was judged.
    pub(crate) fn own(&self) -> Option<&HeaderMap> {
        self.load.details().own.get()
    }
}

impl Select for ReceivedLoad {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.load.field(name)
    }

    fn variants_max(&self) -> usize {
        self.load.variants_max()
    }
}

impl Load for ReceivedLoad {
    async fn load(&self, _prior: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        let answer = self.here.answer.lock().take();
        let answer = answer.ok_or_else(|| LoadError::origin("a loaded response was used twice"))?;
        let loaded = self.load.0.judge(answer, None)?;
        // Asked once the flight is on the board: a purge from here on finds it there.
        let PurgeWatch { watch, own, logged } = &self.here.watched;
        if watch.saw_only(*own, *logged) {
            return Ok(loaded);
        }
        Ok(match loaded {
            Loaded::Entry { head, source, .. } => {
                Loaded::Pass(Passed { head, source, remember: Duration::ZERO })
            }
            other => other,
        })
    }

    fn revive(&self, head: Bytes) -> Option<Head> {
        Answer::decode(head).map(Answer::into_head)
    }
}
