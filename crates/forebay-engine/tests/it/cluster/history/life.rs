//! Events of a history: reads, writes and faults.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Purge, Reach};
use forebay_engine::{Coalesce, Head, Loaded, NewEntry, Propagation, Source};
use forebay_testkit::history::Promise;

use super::*;
use crate::cluster::counts::minute;
use crate::cluster::server::Stored;
use crate::origin::{Origin, passed, whole};
use crate::world::{Question, SITE, bytes, key, tagged, varying};

/// How far a replica may be behind.
const LAG_MAX: u64 = 300;

impl History {
    /// Returns a random instance that is alive.
    fn living(&self) -> Living {
        let alive = self.alive.lock();
        alive[self.chance.one_of(alive.len())].clone()
    }

    /// An origin that reads the version some time after it was asked, and answers some time later.
    fn origin(self: &Arc<Self>, which: usize) -> Origin {
        let history = self.clone();
        Origin::new(move |_| {
            let history = history.clone();
            async move {
                history.counts.add(Counted::Loads, 1);
                pass(history.chance.below(30)).await;
                let version = history.truths[which].version();
                let Named { name, tag, is } = &KEYS[which];
                history.trace(|| format!("the origin has read {version} of {name}"));
                pass(history.chance.below(30)).await;
                let meta = tagged(minute(&history.together.clock), tag);
                let body = version.to_string();
                Ok(match is {
                    Kind::Private if history.chance.below(3) == 0 => {
                        let remember = Duration::from_millis(history.chance.below(200));
                        Loaded::Pass(passed(body, remember))
                    }
                    Kind::Varying => whole(varying(meta), body),
                    Kind::Shared | Kind::Private => whole(meta, body),
                })
            }
        })
    }

    pub(super) async fn read(self: Arc<Self>) {
        let Living { instance, .. } = self.living();
        let which = self.chance.one_of(KEYS.len());
        let coalesce = match self.chance.below(10) {
            0 => Coalesce::Never,
            1 => Coalesce::Instance,
            _ => Coalesce::Cluster,
        };
        let language = LANGUAGES[self.chance.one_of(LANGUAGES.len())];
        let (number, name) = (instance.link.instance, KEYS[which].name);
        let question = Question { coalesce, ..Question::from(name) };
        // Nothing of an instance that is paused goes on.
        instance.link.thawed().await;
        let began = self.now();
        self.trace(|| format!("{number}: reads {name} {language}, {coalesce:?}"));
        let is_waking = self.is_waking(&instance, began);
        let obtained = instance.obtain(question, &self.origin(which).speaking(language)).await;
        instance.link.thawed().await;
        let obtained = obtained.unwrap_or_else(|error| panic!("{}: {error}", self.seed));
        let (source, version) = (obtained.source, bytes(&obtained));
        self.trace(|| {
            format!("{number}: has read {version:?} of {name}, {source:?}, since {began:?}")
        });
        let version = std::str::from_utf8(&version).ok().and_then(|text| text.parse().ok());
        let version = version.expect("a version");
        self.counts.add(Counted::Reads, 1);
        self.counts.add(Counted::Passes, u64::from(source == Source::Passed));
        if !is_waking {
            self.check_bound(which, &instance, began, version);
        }
        let binds = source != Source::Passed && !self.is_put_since(&instance, which, began);
        let read = Read { began, ended: self.now(), version, binds, via: "" };
        let language = if KEYS[which].is == Kind::Varying { language } else { "" };
        self.reads.lock().entry((number, which, language)).or_default().push(read);
    }

    fn is_waking(&self, instance: &Instance, at: Duration) -> bool {
        let alive = self.alive.lock();
        let its = alive.iter().find(|its| its.instance.link.instance == instance.link.instance);
        its.is_none_or(|its| at < its.paused + WAKING)
    }

    /// Returns `true` if a value was put on this instance after `began`, so that a loaded one is
    /// not stored.
    fn is_put_since(&self, instance: &Instance, which: usize, began: Duration) -> bool {
        let puts = self.puts.lock();
        let latest = puts.get(&(instance.link.instance, which));
        latest.is_some_and(|ended| ended.is_none_or(|ended| ended >= began))
    }

    fn some_purge(&self) -> (usize, Purge) {
        let which = self.chance.one_of(KEYS.len());
        let Named { name, tag, .. } = KEYS[which];
        let what = match self.chance.below(8) {
            0..=2 => Purge::Key(key(name)),
            3..=4 => Purge::Tag(tag.into()),
            5 => Purge::Prefix { site: SITE.into(), prefix: name.into() },
            6 => Purge::Site(SITE.into()),
            _ => Purge::All,
        };
        (which, what)
    }

    /// Changes what some keys are, and purges them.
    pub(super) async fn write(self: Arc<Self>) {
        let Living { instance, .. } = self.living();
        instance.link.thawed().await;
        let (which, what) = self.some_purge();
        let is_reached = |named: &Named| match &what {
            Purge::Tag(purged) => **purged == *named.tag,
            what => what.is_about(key(named.name).borrowed()),
        };
        let reached: Vec<_> = (0..KEYS.len()).filter(|which| is_reached(&KEYS[*which])).collect();
        let mut turns = Vec::new();
        for which in &reached {
            turns.push(self.truths[*which].turn.lock().await);
        }
        let next = |which: &usize| (*which, self.truths[*which].change());
        let versions: Vec<_> = reached.iter().map(next).collect();
        let number = instance.link.instance;
        self.trace(|| format!("{number}: {versions:?} by {what:?}"));
        // An origin gives the new version before the purge of the old one begins.
        pass(self.chance.below(self.purge_delay_max + 1)).await;
        instance.link.thawed().await;
        let is_simple = KEYS[which].is == Kind::Shared && matches!(what, Purge::Key(_));
        let sets = is_simple && self.chance.below(3) == 0;
        self.counts.add(Counted::Writes, 1);
        let id = if sets {
            self.set(&instance, which, versions[0].1).await
        } else {
            self.purge(&instance, what).await
        };
        self.trace(|| format!("{number}: {versions:?} are purged by {id:?}"));
        match id {
            Some(id) => versions.iter().for_each(|(which, version)| {
                let promise = Promise { version: *version, at: self.now(), id };
                self.truths[*which].promise(promise);
            }),
            None => {
                self.counts.add(Counted::Untold, 1);
                versions.iter().for_each(|(which, version)| {
                    self.truths[*which].no_promise(*version);
                });
            }
        }
    }

    /// Purges, and returns the position of the purge in the log if it was published.
    async fn purge(&self, instance: &Instance, what: Purge) -> Option<u64> {
        let reach = if self.chance.below(3) == 0 { Reach::Soft } else { Reach::Hard };
        let purged = timeout(PATIENCE, instance.purge(what, reach)).await.ok()?;
        match purged.propagation {
            Propagation::Published(published) => Some(published.id.parse().expect("a number")),
            Propagation::None => panic!("there are others"),
            Propagation::Pending(_) => None,
        }
    }

    /// Puts a value, and returns a log position at or after it if it was published. A published
    /// value may be refused by the tier.
    async fn set(&self, instance: &Instance, which: usize, version: u64) -> Option<u64> {
        let Named { name, tag, .. } = KEYS[which];
        let meta = tagged(minute(&self.together.clock), tag);
        let body = Bytes::from(version.to_string());
        let value = NewEntry { meta, head: Head::default(), body };
        let key = key(name);
        let place = (instance.link.instance, which);
        self.puts.lock().insert(place, None);
        let put = timeout(PATIENCE, instance.engine.put(key.borrowed(), value, ())).await;
        self.puts.lock().insert(place, Some(self.now()));
        self.trace(|| format!("{}: has set {version} of {name}: {put:?}", instance.link.instance));
        let is_told = matches!(put, Ok(true)) && instance.is_heard();
        // Its place is not told; it is not behind the end of the log.
        is_told.then(|| self.together.server.with(|state| state.newest()))
    }

    pub(super) async fn trouble(self: Arc<Self>) {
        let Living { instance, .. } = self.living();
        let long = self.chance.below(if self.chance.below(4) == 0 { 40_000 } else { 3_000 });
        let Troubles { cuts, pauses, kills, flushes, evictions, restarts, failovers, disks: _ } =
            self.troubles;
        match self.chance.below(7) {
            0 if cuts => {
                instance.link.cut(true);
                pass(long).await;
                instance.link.cut(false);
            }
            1 if pauses && !instance.link.is_frozen() => self.pause(&instance, long).await,
            2 if kills => self.kill(&instance),
            3 if flushes => self.together.server.flush(),
            4 if evictions => self.evict(),
            5 if restarts => self.restart(long).await,
            6 if failovers => self.fail_over().await,
            _ => {}
        }
    }

    async fn pause(&self, instance: &Instance, long: u64) {
        instance.link.freeze(true);
        pass(long).await;
        let at = self.now();
        let mut alive = self.alive.lock();
        let number = instance.link.instance;
        for its in alive.iter_mut().filter(|its| its.instance.link.instance == number) {
            its.paused = at;
            instance.link.freeze(false);
        }
    }

    /// Stops the instance for ever, and starts another one in its place, with its disk.
    fn kill(&self, instance: &Instance) {
        self.counts.add(Counted::Lives, 1);
        instance.link.freeze(true);
        let mut alive = self.alive.lock();
        let number = INSTANCES + self.chance.one_of(1 << 31);
        self.trace(|| format!("{} is killed, and {number} begins", instance.link.instance));
        let is_it = |its: &&mut Living| Arc::ptr_eq(&its.instance.link, &instance.link);
        for dead in alive.iter_mut().filter(is_it) {
            let (disk, is_disk_used) = (dead.disk.clone(), self.troubles.disks);
            let now = self.now();
            *dead = Living::new(&self.together, number, self.making, disk, is_disk_used, now);
        }
    }

    fn evict(&self) {
        let server = &self.together.server;
        match self.chance.below(3) {
            0 => server.evict_leases(),
            1 => server.evict_tags(),
            _ => server.evict_records(),
        }
    }

    /// The server is away for a while, and comes back with all it had, or with nothing.
    async fn restart(&self, long: u64) {
        let links = || self.alive.lock().iter().map(|its| its.instance.link.clone()).collect();
        let links: Vec<_> = links();
        links.iter().for_each(|link| link.cut(true));
        pass(long).await;
        let keeps = self.chance.below(2) == 0;
        self.trace(|| format!("the server is back, with what it had: {keeps}"));
        let server = &self.together.server;
        let stored = if keeps { server.replica().0 } else { Stored::default() };
        server.fail_over(stored);
        links.iter().for_each(|link| link.cut(false));
        self.alive.lock().iter().for_each(|its| its.instance.link.reconnect());
    }

    /// Replaces the server by a replica that has not received the latest writes.
    async fn fail_over(&self) {
        let (stored, end) = self.together.server.replica();
        pass(self.chance.below(LAG_MAX)).await;
        self.together.server.fail_over(stored);
        self.alive.lock().iter().for_each(|its| its.instance.link.reconnect());
        let lost: usize = self.truths.iter().map(|truth| truth.lose_behind(end)).sum();
        self.trace(|| format!("a replica takes over, behind {end}; {lost} are lost"));
        self.counts.add(Counted::Failovers, 1);
        self.counts.add(Counted::Lost, lost as u64);
    }
}
