//! `forebay tail`: prints the responses of a running cache as they end.

use anyhow::{Context, bail};
use http::StatusCode;
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::admin_client::{self, AdminClient, sentence};
use crate::args::TailArgs;
use crate::output::{print_error, print_line};

/// Maximum size of an event in bytes: a line of the access log.
const EVENT_MAX: usize = 64 << 10;

/// Maximum size of an error answer in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Prints lines until the cache stops, or `--lines` are printed.
///
/// # Errors
/// If the cache cannot be reached, refuses the expression, or ends the stream.
pub(crate) fn run(args: &TailArgs) -> anyhow::Result<u8> {
    let client = AdminClient::new(&args.admin)?;
    admin_client::run(async {
        let selection = args.selection.as_deref().unwrap_or_default();
        let selection = utf8_percent_encode(selection, NON_ALPHANUMERIC);
        let path = format!("/tail?where={selection}&format={}", args.format.name());
        let response = client.stream(&path).await?;
        let (status, mut body) = (response.status(), response.into_body());
        if status != StatusCode::OK {
            let answer = http_body_util::Limited::new(body, ANSWER_MAX).collect().await;
            let answer = answer.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            bail!("{} sends no lines ({status}). {}", client.url(), sentence(&answer));
        }
        let (mut pending, mut printed) = (Vec::new(), 0_u64);
        while let Some(frame) = body.frame().await {
            let frame = frame.with_context(|| format!("the stream of {} broke", client.url()))?;
            let Ok(piece) = frame.into_data() else { continue };
            pending.extend_from_slice(&piece);
            while let Some(end) = pending.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = pending.drain(..end + 2).collect();
                printed += print(&String::from_utf8_lossy(&event));
                if args.lines.is_some_and(|lines| printed >= lines) {
                    return Ok(0);
                }
            }
            if pending.len() > EVENT_MAX {
                bail!("an event of {} is longer than {EVENT_MAX} bytes", client.url());
            }
        }
        bail!("{} ended the stream", client.url())
    })
}

/// Prints an event; returns the number of printed lines of responses.
fn print(event: &str) -> u64 {
    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
    match data {
        Some(skipped) if event.starts_with("event: skipped") => {
            print_error(format_args!("forebay: {skipped} lines were skipped: they came too fast"));
            0
        }
        Some(line) => {
            print_line(format_args!("{line}"));
            1
        }
        None => 0,
    }
}
