//! Libraries with a Redis that is slow, refuses connections, is frozen, or loses what it is sent.
//!
//! Every library has a Redis and a proxy of its own, and all of them take part at once: they wait,
//! and do not compute; so do the failures. What a call takes beyond a load is compared with forebay without a Redis.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use futures_util::future::join_all;

use crate::environment::median;
use crate::report::{Better, Bound, Comparison, Table, Unit};
use crate::rivals::Rival;
use crate::rivals::catalog::{LIBRARIES, Library, OURS, unavailable};
use crate::rivals::peer::{Loaded, Peer, Setup};

/// Time of a load.
const LOAD: Duration = Duration::from_millis(20);
const SIZE: usize = 1 << 10;

/// Callers at once behind a slow Redis.
const CROWD: usize = 500;

/// Misses after the first one, and hits in memory whose median counts; fewer of each with a
/// library that needs longer than the time limit for them.
const LATER: usize = 20;
const HITS: usize = 101;
const CALLS_MAX: Duration = Duration::from_secs(6);

/// Default `read_timeout` of forebay, and what a caller may wait beyond it.
const READ_TIMEOUT: f64 = 0.05;
const LATE_MAX: f64 = 0.005;
/// Most that a miss costs while the tier is bypassed.
const BYPASSED_MAX: f64 = 0.001;

/// Delays of Redis.
const DELAYS: [Duration; 3] =
    [Duration::from_millis(30), Duration::from_millis(100), Duration::from_millis(500)];

/// Ways in which Redis is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    Refused,
    Frozen,
    HalfOpen,
}

const FAILURES: [(Failure, &str); 3] = [
    (Failure::Refused, "refused"),
    (Failure::Frozen, "frozen"),
    (Failure::HalfOpen, "half-open: bytes are lost"),
];

/// One library between its Redis and the commands of this program.
struct Ground {
    library: &'static Library,
    redis: Option<RedisServer>,
    proxy: FaultProxy,
    peer: Peer,
}

/// Seconds and counts of one library.
#[derive(Default)]
struct Outcome {
    first: f64,
    later: f64,
    hot: f64,
    loads: f64,
    errors: f64,
}

type Measured = Vec<(&'static Library, Result<Outcome>)>;

impl Ground {
    async fn start(library: &'static Library) -> Result<Self> {
        let redis = RedisLaunch::new().start().await?;
        let proxy = FaultProxy::start(redis.address()).await?;
        let setup = Setup::new(&format!("redis://{}", proxy.address()));
        let mut peer = Peer::start(library, &setup).await?;
        peer.load("hot", 1, LOAD, SIZE).await?;
        Ok(Self { library, redis: Some(redis), proxy, peer })
    }

    async fn one(&mut self, key: &str, outcome: &mut Outcome) -> Result<f64> {
        let Loaded { loads, errors, times } = self.peer.load(key, 1, LOAD, SIZE).await?;
        outcome.loads += loads as f64;
        outcome.errors += errors as f64;
        times.first().copied().context("no time")
    }

    async fn fail(&mut self, failure: Failure) -> Result<()> {
        match failure {
            Failure::HalfOpen => self.proxy.set(Faults::flow(Flow::BlackHole)),
            Failure::Frozen => self.redis.as_ref().context("Redis is gone")?.freeze().await?,
            Failure::Refused => {
                self.redis.take().context("Redis is gone")?.kill().await?;
                self.proxy.set(Faults { refuses: true, ..Faults::default() });
                self.proxy.reset_all();
            }
        }
        Ok(())
    }

    /// Hits in memory and cold misses while Redis is gone.
    async fn without_redis(&mut self, failure: Failure) -> Result<Outcome> {
        self.fail(failure).await?;
        let mut outcome = Outcome::default();
        outcome.first = self.one("first", &mut outcome).await?;
        let (mut times, began) = (Vec::new(), Instant::now());
        while times.len() < LATER && (times.is_empty() || began.elapsed() < CALLS_MAX) {
            times.push(self.one(&format!("later:{}", times.len()), &mut outcome).await?);
        }
        // A library that needs some failures before it goes without Redis has had them by now.
        outcome.later = median(&times[times.len() / 2..]);
        outcome.loads /= (times.len() + 1) as f64;
        let (mut hits, began) = (Vec::new(), Instant::now());
        while hits.len() < HITS && (hits.is_empty() || began.elapsed() < CALLS_MAX) {
            hits.push(self.one("hot", &mut Outcome::default()).await?);
        }
        outcome.hot = median(&hits);
        Ok(outcome)
    }

    /// A cold miss of one caller and of a crowd, behind a delay.
    async fn slow_misses(&mut self, delay: Duration) -> Result<Outcome> {
        self.proxy.set(Faults::delayed(delay));
        let mut outcome = Outcome::default();
        outcome.first = self.one("cold", &mut outcome).await?;
        let crowd = self.peer.load("crowd", CROWD, LOAD, SIZE).await?;
        outcome.later = crowd.times.iter().copied().fold(0.0, f64::max);
        outcome.loads = crowd.loads as f64;
        outcome.errors += crowd.errors as f64;
        Ok(outcome)
    }

    /// Reads of two values that another process has stored in Redis, behind a delay.
    async fn slow_hits(&mut self, delay: Duration) -> Result<Outcome> {
        let direct = Setup::new(&self.redis.as_ref().context("Redis is gone")?.url());
        let mut writer = Peer::start(self.library, &direct).await?;
        for key in ["far", "far-crowd"] {
            writer.load(key, 1, LOAD, SIZE).await?;
        }
        // forebay writes to Redis behind its answer.
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.proxy.set(Faults::delayed(delay));
        let mut outcome = Outcome::default();
        outcome.first = self.one("far", &mut outcome).await?;
        let crowd = self.peer.load("far-crowd", CROWD, LOAD, SIZE).await?;
        outcome.later = crowd.times.iter().copied().fold(0.0, f64::max);
        outcome.loads += crowd.loads as f64;
        outcome.errors += crowd.errors as f64;
        Ok(outcome)
    }
}

fn shared() -> impl Iterator<Item = &'static Library> {
    LIBRARIES.iter().filter(|library| library.is_shared)
}

/// Time of a cold miss of forebay without a Redis.
async fn plain_miss() -> Result<f64> {
    let library = Library::named(OURS).context("forebay is in the list")?;
    let mut peer = Peer::start(library, &Setup::new("")).await?;
    let mut times = Vec::new();
    for number in 0..LATER {
        times.extend(peer.load(&format!("key:{number}"), 1, LOAD, SIZE).await?.times);
    }
    Ok(median(&times))
}

/// Plays a case with every library that has a Redis, at once.
async fn all(
    rivals: &mut Vec<Rival>,
    play: impl AsyncFn(&mut Ground) -> Result<Outcome>,
) -> Result<Measured> {
    let played = join_all(shared().map(async |library| {
        let mut ground = match Ground::start(library).await {
            Ok(ground) => ground,
            Err(error) => return (library, Err(error), None),
        };
        let outcome = play(&mut ground).await;
        (library, outcome, Some(ground.peer.rival.clone()))
    }));
    let mut measured = Vec::new();
    for (library, outcome, rival) in played.await {
        if library.is_ours() {
            measured.push((library, Ok(outcome?)));
            continue;
        }
        let described = match (&outcome, rival) {
            (_, Some(rival)) => rival,
            (Err(error), None) => Rival::missing(library.name, format!("{error:#}")),
            (Ok(_), None) => continue,
        };
        crate::stampede::libraries::note(rivals, described);
        measured.push((library, outcome));
    }
    Ok(measured)
}

fn row(row: Comparison, measured: &Measured, figure: impl Fn(&Outcome) -> f64) -> Comparison {
    measured.iter().fold(row, |row, (library, outcome)| match outcome {
        Ok(outcome) if library.is_ours() => row.ours(vec![figure(outcome)]),
        Ok(outcome) => row.rival(library.name, vec![figure(outcome)]),
        // Named below the table.
        Err(_) => row,
    })
}

fn failed(measured: &Measured) -> String {
    let failed = measured.iter().filter_map(|(library, outcome)| {
        let error = outcome.as_ref().err()?;
        Some(format!("{}: {error:#}", library.name))
    });
    failed.collect::<Vec<_>>().join("; ")
}

/// Redis that refuses, is frozen, or loses bytes.
pub(crate) async fn dead() -> Result<Table> {
    let plain = plain_miss().await?;
    let mut table = Table::comparisons(format!(
        "libraries without their Redis: times beyond a load of {LOAD:?}, as forebay without Redis needs \
         it ({})",
        Unit::Seconds.show(plain)
    ));
    let (mut rivals, mut notes) = (unavailable(), Vec::new());
    eprintln!("measuring: three failures at once");
    let played = FAILURES.map(async |(failure, name)| {
        let mut rivals = Vec::new();
        let play = async |ground: &mut Ground| ground.without_redis(failure).await;
        let measured = all(&mut rivals, play).await?;
        Ok::<_, anyhow::Error>((failure, name, measured, rivals))
    });
    for played in join_all(played).await {
        let (failure, name, measured, described) = played?;
        for rival in described {
            crate::stampede::libraries::note(&mut rivals, rival);
        }
        let time =
            |what: &str| Comparison::new(format!("{name}: {what}"), Unit::Seconds, Better::Lower);
        let mut first = time("first cold miss");
        if failure == Failure::Frozen {
            first = first.published("layercache, article", 2.0).published("layercache 4", 0.4015);
        }
        let beyond = |seconds: f64| (seconds - plain).max(0.0);
        let first = first.bound(Bound::AtMost(READ_TIMEOUT + LATE_MAX));
        table.compare(row(first, &measured, |one| beyond(one.first)));
        let later = time("later cold miss").bound(Bound::AtMost(BYPASSED_MAX));
        table.compare(row(later, &measured, |one| beyond(one.later)));
        let hot = time("hit in memory").published("layercache", 0.000_07);
        table.compare(row(hot, &measured, |one| one.hot));
        let count =
            |what: &str| Comparison::new(format!("{name}: {what}"), Unit::Count, Better::Lower);
        let loads = count("loads for each miss").bound(Bound::AtMost(1.0));
        table.compare(row(loads, &measured, |one| one.loads));
        let errors = count("errors").bound(Bound::AtMost(0.0));
        table.compare(row(errors, &measured, |one| one.errors));
        notes.extend(Some(failed(&measured)).filter(|note| !note.is_empty()));
    }
    Ok(table.note(notes.join("; ")).with_rivals(rivals))
}

/// Redis behind a delay.
pub(crate) async fn slow() -> Result<Table> {
    let plain = plain_miss().await?;
    let mut table = Table::comparisons(format!(
        "libraries with a slow Redis: times of calls, a load takes {}",
        Unit::Seconds.show(plain)
    ));
    let (mut rivals, mut notes) = (unavailable(), Vec::new());
    for delay in DELAYS {
        let shown = format!("{} ms", delay.as_millis());
        eprintln!("measuring: a delay of {shown}");
        let misses = all(&mut rivals, async |ground| ground.slow_misses(delay).await).await?;
        let hits = all(&mut rivals, async |ground| ground.slow_hits(delay).await).await?;
        let time =
            |what: &str| Comparison::new(format!("{shown}: {what}"), Unit::Seconds, Better::Lower);
        let is_long = delay == DELAYS[2];
        let published = |row: Comparison, source: &str, figure: f64| {
            if is_long { row.published(source, figure) } else { row }
        };
        let cold = plain + delay.as_secs_f64().min(READ_TIMEOUT) + LATE_MAX;
        let miss = time("cold miss").bound(Bound::AtMost(cold));
        let miss = published(miss, "layercache, article", 2.5);
        let miss = published(miss, "layercache 4", 0.2004);
        table.compare(row(miss, &misses, |one| one.first));
        let name = format!("cold miss of {CROWD} callers, slowest");
        table.compare(row(time(&name), &misses, |one| one.later));
        let name = format!("{shown}: loads of {CROWD} callers");
        let loads = Comparison::new(name, Unit::Count, Better::Lower).bound(Bound::AtMost(1.0));
        table.compare(row(loads, &misses, |one| one.loads));
        let hit = published(time("value in Redis"), "layercache, article", 0.501);
        table.compare(row(published(hit, "layercache 4", 0.2002), &hits, |one| one.first));
        let name = format!("value in Redis, {CROWD} callers, slowest");
        let crowd = published(time(&name), "layercache, article", 0.515);
        table.compare(row(crowd, &hits, |one| one.later));
        let errors = Comparison::new(format!("{shown}: errors"), Unit::Count, Better::Lower);
        table.compare(row(errors.bound(Bound::AtMost(0.0)), &misses, |one| one.errors));
        notes.extend([failed(&misses), failed(&hits)].into_iter().filter(|note| !note.is_empty()));
    }
    Ok(table.note(notes.join("; ")).with_rivals(rivals))
}
