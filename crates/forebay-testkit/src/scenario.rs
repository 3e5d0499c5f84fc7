//! Scenario files (`.scn`): the format of a bug report.
//!
//! A scenario starts origins, forebays in front of them, and clients that run at the same time; it
//! meets at barriers instead of sleeping, and its last block asserts on counters. Every wait is
//! bounded (10 s), and every failure names the file, the line, what was expected and what came.
//!
//! ```text
//! # Two clients, one slow origin, one fetch
//! barrier both-sent 2             # opens at the second signal; undeclared ones at the first
//!
//! origin o1 {
//!     expect GET /a               # requests must match in their order of arrival
//!         header via present
//!     await both-sent
//!     answer 200
//!         Cache-Control: max-age=60
//!         Date: ${now-5s}         # an HTTP date, by the clock of the forebay
//!         body "hello"
//! }
//! forebay f1 -> o1 {
//!     fetch_timeout = "2s"        # handed to the front as it stands
//! }
//! client c1 -> f1 times 2 {
//!     send GET /a
//!     signal both-sent
//!     expect 200
//!     expect header cache-status present
//!     expect body "hello"
//! }
//! after {
//!     expect o1 requests = 1
//!     expect f1 metric forebay_requests_total{site="default"} = 2
//! }
//! ```
//!
//! The first line is the title. A `#` at the start of a line or after a space begins a comment,
//! except between double quotes. Indentation is free. Quoted text knows `\r \n \t \0 \\ \" \xNN`.
//!
//! An **origin** block is a list of exchanges, each: `expect METHOD TARGET` or `expect any`; then
//! any of `await NAME`, `signal NAME`, `delay TIME`, `interim STATUS`; then the answer; then maybe
//! `repeat N` (played N times in all) or `repeat forever` (the last exchange only).
//! Under `expect` stand fields (`Name: value`), `header NAME …` checks and `body "…"`. The answer
//! is `answer STATUS`, `hang`, `close`, `reset` or `raw "…"`. Under `answer` stand fields,
//! `body "…"`, `body-size N` (a fixed pattern), `chunked`, `until-close`, `as-given`, `http-1.0`,
//! `trailer Name: value`, `drip PIECES PAUSE`, `hold OFFSET NAME` (the body from that offset waits
//! at the barrier), `truncate OFFSET [reset]`.
//!
//! A **client** block is a list of steps on one connection. It may be played by several clients
//! (`times N`), and may face an origin instead of a forebay.
//!
//! | step | meaning |
//! |---|---|
//! | `send METHOD TARGET` | with fields, `body "…"`, `chunked`, `no-host` under it |
//! | `send-raw "…"` | bytes as they are |
//! | `expect STATUS` | reads the next reply to its end, which must be a clean one |
//! | `expect head STATUS` | reads the next reply's head only |
//! | `expect interim STATUS` | such a response came before the last reply |
//! | `expect interim none` | no interim response did |
//! | `expect header NAME present`, `absent`, `= V`, `contains "…"`, `lacks "…"`, `>= N`, `<= N` | |
//! | `expect trailer NAME …` | the same of trailers |
//! | `expect body "…"`, `body-size N`, `body-length N` | the whole body, ended cleanly |
//! | `expect body-begins "…"` | reads no further than needed |
//! | `expect truncated` | the body broke off |
//! | `expect closed` | the connection ends without another byte |
//! | `close`, `reconnect` | hangs up; hangs up and connects anew |
//! | `await NAME`, `signal NAME` | waits at a barrier; counts at it |
//! | `wait-origin NAME N` | until that origin has seen N requests |
//! | `shut ORIGIN` | it goes away: its connections end, and new ones are refused |
//! | `wait-metric FOREBAY NAME{…} OP N` | until that counter is so |
//! | `advance TIME` | steps the clock, where the front has one |
//!
//! A signal after a `send` says that the request is on its way, not that it has arrived. To know
//! that, let the origin signal, or wait for the origin's or the forebay's counter.
//!
//! The **after** block runs when all clients are done: `expect ORIGIN COUNT [PATH] OP N` with
//! COUNT one of `requests`, `conditional`, `connections`, `in-flight`, `in-flight-max`,
//! `abandoned`, `broken-off`, `malformed`; `expect FOREBAY metric NAME{LABEL="…"} OP N`, which sums
//! every sample that has these labels. OP is one of `= != >= <= > <`. Counters that are not there
//! yet get two seconds, all together, to arrive; a metric without any sample and without a
//! `# TYPE` line is not 0 but a failure, so that a misspelt name cannot hold.

mod date;
mod failure;
mod front;
mod line;
mod metrics;
mod parse;
mod run;
mod script;

pub use failure::{Failure, Failures, Fault};
pub use front::{Front, Running, Setting};

use std::path::{Path, PathBuf};

/// Runs one scenario file against a front.
pub async fn run_file<F: Front>(path: impl AsRef<Path>, front: &F) -> Result<(), Failure> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
    run_text(path, &text, front).await
}

/// Runs a scenario's text; `name` stands where the path of a file would.
pub async fn run_text<F: Front>(
    name: impl AsRef<Path>,
    text: &str,
    front: &F,
) -> Result<(), Failure> {
    let script = parse::parse(text).map_err(|fault| Failure::new(name.as_ref(), vec![fault]))?;
    run::run(script, front).await.map_err(|faults| Failure::new(name.as_ref(), faults))
}

/// Runs every `.scn` file of a folder in the order of their names, prints a line for each, and
/// returns how many there were. A folder without any is a failure.
#[expect(clippy::print_stdout, reason = "the list of scenarios that ran")]
pub async fn run_folder<F: Front>(folder: impl AsRef<Path>, front: &F) -> Result<usize, Failures> {
    let folder = folder.as_ref();
    let files = scenario_files(folder).map_err(|error| Failures::of_folder(folder, &error))?;
    let mut failures = Vec::new();
    for file in &files {
        let outcome = run_file(file, front).await;
        let verdict = if outcome.is_ok() { "ok    " } else { "FAILED" };
        println!("{verdict} {}", file.display());
        failures.extend(outcome.err());
    }
    if failures.is_empty() { Ok(files.len()) } else { Err(Failures(failures)) }
}

fn scenario_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for found in std::fs::read_dir(folder)? {
        let path = found?.path();
        if path.extension().is_some_and(|extension| extension == "scn") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(std::io::Error::other("no .scn file in this folder"));
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
