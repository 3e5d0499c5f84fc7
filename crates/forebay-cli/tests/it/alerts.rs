//! Drills of the alerts in `deploy`: each drill breaks something, and the alert for it fires.
//!
//! A drill reads the metrics of a running cache twice before and twice after the fault. A minute of
//! each phase repeats the difference of both readings, and `promtool` evaluates the rules over these
//! minutes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::{Launch, Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, Reply};
use serde_json::json;
use tokio::process::Command;

use crate::world::{
    ANYWHERE, BINARY, ConfigFile, END_MAX, ask, forebay, fresh_origin, get, get_admin, metric,
    to_admin,
};

/// Minutes before the fault: more than the day by which a rule looks back.
const HEALTHY: usize = 1_500;

/// Minutes after the fault: more than an alert waits.
const BROKEN: usize = 60;

/// Requests between two readings; rules ignore sites with less than one a second.
const TRAFFIC: usize = 80;

/// Maximum wait for a state of the cache.
const STATE_MAX: Duration = Duration::from_secs(20);

/// Labels that Prometheus adds to each series.
const TARGET: &str = "instance=\"a:8081\",job=\"forebay\"";

/// Values of the series at one time.
type Reading = BTreeMap<String, f64>;

/// Readings before and after a fault.
struct Drill {
    healthy: [Reading; 2],
    broken: [Reading; 2],
}

fn deploy() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "deploy"].iter().collect()
}

/// Reads the metrics as Prometheus does: a target that does not answer has `up` alone.
async fn read(cache: &Launched) -> anyhow::Result<Reading> {
    let up = |value: f64| Reading::from([(format!("up{{{TARGET}}}"), value)]);
    let Ok(reply) = get_admin(cache, "/metrics").await else { return Ok(up(0.0)) };
    let mut reading = up(1.0);
    let text = reply.text().into_owned();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let series = match series.split_once('{') {
            Some((name, labels)) => format!("{name}{{{TARGET},{labels}"),
            None => format!("{series}{{{TARGET}}}"),
        };
        reading.insert(series, value.parse()?);
    }
    Ok(reading)
}

/// Returns the values of a series as `promtool` reads them.
fn values(series: &str, drill: &Drill) -> String {
    let name = series.split('{').next().unwrap_or_default();
    let is_counter = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
    let at = |reading: &Reading| reading.get(series).copied();
    let step = |[one, two]: &[Reading; 2]| match (at(one), at(two)) {
        (Some(one), Some(two)) if is_counter => two - one,
        _ => 0.0,
    };
    let [(before, more), (after, later)] = [
        (at(&drill.healthy[1]), step(&drill.healthy)),
        (at(&drill.broken[1]), step(&drill.broken)),
    ];
    let mut text = String::new();
    let mut value = before;
    let _ = match value {
        Some(value) => write!(text, "{value}+{more}x{}", HEALTHY - 1),
        None => write!(text, "_x{}", HEALTHY),
    };
    if let Some(value) = value.as_mut().filter(|_| is_counter) {
        *value += more * (HEALTHY - 1) as f64 + later;
    } else {
        value = after;
    }
    let _ = match value.filter(|_| after.is_some()) {
        Some(value) => write!(text, " {value}+{later}x{BROKEN}"),
        None => write!(text, " _x{BROKEN}"),
    };
    text
}

impl Drill {
    /// Asserts that no alert fires before the fault, and that these alerts fire after it.
    async fn fires(&self, alerts: &[&str]) -> anyhow::Result<()> {
        let rules = std::fs::read_to_string(deploy().join("forebay.rules.yml"))?;
        let all = self.healthy.iter().chain(&self.broken).flat_map(Reading::keys);
        let used =
            all.filter(|series| rules.contains(series.split('{').next().unwrap_or_default()));
        let series: std::collections::BTreeSet<_> = used.collect();
        let series = series
            .into_iter()
            .map(|series| json!({ "series": series, "values": values(series, self) }));
        let expects = |expr: String, minute: usize, value: usize| {
            let sample = json!([{ "labels": "{}", "value": value }]);
            json!({ "expr": expr, "eval_time": format!("{minute}m"), "exp_samples": sample })
        };
        let firing = "count(ALERTS{alertstate=\"firing\"}) or vector(0)".to_owned();
        let mut expected = vec![expects(firing, HEALTHY - 2, 0)];
        for alert in alerts {
            let firing = format!(
                "count(count by (alertname) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}))"
            );
            expected.push(expects(firing, HEALTHY + BROKEN - 1, 1));
        }
        let test = json!({
            "rule_files": [deploy().canonicalize()?.join("forebay.rules.yml")],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": series.collect::<Vec<_>>(),
                "promql_expr_test": expected,
            }],
        });
        let folder = tempfile::tempdir()?;
        // JSON is YAML.
        let file = folder.path().join("drill.yml");
        std::fs::write(&file, test.to_string())?;
        let output = Command::new(promtool()).args(["test", "rules"]).arg(&file).output().await?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "{alerts:?}: {printed}");
        Ok(())
    }
}

/// Path of promtool: where `cargo xtask test` has unpacked it, or in the search path.
fn promtool() -> PathBuf {
    let parts = [env!("CARGO_MANIFEST_DIR"), "..", "..", "target/tools/unpacked/usr/bin/promtool"];
    let unpacked: PathBuf = parts.iter().collect();
    if unpacked.is_file() { unpacked } else { "promtool".into() }
}

/// Sends requests to different paths, or to one.
async fn traffic(cache: &Launched, path: impl Fn(usize) -> String) -> anyhow::Result<()> {
    let mut client = Client::connect(cache.address()).await?;
    for number in 0..TRAFFIC {
        client.ask(&Request::get(&path(number)).field("Host", "test.example")).await?;
    }
    Ok(())
}

/// Reads the metrics, sends requests, and reads them again.
async fn during(cache: &Launched, path: impl Fn(usize) -> String) -> anyhow::Result<[Reading; 2]> {
    let before = read(cache).await?;
    traffic(cache, path).await?;
    Ok([before, read(cache).await?])
}

/// Waits until a metric is above zero.
async fn wait_raised(cache: &Launched, name: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    while metric(cache, name, "").await? == 0 {
        anyhow::ensure!(begun.elapsed() < STATE_MAX, "{name} is 0");
    }
    Ok(())
}

fn storable() -> Answer {
    Answer::ok("hello").field("Cache-Control", "max-age=600")
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn a_cache_that_is_down() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let mut cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    let healthy = during(&cache, |_| "/a".to_owned()).await?;
    cache.signal(Signal::Kill).await?;
    cache.wait_exit(END_MAX).await?;
    let broken = [read(&cache).await?, read(&cache).await?];
    Drill { healthy, broken }.fires(&["ForebayDown"]).await
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn an_origin_that_is_down() -> anyhow::Result<()> {
    let origin = Origin::always(storable()).await?;
    let cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    let healthy = during(&cache, |_| "/a".to_owned()).await?;
    origin.shut().await?;
    traffic(&cache, |number| format!("/down/{number}")).await?;
    let broken = during(&cache, |number| format!("/down/{number}")).await?;
    Drill { healthy, broken }.fires(&["ForebayErrors", "ForebayOriginDown"]).await
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn stale_responses_in_place_of_a_failed_origin() -> anyhow::Result<()> {
    let stale = Answer::ok("hello").field("Cache-Control", "max-age=0, stale-if-error=600");
    let origin = Origin::always(stale).await?;
    let cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    let path = |number: usize| format!("/{number}");
    let healthy = during(&cache, path).await?;
    origin.shut().await?;
    traffic(&cache, path).await?;
    let broken = during(&cache, path).await?;
    Drill { healthy, broken }.fires(&["ForebayServesStale"]).await
}

/// Clients add a parameter to each URL, so that nothing is a hit any more.
#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn a_hit_ratio_that_fell() -> anyhow::Result<()> {
    let origin = Origin::always(storable()).await?;
    let cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    get(&cache, "/a").await?;
    let healthy = during(&cache, |_| "/a".to_owned()).await?;
    let broken = during(&cache, |number| format!("/a?noise={number}")).await?;
    Drill { healthy, broken }.fires(&["ForebayHitRatioFell"]).await
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn a_slow_origin() -> anyhow::Result<()> {
    let slow = storable().delay(Duration::from_millis(2_500));
    let origin = Origin::in_turn(vec![storable(), slow]).await?;
    let cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    let before = read(&cache).await?;
    get(&cache, "/fast").await?;
    let fast = read(&cache).await?;
    get(&cache, "/slow").await?;
    let slow = read(&cache).await?;
    Drill { healthy: [before, fast.clone()], broken: [fast, slow] }
        .fires(&["ForebayOriginSlow"])
        .await
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn an_origin_whose_connections_are_all_in_use() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let site = format!("[site.origin]\nurls = [\"{}\"]\nconnections_max = 1\n", origin.url());
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[[site]]\nid = \"shop\"\n{site}"
    );
    let cache = ConfigFile::of(&text)?.serve().await?;
    let healthy = [read(&cache).await?, read(&cache).await?];
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut client = Client::connect(cache.address()).await?;
        client.send(&Request::get(&format!("/{number}")).field("Host", "test.example")).await?;
        clients.push(client);
    }
    wait_raised(&cache, "forebay_origin_waiting").await?;
    let broken = [read(&cache).await?, read(&cache).await?];
    Drill { healthy, broken }.fires(&["ForebayOriginFull"]).await
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn a_redis_that_is_down() -> anyhow::Result<()> {
    let origin = Origin::always(storable()).await?;
    let redis = RedisLaunch::new().start().await?;
    let launch = forebay(["serve", "--origin", &origin.url(), "--redis", &redis.url()]);
    let cache = launch.args(ANYWHERE).start().await?;
    wait_connected(&cache).await?;
    let healthy = during(&cache, |_| "/a".to_owned()).await?;
    redis.kill().await?;
    traffic(&cache, |number| format!("/down/{number}")).await?;
    wait_raised(&cache, "forebay_tier_state").await?;
    wait_raised(&cache, "forebay_bus_state").await?;
    let broken = during(&cache, |_| "/a".to_owned()).await?;
    Drill { healthy, broken }.fires(&["ForebayTierBypassed", "ForebayPurgesUncertain"]).await
}

/// Waits until a cache with a Redis is ready, and is connected with it and with the other instances.
async fn wait_connected(cache: &Launched) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let reply = get_admin(cache, "/healthz").await?;
        let health: serde_json::Value = serde_json::from_slice(reply.body())?;
        let is_ready = health["state"] == "ready";
        let has_heard = metric(cache, "forebay_bus_events_total", "heard").await? > 0;
        let state = metric(cache, "forebay_bus_state", "").await?;
        if is_ready && has_heard && state == 0 {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < STATE_MAX, "bus {state}: {health}");
    }
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn a_limit_on_open_files_that_is_near() -> anyhow::Result<()> {
    const LIMITED: &str = "ulimit -n 256 && exec \"$0\" \"$@\"";
    // Each has a connection, and one to the origin.
    const CLIENTS: usize = 105;
    let origin = Origin::always(Answer::hang()).await?;
    let cache = Launch::binary("/bin/sh")
        .args(["-c", LIMITED, BINARY, "serve", "--origin", &origin.url()])
        .args(ANYWHERE)
        .start()
        .await?;
    let healthy = [read(&cache).await?, read(&cache).await?];
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Client::connect(cache.address()).await?;
        client.send(&Request::get(&format!("/{number}")).field("Host", "test.example")).await?;
        clients.push(client);
    }
    origin.wait_requests(CLIENTS as u64).await?;
    let broken = [read(&cache).await?, read(&cache).await?];
    Drill { healthy, broken }.fires(&["ForebayNearLimit"]).await
}

#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn a_configuration_that_is_rejected() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "", "")?;
    let cache = file.serve().await?;
    let healthy = during(&cache, |_| "/a".to_owned()).await?;
    file.rewrite("nonsense = 1\n")?;
    let reload = to_admin(&cache, "POST", "/reload")?.field("Content-Type", "application/json");
    let admin = crate::world::admin_of(&cache)?;
    assert_eq!(ask(admin, &reload).await?.status, 400);
    let broken = during(&cache, |_| "/a".to_owned()).await?;
    Drill { healthy, broken }.fires(&["ForebayReloadRefused"]).await
}

/// Another program changes values in Redis, which a second instance reads.
#[tokio::test]
#[ignore = "promtool evaluates a day of minutes: run by nightly"]
async fn damaged_values() -> anyhow::Result<()> {
    let origin = Origin::always(storable()).await?;
    let redis = RedisLaunch::new().start().await?;
    let start = || {
        forebay(["serve", "--origin", &origin.url(), "--redis", &redis.url()])
            .args(ANYWHERE)
            .start()
    };
    let (first, second) = (start().await?, start().await?);
    wait_connected(&first).await?;
    wait_connected(&second).await?;
    let healthy = during(&second, |_| "/a".to_owned()).await?;
    traffic(&first, |number| format!("/{number}")).await?;
    let begun = Instant::now();
    let mut damaged = 0;
    // With that of `/a`, which the other instance has stored.
    while damaged < TRAFFIC + 1 {
        damaged = damage(&redis).await?;
        anyhow::ensure!(begun.elapsed() < STATE_MAX, "{damaged} values in Redis");
    }
    let broken = during(&second, |number| format!("/{number}")).await?;
    Drill { healthy, broken }.fires(&["ForebayDataDamaged"]).await
}

/// Start of a stored response in Redis. Other values belong to leases and purges.
const STORED: &[u8] = b"FBR";

/// Overwrites the end of each stored response, and returns their number.
async fn damage(redis: &forebay_testkit::redis::RedisServer) -> anyhow::Result<usize> {
    let Reply::All(keys) = redis.ask(&["KEYS", "*"]).await? else { anyhow::bail!("no keys") };
    let mut damaged = 0;
    for key in keys {
        let Reply::Bytes(key) = key else { continue };
        if redis.ask(&[&b"TYPE"[..], &key]).await? != Reply::Text("string".to_owned()) {
            continue;
        }
        let start = redis.ask(&[&b"GETRANGE"[..], &key, b"0", b"2"]).await?;
        if start != Reply::Bytes(STORED.to_vec()) {
            continue;
        }
        let Reply::Number(length) = redis.ask(&[&b"STRLEN"[..], &key]).await? else { continue };
        let end = length.saturating_sub(4).to_string();
        redis.ask(&[&b"SETRANGE"[..], &key, end.as_bytes(), b"xxxx"]).await?;
        damaged += 1;
    }
    Ok(damaged)
}
