//! An origin that answers by script, and counts.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use forebay_core::Meta;
use forebay_engine::{
    Audience, BrokenBody, Content, Entry, Head, Load, LoadError, Loaded, Passed, PieceStream,
    Select, TierErrors,
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

/// What one load asks.
pub(crate) struct Asked {
    /// Which load of this origin it is, from 1.
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
}

struct Propagation {
    script: Box<Script>,
    loads: AtomicUsize,
    under_way: AtomicUsize,
    most_at_once: AtomicUsize,
    priors: Mutex<Vec<Option<Bytes>>>,
}

impl Origin {
    /// `script` is called when a load begins, and what it returns is awaited. A panic in `script`
    /// itself comes before there is a future.
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
        }
    }

    /// The same origin, asked in this language.
    pub(crate) fn speaking(&self, language: &'static str) -> Self {
        Self { language: Some(language), ..self.clone() }
    }

    /// The same origin behind a door that is strict about tiers.
    pub(crate) fn strict(&self) -> Self {
        Self { tier_errors: TierErrors::Strict, ..self.clone() }
    }

    /// The same origin for a request that only reads tiers. The script must return
    /// [`LoadError::NotCached`].
    pub(crate) fn only_looking(&self) -> Self {
        Self { only_looks: true, ..self.clone() }
    }

    /// How many loads have begun.
    pub(crate) fn loads(&self) -> usize {
        self.told.loads.load(Ordering::SeqCst)
    }

    /// How many loads were under way at the busiest moment.
    pub(crate) fn most_at_once(&self) -> usize {
        self.told.most_at_once.load(Ordering::SeqCst)
    }

    /// The body of what each load was told is stored.
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

impl Load for Origin {
    fn tier_errors(&self) -> TierErrors {
        self.tier_errors
    }

    fn only_looks(&self) -> bool {
        self.only_looks
    }

    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        _company: Audience,
    ) -> impl Future<Output = Answer> + Send {
        let told = self.told.clone();
        let number = told.loads.fetch_add(1, Ordering::SeqCst) + 1;
        let seen = prior.as_ref().and_then(|prior| prior.body.bytes().cloned());
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

/// An answer that is here at once.
pub(crate) fn whole(meta: Meta, body: impl Into<Bytes>) -> Loaded {
    Loaded::Entry { meta, head: Head::default(), content: Content::Whole(body.into()) }
}

/// An answer whose body comes later.
pub(crate) fn flowing(meta: Meta, body: PieceStream) -> Loaded {
    Loaded::Entry { meta, head: Head::default(), content: Content::Stream(body) }
}

/// An answer for one caller alone.
pub(crate) fn passed(body: impl Into<Bytes>, remember: Duration) -> Passed {
    Passed { head: Head::default(), content: Content::Whole(body.into()), remember }
}

/// How many pieces a test writes ahead of the engine, at most.
const TAP_PIECES_MAX: usize = 128;

/// Where a test writes a body piece by piece. Dropping it ends the body cleanly.
pub(crate) type Tap = mpsc::Sender<Result<Bytes, BrokenBody>>;

/// A body that a test writes.
pub(crate) fn tap() -> (Tap, PieceStream) {
    let (tap, mut pieces) = mpsc::channel(TAP_PIECES_MAX);
    (tap, poll_fn(move |cx| pieces.poll_recv(cx)).boxed())
}

/// Hands out what was prepared, once.
pub(crate) struct Once<T>(Mutex<Option<T>>);

impl<T> Once<T> {
    pub(crate) fn new(value: T) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(value))))
    }

    pub(crate) fn take(&self) -> T {
        self.0.lock().take().expect("it is taken only once")
    }
}

/// A body of `count` equal pieces that are all there at once, however fast they are taken.
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
