//! Parts that service managers and operators use: start checks, log files, notifications, inherited
//! sockets, version.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::{Launch, Launched, Signal};
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::net::UnixDatagram;

use crate::world::{ANYWHERE, ConfigFile, end, forebay, fresh_origin, get, get_admin, metric};

/// Maximum wait for a notification.
const NOTIFICATION_MAX: Duration = Duration::from_secs(10);

#[tokio::test]
async fn memory_that_the_machine_does_not_have_is_refused() -> anyhow::Result<()> {
    let serve = forebay(["serve", "--origin", "http://127.0.0.1:9"]).args(ANYWHERE);
    let refused = serve.clone().args(["--memory", "16TiB"]).finish().await?;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let error = refused.stderr.join("\n");
    assert!(error.contains("memory.size (16TiB) is above 95 % of the memory"), "{error}");
    let wrong = serve.clone().args(["--memory", "101%"]).finish().await?;
    assert!(wrong.stderr.join("\n").contains("a whole number from 1% to 100%"), "{wrong:?}");
    end(serve.args(["--memory", "10%"]).start().await?, Signal::Term).await
}

#[tokio::test]
async fn a_share_of_the_memory_is_shown_as_a_size() -> anyhow::Result<()> {
    let file = ConfigFile::serving("http://o", "[memory]\nsize = \"60%\"", "")?;
    let shown = forebay(["check"]).args([&file.path]).finish().await?;
    let row = shown.stdout.iter().find(|line| line.starts_with("memory.size"));
    assert!(row.is_some_and(|row| row.contains("iB\" (60%)")), "{shown:?}");
    Ok(())
}

#[tokio::test]
async fn mistakes_that_show_under_load_are_warned_of() -> anyhow::Result<()> {
    let site = "soft_timeout = \"40s\"";
    let file = ConfigFile::serving("http://127.0.0.1:9", "", site)?;
    let warning = "site shop: soft_timeout (40s) is above fetch_timeout (30s)";
    let checked = forebay(["check"]).args([&file.path]).finish().await?;
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(checked.stderr[0].starts_with(&format!("warning: {warning}")), "{checked:?}");
    let cache = forebay(["serve", "--config"]).args([&file.path]);
    let cache = cache.env("FOREBAY_MEMROY", "1GiB").start().await?;
    cache.wait_stderr(warning).await?;
    cache
        .wait_stderr("FOREBAY_MEMROY is unknown and has no effect; did you mean FOREBAY_MEMORY?")
        .await?;
    end(cache, Signal::Term).await
}

/// Waits until a log file contains `part`: a client may have its response a moment before its line
/// is written.
async fn wait_logged(file: &Path, part: &str) -> anyhow::Result<()> {
    let logged = async {
        while !std::fs::read_to_string(file)?.contains(part) {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    tokio::time::timeout(NOTIFICATION_MAX, logged).await?
}

#[tokio::test]
async fn sigusr1_opens_the_log_file_again() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let top = "access_log = \"common\"\n[access]\nfile = \"access.log\"";
    let file = ConfigFile::serving(&origin.url(), top, "")?;
    let cache = file.serve().await?;
    let [current, old] = ["access.log", "access.log.1"].map(|name| file.folder.path().join(name));
    get(&cache, "/before").await?;
    wait_logged(&current, "/before").await?;
    std::fs::rename(&current, &old)?;
    cache.signal(Signal::Usr1).await?;
    cache.wait_stderr("log files opened again").await?;
    get(&cache, "/after").await?;
    assert_eq!(metric(&cache, "forebay_log_dropped_total", "log=\"access\"").await?, 0);
    end(cache, Signal::Term).await?;
    let (old, current) = (std::fs::read_to_string(old)?, std::fs::read_to_string(current)?);
    assert!(old.contains("\"GET /before ") && !old.contains("/after"), "{old}");
    assert!(current.contains("\"GET /after ") && !current.contains("/before"), "{current}");
    Ok(())
}

#[tokio::test]
async fn a_reload_changes_the_log_file_unless_it_cannot_be_opened() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let with = |name: &str| {
        let top = format!("access_log = \"common\"\n[access]\nfile = \"{name}\"");
        crate::world::serving(&origin.url(), &top, "")
    };
    let file = ConfigFile::of(&with("one.log"))?;
    let cache = file.serve().await?;
    file.rewrite(&with("missing/two.log"))?;
    cache.signal(Signal::Hup).await?;
    cache.wait_stderr("the previous one stays in effect: log file").await?;
    get(&cache, "/one").await?;
    wait_logged(&file.folder.path().join("one.log"), "/one").await?;
    file.rewrite(&with("two.log"))?;
    cache.signal(Signal::Hup).await?;
    cache.wait_stderr("configuration reloaded").await?;
    get(&cache, "/two").await?;
    end(cache, Signal::Term).await?;
    let read = |name: &str| std::fs::read_to_string(file.folder.path().join(name));
    let (one, two) = (read("one.log")?, read("two.log")?);
    assert!(one.contains("/one") && !one.contains("/two"), "{one}");
    assert!(two.contains("/two") && !two.contains("/one"), "{two}");
    Ok(())
}

/// Next notification of a process.
async fn notification(socket: &UnixDatagram) -> anyhow::Result<String> {
    let mut bytes = [0; 512];
    let length = tokio::time::timeout(NOTIFICATION_MAX, socket.recv(&mut bytes)).await??;
    Ok(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
}

/// Reads notifications until one begins with `expected`; others but the watchdog's are an error.
async fn wait_notification(socket: &UnixDatagram, expected: &str) -> anyhow::Result<()> {
    loop {
        let text = notification(socket).await?;
        if text.starts_with(expected) {
            return Ok(());
        }
        anyhow::ensure!(text == "WATCHDOG=1", "{text:?} instead of {expected}");
    }
}

#[tokio::test]
async fn the_service_manager_is_notified() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "", "")?;
    let path = file.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path)?;
    let cache = forebay(["serve", "--config"]).args([&file.path]);
    let cache = cache.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000").start().await?;
    wait_notification(&socket, "READY=1").await?;
    wait_notification(&socket, "WATCHDOG=1").await?;
    cache.signal(Signal::Hup).await?;
    wait_notification(&socket, "RELOADING=1\nMONOTONIC_USEC=").await?;
    wait_notification(&socket, "READY=1").await?;
    cache.signal(Signal::Term).await?;
    wait_notification(&socket, "STOPPING=1").await?;
    Ok(())
}

/// Cache with a listener on the sockets named `web`; `passed` is the only one, if there is one.
pub(crate) fn activated(origin: &str, passed: Option<&TcpListener>) -> anyhow::Result<Launch> {
    let text = format!(
        "admin = \"127.0.0.1:0\"\n[[listener]]\naddress = \"fd:web\"\n\
         [[site]]\nid = \"shop\"\norigin = \"{origin}\"\n"
    );
    let launch = forebay(["serve"]).config(&text)?;
    let Some(listener) = passed else { return Ok(launch) };
    // The process inherits the descriptor under its number.
    fcntl_setfd(listener, FdFlags::empty())?;
    let first = listener.as_raw_fd().to_string();
    let launch = launch.env("LISTEN_FDS", "1").env("LISTEN_FDS_FIRST_FD", first);
    Ok(launch.env("LISTEN_FDNAMES", "web"))
}

/// Number of restarts on one inherited socket.
const RESTARTS: usize = 5;

#[tokio::test]
async fn a_restart_on_an_inherited_socket_refuses_nobody() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    for _ in 0..RESTARTS {
        // Nothing runs, and the connection waits.
        let mut client = Client::connect(address).await?;
        client.send(&Request::get("/")).await?;
        let cache: Launched = activated(&origin.url(), Some(&listener))?.start().await?;
        assert_eq!((cache.address(), client.reply().await?.status), (address, 200));
        end(cache, Signal::Term).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_socket_that_was_not_passed_is_an_error_with_the_names() -> anyhow::Result<()> {
    let none = activated("http://o", None)?.finish().await?;
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let error = none.stderr.join("\n");
    assert!(error.contains("passed no socket named \"web\" and no other one"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let other = activated("http://o", Some(&listener))?.env("LISTEN_FDNAMES", "https");
    let error = other.finish().await?.stderr.join("\n");
    assert!(error.contains("no socket named \"web\"; it passed \"https\""), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_version_and_the_metrics_name_the_commit() -> anyhow::Result<()> {
    let version = forebay(["--version"]).finish().await?.stdout.join("\n");
    let commit = version.rsplit(['(', ')']).nth(1).unwrap_or_default().to_owned();
    assert!(commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{version}");
    let origin = fresh_origin().await?;
    let cache = crate::world::serve(&origin).await?;
    let metrics = get_admin(&cache, "/metrics").await?.text().to_string();
    assert!(metrics.contains(&format!("commit=\"{commit}\"")), "{version}");
    end(cache, Signal::Term).await
}

#[tokio::test]
async fn completions_and_manual_pages_name_every_command() -> anyhow::Result<()> {
    for shell in ["bash", "fish", "zsh"] {
        let script = forebay(["completions", shell]).finish().await?;
        let text = script.stdout.join("\n");
        assert!(script.status.success(), "{shell}");
        assert!(text.contains("purge") && text.contains("disk-size"), "{shell}");
    }
    let folder = tempfile::tempdir()?;
    let written = forebay(["manual"]).args([folder.path()]).finish().await?;
    assert!(written.status.success(), "{written:?}");
    let page = std::fs::read_to_string(folder.path().join("forebay-serve.1"))?;
    assert!(page.contains("FOREBAY_MEMORY"), "{page}");
    Ok(())
}
