//! One endpoint: whether it answers, and what is done there within its time.

mod reading;
mod sharing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_core::Timestamp;
use forebay_engine::Clock;
use futures_util::future::join;
use parking_lot::Mutex;
use redis::RedisResult;
use tokio::sync::Notify;

use self::sharing::Sharing;
use crate::counts::{Counters, EndpointState, Notice, Witness, count};
use crate::debts::{Debt, Debts, Reason};
use crate::link::{Fill, Filled, Link, Right};
use crate::names::Names;
use crate::purge_debts::PurgeDebts;
use crate::server_clock::Reading;
use crate::settings::{EndpointSettings, SettingsError};
use crate::target::{CONNECT_MAX, Target};
use crate::tombstones::{Tombstone, Tombstones};
use crate::trouble::Trouble;
use crate::wakes::Wakes;

/// How long a server that takes no writes is not asked to take any. It may have become a master,
/// or have room again.
const READ_ONLY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) read_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) debts: Debts,
    pub(crate) purges: PurgeDebts,
    pub(crate) tombstones: Tombstones,
    pub(crate) counters: Arc<Counters>,
    /// There is somebody who wants to know whether it still answers.
    pub(crate) nudge: Notify,
    clock: Arc<dyn Clock>,
    link: ArcSwapOption<Link>,
    /// Of the server at the other end of the link.
    reading: Mutex<Option<Reading>>,
    is_up: AtomicBool,
    is_read_only: AtomicBool,
    /// When it may be asked again to take a write, in milliseconds of the process's clock.
    writes_from: AtomicI64,
    wants_another: AtomicBool,
    witness: Arc<dyn Witness>,
    trouble: Mutex<Option<String>>,
    channel: Option<Channel>,
    hears: AtomicBool,
    sharing: Sharing,
}

/// Where this instance is woken.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) wakes: Arc<Wakes>,
    /// Another endpoint may be the one that is used.
    pub(crate) changed: Arc<Notify>,
}

impl Endpoint {
    pub(crate) fn new(
        settings: &EndpointSettings,
        (counters, clock): (&Arc<Counters>, &Arc<dyn Clock>),
        (witness, channel): (&Arc<dyn Witness>, Option<Channel>),
    ) -> Result<Arc<Self>, SettingsError> {
        Ok(Arc::new(Self {
            target: Target::new(settings, counters)?,
            read_timeout: settings.read_timeout,
            write_timeout: settings.write_timeout,
            debts: Debts::default(),
            purges: PurgeDebts::default(),
            tombstones: Tombstones::default(),
            counters: counters.clone(),
            nudge: Notify::new(),
            clock: clock.clone(),
            link: ArcSwapOption::empty(),
            reading: Mutex::default(),
            is_up: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
            writes_from: AtomicI64::new(i64::MIN),
            wants_another: AtomicBool::new(false),
            witness: witness.clone(),
            trouble: Mutex::default(),
            channel,
            hears: AtomicBool::new(false),
            sharing: Sharing::default(),
        }))
    }

    pub(crate) async fn open(&self) -> RedisResult<Link> {
        self.target.open(self.channel.as_ref().map(|channel| &channel.wakes)).await
    }

    /// Listens for messages to this instance. Whoever has waited until now asks again: messages
    /// may have been missed. The server is told the scripts that will be hurried, too.
    pub(crate) async fn listen(&self, link: &Link) {
        let Some(Channel { name, wakes, .. }) = &self.channel else { return };
        let both = async { join(link.subscribe(name), link.prepare()).await.0 };
        let hears = match tokio::time::timeout(CONNECT_MAX, both).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                self.counters.trouble(&error.into());
                false
            }
            Err(_) => false,
        };
        self.hears.store(hears, Ordering::Release);
        wakes.wake_all();
    }

    /// Whether messages arrive here. Where they do not, a wait lasts until its time is over.
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    /// Whether it can be asked, and its answers believed.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up.load(Ordering::Acquire) && !self.debts.are_too_many()
    }

    pub(crate) async fn claim(&self, names: &Names, right: &Right) -> Result<bool, Trouble> {
        self.run(self.write_timeout, |link| async move { link.claim(names, right).await }).await
    }

    pub(crate) async fn fill(&self, fill: &Fill<'_>) -> Result<Filled, Trouble> {
        let filled = self.run(fill.patience, |link| async move { link.fill(fill).await }).await?;
        self.is_read_only.store(false, Ordering::Release);
        Ok(filled)
    }

    pub(crate) async fn remove(&self, names: &Names) -> Result<bool, Trouble> {
        self.run(self.write_timeout, |link| async move { link.remove(names).await }).await
    }

    /// Notes what it must not have any more. It is removed as soon as possible, unless whoever
    /// holds the note has it removed.
    pub(crate) fn owing(self: &Arc<Self>, names: &Arc<Names>, reason: Reason) -> Owing {
        Owing { endpoint: self.clone(), debt: Some(self.debts.note(names, reason)) }
    }

    /// Remembers a purge that it was told of.
    pub(crate) fn remember(&self, tombstone: Tombstone) {
        self.tombstones.note(tombstone, self.clock.now());
    }

    /// It may not know any more what it was told: another server may have taken its place.
    pub(crate) fn may_have_forgotten(&self) {
        self.purges.owe_again(self.tombstones.all());
    }

    /// One operation, within its time. Whoever gives up waiting, here or above, leaves word that
    /// something may be wrong.
    pub(crate) async fn run<T, F>(
        &self,
        timeout: Duration,
        operation: impl FnOnce(Arc<Link>) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let link = self.link.load_full().filter(|_| self.is_usable());
        let Some(link) = link else { return Err(self.failed(Trouble::Absent)) };
        let unanswered = Unanswered(Some(self));
        let result = match tokio::time::timeout(timeout, operation(link)).await {
            Err(_) => Err(Trouble::TimedOut),
            Ok(result) => result.map_err(Trouble::from),
        };
        unanswered.ended();
        result.map_err(|trouble| self.failed(trouble))
    }

    /// Counts and reports a failure.
    fn failed(&self, trouble: Trouble) -> Trouble {
        self.counters.trouble(&trouble);
        match &trouble {
            // These say more about the connection than about the operation: whoever watches it
            // finds out, and reports it.
            Trouble::Absent | Trouble::TimedOut | Trouble::Broken(_) => self.nudge.notify_one(),
            told => self.report(told),
        }
        trouble
    }

    pub(crate) fn report(&self, trouble: &Trouble) {
        let why = trouble.to_string();
        let mut told = self.trouble.lock();
        if told.as_ref() == Some(&why) {
            return;
        }
        *told = Some(why.clone());
        drop(told);
        self.witness.notice(&Notice::Trouble { address: self.target.address.clone(), why });
    }

    /// A new connection, that has not answered yet.
    pub(crate) fn hold(&self, link: &Link) {
        count(&self.counters.connected);
        self.wants_another.store(false, Ordering::Release);
        // Before the link: what the other server's clock showed must not be taken for this one's.
        *self.reading.lock() = None;
        self.link.store(Some(Arc::new(link.clone())));
    }

    pub(crate) fn let_go(&self) {
        self.sink();
        self.link.store(None);
        self.hears.store(false, Ordering::Release);
        if let Some(channel) = &self.channel {
            channel.wakes.wake_all();
        }
    }

    /// It answers, and in time.
    pub(crate) fn rise(&self) {
        if self.is_up.swap(true, Ordering::AcqRel) {
            return;
        }
        self.tell_of_change();
        *self.trouble.lock() = None;
        self.witness.notice(&Notice::Up { address: self.target.address.clone() });
    }

    /// It does not answer, or not in time.
    pub(crate) fn sink(&self) {
        if self.is_up.swap(false, Ordering::AcqRel) {
            self.tell_of_change();
        }
    }

    fn tell_of_change(&self) {
        if let Some(channel) = &self.channel {
            channel.changed.notify_one();
        }
    }

    /// It takes no writes: for a while it is not asked to. If another server may by now be found
    /// in its place, that one is looked for.
    pub(crate) fn takes_no_writes(&self, now: Timestamp) {
        self.is_read_only.store(true, Ordering::Release);
        self.writes_from.store(now.plus(READ_ONLY_PAUSE).as_millis(), Ordering::Release);
        if self.target.is_found_anew() {
            self.wants_another.store(true, Ordering::Release);
            self.nudge.notify_one();
        }
    }

    /// Whether it is worth asking it to take a write.
    pub(crate) fn may_take_writes(&self, now: Timestamp) -> bool {
        !self.is_read_only.load(Ordering::Acquire)
            || now.as_millis() >= self.writes_from.load(Ordering::Acquire)
    }

    pub(crate) fn wants_another(&self) -> bool {
        self.wants_another.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self, is_used: bool) -> EndpointState {
        EndpointState {
            address: self.target.address.clone(),
            is_up: self.is_usable(),
            is_used,
            is_read_only: self.is_read_only.load(Ordering::Acquire),
            owed: self.debts.count() + self.purges.count(),
            trouble: self.trouble.lock().clone(),
            hears: self.hears(),
            deaf: self.sharing.deaf(),
            untracked: self.sharing.untracked(),
            unshared: self.sharing.unshared(),
        }
    }
}

/// What an endpoint must not have any more. Dropping it makes the debt due.
pub(crate) struct Owing {
    endpoint: Arc<Endpoint>,
    debt: Option<Debt>,
}

impl Owing {
    /// It has it no more, or something new in its place.
    pub(crate) fn forgive(mut self) {
        if let Some(debt) = self.debt.take() {
            self.endpoint.debts.forgive(&debt);
        }
    }
}

impl Drop for Owing {
    fn drop(&mut self) {
        if let Some(debt) = &self.debt {
            self.endpoint.debts.fall_due(debt);
            self.endpoint.nudge.notify_one();
        }
    }
}

/// An operation that is under way. Dropping it is giving up, which counts as a time that is over.
struct Unanswered<'a>(Option<&'a Endpoint>);

impl Unanswered<'_> {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(endpoint) = self.0 {
            let _ = endpoint.failed(Trouble::TimedOut);
        }
    }
}
