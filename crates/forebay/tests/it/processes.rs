//! Caches in processes of their own that share a real Redis: what `cluster` claims, where nothing
//! else is shared.
//!
//! What a crowd waits for, and how long, `cargo xtask bench cluster` measures; here it is counted.

mod crew;
mod peer;

use std::time::{Duration, Instant};

use forebay::Redis;
use forebay_testkit::launch::{Launch, Signal};
use forebay_testkit::redis::{RedisLaunch, RedisServer};

use crew::{Called, Crew, Hand};
use peer::{Noted, Outcome};

/// Tells a process of these tests which Redis it is to share.
const REDIS: &str = "FOREBAY_PEER_REDIS";

/// How long something may take that happens behind the scenes.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// What a load takes.
const LOAD: Duration = Duration::from_millis(50);

/// What the tests beside it start, as a process of its own; where nobody has, there is nothing to
/// be done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer() -> anyhow::Result<()> {
    match std::env::var(REDIS) {
        Ok(redis) => {
            let redis = Redis::with(peer::settings(&redis)).await?;
            peer::run(peer::builder().redis(redis).build()?, Noted::default()).await
        }
        Err(_) => Ok(()),
    }
}

async fn crew(count: usize, redis: &RedisServer) -> anyhow::Result<Crew> {
    let (url, binary) = (redis.url(), std::env::current_exe()?);
    let told = ["processes::a_peer", "--exact", "--nocapture"];
    Crew::start(count, || Ok(Launch::binary(&binary).args(told).env(REDIS, &url))).await
}

fn value(value: &str) -> Outcome {
    Outcome::Value(value.to_owned())
}

fn assert_all(called: &[Called], outcome: &Outcome) {
    let others: Vec<_> = called.iter().filter(|one| one.outcome != *outcome).collect();
    assert!(others.is_empty(), "not {outcome:?}: {others:?}");
}

/// Until a hand has this at hand. It hears of what others do a moment later.
async fn until(hand: &Hand, key: &str, wanted: &Outcome) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let found = hand.get(key).await?;
        if found == *wanted {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{key} is still {found:?}");
    }
}

async fn crowds(processes: usize, callers: usize, rounds: usize) -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(processes, &redis).await?;
    for round in 0..rounds {
        let key = format!("key:{round}");
        let called = crew.ask(&format!("{key} {callers} say:{round} 50")).await?;
        assert_eq!(called.len(), processes * callers);
        assert_all(&called, &value(&round.to_string()));
        assert_eq!(crew.loads(&key), 1, "of {key}");
        let longest = called.iter().map(Called::took).max();
        assert!(longest >= Some(LOAD), "they have waited for the load: {longest:?}");
        let loads = crew.told().await?.loads;
        assert!(matches!(loads[..], [took] if took >= LOAD), "it has ended: {loads:?}");
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
async fn what_is_written_in_one_is_read_in_the_other() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(2, &redis).await?;
    let [one, other] = crew.hands() else { anyhow::bail!("two") };
    for round in 0..50 {
        let (writer, reader) = if round % 2 == 0 { (one, other) } else { (other, one) };
        assert!(writer.done(&format!("set key {round}")).await?.0, "it is kept");
        reader.done(&format!("see key {round}")).await?;
        let held = writer.ask("key 1 say:loaded 0").await?;
        assert_all(&held, &value(&round.to_string()));
    }
    assert_eq!(crew.loads("key"), 0, "what is written need not be loaded");
    Ok(())
}

#[tokio::test]
async fn when_the_one_that_loads_is_killed_another_one_loads() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(3, &redis).await?;
    let [doomed, waiting @ ..] = crew.hands() else { anyhow::bail!("three") };
    let (dead, (), answered) = tokio::join!(
        doomed.ask("key 3 say:never held"),
        async {
            doomed.loading("key", 1).await.expect("it begins");
            doomed.signal(Signal::Kill).await.expect("it is there");
        },
        async {
            doomed.loading("key", 1).await?;
            let asking = waiting.iter().map(|hand| hand.ask("key 25 say:other 10"));
            futures_util::future::try_join_all(asking).await
        },
    );
    assert!(dead.is_err(), "it is gone");
    let answered: Vec<Called> = answered?.into_iter().flatten().collect();
    assert_eq!(answered.len(), 50);
    assert_all(&answered, &value("other"));
    assert_eq!(waiting.iter().map(|hand| hand.loads("key")).sum::<usize>(), 1);
    Ok(())
}

#[tokio::test]
async fn what_a_process_brings_that_was_paused_for_too_long_is_refused() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(3, &redis).await?;
    let [paused, other, reader] = crew.hands() else { anyhow::bail!("three") };
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
    // It was asked before the other one has loaded, so it may answer what it has loaded itself.
    assert_all(&late?, &value("old"));
    // Callers are answered before what was loaded is shared.
    for hand in [reader, paused, other] {
        until(hand, "key", &value("new")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_known_to_be_absent_is_known_to_all() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(4, &redis).await?;
    assert_all(&crew.ask("key 25 absent 50").await?, &Outcome::Absent);
    assert_eq!(crew.loads("key"), 1);
    assert_all(&crew.ask("key 25 say:wrong 0").await?, &Outcome::Absent);
    assert_eq!(crew.loads("key"), 1);
    Ok(())
}

#[tokio::test]
async fn a_loader_that_fails_is_asked_once_by_each_process_and_nothing_is_kept()
-> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(4, &redis).await?;
    let failed = Outcome::Failed("the_load_failed:_it_failed".to_owned());
    assert_all(&crew.ask("key 25 fail 50").await?, &failed);
    assert!(crew.loads("key") <= 4, "{} loads", crew.loads("key"));
    for hand in crew.hands() {
        assert!(hand.loads("key") <= 1);
        assert_eq!(hand.get("key").await?, Outcome::Absent);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_for_its_caller_alone() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(4, &redis).await?;
    assert_all(&crew.ask("key 5 pass:mine 50").await?, &value("mine"));
    assert_eq!(crew.loads("key"), 20, "each caller has its own");
    for hand in crew.hands() {
        assert_eq!(hand.get("key").await?, Outcome::Absent);
    }
    Ok(())
}

#[tokio::test]
async fn a_tag_and_everything_is_invalidated_in_all_processes() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(3, &redis).await?;
    let [one, two, three] = crew.hands() else { anyhow::bail!("three") };
    let fill = async |round: &str| -> anyhow::Result<()> {
        one.done(&format!("set-tagged red {round} red")).await?;
        one.done(&format!("set plain {round}")).await?;
        for hand in crew.hands() {
            until(hand, "red", &value(round)).await?;
            until(hand, "plain", &value(round)).await?;
            let loaded = hand.ask(&format!("loaded 2 say:{round} 0")).await?;
            assert_all(&loaded, &value(round));
        }
        Ok(())
    };
    fill("first").await?;
    two.done("tag red").await?;
    for hand in crew.hands() {
        until(hand, "red", &Outcome::Absent).await?;
        assert_eq!(hand.get("plain").await?, value("first"));
    }
    three.done("tag loaded").await?;
    for hand in crew.hands() {
        until(hand, "loaded", &Outcome::Absent).await?;
    }
    fill("second").await?;
    one.done("all").await?;
    for hand in crew.hands() {
        for key in ["red", "plain", "loaded"] {
            until(hand, key, &Outcome::Absent).await?;
        }
    }
    assert_eq!(crew.loads("loaded"), 2, "once before, and once in between");
    Ok(())
}

#[tokio::test]
async fn without_redis_each_process_loads_a_key_once_and_with_it_again_one_of_them()
-> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(4, &redis).await?;
    let port = redis.kill().await?;
    for key in ["gone", "still"] {
        assert_all(&crew.ask(&format!("{key} 25 say:alone 50")).await?, &value("alone"));
        for hand in crew.hands() {
            assert_eq!(hand.loads(key), 1, "of {key}");
        }
    }
    for hand in crew.hands() {
        hand.done("deaf").await?;
    }
    let _redis = RedisLaunch::new().port(port).start().await?;
    for hand in crew.hands() {
        hand.done("hears").await?;
    }
    assert_all(&crew.ask("back 25 say:shared 50").await?, &value("shared"));
    assert_eq!(crew.loads("back"), 1);
    Ok(())
}

#[tokio::test]
async fn the_newest_version_stays_whichever_process_brings_it() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(3, &redis).await?;
    let [one, other, reader] = crew.hands() else { anyhow::bail!("three") };
    assert!(one.done("set-version key two 2").await?.0);
    assert!(!other.done("set-version key one 1").await?.0, "older");
    assert!(!other.done("set-version key again 2").await?.0, "as new is not newer");
    for hand in crew.hands() {
        until(hand, "key", &value("two")).await?;
    }
    assert!(!one.done("remove-version key 1").await?.0);
    assert!(other.done("remove-version key 5").await?.0);
    for hand in crew.hands() {
        until(hand, "key", &Outcome::Absent).await?;
    }
    assert!(!one.done("set-version key four 4").await?.0, "it was removed later");
    // A load from a replica that is behind: its callers have it, and nobody else.
    assert_all(&one.ask("key 3 version:4:four 10").await?, &value("four"));
    for hand in crew.hands() {
        until(hand, "key", &Outcome::Absent).await?;
    }
    assert_all(&reader.ask("key 3 version:6:six 10").await?, &value("six"));
    assert!(!other.done("set-version key five 5").await?.0, "what was loaded is newer");
    assert!(other.done("set-version key seven 7").await?.0);
    for hand in crew.hands() {
        until(hand, "key", &value("seven")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn writers_of_versions_in_several_processes_leave_the_newest() -> anyhow::Result<()> {
    const VERSIONS: usize = 60;
    let redis = RedisLaunch::new().start().await?;
    let crew = crew(3, &redis).await?;
    for round in 0..10 {
        let key = format!("key:{round}");
        // Each version once, dealt out to the processes, in an order of its own for each round.
        let writing = (1..=VERSIONS).map(|turn| {
            let version = turn * (2 * round + 1) % (VERSIONS + 1);
            let hand = &crew.hands()[turn % crew.hands().len()];
            let what = format!("set-version {key} {version} {version}");
            async move { anyhow::Ok((version, hand.done(&what).await?.0)) }
        });
        let written = futures_util::future::try_join_all(writing).await?;
        let newest = written.iter().map(|(version, _)| *version).max().unwrap_or_default();
        assert_eq!(newest, VERSIONS);
        assert!(written.contains(&(newest, true)), "the newest is taken: {written:?}");
        for hand in crew.hands() {
            until(hand, &key, &value(&newest.to_string())).await?;
        }
        let late = crew.hands()[round % 3].done(&format!("set-version {key} late 1")).await?;
        assert!(!late.0);
    }
    Ok(())
}
