//! `forebay top`: prints the most frequent URLs, tags and clients of a running cache.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use anyhow::{Context, bail};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::admin_client::{self, AdminClient, sentence};
use crate::args::TopArgs;
use crate::live::TopReport;
use crate::output::print_line;

/// Maximum size of the answer in bytes.
const ANSWER_MAX: usize = 4 << 20;

/// Sequence that clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the lists: once, or again and again on a terminal.
///
/// # Errors
/// If the cache cannot be reached, or refuses.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let client = AdminClient::new(&args.admin)?;
    let is_live = !args.once && !args.json && std::io::stdout().is_terminal();
    let interval = Duration::from_secs(args.seconds);
    admin_client::run(async {
        // The cache begins to count requests when it is asked.
        let mut answer = ask(&client).await?;
        loop {
            if is_live || count(&answer)? == 0 {
                tokio::time::sleep(interval).await;
                answer = ask(&client).await?;
            }
            if args.json {
                print_line(format_args!("{}", serde_json::to_string_pretty(&answer)?));
                return Ok(0);
            }
            let text = text(&report(&answer)?, args.rows);
            if !is_live {
                print_line(format_args!("{}", text.trim_end()));
                return Ok(0);
            }
            write!(std::io::stdout(), "{CLEAR}{text}")?;
            std::io::stdout().flush()?;
        }
    })
}

async fn ask(client: &AdminClient) -> anyhow::Result<Value> {
    let (status, body) = client.ask(Method::GET, "/top", None, ANSWER_MAX).await?;
    if status != StatusCode::OK {
        bail!("{} sends no lists ({status}). {}", client.url(), sentence(&body));
    }
    serde_json::from_slice(&body).with_context(|| format!("the answer of {}", client.url()))
}

fn report(answer: &Value) -> anyhow::Result<TopReport> {
    let report = serde_json::from_value(answer.clone());
    report.context("the answer is of another version of forebay")
}

fn count(answer: &Value) -> anyhow::Result<u64> {
    Ok(report(answer)?.responses)
}

/// Returns the lists as text.
fn text(report: &TopReport, rows_max: usize) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} responses in {:.0} s", report.responses, report.request_seconds);
    if report.dropped > 0 {
        let _ = writeln!(text, "{} responses or loads were not counted", report.dropped);
    }
    for (site, row) in &report.origins {
        let (average, longest) = (row.average_seconds * 1e3, row.longest_seconds * 1e3);
        let loads = row.loads;
        let _ = writeln!(
            text,
            "origin of {site}: {loads} loads, average {average:.1} ms, longest {longest:.1} ms"
        );
    }
    for name in crate::live::LISTS {
        let rows = report.lists.get(name).map_or(&[][..], Vec::as_slice);
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{name}");
        for row in rows.iter().take(rows_max) {
            let precision = if name == "load_seconds" { 3 } else { 0 };
            let shown: String = row.name.chars().filter(|letter| !letter.is_control()).collect();
            let _ = writeln!(text, "{:>12.precision$}  {shown}", row.count);
        }
    }
    text
}
