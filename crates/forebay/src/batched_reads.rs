//! Reading a tier once for many keys.
//!
//! The flights of a batch look into one tier after the other, each for itself: they may find
//! different things there, and a tier may be left out. But they come to a tier at the same time,
//! and so they are read together: whoever comes waits until all have come that still may, and the
//! tier is asked once. A flight that comes to a lower tier, to its load, or to its end will not
//! come to a higher tier any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::{Key, KeyRef};
use forebay_engine::{Stored, Tier, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How many keys a tier is asked for at once: beyond it the answer would hold up others on the
/// same connection.
const KEYS_MAX: usize = 512;

/// How long those who have come wait for one who may still come. All come at once, but for those
/// whose tier has to be rid of something first.
const LINGER: Duration = Duration::from_millis(2);

type Read = Result<Option<Stored>, TierError>;

/// The flights of one batch, on their way through the tiers.
#[derive(Default)]
pub(crate) struct BatchedReads(Mutex<ReadState>);

#[derive(Default)]
struct ReadState {
    /// How many are on their way.
    readers: usize,
    /// All that will ever be have joined.
    closed: bool,
    /// By the number of tiers above.
    stages: Vec<TierStage>,
}

/// One tier.
#[derive(Default)]
struct TierStage {
    /// How many of those on their way have come here, or further.
    passed: usize,
    tier: Option<Arc<dyn Tier>>,
    come: Vec<PendingRead>,
}

struct PendingRead {
    key: Key,
    tell: oneshot::Sender<Read>,
}

/// One flight of a batch.
pub(crate) struct Reader {
    together: Arc<BatchedReads>,
    /// Whether it is one of those that wait for each other.
    joined: AtomicBool,
    /// How many tiers it has come to, those counted that it has left out.
    passed: AtomicUsize,
}

impl BatchedReads {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Nobody joins any more.
    pub(crate) fn close(&self) {
        let mut ways = self.0.lock();
        ways.closed = true;
        ways.read_where_all_have_come();
    }

    fn arrive(
        self: &Arc<Self>,
        (tier, above): (&Arc<dyn Tier>, usize),
        passed: usize,
        coming: PendingRead,
    ) {
        let mut ways = self.0.lock();
        let stages = ways.stages.len().max(above + 1);
        ways.stages.resize_with(stages, TierStage::default);
        // Those that it has left out it will not come to.
        ways.stages.iter_mut().take(above + 1).skip(passed).for_each(|stage| stage.passed += 1);
        let stage = &mut ways.stages[above];
        stage.tier.get_or_insert_with(|| tier.clone());
        stage.come.push(coming);
        let is_first = stage.come.len() == 1;
        ways.read_where_all_have_come();
        if is_first && !ways.stages[above].come.is_empty() {
            self.linger(above);
        }
    }

    /// Asks for what has come after a moment, whoever is still missing then.
    fn linger(self: &Arc<Self>, above: usize) {
        let Ok(runtime) = Handle::try_current() else { return };
        let together = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep(LINGER).await;
            if let Some(together) = together.upgrade() {
                together.0.lock().stages[above].read();
            }
        });
    }

    fn leave(&self, passed: usize) {
        let mut ways = self.0.lock();
        ways.readers -= 1;
        ways.stages.iter_mut().take(passed).for_each(|stage| stage.passed -= 1);
        ways.read_where_all_have_come();
    }
}

impl ReadState {
    fn read_where_all_have_come(&mut self) {
        let (closed, readers) = (self.closed, self.readers);
        let complete = |stage: &&mut TierStage| closed && stage.passed == readers;
        self.stages.iter_mut().filter(complete).for_each(TierStage::read);
    }
}

impl TierStage {
    /// Asks the tier for all that has come, in tasks that belong to no caller.
    fn read(&mut self) {
        let come = std::mem::take(&mut self.come);
        let (Some(tier), Ok(runtime)) = (&self.tier, Handle::try_current()) else { return };
        let mut come = come.into_iter().peekable();
        while come.peek().is_some() {
            let some: Vec<PendingRead> = come.by_ref().take(KEYS_MAX).collect();
            runtime.spawn(read(tier.clone(), some));
        }
    }
}

async fn read(tier: Arc<dyn Tier>, come: Vec<PendingRead>) {
    let (keys, tells): (Vec<Key>, Vec<_>) =
        come.into_iter().map(|coming| (coming.key, coming.tell)).unzip();
    // All who wait have given up by then.
    let reading = timeout(tier.budget().read, tier.open_many(&keys));
    let read = reading.await.unwrap_or(Err(TierError::TimedOut));
    let read = read.and_then(|read| {
        let complete = read.len() == keys.len();
        complete.then_some(read).ok_or_else(|| TierError::failed("not as much as was asked for"))
    });
    match read {
        // Whoever has gone away needs no answer.
        Ok(read) => tells.into_iter().zip(read).for_each(|(tell, one)| drop(tell.send(Ok(one)))),
        Err(error) => tells.into_iter().for_each(|tell| drop(tell.send(Err(error.clone())))),
    }
}

impl Reader {
    pub(crate) fn new(together: &Arc<BatchedReads>) -> Self {
        let (joined, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { together: together.clone(), joined, passed }
    }

    /// It is on its way, and is waited for.
    pub(crate) fn joins(&self) {
        if !self.joined.swap(true, Ordering::Relaxed) {
            self.together.0.lock().readers += 1;
        }
    }

    /// It will come to no tier any more.
    pub(crate) fn leaves(&self) {
        if self.joined.swap(false, Ordering::Relaxed) {
            self.together.leave(self.passed.load(Ordering::Relaxed));
        }
    }

    /// Whether it is waited for.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.joined.load(Ordering::Relaxed)
    }

    /// Reads one record of a tier: with the others, if it is waited for.
    pub(crate) fn open<'a>(
        &'a self,
        (tier, above): (&'a Arc<dyn Tier>, usize),
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Read> {
        let passed = self.passed.load(Ordering::Relaxed);
        // A second question about one tier is its own.
        if !self.joined.load(Ordering::Relaxed) || passed > above {
            return tier.open(key);
        }
        let (tell, told) = oneshot::channel();
        self.passed.store(above + 1, Ordering::Relaxed);
        self.together.arrive((tier, above), passed, PendingRead { key: key.to_key(), tell });
        let ended = || Err(TierError::failed("reading many keys at once was ended"));
        async move { told.await.unwrap_or_else(|_| ended()) }.boxed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.leaves();
    }
}
