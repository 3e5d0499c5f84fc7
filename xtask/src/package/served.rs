//! Proof that an installed binary serves: its demo answers a request, then a hit.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::succeed;
use crate::background::Background;
use crate::needs;

/// Maximum time for the demo to be ready. A machine that builds at the same time is slow.
const READY_MAX: Duration = Duration::from_secs(30);

/// Flags of a demo on ports that the system chooses.
pub(super) const DEMO: [&str; 6] =
    ["serve", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// Starts `command`, which must run the demo with [`DEMO`], and requests one page twice: the second
/// response must be a hit. The output goes to the file `log`.
pub(super) fn demo_answers_a_hit(command: &mut Command, log: &Path) -> Result<String> {
    let mut demo = Background::start("forebay serve --demo", command, log)?;
    let address = demo.wait_for(READY_MAX, |line| {
        let rest = line.strip_prefix("forebay ready: ")?;
        rest.split(' ').next().map(str::to_owned)
    })?;
    let page = format!("{address}/items/hello");
    fetch(&page)?;
    let second = fetch(&page)?;
    let status = second.lines().find(|line| line.starts_with("cache-status:"));
    let status = status.with_context(|| format!("no Cache-Status in {second}"))?.trim().to_owned();
    ensure!(status.contains("forebay; hit"), "the second response is no hit: {status}");
    let ended = demo.stop()?;
    ensure!(ended.success(), "the demo ended with {ended}");
    Ok(status)
}

fn fetch(url: &str) -> Result<String> {
    succeed(Command::new(needs::find("curl")?).args(["-sSi", "--fail", "--max-time", "10", url]))
}
