//! Access log and messages: contents, formats, secrets.

use std::time::Duration;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::http2;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use serde_json::json;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::world::{
    BINARY, ConfigFile, END_MAX, admin_of, ask, forebay, fresh_origin, get, nowhere, serve,
};
use forebay_testkit::launch::Launch;

const SECRET: &str = "hunter2";

fn with_secrets(target: &str) -> Request {
    Request::get(target)
        .field("Authorization", format!("Bearer {SECRET}"))
        .field("Cookie", format!("sid={SECRET}"))
}

/// Stops the process and returns everything that it wrote.
async fn all_it_wrote(mut cache: Launched) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    cache.signal(Signal::Term).await?;
    cache.wait_exit(END_MAX).await?;
    Ok((cache.stdout(), cache.stderr()))
}

#[tokio::test]
async fn the_common_log_has_the_standard_columns() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "access_log = \"common\"", "")?;
    let cache = file.serve().await?;
    ask(cache.address(), &with_secrets("/a?b=1")).await?;
    let line = cache.wait_stdout("/a?b=1").await?;
    let (before, after) = line.split_once('[').unwrap_or_default();
    let (date, rest) = after.split_once(']').unwrap_or_default();
    assert_eq!(before, "127.0.0.1 - - ");
    assert!(date.len() == "06/Nov/1994:08:49:37 +0000".len() && date.ends_with(" +0000"), "{line}");
    assert!(rest.starts_with(" \"GET /a?b=1 HTTP/1.1\" 200 "), "{line}");
    let bytes = rest.rsplit(' ').next().unwrap_or_default();
    assert!(bytes == "5" || bytes == "-", "{line}");
    ask(cache.address(), &Request::new("DELETE", "/a")).await?;
    cache.wait_stdout("\"DELETE /a HTTP/1.1\" 200 ").await?;
    let (stdout, stderr) = all_it_wrote(cache).await?;
    assert_eq!(stdout.iter().filter(|line| line.contains("/a?b=1")).count(), 1, "{stdout:#?}");
    assert!(!stderr.iter().any(|line| line.contains("/a?b=1")), "{stderr:#?}");
    Ok(())
}

#[tokio::test]
async fn the_json_log_is_one_object_per_response() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "access_log = \"json\"", "")?;
    let cache = file.serve().await?;
    ask(cache.address(), &Request::get("/a")).await?;
    ask(cache.address(), &Request::get("/a")).await?;
    let told = |line: &str, names: &[&str]| {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let told: Vec<_> = names.iter().map(|name| line[name].clone()).collect();
        anyhow::Ok((serde_json::Value::from(told), line))
    };
    let names = ["peer", "method", "target", "status", "bytes", "site", "host", "proto", "why"];
    let (miss, line) = told(&cache.wait_stdout("\"cache\":\"miss\"").await?, &names)?;
    let expected =
        json!(["127.0.0.1", "GET", "/a", 200, 5, "shop", "test.example", "HTTP/1.1", "uri-miss"]);
    assert_eq!(miss, expected, "{line}");
    assert_eq!((&line["origin_status"], &line["end"]), (&json!(200), &json!(null)));
    let (hit, line) = told(&cache.wait_stdout("\"cache\":\"hit\"").await?, &names)?;
    assert_eq!((&hit[0], &hit[4], &hit[8]), (&json!("127.0.0.1"), &json!(5), &json!(null)));
    for name in ["head_ms", "total_ms", "age", "ttl"] {
        assert!(line[name].is_number(), "{name}: {line}");
    }
    for name in ["ts", "id", "client"] {
        assert!(line[name].is_string(), "{name}: {line}");
    }
    Ok(())
}

/// A miss, a hit from the bytes of the request, and one by the HTTP library.
#[tokio::test]
async fn lines_about_one_stored_response_have_one_key() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "access_log = \"json\"", "")?;
    let cache = file.serve().await?;
    ask(cache.address(), &Request::get("/a")).await?;
    ask(cache.address(), &Request::get("/a")).await?;
    ask(cache.address(), &Request::get("/a").field("Range", "bytes=0-1")).await?;
    ask(cache.address(), &Request::get("/b")).await?;
    ask(cache.address(), &Request::new("DELETE", "/c")).await?;
    cache.wait_stdout("\"target\":\"/c\"").await?;
    let (lines, _) = all_it_wrote(cache).await?;
    let objects = lines.iter().filter(|line| line.starts_with('{'));
    let lines: Vec<serde_json::Value> =
        objects.map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
    let keys_of = |target: &str| {
        let lines = lines.iter().filter(|line| line["target"] == target);
        lines.map(|line| line["key"].as_str().unwrap_or("none")).collect::<Vec<_>>()
    };
    let (a, b) = (keys_of("/a"), keys_of("/b"));
    assert!(a.len() == 3 && a.iter().all(|key| *key == a[0] && key.len() == 16), "{lines:#?}");
    assert!(b.len() == 1 && b[0] != a[0] && b[0].len() == 16, "{lines:#?}");
    assert_eq!(keys_of("/c"), ["none"], "nothing was looked up");
    Ok(())
}

/// The line is written when the response ends, with its true duration, bytes and end.
#[tokio::test]
async fn a_response_is_logged_when_it_ends() -> anyhow::Result<()> {
    let pause = Duration::from_millis(100);
    let slow = Answer::ok(vec![7; 5_000]).field("Cache-Control", "no-store").drip(5, pause);
    let origin = Origin::always(slow).await?;
    let file = ConfigFile::serving(&origin.url(), "access_log = \"logfmt\"", "")?;
    let cache = file.serve().await?;
    ask(cache.address(), &Request::get("/whole").field("User-Agent", "a b")).await?;
    let line = cache.wait_stdout("target=/whole").await?;
    assert!(line.contains(" bytes=5000 ") && line.contains(" ua=\"a b\" "), "{line}");
    let total = line.split(' ').find_map(|field| field.strip_prefix("total_ms="));
    assert!(total.unwrap_or_default().parse::<f64>()? >= 400.0, "{line}");
    assert!(!line.contains(" end="), "{line}");

    let mut client = Client::connect(cache.address()).await?;
    client.send(&Request::get("/cut").field("Host", "test.example")).await?;
    client.head().await?;
    client.reset()?;
    let line = cache.wait_stdout("target=/cut").await?;
    assert!(line.contains(" end=client-gone ") && !line.contains(" bytes=5000 "), "{line}");
    Ok(())
}

#[tokio::test]
async fn secret_parameters_are_in_no_format_of_the_access_log() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    for format in ["common", "combined", "logfmt", "json"] {
        let top = format!("access_log = \"{format}\"");
        let cache = ConfigFile::serving(&origin.url(), &top, "")?.serve().await?;
        let request = with_secrets(&format!("/a?token={SECRET}&b=1"))
            .field("Referer", format!("http://me:{SECRET}@other.example/c?{SECRET}"))
            .field("User-Agent", "agent");
        ask(cache.address(), &request).await?;
        let line = cache.wait_stdout("token=REDACTED&b=1").await?;
        assert_eq!(line.contains("http://other.example/c"), format != "common", "{line}");
        assert_eq!(line.contains("agent"), format != "common", "{line}");
        let (stdout, _) = all_it_wrote(cache).await?;
        assert!(!stdout.iter().any(|line| line.contains(SECRET)), "{stdout:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn secrets_and_colours_are_in_no_log() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    for (access_log, no_colour) in [("common", None), ("json", None), ("off", Some("1"))] {
        let top = format!("access_log = \"{access_log}\"\nlog = \"trace\"");
        let file = ConfigFile::serving(&origin.url(), &top, "")?;
        let launch = Launch::binary(BINARY).args(["serve", "--config"]).args([&file.path]);
        let launch = if let Some(one) = no_colour { launch.env("NO_COLOR", one) } else { launch };
        let cache = launch.start().await?;
        for _ in 0..2 {
            ask(cache.address(), &with_secrets("/a")).await?;
        }
        ask(cache.address(), &with_secrets("/a").field("Content-Length", "x")).await?;
        let (stdout, stderr) = all_it_wrote(cache).await?;
        let answers = stdout.iter().filter(|line| line.contains("/a")).count();
        assert_eq!(answers, if access_log == "off" { 0 } else { 2 }, "{stdout:#?}");
        for line in stdout.iter().chain(&stderr) {
            assert!(!line.contains(SECRET) && !line.contains('\u{1b}'), "{line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn refused_messages_are_in_the_access_log() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let common = ConfigFile::serving(&origin.url(), "access_log = \"common\"", "")?.serve().await?;
    refuse_bytes(&common).await?;
    let line = common.wait_stdout("] \"-\" 400 ").await?;
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert_eq!(common.stdout().iter().filter(|line| line.contains(" 400 ")).count(), 1);

    let json = ConfigFile::serving(&origin.url(), "access_log = \"json\"", "")?.serve().await?;
    refuse_bytes(&json).await?;
    let line = json.wait_stdout("request-line").await?;
    assert!(line.contains("\"code\":\"request-line\""), "{line}");
    let line: serde_json::Value = serde_json::from_str(&line)?;
    let told = ["peer", "method", "target", "status"].map(|name| line[name].clone());
    let expected = serde_json::json!(["127.0.0.1", "-", "-", 400]);
    assert_eq!(serde_json::Value::from(told.to_vec()), expected);
    Ok(())
}

/// A request that reached the origin has a line, also if its client does not wait for the response.
#[tokio::test]
async fn requests_without_a_response_are_in_the_access_log() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let cache = ConfigFile::serving(&origin.url(), "access_log = \"json\"", "")?.serve().await?;

    let mut ended = Client::connect(cache.address()).await?;
    ended.send(&Request::get("/ended")).await?;
    origin.wait_requests(1).await?;
    ended.reset()?;
    wait_aborted(&cache, "GET", "/ended").await?;

    let mut reset = Client::connect(cache.address()).await?;
    reset.send(&Request::new("DELETE", "/reset")).await?;
    origin.wait_requests(2).await?;
    reset.reset()?;
    wait_aborted(&cache, "DELETE", "/reset").await?;

    // HTTP/2: a reset of the stream.
    let mut stream = TcpStream::connect(cache.address()).await?;
    let head = http2::frame(http2::HEADERS, 0x5, 1, &http2::head("/stream", &[]));
    stream.write_all(&[http2::START, &head].concat()).await?;
    origin.wait_requests(3).await?;
    let reset = http2::frame(http2::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    stream.write_all(&reset).await?;
    wait_aborted(&cache, "GET", "/stream").await
}

async fn wait_aborted(cache: &Launched, method: &str, target: &str) -> anyhow::Result<()> {
    let line = cache.wait_stdout(&format!("\"target\":\"{target}\"")).await?;
    let line: serde_json::Value = serde_json::from_str(&line)?;
    let told = ["method", "status", "bytes", "site", "code", "end"].map(|name| line[name].clone());
    let expected = serde_json::json!([method, 499, 0, "shop", "aborted", "client-gone"]);
    assert_eq!(serde_json::Value::from(told.to_vec()), expected, "{line}");
    Ok(())
}

/// The log line names the exceeded bound, its option and the request.
#[tokio::test]
async fn a_head_of_the_origin_beyond_a_bound_is_logged_with_the_bound() -> anyhow::Result<()> {
    let many = (0..300).fold(Answer::ok("a"), |answer, _| answer.field("X-A", "b"));
    let large = Answer::ok("a").field("X-A", "b".repeat(300 << 10));
    for (answer, bound) in [
        (many, "more than 256 fields (origin_fields_max)"),
        (large, "more than 262144 bytes (origin_head_max)"),
    ] {
        let origin = Origin::always(answer).await?;
        let cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
        let request = Request::get("/a?token=hunter2").field("Host", "shop.example");
        assert_eq!(ask(cache.address(), &request).await?.status, 502);
        let line = cache.wait_stderr(bound).await?;
        for part in ["WARN", "site=\"shop\"", "method=GET", "host=\"shop.example\"", "path=\"/a\""]
        {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains(SECRET), "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_during_its_upload_is_no_warning() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = ConfigFile::serving(&origin.url(), "log = \"debug\"", "")?.serve().await?;
    let mut client = Client::connect(cache.address()).await?;
    client.send_raw(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await?;
    client.reset()?;
    let line = cache.wait_stderr("client-gone").await?;
    assert!(line.contains("DEBUG") && line.contains("method=PUT"), "{line}");
    let (_, stderr) = all_it_wrote(cache).await?;
    // The tests may run as root, which is warned of at the start.
    let is_ours = |line: &&String| line.contains("WARN") && !line.contains("runs as root");
    let warnings: Vec<_> = stderr.iter().filter(is_ours).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    Ok(())
}

/// A site may have a format of its own, or no log; a share of the plain hits is logged, and marked.
#[tokio::test]
async fn each_site_has_its_format_and_a_share_of_hits_is_logged() -> anyhow::Result<()> {
    const HITS: usize = 400;
    let origin = fresh_origin().await?;
    let of_site = |id: &str, format: &str| {
        let own =
            if format.is_empty() { String::new() } else { format!("access_log = \"{format}\"\n") };
        format!("[[site]]\nid = \"{id}\"\nprefix = \"/{id}\"\norigin = \"{}\"\n{own}", origin.url())
    };
    let sites = of_site("plain", "common") + &of_site("silent", "off");
    let rest = format!("{sites}\n[access]\nsample_hits = 0.1\n");
    let cache = ConfigFile::serving(&origin.url(), "access_log = \"json\"", &rest)?.serve().await?;
    let mut client = Client::connect(cache.address()).await?;
    for _ in 0..=HITS {
        client.ask(&Request::get("/a").field("Host", "test.example")).await?;
    }
    get(&cache, "/silent/a").await?;
    get(&cache, "/plain/a").await?;
    cache.wait_stdout("\"GET /plain/a HTTP/1.1\" 200").await?;
    let (stdout, _) = all_it_wrote(cache).await?;
    let lines = |part: &str| stdout.iter().filter(|line| line.contains(part)).count();
    assert_eq!((lines("\"cache\":\"miss\""), lines("/silent")), (1, 0), "{stdout:#?}");
    let hits = lines("\"cache\":\"hit\"");
    assert!((10..=100).contains(&hits), "{hits} of {HITS} hits have a line");
    assert_eq!(lines("\"sample\":0.1}"), hits, "each kept hit is marked, and nothing else");
    Ok(())
}

#[tokio::test]
async fn addresses_and_queries_are_hidden_as_configured() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    for (format, client_ip, query, expected) in [
        ("logfmt", "prefix", "keep", " client=127.0.0.0 peer=127.0.0.0 "),
        ("json", "off", "drop", "\"target\":\"/a\""),
        ("common", "off", "keep", "- - - ["),
    ] {
        let top = format!("access_log = \"{format}\"");
        let access = format!(
            "[access]\nclient_ip = \"{client_ip}\"\nquery = \"{query}\"\nredact_query = [\"mail*\"]\n"
        );
        let cache = ConfigFile::serving(&origin.url(), &top, &access)?.serve().await?;
        ask(cache.address(), &Request::get(&format!("/a?mail_to={SECRET}"))).await?;
        let line = cache.wait_stdout("/a").await?;
        assert!(line.contains(expected), "{line}");
        assert!(!line.contains(SECRET) && !line.contains("127.0.0.1"), "{line}");
        assert_eq!(line.contains("mail_to=REDACTED"), query == "keep", "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn a_large_file_is_rotated_and_no_line_is_lost() -> anyhow::Result<()> {
    const REQUESTS: usize = 200;
    let origin = fresh_origin().await?;
    let access = "[access]\nfile = \"access.log\"\nrotate_size = \"4KiB\"\nrotate_keep = 100\n";
    let file = ConfigFile::serving(&origin.url(), "access_log = \"common\"", access)?;
    let cache = file.serve().await?;
    for number in 0..REQUESTS {
        assert_eq!(get(&cache, &format!("/{number}")).await?.status, 200);
    }
    all_it_wrote(cache).await?;
    let mut lines = 0;
    let mut files = 0;
    for entry in std::fs::read_dir(file.folder.path())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("access.log") {
            let text = std::fs::read_to_string(entry.path())?;
            files += 1;
            lines += text.lines().filter(|line| line.contains(" HTTP/1.1\" 200 ")).count();
        }
    }
    assert_eq!(lines, REQUESTS);
    assert!(files >= 3, "{files} files");
    Ok(())
}

/// Each POST has a line of its own, also a refused one, with the address of its client.
#[tokio::test]
async fn posts_to_the_admin_listener_are_logged() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let launch = forebay(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let launch =
        launch.args(["--origin".to_owned(), origin.url()]).env("FOREBAY_LOG_FORMAT", "auto");
    let cache = launch.start().await?;
    let admin = admin_of(&cache)?;
    let post = |path: &str, kind: &str| {
        Request::new("POST", path)
            .field("Host", admin.to_string())
            .field("Content-Type", kind)
            .body("{\"tag\":\"red\"}")
    };
    assert_eq!(ask(admin, &post("/purge", "application/json")).await?.status, 200);
    assert_eq!(ask(admin, &post("/purge", "text/plain")).await?.status, 415);
    assert_eq!(ask(admin, &post("/reload", "application/json")).await?.status, 400);
    ask(admin, &Request::get("/healthz").field("Host", admin.to_string())).await?;
    let refused =
        "level=warn msg=\"admin request refused\" method=POST path=/purge status=415 by=127.0.0.1";
    cache.wait_stderr(refused).await?;
    let (_, stderr) = all_it_wrote(cache).await?;
    let lines = |part: &str| stderr.iter().filter(|line| line.contains(part)).count();
    assert_eq!(lines("msg=\"admin request"), 3, "{stderr:#?}");
    assert_eq!(lines("msg=\"admin request\" method=POST path=/purge status=200 by=127.0.0.1"), 1);
    let purge =
        "level=info msg=\"purge carried out\" kind=tag value=red reach=soft id=1 instances=1";
    assert!(stderr.iter().any(|line| line.contains(purge) && line.ends_with(" by=127.0.0.1")));
    assert!(stderr.iter().filter(|line| !line.is_empty()).all(|line| line.starts_with("ts=")));
    Ok(())
}

/// Sends bytes that cause a message at the level `debug`.
async fn refuse_bytes(cache: &Launched) -> anyhow::Result<()> {
    let mut client = Client::connect(cache.address()).await?;
    client.send_raw(b"nonsense\r\n\r\n").await?;
    client.read_to_close().await?;
    Ok(())
}

#[tokio::test]
async fn the_log_level_is_honoured() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let curious = ConfigFile::serving(&origin.url(), "log = \"debug\"", "")?.serve().await?;
    refuse_bytes(&curious).await?;
    let line = curious
        .wait_stderr(
            "client request rejected before parsing: it violates a framing \
                                    rule or a limit",
        )
        .await?;
    assert!(line.contains("DEBUG"), "{line}");

    let calm = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    refuse_bytes(&calm).await?;
    let (_, stderr) = all_it_wrote(calm).await?;
    assert!(!stderr.iter().any(|line| line.contains("DEBUG")), "{stderr:#?}");
    assert!(stderr.iter().any(|line| line.contains("INFO") && line.contains("stopping")));
    Ok(())
}

#[tokio::test]
async fn a_purge_is_logged_with_its_target_and_reach() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let admin = format!("http://{}", admin_of(&cache)?);
    let purge = ["purge", "--tag", "red", "--hard", "--admin", admin.as_str()];
    assert_eq!(forebay(purge).finish().await?.status.code(), Some(0));
    let line = cache.wait_stderr("purge carried out").await?;
    assert!(line.contains("kind=\"tag\" value=\"red\" reach=\"hard\" id="), "{line}");
    assert!(line.contains("instances=1 found="), "{line}");
    assert!(!line.contains("PurgeRequest"), "{line}");
    Ok(())
}

#[tokio::test]
async fn a_failure_at_the_origin_is_logged_with_its_request_site_and_cause() -> anyhow::Result<()> {
    let origin = nowhere()?;
    // An open circuit breaker would answer with 503.
    let breaker = "[site.breaker]\nenabled = false\n";
    let second =
        format!("{breaker}[[site]]\nid = \"b\"\nprefix = \"/b\"\norigin = \"http://{origin}\"\n");
    let file = ConfigFile::serving(&format!("http://{origin}"), "", &second)?;
    let cache = file.serve().await?;
    for number in 0..100 {
        assert_eq!(get(&cache, &format!("/{number}?token={SECRET}")).await?.status, 502);
    }
    let line = cache.wait_stderr("path=\"/0\"").await?;
    let parts = ["method=GET", "host=\"test.example\"", "status=502", "code=\"unreachable\""];
    for part in parts.into_iter().chain(["request=", "served=\"error\""]) {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(
        line.contains("site=")
            && line.contains(&format!("cause=\"the origin cannot be reached: {origin}"))
    );
    // Warnings are limited per site, so those of one site do not suppress those of another.
    assert_eq!(get(&cache, "/b/1").await?.status, 502);
    cache.wait_stderr("site=\"b\"").await?;
    let stderr = cache.stderr();
    assert!(!stderr.iter().any(|line| line.contains(SECRET)), "{stderr:#?}");
    Ok(())
}

/// The client gets no error response in these cases, so the log is the only sign of the failure.
#[tokio::test]
async fn a_failure_answered_with_a_stored_response_is_logged() -> anyhow::Result<()> {
    let origin = Origin::in_turn(vec![
        Answer::ok("a").field("Cache-Control", "max-age=0, stale-if-error=600"),
        Answer::ok("b").field("Cache-Control", "max-age=0, stale-while-revalidate=600"),
        Answer::status(503),
    ])
    .await?;
    let cache = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    for path in ["/if-error", "/refresh"] {
        assert_eq!(get(&cache, &format!("{path}?token={SECRET}")).await?.status, 200);
    }
    for path in ["/if-error", "/refresh"] {
        assert_eq!(get(&cache, &format!("{path}?token={SECRET}")).await?.status, 200);
        let line = cache.wait_stderr(&format!("path=\"{path}\"")).await?;
        let parts = ["WARN", "origin fetch failed", "site=\"shop\"", "method=GET"];
        let rest = [
            "host=\"test.example\"",
            "cause=the origin answered with status 503",
            "served=\"stored\"",
        ];
        for part in parts.into_iter().chain(rest) {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    let stderr = cache.stderr();
    assert!(!stderr.iter().any(|line| line.contains(SECRET)), "{stderr:#?}");
    Ok(())
}
