//! Caches in separate processes that share a real Redis. The tests count loads; `cargo xtask
//! bench cluster` measures times.

mod peer;
mod peers;

use std::time::{Duration, Instant};

use forebay::Redis;
use forebay_testkit::launch::{Launch, Signal};
use forebay_testkit::redis::{RedisLaunch, RedisServer};

use peer::{Outcome, SharedNotes};
use peers::{Called, PeerGroup, PeerProcess};

/// Environment variable with the URL of the Redis that the processes of a test share.
const REDIS: &str = "FOREBAY_PEER_REDIS";

/// Maximum time until an effect in another process is visible.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Duration of a load.
const LOAD: Duration = Duration::from_millis(50);

/// The entry point of the processes that the other tests start. Does nothing in a plain test run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_process() -> anyhow::Result<()> {
    match std::env::var(REDIS) {
        Ok(redis) => {
            let redis = Redis::with(peer::settings(&redis)).await?;
            peer::run(peer::builder().redis(redis).build()?, SharedNotes::default()).await
        }
        Err(_) => Ok(()),
    }
}

async fn peers(count: usize, redis: &RedisServer) -> anyhow::Result<PeerGroup> {
    let (url, binary) = (redis.url(), std::env::current_exe()?);
    let arguments = ["processes::peer_process", "--exact", "--nocapture"];
    PeerGroup::start(count, || Ok(Launch::binary(&binary).args(arguments).env(REDIS, &url))).await
}

fn value(value: &str) -> Outcome {
    Outcome::Value(value.to_owned())
}

fn assert_all(called: &[Called], outcome: &Outcome) {
    let others: Vec<_> = called.iter().filter(|one| one.outcome != *outcome).collect();
    assert!(others.is_empty(), "not {outcome:?}: {others:?}");
}

/// Waits until a process returns this outcome for a key. Changes of other processes arrive late.
async fn wait_for_outcome(
    process: &PeerProcess,
    key: &str,
    wanted: &Outcome,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let found = process.get(key).await?;
        if found == *wanted {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{key} is still {found:?}");
    }
}

async fn crowds(processes: usize, callers: usize, rounds: usize) -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(processes, &redis).await?;
    for round in 0..rounds {
        let key = format!("key:{round}");
        let called = peers.ask(&format!("{key} {callers} say:{round} 50")).await?;
        assert_eq!(called.len(), processes * callers);
        assert_all(&called, &value(&round.to_string()));
        assert_eq!(peers.loads(&key), 1, "loads of {key}");
        let longest = called.iter().map(Called::took).max();
        assert!(longest >= Some(LOAD), "the callers wait for the load: {longest:?}");
        let loads = peers.take_notes().await?.loads;
        assert!(matches!(loads[..], [took] if took >= LOAD), "one complete load: {loads:?}");
    }
    Ok(())
}

#[tokio::test]
async fn two_processes_with_250_callers_each_load_once() -> anyhow::Result<()> {
    crowds(2, 250, 20).await
}

#[tokio::test]
async fn four_processes_with_25_callers_each_load_once() -> anyhow::Result<()> {
    crowds(4, 25, 20).await
}

#[tokio::test]
async fn four_processes_with_250_callers_each_load_once() -> anyhow::Result<()> {
    crowds(4, 250, 5).await
}

#[tokio::test]
async fn a_value_set_in_one_process_is_read_in_another() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(2, &redis).await?;
    let [one, other] = peers.processes() else { anyhow::bail!("two processes are expected") };
    for round in 0..50 {
        let (writer, reader) = if round % 2 == 0 { (one, other) } else { (other, one) };
        assert!(writer.done(&format!("set key {round}")).await?.0, "the value is stored");
        reader.done(&format!("see key {round}")).await?;
        let held = writer.ask("key 1 say:loaded 0").await?;
        assert_all(&held, &value(&round.to_string()));
    }
    assert_eq!(peers.loads("key"), 0, "a stored value is not loaded");
    Ok(())
}

#[tokio::test]
async fn when_the_loading_process_is_killed_another_process_loads() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(3, &redis).await?;
    let [doomed, waiting @ ..] = peers.processes() else {
        anyhow::bail!("three processes are expected")
    };
    let (dead, (), answered) = tokio::join!(
        doomed.ask("key 3 say:never held"),
        async {
            doomed.loading("key", 1).await.expect("the load starts");
            doomed.signal(Signal::Kill).await.expect("the process runs");
        },
        async {
            doomed.loading("key", 1).await?;
            let asking = waiting.iter().map(|process| process.ask("key 25 say:other 10"));
            futures_util::future::try_join_all(asking).await
        },
    );
    assert!(dead.is_err(), "the process was killed");
    let answered: Vec<Called> = answered?.into_iter().flatten().collect();
    assert_eq!(answered.len(), 50);
    assert_all(&answered, &value("other"));
    assert_eq!(waiting.iter().map(|process| process.loads("key")).sum::<usize>(), 1);
    Ok(())
}

#[tokio::test]
async fn a_load_of_a_process_that_was_paused_past_its_lease_is_not_stored() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(3, &redis).await?;
    let [paused, other, reader] = peers.processes() else {
        anyhow::bail!("three processes are expected")
    };
    let (late, found) = tokio::join!(paused.ask("key 1 say:old held"), async {
        paused.loading("key", 1).await?;
        paused.signal(Signal::Stop).await?;
        let found = other.ask("key 5 say:new 10").await?;
        paused.signal(Signal::Cont).await?;
        paused.done("release key").await?;
        anyhow::Ok(found)
    });
    assert_all(&found?, &value("new"));
    assert_eq!(other.loads("key"), 1);
    // The call began before the other process loaded, so it may return its own load.
    assert_all(&late?, &value("old"));
    // Callers get their value before it is written to Redis.
    for process in [reader, paused, other] {
        wait_for_outcome(process, "key", &value("new")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_absent_answer_reaches_all_processes() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(4, &redis).await?;
    assert_all(&peers.ask("key 25 absent 50").await?, &Outcome::Absent);
    assert_eq!(peers.loads("key"), 1);
    assert_all(&peers.ask("key 25 say:wrong 0").await?, &Outcome::Absent);
    assert_eq!(peers.loads("key"), 1);
    Ok(())
}

#[tokio::test]
async fn a_failed_load_runs_once_in_each_process_and_stores_nothing() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(4, &redis).await?;
    let failed = Outcome::Failed("the_loader_failed:_it_failed".to_owned());
    assert_all(&peers.ask("key 25 fail 50").await?, &failed);
    assert!(peers.loads("key") <= 4, "{} loads", peers.loads("key"));
    for process in peers.processes() {
        assert!(process.loads("key") <= 1);
        assert_eq!(process.get("key").await?, Outcome::Absent);
    }
    Ok(())
}

#[tokio::test]
async fn a_passed_answer_is_for_one_caller_only() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(4, &redis).await?;
    assert_all(&peers.ask("key 5 pass:mine 50").await?, &value("mine"));
    assert_eq!(peers.loads("key"), 20, "one load for each caller");
    for process in peers.processes() {
        assert_eq!(process.get("key").await?, Outcome::Absent);
    }
    Ok(())
}

#[tokio::test]
async fn tags_and_all_entries_are_invalidated_in_all_processes() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(3, &redis).await?;
    let [one, two, three] = peers.processes() else {
        anyhow::bail!("three processes are expected")
    };
    let fill = async |round: &str| -> anyhow::Result<()> {
        one.done(&format!("set-tagged red {round} red")).await?;
        one.done(&format!("set plain {round}")).await?;
        for process in peers.processes() {
            wait_for_outcome(process, "red", &value(round)).await?;
            wait_for_outcome(process, "plain", &value(round)).await?;
            let loaded = process.ask(&format!("loaded 2 say:{round} 0")).await?;
            assert_all(&loaded, &value(round));
        }
        Ok(())
    };
    fill("first").await?;
    two.done("tag red").await?;
    for process in peers.processes() {
        wait_for_outcome(process, "red", &Outcome::Absent).await?;
        assert_eq!(process.get("plain").await?, value("first"));
    }
    three.done("tag loaded").await?;
    for process in peers.processes() {
        wait_for_outcome(process, "loaded", &Outcome::Absent).await?;
    }
    fill("second").await?;
    one.done("all").await?;
    for process in peers.processes() {
        for key in ["red", "plain", "loaded"] {
            wait_for_outcome(process, key, &Outcome::Absent).await?;
        }
    }
    assert_eq!(peers.loads("loaded"), 2, "one load before and one after the first purge");
    Ok(())
}

#[tokio::test]
async fn each_process_loads_once_without_redis_and_one_process_after_its_return()
-> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(4, &redis).await?;
    let port = redis.kill().await?;
    for key in ["gone", "still"] {
        assert_all(&peers.ask(&format!("{key} 25 say:alone 50")).await?, &value("alone"));
        for process in peers.processes() {
            assert_eq!(process.loads(key), 1, "loads of {key}");
        }
    }
    for process in peers.processes() {
        process.done("bus-lost").await?;
    }
    let _redis = RedisLaunch::new().port(port).start().await?;
    for process in peers.processes() {
        process.done("bus-connected").await?;
    }
    assert_all(&peers.ask("back 25 say:shared 50").await?, &value("shared"));
    assert_eq!(peers.loads("back"), 1);
    Ok(())
}

#[tokio::test]
async fn the_newest_version_stays_whichever_process_writes_it() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(3, &redis).await?;
    let [one, other, reader] = peers.processes() else {
        anyhow::bail!("three processes are expected")
    };
    assert!(one.done("set-version key two 2").await?.0);
    assert!(!other.done("set-version key one 1").await?.0, "older");
    assert!(!other.done("set-version key again 2").await?.0, "an equal version is not newer");
    for process in peers.processes() {
        wait_for_outcome(process, "key", &value("two")).await?;
    }
    assert!(!one.done("remove-version key 1").await?.0);
    assert!(other.done("remove-version key 5").await?.0);
    for process in peers.processes() {
        wait_for_outcome(process, "key", &Outcome::Absent).await?;
    }
    assert!(!one.done("set-version key four 4").await?.0, "version 5 was removed");
    // A load from a stale replica: its callers get the value, and it is not stored.
    assert_all(&one.ask("key 3 version:4:four 10").await?, &value("four"));
    for process in peers.processes() {
        wait_for_outcome(process, "key", &Outcome::Absent).await?;
    }
    assert_all(&reader.ask("key 3 version:6:six 10").await?, &value("six"));
    assert!(!other.done("set-version key five 5").await?.0, "the loaded version is newer");
    assert!(other.done("set-version key seven 7").await?.0);
    for process in peers.processes() {
        wait_for_outcome(process, "key", &value("seven")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn concurrent_versioned_writes_of_several_processes_keep_the_newest() -> anyhow::Result<()> {
    const VERSIONS: usize = 60;
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(3, &redis).await?;
    for round in 0..10 {
        let key = format!("key:{round}");
        // Each version once, distributed over the processes, in another order in each round.
        let writing = (1..=VERSIONS).map(|turn| {
            let version = turn * (2 * round + 1) % (VERSIONS + 1);
            let process = &peers.processes()[turn % peers.processes().len()];
            let what = format!("set-version {key} {version} {version}");
            async move { anyhow::Ok((version, process.done(&what).await?.0)) }
        });
        let written = futures_util::future::try_join_all(writing).await?;
        let newest = written.iter().map(|(version, _)| *version).max().unwrap_or_default();
        assert_eq!(newest, VERSIONS);
        assert!(written.contains(&(newest, true)), "the newest version is stored: {written:?}");
        for process in peers.processes() {
            wait_for_outcome(process, &key, &value(&newest.to_string())).await?;
        }
        let late = peers.processes()[round % 3].done(&format!("set-version {key} late 1")).await?;
        assert!(!late.0);
    }
    Ok(())
}
