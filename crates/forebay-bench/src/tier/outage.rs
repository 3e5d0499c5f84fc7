//! Redis frozen, restarted empty under load, or gone while another one answers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use forebay_testkit::client::{Client, Request, Timings};
use forebay_testkit::faults::{FaultProxy, Faults};
use forebay_testkit::origin::Origin;
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::task::JoinSet;

use super::ground::{self, Cache, LOOK_GAP, Row, Scale, ms};

/// Delay of the origin.
const ORIGIN: Duration = Duration::from_millis(20);

/// Time limit for the preparation.
const WRITES: &str = "write_timeout = \"2s\"\n";

const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// Hits in memory whose times are compared, in each of so many windows: by turns while Redis
/// answers and while it is frozen. What the machine does to one window it does to its neighbour.
const HITS: usize = 2_000;
const WINDOWS: usize = 12;

/// Misses while the tier is bypassed.
const MISSES: usize = 20;

/// Keys that two processes ask for while Redis is restarted, and what may be loaded for them.
const KEYS: usize = 200;
const LOADS_MAX: u64 = 220;

/// Duration of a restart.
const GONE: Duration = Duration::from_millis(100);

/// Maximum time until a tier that answers again is used again.
const BACK_MAX: Duration = Duration::from_millis(250);

/// A hot hit, the first cold miss, and the later ones, while Redis is frozen.
pub(crate) async fn frozen(binary: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let (origin, redis) = (ground::origin(ORIGIN).await?, RedisLaunch::new().start().await?);
    let mut plain = ground::cache(binary, &origin, "", &[]).await?;
    let mut cache = ground::sharing(binary, &origin, &redis, WRITES).await?;
    cache.get("/hot").await?;
    cache.wait_stored(1).await?;
    let (mut firsts, mut laters) = (Vec::new(), Vec::new());
    let mut waits = 0;
    for round in 0..scale.rounds {
        let alone = plain.timed(&format!("/alone/{round}")).await?;
        redis.freeze().await?;
        firsts.push(cache.timed(&format!("/first/{round}")).await?.saturating_sub(alone));
        for miss in 0..MISSES {
            cache.get(&format!("/until/{round}/{miss}")).await?;
        }
        cache.wait_opened().await?;
        let asked = cache.metric("forebay_tier_seconds_count{op=\"open\"}").await?;
        for miss in 0..MISSES {
            let path = format!("/later/{round}/{miss}");
            let alone = plain.timed(&path).await?;
            laters.push(cache.timed(&path).await?.saturating_sub(alone));
        }
        waits += cache.metric("forebay_tier_seconds_count{op=\"open\"}").await? - asked;
        redis.thaw().await?;
        cache.wait_state("ready").await?;
    }
    let rounds = scale.rounds as u64;
    let misses = MISSES as u64;
    let loads = origin.requests() == 1 + rounds * (2 + 3 * misses);
    let first = Timings::new(firsts);
    let later = Timings::new(laters).p50();
    Ok(vec![
        hot_hits(&mut cache, &redis).await?,
        Row {
            case: "frozen: first cold miss".to_owned(),
            measured: format!("origin + {} (worst {})", ms(first.p50()), ms(first.max())),
            bound: "origin + 55 ms".to_owned(),
            counted: loads,
            timed: first.p50() <= READ_TIMEOUT + Duration::from_millis(5),
        },
        Row {
            case: "frozen: cold miss, breaker open".to_owned(),
            measured: format!("origin + {later:.2?}, {waits} reads"),
            bound: "origin + 1 ms, 0 reads".to_owned(),
            counted: waits == 0,
            timed: later <= Duration::from_millis(1),
        },
    ])
}

/// Hits in memory while Redis answers, and while it is frozen and left alone, in turns. The same
/// windows also tell what two of one kind differ by.
async fn hot_hits(cache: &mut Cache, redis: &RedisServer) -> anyhow::Result<Row> {
    let (mut normal, mut frozen) = (Vec::new(), Vec::new());
    for window in 0..WINDOWS {
        normal.push(hot(cache).await?.p99());
        redis.freeze().await?;
        for miss in 0..MISSES {
            cache.get(&format!("/window/{window}/{miss}")).await?;
        }
        cache.wait_opened().await?;
        frozen.push(hot(cache).await?.p99());
        redis.thaw().await?;
        cache.wait_state("ready").await?;
    }
    let [frozen, normal] = [frozen, normal].map(Timings::new);
    let noise = normal.percentile(75).div_duration_f64(normal.percentile(25));
    let ratio = frozen.p50().div_duration_f64(normal.p50());
    Ok(Row {
        case: "frozen: hot hit in memory".to_owned(),
        measured: format!("p99 {ratio:.2} x normal, which itself spreads {noise:.2} x"),
        bound: "1.10 x".to_owned(),
        counted: true,
        timed: ratio <= 1.10,
    })
}

async fn hot(cache: &mut Cache) -> anyhow::Result<Timings> {
    let mut times = Vec::with_capacity(HITS);
    for _ in 0..HITS {
        times.push(cache.timed("/hot").await?);
    }
    Ok(Timings::new(times))
}

/// Two processes under load while Redis goes away for a moment and comes back empty.
///
/// With next to no memory, which is not advised, each request is a load of its own as
/// long as Redis is gone, and its response is stored nowhere: it is unknown what was purged
/// meanwhile. That is 400 a second for at least the 110 ms until the server listens, and each of
/// the 200 keys once more afterwards: more than the bound before anything has gone wrong. It is
/// shown beside it, and decides nothing.
pub(crate) async fn restarted(binary: &Path, scale: Scale) -> anyhow::Result<(Row, Row)> {
    let with_memory = restart(binary, scale, "").await?;
    let without = restart(binary, scale, "[memory]\nobject_max = \"1B\"\n").await?;
    let row = |case: &str, came: &Restart| Row {
        case: format!("restarted empty under load, {case}"),
        measured: format!(
            "{} loads, {} errors, back after {}",
            came.loads,
            came.errors,
            ms(came.back)
        ),
        bound: format!("{LOADS_MAX} loads, 0 errors, {}", ms(BACK_MAX)),
        counted: came.loads <= LOADS_MAX && came.errors == 0,
        timed: came.back <= BACK_MAX,
    };
    Ok((row("memory on", &with_memory), row("memory nearly off (extra)", &without)))
}

struct Restart {
    loads: u64,
    errors: usize,
    back: Duration,
}

async fn restart(binary: &Path, scale: Scale, memory: &str) -> anyhow::Result<Restart> {
    let (origin, redis) =
        (ground::origin(Duration::from_millis(5)).await?, RedisLaunch::new().start().await?);
    let top = format!("{memory}[redis]\nurl = \"{}\"\n{}", redis.url(), scale.patience);
    let mut one = ground::configured(binary, &origin, &top).await?;
    let mut other = ground::configured(binary, &origin, &top).await?;
    for key in 0..KEYS {
        one.get(&format!("/{key}")).await?;
    }
    one.wait_stored(KEYS as u64).await?;
    for key in 0..KEYS {
        other.get(&format!("/{key}")).await?;
    }
    ensure!(origin.requests() == KEYS as u64, "the second process has loaded too");
    let mut traffic = JoinSet::new();
    for (number, cache) in [&one, &other].into_iter().enumerate() {
        let client = Client::connect(cache.process.address()).await?;
        traffic.spawn(ask_for_all(client, number * KEYS / 2, scale.traffic));
    }
    tokio::time::sleep(GONE * 5).await;
    let port = redis.kill().await?;
    tokio::time::sleep(GONE).await;
    let _back = RedisLaunch::new().port(port).start().await?;
    let begun = Instant::now();
    one.wait_state("ready").await?;
    other.wait_state("ready").await?;
    let back = begun.elapsed();
    let errors = traffic.join_all().await.into_iter().sum();
    Ok(Restart { loads: origin.requests() - KEYS as u64, errors, back })
}

/// Each key once a second, for so long. Answers how many requests failed.
async fn ask_for_all(mut client: Client, first: usize, long: Duration) -> usize {
    let mut turns = tokio::time::interval(Duration::from_secs(1).div_f64(KEYS as f64));
    let (begun, mut errors) = (Instant::now(), 0);
    for key in first.. {
        if begun.elapsed() >= long {
            break;
        }
        turns.tick().await;
        let path = format!("/{}", key % KEYS);
        let reply = client.ask(&Request::get(&path)).await;
        let is_right = |body: &[u8]| body.starts_with(path.as_bytes());
        errors += usize::from(!reply.is_ok_and(|it| it.status == 200 && is_right(it.body())));
    }
    errors
}

/// The nearest server dies, and the one that is used then is 80 ms away.
pub(crate) async fn fallback(binary: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    const AWAY: Duration = Duration::from_millis(80);
    const SWITCH_MAX: Duration = Duration::from_secs(1);
    let origin = ground::origin(ORIGIN).await?;
    let (near, far) = (RedisLaunch::new().start().await?, RedisLaunch::new().start().await?);
    let there = filled(binary, &origin, &far, scale.patience).await?;
    let proxy = FaultProxy::start(far.address()).await?;
    proxy.set(Faults::delayed(AWAY));
    let top = format!(
        "[redis]\nurl = \"{}\"\n[[redis.fallback]]\nurl = \"redis://{}\"\n\
         read_timeout = \"250ms\"\nwrite_timeout = \"500ms\"\n",
        near.url(),
        proxy.address()
    );
    let mut cache = ground::configured(binary, &origin, &top).await?;
    cache.wait_health(|health| health["tiers"]["redis"]["endpoints"][1]["answers"] == true).await?;
    let loads = origin.requests();
    let port = near.kill().await?;
    let begun = Instant::now();
    let mut asked = 0;
    while cache.hits().await? == 0 {
        ensure!(asked < there, "nothing is served through the fallback");
        cache.get(&format!("/far/{asked}")).await?;
        asked += 1;
        tokio::time::sleep(LOOK_GAP).await;
    }
    let over = begun.elapsed();
    let missed = origin.requests() - loads;
    // From here on everything that is there is served from there.
    let loads = origin.requests();
    for key in asked..there {
        cache.get(&format!("/far/{key}")).await?;
    }
    let from_far = cache.hits().await? == (there - asked + 1) as u64 && origin.requests() == loads;
    let near = RedisLaunch::new().port(port).start().await?;
    let begun = Instant::now();
    cache.wait_health(|health| health["tiers"]["redis"]["endpoints"][0]["used"] == true).await?;
    let back = begun.elapsed();
    drop(near);
    Ok(vec![Row {
        case: "the nearest dies, the fallback is 80 ms away".to_owned(),
        measured: format!("over after {} ({missed} misses), back after {}", ms(over), ms(back)),
        bound: "1 s each way".to_owned(),
        counted: from_far,
        timed: over <= SWITCH_MAX && back <= SWITCH_MAX,
    }])
}

/// Fills a server through a separate cache, and returns the number of entries.
async fn filled(
    binary: &Path,
    origin: &Origin,
    far: &RedisServer,
    patience: &str,
) -> anyhow::Result<usize> {
    const ENTRIES: usize = 60;
    let mut filler = ground::sharing(binary, origin, far, patience).await?;
    for key in 0..ENTRIES {
        filler.get(&format!("/far/{key}")).await?;
    }
    filler.wait_stored(ENTRIES as u64).await?;
    Ok(ENTRIES)
}
