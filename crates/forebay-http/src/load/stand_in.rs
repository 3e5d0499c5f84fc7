//! The answer to a POST, stored as what a GET would bring.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Key;
use forebay_engine::{
    Company, Engine, Entry, Head, Load, LoadError, Loaded, Passed, Select, Watch,
};
use http::Response;
use parking_lot::Mutex;

use super::{Asking, HttpLoad, Wish};
use crate::head::Answer;
use crate::origin::OriginBody;

/// An answer that is here already, for a flight to bring.
#[derive(Clone)]
pub(crate) struct StandIn {
    load: HttpLoad,
    here: Arc<Here>,
}

struct Here {
    /// Begun before the answer was asked for. If it has seen a purge that was not brought about by
    /// that answer, nobody knows which of the two is the newer.
    watch: Watch,
    /// How many purges that answer has brought about which name no key.
    logged: u64,
    answer: Mutex<Option<(Response<OriginBody>, Duration)>>,
}

/// How often the answer itself makes its target invalid.
const OWN_PURGES: u64 = 1;

impl StandIn {
    pub(crate) fn new(
        asking: Asking,
        (engine, key): (Arc<Engine>, Key),
        answer: (Response<OriginBody>, Duration),
        (watch, logged): (Watch, u64),
    ) -> Self {
        let load = HttpLoad::new(asking, (engine, key), Wish::Whole);
        Self { load, here: Arc::new(Here { watch, logged, answer: Mutex::new(Some(answer)) }) }
    }
}

impl Select for StandIn {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.load.field(name)
    }

    fn variants_max(&self) -> usize {
        self.load.variants_max()
    }
}

impl Load for StandIn {
    async fn load(&self, _prior: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        let answer = self.here.answer.lock().take();
        let answer = answer.ok_or_else(|| LoadError::origin("a loaded response was used twice"))?;
        let loaded = self.load.0.judge(answer, None)?;
        // Asked once the flight is on the board: a purge from here on finds it there.
        if self.here.watch.saw_only(OWN_PURGES, self.here.logged) {
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
