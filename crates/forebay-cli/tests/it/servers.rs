//! Redis servers behind the real binary: per site, replicas, Cluster, Sentinels, TLS; compression
//! and signatures of values; health.

use std::time::{Duration, Instant};

use forebay_testkit::client::Request;
use forebay_testkit::faults::{FaultProxy, Faults};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, RedisServer, Reply, TlsIdentity};
use forebay_testkit::redis::{start_cluster, start_sentinel};
use serde_json::Value;

use crate::world::{ConfigFile, END_MAX, ask, fresh_origin, get, get_admin, is_hit, metric};

/// Maximum wait for background work.
const SETTLE_MAX: Duration = Duration::from_secs(15);

/// Number of failures that opens the circuit breaker.
const ENOUGH: usize = 12;

const STORED: &str = "result=\"stored\"";

/// `[site.redis]` table for a server.
fn own(redis: &RedisServer, more: &str) -> String {
    format!("[site.redis]\nurl = \"{}\"\n{more}", redis.url())
}

fn shared(redis: &RedisServer, more: &str) -> String {
    format!("[redis]\nurl = \"{}\"\n{more}", redis.url())
}

async fn health(cache: &Launched) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(get_admin(cache, "/healthz").await?.body())?)
}

async fn wait_health(cache: &Launched, is_so: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let health = health(cache).await?;
        if is_so(&health) {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "it stays at {health}");
    }
}

async fn wait_ready(cache: &Launched) -> anyhow::Result<()> {
    wait_health(cache, |health| health["state"] == "ready").await
}

/// Waits until a tier has stored this number of entries.
pub(crate) async fn wait_stored(cache: &Launched, tier: &str, least: u64) -> anyhow::Result<()> {
    let label = format!("tier=\"{tier}\",{STORED}");
    let begun = Instant::now();
    while metric(cache, "forebay_tier_writes_total", &label).await? < least {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{tier} has stored fewer than {least}");
    }
    Ok(())
}

async fn entries(redis: &RedisServer) -> anyhow::Result<String> {
    Ok(redis.ask(&["KEYS", "*:d:*"]).await?.text())
}

/// Cache with two sites, `shop` and `blog`, connected to all servers.
async fn two_sites(origin: &Origin, top: &str, blog: &str) -> anyhow::Result<Launched> {
    let blog = format!(
        "[[site]]\nid = \"blog\"\nhosts = [\"blog.example\"]\norigin = \"{}\"\n{blog}",
        origin.url()
    );
    let cache = ConfigFile::serving(&origin.url(), top, &blog)?.serve().await?;
    wait_ready(&cache).await?;
    Ok(cache)
}

async fn get_blog(cache: &Launched, path: &str) -> anyhow::Result<forebay_testkit::client::Reply> {
    let request = Request::get(path).without_host().field("Host", "blog.example");
    ask(cache.address(), &request).await
}

#[tokio::test]
async fn a_site_can_have_its_own_servers() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let (all, blogs) = (RedisLaunch::new().start().await?, RedisLaunch::new().start().await?);
    let cache = two_sites(&origin, &shared(&all, "namespace = \"n\""), &own(&blogs, "")).await?;
    get(&cache, "/a").await?;
    get_blog(&cache, "/b").await?;
    wait_stored(&cache, "redis", 1).await?;
    wait_stored(&cache, "redis-blog", 1).await?;
    // The namespace is inherited, and each site's entries are only in its own server.
    assert_eq!(entries(&all).await?, "n:d:{shop|http|test.example|/a|}");
    assert_eq!(entries(&blogs).await?, "n:d:{blog|http|blog.example|/b|}");
    let fetched = origin.requests();
    let other = two_sites(&origin, &shared(&all, "namespace = \"n\""), &own(&blogs, "")).await?;
    let status = |reply: &forebay_testkit::client::Reply| {
        reply.field("cache-status").unwrap_or_default().to_owned()
    };
    assert!(status(&get(&other, "/a").await?).ends_with("; detail=redis"));
    assert!(status(&get_blog(&other, "/b").await?).ends_with("; detail=redis-blog"));
    assert_eq!(origin.requests(), fetched);
    // A server that fails affects only its own site.
    blogs.kill().await?;
    for number in 0..ENOUGH {
        assert_eq!(get_blog(&other, &format!("/down/{number}")).await?.status, 200);
    }
    wait_health(&other, |health| health["tiers"]["redis-blog"]["state"] != "ok").await?;
    assert_eq!(health(&other).await?["tiers"]["redis"]["state"], "ok");
    get(&other, "/after").await?;
    wait_stored(&other, "redis", 1).await
}

#[tokio::test]
async fn a_table_of_a_site_inherits_the_options_that_it_does_not_set() -> anyhow::Result<()> {
    let (origin, redis) = (fresh_origin().await?, RedisLaunch::new().start().await?);
    let blog = "[site.redis]\nnamespace = \"blogs\"";
    let cache = two_sites(&origin, &shared(&redis, ""), blog).await?;
    get(&cache, "/a").await?;
    get_blog(&cache, "/b").await?;
    wait_stored(&cache, "redis", 1).await?;
    wait_stored(&cache, "redis-blog", 1).await?;
    let names = entries(&redis).await?;
    assert!(names.contains("forebay:d:{shop|") && names.contains("blogs:d:{blog|"), "{names}");
    Ok(())
}

#[tokio::test]
async fn a_strict_site_answers_503_while_its_tier_fails() -> anyhow::Result<()> {
    let (origin, redis) = (fresh_origin().await?, RedisLaunch::new().start().await?);
    let blog = format!("tier_errors = \"strict\"\n{}", own(&redis, ""));
    let cache = two_sites(&origin, "", &blog).await?;
    assert_eq!(get_blog(&cache, "/hot").await?.status, 200);
    wait_stored(&cache, "redis-blog", 1).await?;
    let port = redis.kill().await?;
    let fetched = origin.requests();
    for number in 0..ENOUGH {
        let reply = get_blog(&cache, &format!("/{number}")).await?;
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
        let status = reply.field("cache-status").unwrap_or_default();
        assert!(status.ends_with("; detail=tier-failed"), "{status}");
    }
    assert!(is_hit(&get_blog(&cache, "/hot").await?), "what is in memory is there");
    assert_eq!(origin.requests(), fetched, "the origin is not asked in its stead");
    // The other site does not use the failing tier.
    assert_eq!(get(&cache, "/a").await?.status, 200);
    let _back = RedisLaunch::new().port(port).start().await?;
    wait_ready(&cache).await?;
    assert_eq!(get_blog(&cache, "/0").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn values_are_compressed_and_signed_as_configured() -> anyhow::Result<()> {
    let body = "a line that comes again and again\n".repeat(200);
    let page = Answer::ok(body.clone()).field("Cache-Control", "max-age=60");
    let (origin, redis) = (Origin::always(page).await?, RedisLaunch::new().start().await?);
    let file = |namespace: &str, more: &str| {
        let text = shared(&redis, &format!("namespace = \"{namespace}\"\n{more}"));
        let file = ConfigFile::serving(&origin.url(), &text, "")?;
        std::fs::write(file.folder.path().join("secret"), "sixteen bytes or more")?;
        std::fs::write(file.folder.path().join("other"), "quite another secret")?;
        anyhow::Ok(file)
    };
    let ways = [("none", 0_u8), ("zstd", 1), ("lz4", 2)];
    for (compression, how) in ways {
        let cache = file(compression, &format!("compression = \"{compression}\""))?;
        let cache = cache.serve().await?;
        wait_ready(&cache).await?;
        get(&cache, "/a").await?;
        wait_stored(&cache, "redis", 1).await?;
        let name = format!("{compression}:d:{{shop|http|test.example|/a|}}");
        let Reply::Bytes(value) = redis.ask(&["GET", &name]).await? else { anyhow::bail!("none") };
        assert_eq!((value[5], value.len() < body.len()), (how, how > 0), "{compression}");
    }
    let signed = "hmac_key_file = \"secret\"";
    let threshold = "compression_threshold = \"1MiB\"";
    let one = file("signed", &format!("{signed}\n{threshold}"))?.serve().await?;
    wait_ready(&one).await?;
    get(&one, "/a").await?;
    wait_stored(&one, "redis", 1).await?;
    let Reply::Bytes(value) = redis.ask(&["GET", "signed:d:{shop|http|test.example|/a|}"]).await?
    else {
        anyhow::bail!("none")
    };
    assert_eq!((value[5], value[6]), (0, 1), "below the threshold, and with a signature");
    for (key, is_believed) in [(signed, true), ("hmac_key_file = \"other\"", false), ("", false)] {
        let cache = file("signed", key)?.serve().await?;
        wait_ready(&cache).await?;
        assert_eq!(is_hit(&get(&cache, "/a").await?), is_believed, "{key}");
        let reason = "reason=\"unauthentic\"";
        let rejected = metric(&cache, "forebay_tier_rejected_total", reason).await?;
        // Both a read and a lease request find the foreign value.
        assert_eq!(rejected > 0, !is_believed, "{key}");
        wait_stored(&cache, "redis", u64::from(!is_believed)).await?;
        if !is_believed {
            // The fetch has replaced the value, so write it again.
            redis.ask(&[b"SET", &b"signed:d:{shop|http|test.example|/a|}"[..], &value]).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn pending_tier_writes_complete_at_a_stop() -> anyhow::Result<()> {
    let (origin, redis) = (fresh_origin().await?, RedisLaunch::new().start().await?);
    let proxy = FaultProxy::start(redis.address()).await?;
    let text = format!(
        "[redis]\nurl = \"redis://{}\"\nread_timeout = \"1s\"\nwrite_timeout = \"5s\"",
        proxy.address()
    );
    let mut cache = ConfigFile::serving(&origin.url(), &text, "")?.serve().await?;
    wait_ready(&cache).await?;
    proxy.set(Faults::delayed(Duration::from_millis(300)));
    assert_eq!(get(&cache, "/a").await?.status, 200);
    cache.signal(Signal::Term).await?;
    assert!(cache.wait_exit(END_MAX).await?.success());
    assert_eq!(entries(&redis).await?, "forebay:d:{shop|http|test.example|/a|}");
    Ok(())
}

#[tokio::test]
async fn a_bypassed_tier_is_logged_once_and_its_recovery_once() -> anyhow::Result<()> {
    let (origin, redis) = (fresh_origin().await?, RedisLaunch::new().start().await?);
    redis.ask(&["CONFIG", "SET", "requirepass", "hidden"]).await?;
    let address = format!("redis://{}", redis.address());
    let text = format!("[redis]\nurl = \"redis://:hidden@{}\"", redis.address());
    let cache = ConfigFile::serving(&origin.url(), &text, "")?.serve().await?;
    wait_ready(&cache).await?;
    redis.freeze().await?;
    for number in 0..2 * ENOUGH {
        assert_eq!(get(&cache, &format!("/{number}")).await?.status, 200);
    }
    let opened = cache.wait_stderr("tier bypassed after repeated failures").await?;
    assert!(opened.contains("tier=\"redis\"") && opened.contains(&address), "{opened}");
    redis.thaw().await?;
    let closed = cache.wait_stderr("tier answers again and is used").await?;
    assert!(closed.contains("tier=\"redis\"") && closed.contains(&address), "{closed}");
    let told = cache.stderr();
    for part in [&opened, &closed] {
        assert_eq!(told.iter().filter(|line| line.contains(&**part)).count(), 1, "{told:#?}");
    }
    assert!(!told.iter().any(|line| line.contains("hidden")), "{told:#?}");
    Ok(())
}

#[tokio::test]
async fn a_replica_serves_reads_and_its_refused_writes_are_counted() -> anyhow::Result<()> {
    let (origin, master) = (fresh_origin().await?, RedisLaunch::new().start().await?);
    let replica = RedisLaunch::new().replica_of(&master).start().await?;
    let writer = ConfigFile::serving(&origin.url(), &shared(&master, ""), "")?.serve().await?;
    wait_ready(&writer).await?;
    get(&writer, "/a").await?;
    wait_stored(&writer, "redis", 1).await?;
    let begun = Instant::now();
    while entries(&replica).await?.is_empty() {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "nothing is replicated");
    }
    let cache = ConfigFile::serving(&origin.url(), &shared(&replica, ""), "")?.serve().await?;
    wait_health(&cache, |health| health["tiers"]["redis"]["endpoints"][0]["used"] == true).await?;
    for number in 0..ENOUGH {
        assert_eq!(get(&cache, &format!("/{number}")).await?.status, 200);
    }
    assert!(is_hit(&get(&cache, "/a").await?), "it is read");
    let refused = "result=\"refused\"";
    assert!(metric(&cache, "forebay_tier_writes_total", refused).await? >= ENOUGH as u64);
    assert_eq!(metric(&cache, "forebay_tier_failures_total", "").await?, 0, "that is no failure");
    let health = health(&cache).await?;
    assert_eq!(health["state"], "degraded");
    assert_eq!(health["tiers"]["redis"]["state"], "ok");
    assert_eq!(health["tiers"]["redis"]["endpoints"][0]["read_only"], true);
    Ok(())
}

/// Asserts that an entry fetched by one instance is a hit at another.
async fn shares(origin: &Origin, text: &str) -> anyhow::Result<()> {
    let one = ConfigFile::serving(&origin.url(), text, "")?.serve().await?;
    let other = ConfigFile::serving(&origin.url(), text, "")?.serve().await?;
    wait_ready(&one).await?;
    wait_ready(&other).await?;
    for number in 0..ENOUGH {
        get(&one, &format!("/{number}")).await?;
    }
    wait_stored(&one, "redis", ENOUGH as u64).await?;
    let fetched = origin.requests();
    for number in 0..ENOUGH {
        assert!(is_hit(&get(&other, &format!("/{number}")).await?), "{number}");
    }
    assert_eq!(origin.requests(), fetched);
    Ok(())
}

#[tokio::test]
async fn a_cluster_is_shared() -> anyhow::Result<()> {
    let (origin, servers) = (fresh_origin().await?, start_cluster(3).await?);
    let text = format!(
        "[redis]\ncluster = [\"{}\", \"{}\"]\nread_timeout = \"2s\"\nwrite_timeout = \"2s\"",
        servers[0].url(),
        servers[1].url()
    );
    shares(&origin, &text).await?;
    for server in &servers {
        assert!(!entries(server).await?.is_empty(), "each of them has a part");
    }
    Ok(())
}

#[tokio::test]
async fn the_master_that_sentinels_name_is_shared() -> anyhow::Result<()> {
    let (origin, master) = (fresh_origin().await?, RedisLaunch::new().start().await?);
    let _replica = RedisLaunch::new().replica_of(&master).start().await?;
    let sentinel = start_sentinel("main", &master, 1).await?;
    let text = format!(
        "[redis]\nsentinel = {{ master = \"main\", nodes = [\"{}\"] }}\n\
         read_timeout = \"2s\"\nwrite_timeout = \"2s\"",
        sentinel.url()
    );
    shares(&origin, &text).await?;
    assert!(!entries(&master).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_untrusted_certificate_is_logged_with_its_server() -> anyhow::Result<()> {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?.cert.pem();
    let authority = certificate.clone();
    let identity = TlsIdentity { authority, certificate, key, wants_clients: false };
    let redis = RedisLaunch::new().tls(identity.clone()).start().await?;
    let url = redis.tls_url().unwrap_or_default();
    let origin = fresh_origin().await?;
    let serve = |name: &str| {
        let text = format!("[redis]\nurl = \"{url}\"\nca = \"{name}\"");
        let file = ConfigFile::serving(&origin.url(), &text, "")?;
        std::fs::write(file.folder.path().join("right.pem"), &identity.certificate)?;
        std::fs::write(file.folder.path().join("wrong.pem"), &other)?;
        anyhow::Ok(file)
    };
    wait_ready(&serve("right.pem")?.serve().await?).await?;
    let wrong = serve("wrong.pem")?.serve().await?;
    let told = wrong.wait_stderr(&format!("Redis: server {url}: ")).await?;
    assert!(told.contains("WARN") && told.to_lowercase().contains("certificate"), "{told}");
    for number in 0..ENOUGH {
        assert_eq!(get(&wrong, &format!("/{number}")).await?.status, 200);
    }
    let told = wrong.stderr();
    let about = told.iter().filter(|line| line.contains("ertificate")).count();
    assert_eq!(about, 1, "said once: {told:#?}");
    let health = health(&wrong).await?;
    assert_eq!(
        (&health["state"], &health["tiers"]["redis"]["endpoints"][0]["address"]),
        (&"degraded".into(), &url.into())
    );
    Ok(())
}
