//! Admin listener: endpoints and access rules.

use forebay_testkit::client::{Reply, Request};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};

use tokio::process::Command;

use crate::tls::Authority;
use crate::world::{
    admin_of, ask, forebay, fresh_origin, get, get_admin, is_hit, metric, nowhere, serve, to_admin,
    wait_requests,
};

/// Metric names that dashboards rely on.
const METRICS: [&str; 20] = [
    "forebay_requests_total{site=\"default\",method=\"GET\",status=\"200\",cache=\"hit\"} 1",
    "forebay_request_seconds_count{site=\"default\",cache=\"miss\"} 2",
    "forebay_lookups_total{tier=\"memory\",result=\"hit\"} 1",
    "forebay_misses_total{site=\"default\",reason=\"uri-miss\"} 2",
    "forebay_loads_total{site=\"default\",result=\"stored\"} ",
    "forebay_load_seconds_count{site=\"default\"} ",
    "forebay_loads_avoided_total{site=\"default\",how=\"stale\"} 1",
    "forebay_served_staleness_seconds_count{site=\"default\"} 1",
    "forebay_tier_bytes{tier=\"memory\"} ",
    "forebay_tier_entries{tier=\"memory\"} 2",
    "forebay_evictions_total{tier=\"memory\",reason=\"room\"} 0",
    "forebay_in_flight{site=\"default\"} 0",
    "forebay_invalidations_total{kind=\"all\"} 1",
    "forebay_refused_total{limit=\"request-line\"} 0",
    "forebay_build_info{version=\"",
    "forebay_response_seconds_count{site=\"default\"} 4",
    "forebay_body_bytes_total{site=\"default\",cache=\"hit\"} 3",
    "forebay_responses_truncated_total{site=\"default\",end=\"client-gone\"} 0",
    "forebay_loads_avoided_total{site=\"default\",how=\"lease\"} 0",
    "# TYPE forebay_requests_total counter",
];

async fn post(cache: &Launched, path: &str, body: &'static str) -> anyhow::Result<Reply> {
    let request = to_admin(cache, "POST", path)?.field("Content-Type", "application/json");
    ask(admin_of(cache)?, &request.body(body)).await
}

#[tokio::test]
async fn health_and_readiness_report_a_ready_cache() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    get(&cache, "/").await?;
    for (path, name) in [("/livez", "live"), ("/readyz", "ready")] {
        let reply = get_admin(&cache, path).await?;
        let value: serde_json::Value = serde_json::from_slice(reply.body())?;
        assert_eq!((reply.status, &value[name]), (200, &true.into()), "{path}");
    }
    let reply = get_admin(&cache, "/healthz").await?;
    let value: serde_json::Value = serde_json::from_slice(reply.body())?;
    assert_eq!((reply.status, &value["state"]), (200, &"ready".into()));
    assert_eq!(value["tiers"]["memory"]["entries"], 1);
    Ok(())
}

#[tokio::test]
async fn the_metrics_have_the_names_that_dashboards_rely_on() -> anyhow::Result<()> {
    // Two pages: one fresh, one stale that may be served while it is revalidated.
    let origin = Origin::start(|asked| match asked.path() {
        "/stale" => Answer::ok("old")
            .field("Cache-Control", "max-age=1, stale-while-revalidate=60")
            .field("Age", "2"),
        _ => Answer::ok("new").field("Cache-Control", "max-age=60"),
    });
    let origin = origin.await?;
    let cache = serve(&origin).await?;
    for path in ["/", "/", "/stale", "/stale"] {
        assert_eq!(get(&cache, path).await?.status, 200);
    }
    let purged = post(&cache, "/purge", r#"{"all":true}"#).await?;
    assert_eq!(purged.status, 200);
    wait_requests(&cache, "site=\"default\"", 4).await?;
    let reply = get_admin(&cache, "/metrics").await?;
    assert_eq!(reply.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(reply.field("vary"), Some("Accept"));
    let text = reply.text();
    for name in METRICS {
        assert!(text.lines().any(|line| line.starts_with(name)), "no {name} in\n{text}");
    }
    let asked =
        to_admin(&cache, "GET", "/metrics")?.field("Accept", "application/openmetrics-text");
    let reply = ask(admin_of(&cache)?, &asked).await?;
    assert!(reply.field("content-type").is_some_and(|kind| kind.contains("openmetrics-text")));
    assert!(reply.text().ends_with("# EOF\n"));
    Ok(())
}

#[tokio::test]
async fn get_of_the_root_returns_the_dashboard() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let page = get_admin(&cache, "/").await?;
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.text().starts_with("<!doctype html>") && page.text().ends_with("</html>\n"));
    assert_eq!(get_admin(&cache, "/nowhere").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn get_does_not_change_state() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    get(&cache, "/a").await?;
    let targets = ["/purge", "/purge?all=true", "/purge?url=http%3A%2F%2Ftest.example%2Fa"];
    for target in targets {
        assert_eq!(get_admin(&cache, target).await?.status, 405, "{target}");
    }
    let with_body = to_admin(&cache, "GET", "/purge")?.field("Content-Type", "application/json");
    let reply = ask(admin_of(&cache)?, &with_body.body(r#"{"all":true,"hard":true}"#)).await?;
    assert_eq!(reply.status, 405);
    for path in ["/", "/livez", "/readyz", "/healthz", "/metrics"] {
        assert_eq!(get_admin(&cache, path).await?.status, 200);
        assert_eq!(post(&cache, path, "{}").await?.status, 405, "{path}");
    }
    assert!(is_hit(&get(&cache, "/a").await?));
    assert_eq!(metric(&cache, "forebay_invalidations_total", "").await?, 0);
    Ok(())
}

#[tokio::test]
async fn requests_of_other_hosts_and_sites_are_refused() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    get(&cache, "/a").await?;
    let admin = admin_of(&cache)?;
    let all = || to_admin(&cache, "POST", "/purge").map(|request| request.body(r#"{"all":true}"#));
    let json = "application/json";
    let rebound = Request::get("/metrics").field("Host", format!("evil.example:{}", admin.port()));
    let elsewhere = all()?.field("Content-Type", json).field("Origin", "http://evil.example");
    let cases = [
        (421, rebound),
        (421, Request::get("/metrics").field("Host", "127.0.0.2:1")),
        (415, all()?),
        (415, all()?.field("Content-Type", "text/plain")),
        (415, all()?.field("Content-Type", "application/x-www-form-urlencoded")),
        (403, elsewhere),
        (403, all()?.field("Content-Type", json).field("Origin", "null")),
    ];
    for (status, request) in cases {
        let reply = ask(admin, &request).await?;
        assert_eq!(reply.status, status, "{request:?}");
        let value: serde_json::Value = serde_json::from_slice(reply.body())?;
        assert!(value["error"].is_string(), "{value}");
    }
    assert!(is_hit(&get(&cache, "/a").await?), "nothing was purged");
    // An SSH tunnel has another port than the listener.
    let tunnel = Request::get("/metrics").field("Host", "localhost:9081");
    assert_eq!(ask(admin, &tunnel).await?.status, 200);
    let own = all()?.field("Content-Type", json).field("Origin", format!("http://{admin}"));
    assert_eq!(ask(admin, &own).await?.status, 200);
    assert!(!is_hit(&get(&cache, "/a").await?));
    Ok(())
}

#[tokio::test]
async fn an_invalid_purge_is_refused() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    for body in [
        "",
        "all",
        "[]",
        "{}",
        r#"{"all":false}"#,
        r#"{"all":true,"tag":"x"}"#,
        r#"{"every":true}"#,
        r#"{"url":"/a"}"#,
        r#"{"url":"http://\u0000/"}"#,
        r#"{"site":"nobody"}"#,
    ] {
        let reply = post(&cache, "/purge", body).await?;
        assert_eq!(reply.status, 400, "{body}");
    }
    let long = to_admin(&cache, "POST", "/purge")?.field("Content-Type", "application/json");
    let reply = ask(admin_of(&cache)?, &long.body(vec![b' '; 64 << 10])).await?;
    assert_eq!(reply.status, 400);
    assert_eq!(metric(&cache, "forebay_invalidations_total", "").await?, 0);
    Ok(())
}

#[tokio::test]
async fn further_listeners_serve_operators_over_tls_and_unix_sockets() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let folder = tempfile::tempdir()?;
    Authority::new("operators")?.write(folder.path(), "a", &["localhost"])?;
    let (secure, probe) = (nowhere()?, nowhere()?);
    let socket = folder.path().join("admin.sock");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
         [[listener]]\naddress = \"{secure}\"\nrole = \"admin\"\ntls = true\n\
         [[listener]]\naddress = \"unix:{}\"\nrole = \"admin\"\n\
         [[listener]]\naddress = \"{probe}\"\nrole = \"probe\"\n\
         [[site]]\nid = \"shop\"\norigin = \"{}\"\n",
        socket.display(),
        origin.url()
    );
    std::fs::write(folder.path().join("forebay.toml"), text)?;
    let file = folder.path().join("forebay.toml");
    let cache = forebay(["serve", "--config"]).args([file]).start().await?;
    let socket = socket.display().to_string();
    let secure = format!("https://{secure}");
    let rows: [(&[&str], &str, &str); 4] = [
        (&["-k"], &format!("{secure}/livez"), "{\"live\":true}\n200 1.1"),
        (&["--unix-socket", &socket], "http://any.example/livez", "{\"live\":true}\n200 1.1"),
        (&[], &format!("http://{probe}/readyz"), "ready\n200 1.1"),
        (&[], &format!("http://{probe}/metrics"), "unknown\n404 1.1"),
    ];
    for (arguments, url, expected) in rows {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "10", "-w", "%{http_code} %{http_version}"]);
        let output = command.args(arguments).arg(url).output().await?;
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{url} {output:?}");
    }
    assert_eq!(get(&cache, "/").await?.status, 200);
    Ok(())
}
