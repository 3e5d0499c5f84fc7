//! Test fixture: a Redis tier with helper functions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use forebay_core::{Demand, Key, KeyBuf, KeyRef, Lifetime, Meta, Timestamp};
use forebay_engine::{
    Clock, Coalesce, Credentials, Engine, Load, Lookup, LookupResult, Select, Source, SystemClock,
    Tier, TierError, WriteMode, Writer,
};
use forebay_redis::{EndpointSettings, Notice, NoticeListener, Redis, Settings};
use forebay_testkit::redis::{RedisLaunch, RedisServer, Reply};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};

/// Maximum wait for an expected event.
const SOON: Duration = Duration::from_secs(20);

/// Interval for polling a condition.
const LOOK_GAP: Duration = Duration::from_millis(2);

/// Timeout on a busy machine, for tests that do not measure time.
pub(crate) const PATIENT: Duration = Duration::from_secs(2);

/// A tier and its notices.
pub(crate) struct Fixture {
    pub(crate) tier: Redis,
    pub(crate) notices: Arc<Notices>,
}

/// An entry as it was read.
#[derive(Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) meta: Meta,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

#[derive(Default)]
pub(crate) struct Notices(watch::Sender<Vec<Notice>>);

impl NoticeListener for Notices {
    fn notice(&self, notice: &Notice) {
        self.0.send_modify(|all| all.push(notice.clone()));
    }
}

impl Notices {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().iter().map(ToString::to_string).collect()
    }

    /// Waits for this many notices that contain the text.
    pub(crate) async fn wait(&self, part: &str, count: usize) {
        let mut all = self.0.subscribe();
        let has = |all: &Vec<Notice>| {
            all.iter().filter(|one| one.to_string().contains(part)).count() >= count
        };
        let waited = timeout(SOON, all.wait_for(has)).await;
        assert!(waited.is_ok(), "no {count} notices with {part:?}: {:#?}", self.all());
    }
}

pub(crate) async fn server() -> RedisServer {
    RedisLaunch::new().start().await.unwrap()
}

/// Returns an endpoint with long timeouts.
pub(crate) fn patient(url: impl Into<String>) -> EndpointSettings {
    let (read_timeout, write_timeout) = (PATIENT, PATIENT);
    EndpointSettings { read_timeout, write_timeout, ..EndpointSettings::at(url) }
}

/// Returns settings of a user without access to the clock.
pub(crate) async fn without_time(server: &RedisServer) -> Settings {
    let user = ["ACL", "SETUSER", "old", "on", ">secret", "~*", "+@all", "-time"];
    server.ask(&user).await.unwrap();
    Settings::new(patient(format!("redis://old:secret@{}", server.address())))
}

pub(crate) fn settings(server: &RedisServer) -> Settings {
    Settings::new(patient(server.url()))
}

impl Fixture {
    /// Creates a tier that may not be connected yet.
    pub(crate) fn connect(settings: Settings) -> Self {
        let notices = Arc::<Notices>::default();
        let tier = Redis::connect(settings, Arc::new(SystemClock), notices.clone()).unwrap();
        Self { tier, notices }
    }

    /// Creates a tier whose nearest endpoint answers.
    pub(crate) async fn new(settings: Settings) -> Self {
        let fixture = Self::connect(settings);
        fixture.until(|tier| tier.endpoints()[0].is_up).await;
        fixture
    }

    /// Creates a tier that shares leases and purges and is connected to the bus.
    pub(crate) async fn clustered(settings: Settings) -> Self {
        let fixture = Self::new(settings).await;
        fixture.until(|tier| tier.endpoints()[0].receives_wakeups).await;
        fixture.until(|tier| tier.sharing().unwrap().bus_connected).await;
        fixture
    }

    pub(crate) async fn until(&self, is_so: impl Fn(&Redis) -> bool) -> Duration {
        let began = Instant::now();
        let mut looks = interval(LOOK_GAP);
        while !is_so(&self.tier) {
            let state = (self.tier.endpoints(), self.tier.counts());
            assert!(began.elapsed() < SOON, "{state:#?} {:#?}", self.notices.all());
            looks.tick().await;
        }
        began.elapsed()
    }

    pub(crate) async fn put(&self, key: &Key, body: &[u8]) -> Result<(), TierError> {
        self.put_as(key, &meta(Duration::from_secs(60)), body).await
    }

    pub(crate) async fn put_as(
        &self,
        key: &Key,
        meta: &Meta,
        body: &[u8],
    ) -> Result<(), TierError> {
        let mut writer = self.begin(key, meta).await?;
        for piece in body.chunks(100_000) {
            writer.write(Bytes::copy_from_slice(piece)).await?;
        }
        writer.commit().await
    }

    /// Writes until one more entry is stored, for servers that accept writes soon.
    pub(crate) async fn put_until_stored(&self, key: &Key, body: &[u8]) {
        let mut looks = interval(LOOK_GAP);
        let before = self.tier.counts().stored;
        let putting = async {
            while self.tier.counts().stored == before {
                // May fail until then.
                let _ = self.put(key, body).await;
                looks.tick().await;
            }
        };
        assert!(timeout(SOON, putting).await.is_ok(), "{:#?}", self.notices.all());
    }

    pub(crate) async fn begin(&self, key: &Key, meta: &Meta) -> Result<Box<dyn Writer>, TierError> {
        let head = Bytes::from_static(b"the head");
        self.tier.begin(key.borrowed(), meta, &head, WriteMode::Loaded).await
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Got>, TierError> {
        let Some(stored) = self.tier.open(key.borrowed()).await? else { return Ok(None) };
        let pieces: Vec<Bytes> = stored.body.map(Result::unwrap).collect().await;
        Ok(Some(Got { meta: stored.meta, head: stored.head, body: pieces.concat().into() }))
    }

    /// Returns the body, if there is an entry.
    pub(crate) async fn body(&self, key: &Key) -> Option<Bytes> {
        self.get(key).await.unwrap().map(|got| got.body)
    }

    pub(crate) async fn remove(&self, key: &Key) -> Result<bool, TierError> {
        self.tier.remove(key.borrowed()).await
    }
}

/// Waits for a duration on the tiers' clock.
pub(crate) async fn until_later(span: Duration) {
    let began = now();
    let mut looks = interval(LOOK_GAP);
    while now().since(began) < span {
        looks.tick().await;
    }
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// Returns the time of the local servers' clock before the test's requests.
pub(crate) fn a_moment_ago() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now - Duration::from_millis(5)
}

pub(crate) fn meta(fresh: Duration) -> Meta {
    Meta::new(now(), Lifetime::fresh(fresh))
}

/// Returns the body that an engine obtains, without early refresh.
pub(crate) async fn obtained<L>(engine: &Arc<Engine>, key: KeyRef<'_>, origin: &L) -> String
where
    L: Load + Select + Clone,
{
    obtained_via(engine, key, origin).await.1
}

/// Returns the body that an engine obtains, and its source.
pub(crate) async fn obtained_via<L>(
    engine: &Arc<Engine>,
    key: KeyRef<'_>,
    origin: &L,
) -> (Source, String)
where
    L: Load + Select + Clone,
{
    let demand = Demand { beta: 0.0, ..Demand::default() };
    let (credentials, coalesce) = (Credentials::Anonymous, Coalesce::Cluster);
    let ask = Lookup { key, demand: &demand, select: origin, credentials, coalesce };
    let obtained = match engine.lookup(&ask) {
        LookupResult::Hit(outcome) => outcome,
        LookupResult::Miss(miss) => {
            miss.load(engine, &ask, origin.clone()).await.expect("an answer")
        }
    };
    let body = obtained.entry.body.reader().collect().await.expect("a whole body");
    (obtained.source, String::from_utf8(body.to_vec()).expect("text"))
}

pub(crate) fn key(name: &str) -> Key {
    let mut key = KeyBuf::new("site");
    key.part(name.as_bytes());
    key.borrowed().to_key()
}

/// Returns the name of a key of [`key`] in Redis.
pub(crate) fn name(key: &str) -> String {
    format!("forebay:d:{{site|{key}|}}")
}

/// Moves the permissions of a key into the past.
pub(crate) async fn lose_time(server: &RedisServer, key: &str, millis: u32) {
    let script = "
        local all = redis.call('HGETALL', KEYS[1])
        for at = 1, #all, 2 do
          local token = string.sub(all[at + 1], 1, 16)
          local ends, since = string.match(all[at + 1], '^(%d+) (%d+)$', 17)
          since = string.format('%.0f', since - ARGV[1])
          redis.call('HSET', KEYS[1], all[at], token .. ends .. ' ' .. since)
        end
        return #all / 2";
    let leases = name(key).replace(":d:", ":l:");
    let changed = number(server, &["EVAL", script, "1", &leases, &millis.to_string()]).await;
    assert!(changed > 0, "no permission exists for {key}");
}

/// Number of calls by command name.
#[derive(Debug)]
pub(crate) struct Calls(HashMap<String, u64>);

impl Calls {
    pub(crate) fn of(&self, command: &str) -> u64 {
        self.0.get(command).copied().unwrap_or(0)
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let differences = self.0.iter().map(|(name, now)| (name.clone(), now - before.of(name)));
        Self(differences.collect())
    }
}

pub(crate) async fn calls(server: &RedisServer) -> Calls {
    let stats = server.ask(&["INFO", "commandstats"]).await.unwrap().text();
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    Calls(calls.collect())
}

pub(crate) async fn number(server: &RedisServer, command: &[&str]) -> i64 {
    match server.ask(command).await.unwrap() {
        Reply::Number(number) => number,
        other => panic!("{command:?}: {other:?}"),
    }
}

/// Waits until the server returns this number.
pub(crate) async fn wait_number(server: &RedisServer, command: &[&str], wanted: i64) {
    let mut looks = interval(LOOK_GAP);
    let waiting = async {
        while number(server, command).await != wanted {
            looks.tick().await;
        }
    };
    let waited = timeout(SOON, waiting).await;
    assert!(waited.is_ok(), "{command:?} is never {wanted}");
}

pub(crate) async fn bytes(server: &RedisServer, name: &str) -> Vec<u8> {
    match server.ask(&["GET", name]).await.unwrap() {
        Reply::Bytes(bytes) => bytes,
        other => panic!("{name}: {other:?}"),
    }
}
