//! Load of a response that has already arrived: of a POST that is stored for GET, or a whole
//! response to a range request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::{
    Audience, Entry, Head, HeadCodec, Load, LoadError, LoadOptions, LoadSource, Loaded, Passed,
    Select, Watch,
};
use http::HeaderMap;
use parking_lot::Mutex;

use super::{HttpLoad, Received};

/// Load that returns a received response.
#[derive(Clone)]
pub(crate) struct ReceivedLoad {
    load: HttpLoad,
    here: Arc<Here>,
}

struct Here {
    watched: PurgeWatch,
    answer: Mutex<Option<Received>>,
}

/// Purges observed while the response was requested.
pub(crate) struct PurgeWatch {
    /// Watch started before the request. After a purge that the response itself did not cause, the
    /// order of the two is unknown, and the response is not stored.
    pub(crate) watch: Watch,
    /// Number of purges of the key that the response itself caused.
    pub(crate) own: u64,
    /// Number of purges by tag that the response itself caused.
    pub(crate) logged: u64,
}

impl ReceivedLoad {
    /// Creates a load that returns `answer` instead of running `load`.
    pub(crate) fn new(load: HttpLoad, answer: Received, watched: PurgeWatch) -> Self {
        Self { load, here: Arc::new(Here { watched, answer: Mutex::new(Some(answer)) }) }
    }

    /// Returns the fields that only the requesting client gets, after the load.
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
    async fn load(&self, _prior: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        let answer = self.here.answer.lock().take();
        let answer = answer.ok_or_else(|| {
            LoadError::origin("internal error: a response that was read once was requested again")
        })?;
        let loaded = self.load.0.judge(answer, None)?;
        // Checked after the flight is registered: a later purge finds the flight itself.
        let PurgeWatch { watch, own, logged } = &self.here.watched;
        if watch.saw_only(*own, *logged) {
            return Ok(loaded);
        }
        Ok(match loaded {
            Loaded::Entry { head, content, .. } => {
                Loaded::Pass(Passed { head, content, remember: Duration::ZERO })
            }
            other => other,
        })
    }

    fn options(&self) -> LoadOptions {
        LoadOptions { source: LoadSource::Received, ..LoadOptions::default() }
    }
}

impl HeadCodec for ReceivedLoad {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        self.load.decode_head(bytes)
    }
}
