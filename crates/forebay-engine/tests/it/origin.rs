//! An origin that answers by script, and counts.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use forebay_core::Meta;
use forebay_engine::{
    Audience, BrokenBody, Content, Entry, Head, HeadCodec, Load, LoadError, LoadOptions,
    LoadSource, Loaded, Passed, PieceStream, Select, TierErrors, UnsharedLoad,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt, poll_fn};
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::mpsc;

/// The field that selects among variants in these tests.
pub(crate) const LANGUAGE: &str = "accept-language";

pub(crate) type Answer = Result<Loaded, LoadError>;

/// Request of one load.
pub(crate) struct Asked {
    /// Number of the load at this origin, from 1.
    pub(crate) number: usize,
    pub(crate) prior: Option<Arc<Entry>>,
    pub(crate) language: Option<&'static str>,
}

type Script = dyn Fn(Asked) -> BoxFuture<'static, Answer> + Send + Sync;

/// A scripted origin. Clones are the same origin; [`speaking`](Self::speaking) changes only what
/// the request asks for.
#[derive(Clone)]
pub(crate) struct Origin {
    told: Arc<Propagation>,
    language: Option<&'static str>,
    tier_errors: TierErrors,
    only_looks: bool,
    unshared: UnsharedLoad,
}

struct Propagation {
    script: Box<Script>,
    loads: AtomicUsize,
    under_way: AtomicUsize,
    most_at_once: AtomicUsize,
    priors: Mutex<Vec<Option<Bytes>>>,
}

impl Origin {
    /// Creates an origin that calls `script` when a load begins and awaits the returned future. A
    /// panic in `script` itself occurs before there is a future.
    pub(crate) fn new<F, A>(script: F) -> Self
    where
        F: Fn(Asked) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let told = Propagation {
            script: Box::new(move |asked| script(asked).boxed()),
            loads: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            priors: Mutex::default(),
        };
        Self {
            told: Arc::new(told),
            language: None,
            tier_errors: TierErrors::Graceful,
            only_looks: false,
            unshared: UnsharedLoad::default(),
        }
    }

    /// Returns a handle of this origin whose requests have this value in the field that selects
    /// variants.
    pub(crate) fn speaking(&self, language: &'static str) -> Self {
        Self { language: Some(language), ..self.clone() }
    }

    /// Returns a handle of this origin whose requests fail if a tier fails (strict tier errors).
    pub(crate) fn strict(&self) -> Self {
        Self { tier_errors: TierErrors::Strict, ..self.clone() }
    }

    /// Returns a handle of this origin whose loads only search memory and tiers. The script must
    /// return [`LoadError::NotCached`].
    pub(crate) fn only_looking(&self) -> Self {
        Self { only_looks: true, ..self.clone() }
    }

    /// Returns a handle of this origin whose unshared loads end with their callers.
    pub(crate) fn ending_with_callers(&self) -> Self {
        Self { unshared: UnsharedLoad::EndsWithCaller, ..self.clone() }
    }

    /// Returns the number of loads that have begun.
    pub(crate) fn loads(&self) -> usize {
        self.told.loads.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of concurrent loads so far.
    pub(crate) fn most_at_once(&self) -> usize {
        self.told.most_at_once.load(Ordering::SeqCst)
    }

    /// Returns the body of the prior entry of each load.
    pub(crate) fn priors(&self) -> Vec<Option<Bytes>> {
        self.told.priors.lock().clone()
    }
}

impl Select for Origin {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let language = self.language.filter(|_| name == LANGUAGE)?;
        Some(Cow::Borrowed(language.as_bytes()))
    }
}

impl HeadCodec for Origin {}

impl Load for Origin {
    fn options(&self) -> LoadOptions {
        let source = if self.only_looks { LoadSource::LowerTiers } else { LoadSource::Origin };
        let Self { tier_errors, unshared, .. } = *self;
        LoadOptions { source, tier_errors, unshared, ..LoadOptions::default() }
    }

    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        _company: Audience,
    ) -> impl Future<Output = Answer> + Send {
        let told = self.told.clone();
        let number = told.loads.fetch_add(1, Ordering::SeqCst) + 1;
        let seen = prior.as_ref().and_then(|prior| prior.body.bytes());
        told.priors.lock().push(seen);
        let answer = (told.script)(Asked { number, prior, language: self.language });
        async move {
            let under_way = told.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            told.most_at_once.fetch_max(under_way, Ordering::SeqCst);
            let answer = answer.await;
            told.under_way.fetch_sub(1, Ordering::SeqCst);
            answer
        }
    }
}

/// Answer with a complete body.
pub(crate) fn whole(meta: Meta, body: impl Into<Bytes>) -> Loaded {
    Loaded::Entry { meta, head: Head::default(), content: Content::Whole(body.into()) }
}

/// Answer with a streaming body.
pub(crate) fn flowing(meta: Meta, body: PieceStream) -> Loaded {
    Loaded::Entry { meta, head: Head::default(), content: Content::Stream(body) }
}

/// Answer for one caller alone.
pub(crate) fn passed(body: impl Into<Bytes>, remember: Duration) -> Passed {
    Passed { head: Head::default(), content: Content::Whole(body.into()), remember }
}

/// Maximum number of pieces that a test writes before the engine reads them.
const TAP_PIECES_MAX: usize = 128;

/// Writer of a body, piece by piece. Dropping it ends the body without an error.
pub(crate) type Tap = mpsc::Sender<Result<Bytes, BrokenBody>>;

/// Creates a body that a test writes.
pub(crate) fn tap() -> (Tap, PieceStream) {
    let (tap, mut pieces) = mpsc::channel(TAP_PIECES_MAX);
    (tap, poll_fn(move |cx| pieces.poll_recv(cx)).boxed())
}

/// Value that is taken once.
pub(crate) struct Once<T>(Mutex<Option<T>>);

impl<T> Once<T> {
    pub(crate) fn new(value: T) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(value))))
    }

    pub(crate) fn take(&self) -> T {
        self.0.lock().take().expect("it is taken only once")
    }
}

/// Creates a body of `count` equal pieces that are available at once.
pub(crate) fn ready_pieces(count: usize, size: usize) -> PieceStream {
    let piece = Bytes::from(vec![7; size]);
    let mut left = count;
    let pieces = move |_: &mut std::task::Context<'_>| {
        let next = left.checked_sub(1);
        left = next.unwrap_or(0);
        Poll::Ready(next.map(|_| Ok(piece.clone())))
    };
    poll_fn(pieces).boxed()
}
