//! Instance with a disk and a shared Redis that misses purges while it is down.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_testkit::faults::{FaultProxy, Faults};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tempfile::TempDir;

use crate::cluster::{NOISE, PATIENT, health, purge, start_one, wait_ready, wait_until};
use crate::world::{ConfigFile, end, get, is_hit, metric, serving, written};

/// Time that unverified entries are served with `when_blind = "available"`.
const CAP: Duration = Duration::from_secs(30);

/// Pages: one per kind of purge, and one that is not purged.
const PATHS: [&str; 5] = ["/key", "/tag", "/prefix/1", "/prefix/2", "/other"];

const BUS: &str = "forebay:{bus}";

/// Environment that the processes of a test share.
struct World {
    redis: RedisServer,
    proxy: FaultProxy,
    origin: Origin,
    version: Arc<AtomicU64>,
    folder: TempDir,
    when_blind: &'static str,
}

/// One process and its configuration file, which is deleted with it.
struct Life(Launched, #[expect(dead_code, reason = "it is held")] ConfigFile);

impl World {
    async fn new(when_blind: &'static str) -> anyhow::Result<Self> {
        let redis = RedisLaunch::new().start().await?;
        let proxy = FaultProxy::start(redis.address()).await?;
        let version = Arc::new(AtomicU64::new(1));
        let shown = version.clone();
        let origin = Origin::start(move |asked| {
            let answer = Answer::ok(shown.load(Ordering::SeqCst).to_string());
            let tag = asked.path().trim_start_matches('/').replace('/', "-");
            answer.field("Cache-Control", "max-age=600").field("Cache-Tag", tag)
        })
        .await?;
        let folder = tempfile::tempdir()?;
        Ok(Self { redis, proxy, origin, version, folder, when_blind })
    }

    /// Starts another process; it may not be connected yet.
    async fn begin(&self) -> anyhow::Result<Life> {
        let (path, through) = (self.folder.path().display(), self.proxy.address());
        let top = format!(
            "[redis]\nurl = \"redis://{through}\"\n{PATIENT}\nwhen_blind = \"{}\"\n\
             [disk]\npath = \"{path}\"\nsize = \"64MiB\"\n",
            self.when_blind
        );
        let file = ConfigFile::of(&serving(&self.origin.url(), &top, ""))?;
        Ok(Life(file.serve().await?, file))
    }

    /// Starts a process, fills it with all pages, and kills it.
    async fn filled(&self) -> anyhow::Result<()> {
        let life = self.begin().await?;
        wait_ready(&life.0, 1).await?;
        for path in PATHS {
            get(&life.0, path).await?;
        }
        written(&life.0).await?;
        bookmarked(self.folder.path()).await?;
        end(life.0, Signal::Kill).await?;
        assert_eq!(self.origin.requests(), PATHS.len() as u64);
        Ok(())
    }

    async fn another(&self) -> anyhow::Result<(Launched, ConfigFile)> {
        let other = start_one(&self.origin, &self.redis.url(), "").await?;
        wait_ready(&other.0, 1).await?;
        Ok(other)
    }

    /// Increments the version that the origin serves.
    fn write(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn requests(&self) -> u64 {
        self.origin.requests()
    }
}

/// Waits until the bus bookmark is on disk.
async fn bookmarked(folder: &Path) -> anyhow::Result<()> {
    let (path, begun) = (folder.join("forebay.bookmark"), Instant::now());
    while !path.exists() {
        wait_until(begun, "no bookmark is kept").await?;
    }
    Ok(())
}

async fn read(cache: &Launched, path: &str) -> anyhow::Result<u64> {
    Ok(get(cache, path).await?.text().parse()?)
}

async fn from_disk(cache: &Launched) -> anyhow::Result<u64> {
    let all = "tier=\"disk\",result=\"hit\"";
    metric(cache, "forebay_lookups_total", all).await
}

/// Arguments of `forebay purge` for one key, one tag and one prefix.
const PURGES: [&[&str]; 3] = [
    &["--url", "http://test.example/key"],
    &["--tag", "tag"],
    &["--prefix", "test.example/prefix"],
];

async fn all_purge(cache: &Launched, how: &[&str]) -> anyhow::Result<()> {
    for what in PURGES {
        let (code, said) = purge(cache, &[what, how].concat()).await?;
        assert_eq!(code, Some(0), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn entries_purged_during_the_downtime_are_gone_and_the_others_are_hits() -> anyhow::Result<()>
{
    for when_blind in ["strict", "available"] {
        for how in [&[][..], &["--hard"]] {
            let world = World::new(when_blind).await?;
            world.filled().await?;
            let other = world.another().await?;
            let now = world.write();
            all_purge(&other.0, how).await?;
            let life = world.begin().await?;
            if when_blind == "available" {
                // On a slow Redis the bus needs time to connect.
                wait_ready(&life.0, 2).await?;
            }
            for path in ["/key", "/tag", "/prefix/1", "/prefix/2"] {
                assert_eq!(read(&life.0, path).await?, now, "{when_blind} {how:?} {path}");
            }
            wait_ready(&life.0, 2).await?;
            // Softly purged entries are on disk, too, and were revalidated.
            let (before, hits) = (world.requests(), from_disk(&life.0).await?);
            assert_eq!(read(&life.0, "/other").await?, 1, "{when_blind} {how:?}");
            assert_eq!((world.requests() - before, from_disk(&life.0).await? - hits), (0, 1));
            let gaps = metric(&life.0, "forebay_bus_events_total", "result=\"gap\"").await?;
            assert_eq!(gaps, 0, "nothing was missed");
            // Purges that are received twice have no further effect.
            written(&life.0).await?;
            end(life.0, Signal::Kill).await?;
            let now = world.write();
            let everything = if how.is_empty() { "--site=shop" } else { "--all" };
            purge(&other.0, &[&[everything], how].concat()).await?;
            let life = world.begin().await?;
            wait_ready(&life.0, 2).await?;
            for path in PATHS {
                assert_eq!(read(&life.0, path).await?, now, "{when_blind} {how:?} {path}");
            }
        }
    }
    Ok(())
}

/// Entries that may have been purged unnoticed are looked up in Redis, and fetched if absent there.
#[tokio::test]
async fn with_a_gap_in_the_bus_a_strict_instance_serves_only_confirmed_entries()
-> anyhow::Result<()> {
    for (command, fetched) in
        [(&["XTRIM", BUS, "MAXLEN", "1"][..], 0), (&["FLUSHALL"], 1), (&["DEL", BUS], 0)]
    {
        let world = World::new("strict").await?;
        world.filled().await?;
        let other = world.another().await?;
        let now = world.write();
        all_purge(&other.0, &["--hard"]).await?;
        world.redis.ask(command).await?;
        let life = world.begin().await?;
        for path in ["/key", "/tag", "/prefix/1", "/prefix/2"] {
            assert_eq!(read(&life.0, path).await?, now, "{command:?} {path}");
        }
        wait_ready(&life.0, 1).await?;
        let before = world.requests();
        let expected = if fetched == 0 { 1 } else { now };
        assert_eq!(read(&life.0, "/other").await?, expected, "{command:?}");
        assert_eq!(world.requests() - before, fetched, "{command:?}");
    }
    let world = World::new("strict").await?;
    world.filled().await?;
    let now = world.write();
    world.proxy.set(Faults { refuses: true, ..Faults::default() });
    let life = world.begin().await?;
    for path in PATHS {
        assert_eq!(read(&life.0, path).await?, now, "without Redis: {path}");
    }
    Ok(())
}

/// Runs in real time: unverified entries are served for 30 seconds, from memory and from disk.
#[tokio::test]
async fn an_available_instance_serves_unverified_entries_for_the_documented_time()
-> anyhow::Result<()> {
    let (flushed, away) = (World::new("available").await?, World::new("available").await?);
    let mut lives = Vec::new();
    for world in [&flushed, &away] {
        world.filled().await?;
        let other = world.another().await?;
        world.write();
        all_purge(&other.0, &["--hard"]).await?;
        end(other.0, Signal::Kill).await?;
    }
    flushed.redis.ask(&["FLUSHALL"]).await?;
    away.proxy.set(Faults { refuses: true, ..Faults::default() });
    for world in [&flushed, &away] {
        let begun = Instant::now();
        lives.push((world, world.begin().await?, begun));
    }
    wait_ready(&lives[0].1.0, 1).await?;
    assert_eq!(health(&lives[1].1.0).await?["cluster"]["bus"], "lost");
    for (_, life, _) in &lives {
        // One entry moves to memory at once, one later, and one is read only after the time limit.
        let said = get(&life.0, "/key").await?;
        assert!(is_hit(&said) && said.text() == "1", "it is suspect and may be served");
        let again = get(&life.0, "/key").await?;
        let status = again.field("cache-status").unwrap_or_default().to_owned();
        assert!(status.ends_with("; detail=suspect"), "{status}");
    }
    for (world, life, begun) in &lives {
        let before = world.requests();
        let mut turns = tokio::time::interval(Duration::from_millis(100));
        while read(&life.0, "/key").await? == 1 {
            assert!(begun.elapsed() < CAP + NOISE, "{:?}", begun.elapsed());
            read(&life.0, "/tag").await?;
            turns.tick().await;
        }
        for path in PATHS {
            assert_eq!(read(&life.0, path).await?, 2, "{path}");
        }
        assert_eq!(world.requests() - before, PATHS.len() as u64);
    }
    Ok(())
}
