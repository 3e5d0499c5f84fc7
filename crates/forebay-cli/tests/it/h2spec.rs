//! h2spec, a conformance suite for HTTP/2: `cargo xtask soak h2spec` installs it and runs this test.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::tls::Authority;
use crate::world::{ConfigFile, fresh_origin, nowhere};

/// Variable with the folder of h2spec.
const TOOLS: &str = "FOREBAY_TOOLS";

/// Number of cases, with those of the strict mode.
const CASES: usize = 146;

/// Cases depend on which of two frames arrives first, so that a case may fail once.
const RUNS: usize = 3;

/// Case that fails on a cleartext listener: a preface that is not one of HTTP/2 begins an HTTP/1.1
/// connection there.
const PREFACE: &str = "2: Sends invalid connection preface";

/// Runs all cases; returns those that failed.
async fn failures(address: SocketAddr, more: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let tools = std::env::var(TOOLS).context("use `cargo xtask soak h2spec`")?;
    let mut command = Command::new(Path::new(&tools).join("h2spec"));
    command.args(["--strict", "--host", &address.ip().to_string()]).args(more);
    let output = command.args(["--port", &address.port().to_string()]).output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let cases = format!("{CASES} tests, ");
    ensure!(text.contains(&cases), "h2spec printed\n{text}");
    let listed = text.split_once("Failures:").map_or("", |(_, listed)| listed);
    let failed = listed.lines().filter_map(|line| line.trim().strip_prefix("× "));
    let failed: BTreeSet<_> = failed.map(str::to_owned).collect();
    let passed = format!("{} passed, ", CASES - failed.len());
    ensure!(text.contains(&passed), "h2spec printed\n{text}");
    Ok(failed)
}

#[tokio::test]
#[ignore = "needs h2spec: cargo xtask soak h2spec"]
async fn h2spec_finds_no_violation_twice() -> anyhow::Result<()> {
    let (origin, https) = (fresh_origin().await?, nowhere()?);
    let file = ConfigFile::serving(
        &origin.url(),
        &format!("[tls]\nlisten = \"{https}\"\ncertificate = \"a.pem\"\nkey = \"a.key\""),
        "",
    )?;
    Authority::new("test")?.write(file.folder.path(), "a", &["localhost"])?;
    let cache = file.serve().await?;
    let listeners: [(_, &[&str], _); 2] =
        [(https, &["--tls", "--insecure"], None), (cache.address(), &[], Some(PREFACE))];
    for (address, arguments, known) in listeners {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let mut failed = failures(address, arguments).await?;
            known.iter().for_each(|known| _ = failed.remove(*known));
            assert!(failed.len() <= 1, "{address}: {failed:?}");
            runs.push(failed);
        }
        let always = runs.iter().skip(1).fold(runs[0].clone(), |all, failed| &all & failed);
        assert!(always.is_empty(), "{address} in each run: {always:?}");
    }
    Ok(())
}
