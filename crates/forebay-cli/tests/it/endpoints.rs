//! Several origin servers of one site behind the real binary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_testkit::origin::{Answer, Origin};
use serde_json::Value;

use crate::world::{ConfigFile, get, get_admin, metric};

/// Maximum wait for a change of state.
const CHANGE_MAX: Duration = Duration::from_secs(15);

/// Origin whose check fails while a flag is set, and its flag.
async fn checked() -> anyhow::Result<(Origin, Arc<AtomicBool>)> {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let origin = Origin::start(move |received| {
        match received.path() == "/up" && failing.load(Ordering::Relaxed) {
            true => Answer::status(500),
            false => Answer::ok("hello").field("Cache-Control", "no-store"),
        }
    });
    Ok((origin.await?, fails))
}

async fn wait_health(
    cache: &forebay_testkit::launch::Launched,
    is_so: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let begun = Instant::now();
    loop {
        let health: Value = serde_json::from_slice(get_admin(cache, "/healthz").await?.body())?;
        if is_so(&health) {
            return Ok(health);
        }
        anyhow::ensure!(begun.elapsed() < CHANGE_MAX, "it stays at {health}");
    }
}

#[tokio::test]
async fn health_reports_each_server_and_requests_avoid_an_unhealthy_one() -> anyhow::Result<()> {
    let ((a, _), (b, fails)) = (checked().await?, checked().await?);
    let table = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [[site]]\nid = \"shop\"\n[site.origin]\nurls = [\"{}\", {{ url = \"{}\", weight = 3 }}]\n\
         health = {{ path = \"/up\", every = \"100ms\" }}\n",
        a.url(),
        b.url()
    );
    let cache = ConfigFile::of(&table)?.serve().await?;
    for number in 0..40 {
        assert_eq!(get(&cache, &format!("/{number}")).await?.status, 200);
    }
    let asked = |origin: &Origin| {
        origin.received().iter().filter(|received| received.path() != "/up").count()
    };
    assert!(asked(&b) > asked(&a) && asked(&a) > 0, "{} {}", asked(&a), asked(&b));
    let health = wait_health(&cache, |health| health["state"] == "ready").await?;
    assert_eq!(health["origins"]["shop"][1]["endpoint"], b.address().to_string());
    assert_eq!(health["origins"]["shop"][1]["state"], "ok");
    fails.store(true, Ordering::Relaxed);
    let health = wait_health(&cache, |health| health["state"] == "degraded").await?;
    assert_eq!(health["origins"]["shop"][1]["state"], "unhealthy");
    assert_eq!(get_admin(&cache, "/readyz").await?.status, 200);
    let before = asked(&b);
    for number in 0..20 {
        assert_eq!(get(&cache, &format!("/again/{number}")).await?.status, 200);
    }
    assert_eq!(asked(&b), before);
    let label = format!("endpoint=\"{}\"", b.address());
    assert_eq!(metric(&cache, "forebay_origin_up", &label).await?, 0);
    fails.store(false, Ordering::Relaxed);
    wait_health(&cache, |health| health["state"] == "ready").await?;
    Ok(())
}
