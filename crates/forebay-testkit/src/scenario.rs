//! Scenario files (`.scn`): the bug report format.
//!
//! A scenario starts origins, forebays in front of them, and clients that run at the same time. It
//! synchronizes at barriers instead of sleeping, and its last block asserts on counters. Every wait
//! is limited to 10 s. Every failure names the file, the line, the expected and the actual value.
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
//!     fetch_timeout = "2s"        # passed to the front end unchanged
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
//! except between double quotes. Indentation has no meaning. Quoted text may contain
//! `\r \n \t \0 \\ \" \xNN`.
//!
//! An **origin** block is a list of exchanges. Each has `expect METHOD TARGET` or `expect any`; then
//! any of `await NAME`, `signal NAME`, `delay TIME`, `interim STATUS`; then the answer; then
//! optionally `repeat N` (N times in all) or `repeat forever` (the last exchange only).
//! Below `expect` come fields (`Name: value`), `header NAME …` checks and `body "…"`. The answer
//! is `answer STATUS`, `hang`, `close`, `reset` or `raw "…"`. Below `answer` come fields,
//! `body "…"`, `body-size N` (a fixed pattern), `chunked`, `until-close`, `as-given`, `http-1.0`,
//! `trailer Name: value`, `drip PIECES PAUSE`, `hold OFFSET NAME` (the body from that offset waits
//! at the barrier), `truncate OFFSET [reset]`.
//!
//! A **client** block is a list of steps on one connection. With `times N`, N clients run it. A
//! client may connect to an origin instead of a forebay.
//!
//! | step | meaning |
//! |---|---|
//! | `send METHOD TARGET` | sends a request, with fields, `body "…"`, `chunked`, `no-host` below it |
//! | `send-raw "…"` | sends bytes unchanged |
//! | `expect STATUS` | reads the next whole response, which must end cleanly |
//! | `expect head STATUS` | reads the head of the next response only |
//! | `expect version VERSION` | asserts the HTTP version of the last response, such as `1.1` |
//! | `expect interim STATUS` | asserts such a response before the last one |
//! | `expect interim none` | asserts that there was no interim response |
//! | `expect header NAME present`, `absent`, `= V`, `contains "…"`, `lacks "…"`, `>= N`, `<= N` | |
//! | `expect trailer NAME …` | checks trailers like header fields |
//! | `expect body "…"`, `body-size N`, `body-length N` | the whole body, ended cleanly |
//! | `expect body-begins "…"` | reads only as much of the body as needed |
//! | `expect truncated` | the body was truncated |
//! | `expect closed` | the connection ends without another byte |
//! | `close`, `reset`, `reconnect` | closes the connection; resets it; closes it and opens a new one |
//! | `await NAME`, `signal NAME` | waits at a barrier; arrives at it |
//! | `wait-origin NAME N` | waits until the origin has received N requests |
//! | `shut ORIGIN` | stops the origin: its connections end, and new ones are refused |
//! | `wait-metric FOREBAY NAME{…} OP N` | waits until the counter satisfies the comparison |
//! | `advance TIME` | steps the clock of front ends that have one |
//!
//! `${scheme}` is `http` or `https`, the scheme of the clients' connections; `${other-scheme}` is the
//! other one, and `${port}` the default port of the scheme.
//!
//! A signal after a `send` means that the request was sent, not that it arrived. To know that, let
//! the origin signal, or wait for a counter of the origin or the forebay.
//!
//! The **after** block runs when all clients have ended: `expect ORIGIN COUNT [PATH] OP N` with
//! COUNT one of `requests`, `conditional`, `connections`, `in-flight`, `in-flight-max`,
//! `abandoned`; `expect FOREBAY metric NAME{LABEL="…"} OP N`, which sums
//! every sample with these labels. OP is one of `= != >= <= > <`. All counters together get two
//! seconds to reach their values. A metric without any sample and without a `# TYPE` line is a
//! failure, not 0, so that a misspelled name cannot pass.

mod check;
mod client;
mod counter;
mod date;
mod front;
mod gates;
mod line;
mod metrics;
mod origin;
mod parse;
mod run;

pub use front::{Front, Running, Scheme, Setting};
pub(crate) use metrics::Selector;

use std::path::Path;

use anyhow::Context as _;

/// Failed expectation or syntax error at a line of a scenario.
#[derive(Clone, Debug)]
struct Fault {
    /// Line number from 1; 0 for the file as a whole.
    line: usize,
    /// Expected and actual value.
    what: String,
}

impl Fault {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// Runs one scenario file against a front end.
///
/// # Errors
/// Every failed expectation as `file:line: what`, the most likely cause first.
pub async fn run_file<F: Front>(path: impl AsRef<Path>, front: &F) -> anyhow::Result<()> {
    let path = path.as_ref().display();
    let text = std::fs::read_to_string(path.to_string()).with_context(|| path.to_string())?;
    let text = front.scheme().expand(&text);
    // The clients are tasks that share the text, so it lives as long as the process.
    let outcome = match parse::parse(text.leak()) {
        Ok(script) => run::run(script, front).await,
        Err(fault) => Err(vec![fault]),
    };
    let shown = |fault: Fault| match fault.line {
        0 => format!("{path}: {}", fault.what),
        line => format!("{path}:{line}: {}", fault.what),
    };
    outcome.map_err(|faults| {
        anyhow::Error::msg(faults.into_iter().map(shown).collect::<Vec<_>>().join("\n"))
    })
}

#[cfg(test)]
mod tests;
