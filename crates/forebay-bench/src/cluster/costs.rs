//! Cost of sharing: commands and bytes sent to Redis per operation.
//!
//! `cargo run --example costs -p forebay-redis` starts a server of its own, and prints a table.
//! Commands are those that were sent; what scripts call within the server is not counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use forebay_core::{Key, KeyBuf, Lifetime, Meta, Purge, Reach, TagSet};
use forebay_engine::bus::{Listener, Notice};
use forebay_engine::lease::{Claim, Lease, Permit};
use forebay_engine::{Bus, Clock, LeasedWrite, Leases, SystemClock, Tier};
use forebay_redis::{EndpointSettings, Redis, Settings, SharingSettings};
use forebay_testkit::faults::{Direction, FaultProxy};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::report::{Table, Verdict};

const BODY_LEN: usize = 1_024;
const TIMES: u64 = 200;
const IDLE: Duration = Duration::from_secs(5);
const PATIENT: Duration = Duration::from_secs(2);

/// Asks a server to repeat all that it is asked.
const REPEAT: &[u8] = b"*1\r\n$7\r\nMONITOR\r\n";

/// One instance behind a proxy that counts its bytes.
struct Instance {
    redis: Redis,
    proxy: FaultProxy,
}

impl Instance {
    async fn new(server: &RedisServer) -> anyhow::Result<Self> {
        let proxy = FaultProxy::start(server.address()).await?;
        let url = format!("redis://{}", proxy.address());
        Self::at(url, proxy).await
    }

    /// One that does not go through its proxy, which costs time.
    async fn direct(server: &RedisServer) -> anyhow::Result<Self> {
        Self::at(server.url(), FaultProxy::start(server.address()).await?).await
    }

    async fn at(url: String, proxy: FaultProxy) -> anyhow::Result<Self> {
        let (read_timeout, write_timeout) = (PATIENT, PATIENT);
        let endpoint =
            EndpointSettings { read_timeout, write_timeout, ..EndpointSettings::at(url) };
        let sharing = Some(SharingSettings::default());
        let settings = Settings { sharing, ..Settings::new(endpoint) };
        let redis = Redis::connect(settings, Arc::new(SystemClock), Arc::new(()))?;
        let bus_connected = || redis.sharing().is_some_and(|sharing| sharing.bus_connected);
        while !bus_connected() || !redis.endpoints()[0].receives_wakeups {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { redis, proxy })
    }

    fn bytes(&self) -> u64 {
        self.proxy.passed(Direction::ToServer) + self.proxy.passed(Direction::ToClient)
    }

    async fn permit(&self, key: &Key) -> anyhow::Result<Arc<dyn Permit>> {
        match self.redis.acquire(claim(key)).await? {
            Lease::Granted(permit) => Ok(permit),
            Lease::Filled(_) | Lease::Elsewhere(_) => bail!("the lease is not free"),
        }
    }

    async fn fill(&self, key: &Key, permit: &Arc<dyn Permit>, body: &Bytes) -> anyhow::Result<()> {
        let mut meta = Meta::new(SystemClock.now(), Lifetime::fresh(Duration::from_secs(600)));
        meta.set_tags(TagSet::new(["shoes"]));
        let (head, primary) = (Bytes::from_static(b"head"), key.borrowed());
        let token = permit.token();
        let lease = LeasedWrite { primary, boarded: primary, token, is_last: true };
        let mut writer = self.redis.begin_leased(primary, (&meta, &head), lease).await?;
        writer.write(body.clone()).await?;
        Ok(writer.commit().await?)
    }
}

fn claim(key: &Key) -> Claim<'_> {
    let key = key.borrowed();
    Claim { primary: key, boarded: key, entry: key, seen: None, is_look: true }
}

fn key(number: u64) -> Key {
    KeyBuf::new("shop").part(format!("/items/{number}").as_bytes()).borrowed().to_key()
}

/// Counts what clients send to a server.
async fn monitor(server: &RedisServer) -> anyhow::Result<Arc<AtomicU64>> {
    let mut stream = BufReader::new(TcpStream::connect(server.address()).await?);
    stream.write_all(REPEAT).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let commands = Arc::<AtomicU64>::default();
    let counted = commands.clone();
    tokio::spawn(async move {
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
            let is_sent = !line.windows(4).any(|four| four == b" lua");
            counted.fetch_add(u64::from(is_sent), Ordering::Relaxed);
            line.clear();
        }
    });
    Ok(commands)
}

struct Costs {
    commands: Arc<AtomicU64>,
    instances: [Instance; 2],
    /// Commands and bytes of both instances in one idle second.
    idle: (f64, f64),
}

impl Costs {
    fn now(&self) -> (f64, f64) {
        let bytes: u64 = self.instances.iter().map(Instance::bytes).sum();
        (self.commands.load(Ordering::Relaxed) as f64, bytes as f64)
    }

    /// Returns the cost of one operation, without the background traffic.
    async fn of(
        &self,
        table: &mut Table,
        what: &str,
        times: u64,
        work: impl AsyncFnOnce(&[Instance; 2]) -> anyhow::Result<()>,
    ) -> anyhow::Result<(f64, f64)> {
        let (before, began) = (self.now(), Instant::now());
        work(&self.instances).await?;
        // The last of it has arrived at who counts.
        sleep(Duration::from_millis(50)).await;
        let (after, took) = (self.now(), began.elapsed().as_secs_f64());
        let once = |after: f64, before: f64, idle: f64| {
            ((after - before - idle * took) / times as f64).max(0.0)
        };
        let cost = (once(after.0, before.0, self.idle.0), once(after.1, before.1, self.idle.1));
        let cells = [what.to_owned(), format!("{:.2}", cost.0), format!("{:.0}", cost.1)];
        table.row(cells.to_vec(), "", Verdict::Shown);
        Ok(cost)
    }
}

pub(crate) async fn measure() -> anyhow::Result<[Table; 2]> {
    let server = RedisLaunch::new().start().await?;
    let instances = [Instance::new(&server).await?, Instance::new(&server).await?];
    let commands = monitor(&server).await.context("a server that repeats nothing")?;
    let mut costs = Costs { commands, instances, idle: (0.0, 0.0) };
    let title = "of two instances, 1 KiB values with a tag";
    let mut table = Table::new(title, &["", "commands", "bytes"]);
    let seconds = IDLE.as_secs();
    let idle = costs.of(&mut table, "an idle second of both", seconds, async |_| {
        sleep(IDLE).await;
        Ok(())
    });
    costs.idle = idle.await?;
    of_entries(&costs, &mut table).await?;
    of_purges(&costs, &mut table).await?;
    let direct = [Instance::direct(&server).await?, Instance::direct(&server).await?];
    Ok([table, of_time(&direct).await?])
}

/// Messages that one instance receives, with their times.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl Listener for Heard {
    fn hear(&self, notice: Notice) {
        let sender = matches!(notice, Notice::Purged { .. })
            .then(|| self.0.lock().map(|mut sender| sender.take()).ok().flatten());
        // Whoever waits no more does not mind.
        let _ = sender.flatten().map(|sender| sender.send(()));
    }
}

/// Measures the delay of purges and wake-ups between two instances, on a machine that may be busy.
async fn of_time([one, other]: &[Instance; 2]) -> anyhow::Result<Table> {
    let heard = Heard::default();
    other.redis.listen(Arc::new(heard.clone()));
    sleep(Duration::from_millis(100)).await;
    let (mut purges, mut wakes) = (Vec::new(), Vec::new());
    for number in 0..TIMES {
        let (sender, hearing) = oneshot::channel();
        *heard.0.lock().map_err(|_| anyhow::anyhow!("a listener has panicked"))? = Some(sender);
        one.redis.publish(&Purge::Tag("shoes".into()), Reach::Hard).await?;
        let acknowledged = Instant::now();
        hearing.await?;
        purges.push(acknowledged.elapsed());
        let key = key(10_000 + number);
        let permit = one.permit(&key).await?;
        let Lease::Elsewhere(waiting) = other.redis.acquire(claim(&key)).await? else {
            bail!("it is held");
        };
        let waiting = tokio::spawn(async move {
            waiting.await;
            Instant::now()
        });
        one.fill(&key, &permit, &Bytes::from_static(b"small")).await?;
        let filled = Instant::now();
        wakes.push(waiting.await?.saturating_duration_since(filled));
    }
    let mut table = Table::new("time to the other instance", &["", "p50", "p99"]);
    for (what, mut times) in [("until a purge is heard", purges), ("until a wait ends", wakes)] {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        let times = [at(50), at(99)].map(|time| format!("{time:?}"));
        let cells = [vec![format!("from its acknowledgement {what}")], times.to_vec()].concat();
        table.row(cells, "", Verdict::Shown);
    }
    Ok(table)
}

async fn of_entries(costs: &Costs, table: &mut Table) -> anyhow::Result<()> {
    // Too irregular to be made much smaller.
    let body = |number: u64| {
        let next = |it: &u64| Some(it.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let numbers = std::iter::successors(Some(number + 1), next).take(BODY_LEN);
        Bytes::from(numbers.map(|it| it.to_be_bytes()[0]).collect::<Vec<_>>())
    };
    let cold = costs.of(
        table,
        "a cold key: a look for it or its lease, and fill",
        TIMES,
        async |[one, _]| {
            for number in 0..TIMES {
                let key = key(number);
                let permit = one.permit(&key).await?;
                one.fill(&key, &permit, &body(number)).await?;
            }
            Ok(())
        },
    );
    cold.await?;
    let hit = costs.of(table, "a hit", TIMES, async |[_, other]| {
        for number in 0..TIMES {
            other.redis.open(key(number).borrowed()).await?.context("a hit")?;
        }
        Ok(())
    });
    hit.await?;
    let looked = costs.of(table, "a hit that may be a lease as well", TIMES, async |[_, other]| {
        for number in 0..TIMES {
            let Lease::Filled(_) = other.redis.acquire(claim(&key(number))).await? else {
                bail!("it stands there");
            };
        }
        Ok(())
    });
    looked.await?;
    let waited = costs.of(table, "a cold key that the other waits for", TIMES, async |all| {
        for number in TIMES..2 * TIMES {
            let key = key(number);
            let permit = all[0].permit(&key).await?;
            let Lease::Elsewhere(waiting) = all[1].redis.acquire(claim(&key)).await? else {
                bail!("it is held");
            };
            all[0].fill(&key, &permit, &body(number)).await?;
            waiting.await;
        }
        Ok(())
    });
    waited.await.map(drop)
}

async fn of_purges(costs: &Costs, table: &mut Table) -> anyhow::Result<()> {
    let keys = costs.of(table, "a purge of a key, heard by both", TIMES, async |[one, _]| {
        for number in 0..TIMES {
            one.redis.publish(&Purge::Key(key(number)), Reach::Hard).await?;
        }
        Ok(())
    });
    keys.await?;
    let tags = costs.of(table, "a purge of a tag, heard by both", TIMES, async |[one, _]| {
        for _ in 0..TIMES {
            one.redis.publish(&Purge::Tag("shoes".into()), Reach::Hard).await?;
        }
        Ok(())
    });
    tags.await.map(drop)
}
