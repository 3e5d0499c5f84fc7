//! Runs every file in `tests/scenarios/`.
//!
//! `SCENARIO=c01 cargo test -p forebay-http --test it scenario` runs the scenarios whose names
//! start with `c01`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_testkit::scenario::run_file;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::carriers::Carrier;
use crate::server::{TestServers, in_scenario_form};

/// Number of concurrent scenarios, so that those that wait for a timeout do not wait in turn.
const AT_ONCE: usize = 4;

/// Letters of the scenario groups.
const GROUPS: &str = "cvfsuhimery";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds() -> anyhow::Result<()> {
    hold(&[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_without_direct_hits() -> anyhow::Result<()> {
    hold(&[("direct_hits", "false")]).await
}

/// Scenarios that cannot run over HTTP/2, by the beginning of their names, with the reason.
const NOT_OVER_HTTP2: &[(&str, &str)] = &[
    ("h07", "HTTP/1.0 clients, and chunked bodies"),
    ("h09", "a malformed HTTP/1 head between pipelined ones; h25 has the order of responses"),
    ("h16", "Upgrade, which HTTP/2 does not have (RFC 9113 section 8.2.2)"),
    ("h18", "targets in forms that `:path` and `:scheme` cannot have"),
    ("h20", "ambiguous framing and `Connection: close` of HTTP/1; h25 has a refusal over HTTP/2"),
    ("h21", "interim responses: hyper cannot send 103 over HTTP/2"),
    ("h23", "HTTP/1.0 requests without Host"),
    ("h26", "interim responses, as h21"),
    ("h24", "user information is an error of the stream, not a response"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_over_tls() -> anyhow::Result<()> {
    hold_except(&[], Carrier::Tls, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_over_http2() -> anyhow::Result<()> {
    hold_except(&[], Carrier::Http2, NOT_OVER_HTTP2).await
}

async fn hold(settings: &[(&str, &str)]) -> anyhow::Result<()> {
    hold_except(settings, Carrier::Direct, &[]).await
}

async fn hold_except(
    settings: &[(&str, &str)],
    carrier: Carrier,
    except: &[(&str, &str)],
) -> anyhow::Result<()> {
    let servers = Arc::new(TestServers { settings: in_scenario_form(settings), carrier });
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    let files = scenario_files()?;
    let is_left_out = |name: &str| except.iter().any(|(start, _)| name.starts_with(start));
    let files = files.into_iter().filter(|file| !is_left_out(&name(file)));
    for file in files.filter(|file| name(file).starts_with(&wanted)) {
        let permit = permits.clone().acquire_owned().await?;
        let servers = servers.clone();
        running.spawn(async move {
            let outcome = run_file(&file, &*servers).await;
            drop(permit);
            outcome
        });
    }
    let ran = running.len();
    let outcomes = running.join_all().await;
    let failures: Vec<String> =
        outcomes.into_iter().filter_map(|outcome| Some(outcome.err()?.to_string())).collect();
    let failed = failures.len();
    assert!(failures.is_empty(), "{failed} of {ran} failed:\n{}", failures.join("\n"));
    assert!(ran > 0, "no scenario is called {wanted}…");
    Ok(())
}

#[test]
fn scenario_files_are_named_by_group_number_and_words() -> anyhow::Result<()> {
    for file in scenario_files()? {
        let name = name(&file);
        let (mark, words) = name.split_once('-').unwrap_or((&name, ""));
        let is_mark = mark.len() == 3
            && mark.starts_with(|letter| GROUPS.contains(letter))
            && mark[1..].bytes().all(|digit| digit.is_ascii_digit());
        assert!(is_mark && !words.is_empty(), "{name}: expected such as c01-some-words.scn");
    }
    Ok(())
}

fn scenario_files() -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files = Vec::new();
    for found in std::fs::read_dir(folder)? {
        files.extend(Some(found?.path()).filter(|path| path.extension() == Some("scn".as_ref())));
    }
    files.sort();
    Ok(files)
}

fn name(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
