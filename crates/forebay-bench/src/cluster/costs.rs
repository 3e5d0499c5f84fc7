//! Cost of sharing: commands and bytes sent to Redis per operation.
//!
//! Commands are those that were sent; what scripts call within the server is not counted.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use forebay_core::{Key, KeyBuf, Lifetime, Meta, Purge, Reach, TagSet};
use forebay_engine::bus::{Listener, Notice};
use forebay_engine::lease::{Claim, Lease, Permit};
use forebay_engine::{Bus, Clock, LeasedWrite, Leases, SystemClock, Tier, WriteMode};
use forebay_redis::{EndpointSettings, Redis, Settings, SharingSettings};
use forebay_testkit::client::Timings;
use forebay_testkit::faults::{Direction, FaultProxy};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::tap::Tap;
use crate::report::{Table, Verdict};

const BODY_LEN: usize = 1_024;
const TIMES: u64 = 200;
const IDLE_SECONDS: u64 = 5;
const PATIENT: Duration = Duration::from_secs(2);

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
            Lease::Filled(_) | Lease::Held(..) => bail!("the lease is not free"),
        }
    }

    async fn fill(&self, key: &Key, permit: &Arc<dyn Permit>, body: &Bytes) -> anyhow::Result<()> {
        let mut meta = Meta::new(SystemClock.now(), Lifetime::fresh(Duration::from_secs(600)));
        meta.set_tags(TagSet::new(["shoes"]));
        let (head, primary) = (Bytes::from_static(b"head"), key.borrowed());
        let token = permit.token();
        let lease = LeasedWrite { primary, flight_key: primary, token, is_last: true };
        let mut writer = self.redis.begin(primary, &meta, &head, WriteMode::Leased(lease)).await?;
        writer.write(body.clone()).await?;
        Ok(writer.commit().await?)
    }
}

fn claim(key: &Key) -> Claim<'_> {
    let key = key.borrowed();
    Claim { primary: key, flight_key: key, entry: key, seen: None, is_look: true, mark: None }
}

fn key(number: u64) -> Key {
    KeyBuf::new("shop").part(format!("/items/{number}").as_bytes()).borrowed().to_key()
}

struct Costs {
    commands: Tap,
    instances: [Instance; 2],
    /// Commands and bytes of both instances in one idle second.
    idle: (f64, f64),
}

impl Costs {
    fn now(&self) -> (f64, f64) {
        let bytes: u64 = self.instances.iter().map(Instance::bytes).sum();
        (self.commands.seen() as f64, bytes as f64)
    }

    /// Returns the cost of one operation, without the background traffic.
    async fn of(
        &self,
        table: &mut Table,
        what: &str,
        numbers: Range<u64>,
        work: impl AsyncFn(&[Instance; 2], u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<(f64, f64)> {
        let times = (numbers.end - numbers.start) as f64;
        let (before, began) = (self.now(), Instant::now());
        for number in numbers {
            work(&self.instances, number).await?;
        }
        // The last of it has arrived at who counts.
        sleep(Duration::from_millis(50)).await;
        let (after, took) = (self.now(), began.elapsed().as_secs_f64());
        let once =
            |after: f64, before: f64, idle: f64| ((after - before - idle * took) / times).max(0.0);
        let cost = (once(after.0, before.0, self.idle.0), once(after.1, before.1, self.idle.1));
        let cells = [what.to_owned(), format!("{:.2}", cost.0), format!("{:.0}", cost.1)];
        table.row(cells.to_vec(), "", Verdict::Shown);
        Ok(cost)
    }
}

pub(crate) async fn measure() -> anyhow::Result<[Table; 2]> {
    let server = RedisLaunch::new().start().await?;
    let instances = [Instance::new(&server).await?, Instance::new(&server).await?];
    let commands = Tap::open(server.address(), &[""]).await?;
    let mut costs = Costs { commands, instances, idle: (0.0, 0.0) };
    let title = "of two instances, 1 KiB values with a tag";
    let mut table = Table::new(title, &["", "commands", "bytes"]);
    let idle = costs.of(&mut table, "an idle second of both", 0..IDLE_SECONDS, async |_, _| {
        sleep(Duration::from_secs(1)).await;
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
        let Lease::Held(waiting, _) = other.redis.acquire(claim(&key)).await? else {
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
    for (what, times) in [("until a purge is heard", purges), ("until a wait ends", wakes)] {
        let times = Timings::new(times);
        let [p50, p99] = [times.p50(), times.p99()].map(|time| format!("{time:?}"));
        let cells = vec![format!("from its acknowledgement {what}"), p50, p99];
        table.row(cells, "", Verdict::Shown);
    }
    Ok(table)
}

async fn of_entries(costs: &Costs, table: &mut Table) -> anyhow::Result<()> {
    // Bytes that do not become much smaller when they are compressed.
    let body = |number: u64| {
        let mut bytes = vec![0; BODY_LEN];
        fastrand::Rng::with_seed(number).fill(&mut bytes);
        Bytes::from(bytes)
    };
    let name = "a cold key: a look for it or its lease, and fill";
    let cold = costs.of(table, name, 0..TIMES, async |[one, _], number| {
        let key = key(number);
        let permit = one.permit(&key).await?;
        one.fill(&key, &permit, &body(number)).await
    });
    cold.await?;
    let hit = costs.of(table, "a hit", 0..TIMES, async |[_, other], number| {
        other.redis.open(key(number).borrowed()).await?.context("a hit").map(drop)
    });
    hit.await?;
    let name = "a hit that may be a lease as well";
    let looked = costs.of(table, name, 0..TIMES, async |[_, other], number| {
        let lease = other.redis.acquire(claim(&key(number))).await?;
        ensure!(matches!(lease, Lease::Filled(_)), "the entry is missing");
        Ok(())
    });
    looked.await?;
    let name = "a cold key that the other waits for";
    let waited = costs.of(table, name, TIMES..2 * TIMES, async |[one, other], number| {
        let key = key(number);
        let permit = one.permit(&key).await?;
        let Lease::Held(waiting, _) = other.redis.acquire(claim(&key)).await? else {
            bail!("the lease is free");
        };
        one.fill(&key, &permit, &body(number)).await?;
        waiting.await;
        Ok(())
    });
    waited.await.map(drop)
}

async fn of_purges(costs: &Costs, table: &mut Table) -> anyhow::Result<()> {
    let name = "a purge of a key, heard by both";
    let keys = costs.of(table, name, 0..TIMES, async |[one, _], number| {
        Ok(one.redis.publish(&Purge::Key(key(number)), Reach::Hard).await.map(drop)?)
    });
    keys.await?;
    let name = "a purge of a tag, heard by both";
    let tags = costs.of(table, name, 0..TIMES, async |[one, _], _| {
        Ok(one.redis.publish(&Purge::Tag("shoes".into()), Reach::Hard).await.map(drop)?)
    });
    tags.await.map(drop)
}
