//! `forebay plan`: hit ratios for sizes of memory and lifetimes, from access logs.
//!
//! The requests of the logs go through models of the memory tier. A first pass estimates the number of
//! URLs; above [`KEYS_MAX`], only a share of them is modelled, in memory of the same share.

mod model;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args as Group;
use serde::Serialize;

use crate::config::units::{ShortSize, parse_duration, parse_size};
use crate::log_line::LogLine;
use crate::output::print_line;
use model::{Keys, Model, Request, whole};

/// Maximum number of URLs that are modelled.
const KEYS_MAX: u64 = 100_000;

/// Sizes without `--sizes`.
const SIZES: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 4 << 30];

/// Maximum number of sizes; each is a model of its own.
const SIZES_MAX: usize = 8;

/// Factors of the lifetime, with the last of the sizes.
const LIFETIME_FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// Maximum length of a line that is read, in bytes.
const LINE_MAX: u64 = 64 << 10;

/// Arguments of `plan`.
#[derive(Debug, Group)]
pub(crate) struct PlanArgs {
    /// Access log: JSON or logfmt of forebay, common, combined (also of nginx), or JSON of Caddy.
    /// Several files are read in this order.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    log: Vec<PathBuf>,
    /// Sizes of memory, separated by commas [default: 64MiB,256MiB,1GiB,4GiB].
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    sizes: Vec<String>,
    /// Lifetime of every response; without it, responses do not expire.
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Result of one model.
#[derive(Debug, Serialize)]
struct Row {
    size: u64,
    /// Lifetime in seconds; absent if responses do not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<f64>,
    /// Share of requests that are hits, from 0 to 1.
    hit_ratio: f64,
    /// Requests to the origin per second, on average.
    origin_per_second: f64,
    /// Requests to the origin per second in the minute with most of them.
    origin_per_second_peak: f64,
    /// Bytes from the origin per second, on average.
    origin_bytes_per_second: f64,
}

/// Results for a log.
#[derive(Debug, Serialize)]
struct Plan {
    /// Requests in the log.
    requests: u64,
    /// Lines that are no request.
    unusable: u64,
    /// Estimated number of URLs.
    urls: u64,
    /// Share of the URLs that were modelled.
    modelled: f64,
    /// Seconds from the first request to the last.
    seconds: f64,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// If a value is malformed, or a file cannot be read or has no request.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<u8> {
    let plan = plan(args)?;
    if args.json {
        print_line(format_args!("{}", serde_json::to_string_pretty(&plan)?));
    } else {
        print_line(format_args!("{}", table(&plan)));
    }
    Ok(0)
}

fn plan(args: &PlanArgs) -> anyhow::Result<Plan> {
    let sizes = sizes(&args.sizes)?;
    let lifetime = args
        .ttl
        .as_deref()
        .map(|ttl| parse_duration(ttl).map_err(|error| anyhow::anyhow!("--ttl \"{ttl}\" {error}")));
    let lifetime = lifetime.transpose()?;
    let mut keys = Keys::default();
    let unusable = each_request(&args.log, |request| keys.add(&request))?;
    if keys.requests() == 0 {
        let files: Vec<_> = args.log.iter().map(|file| file.display().to_string()).collect();
        bail!(
            "no request found in {}: expected JSON, logfmt, common or combined lines; {unusable} \
             lines are none of these",
            files.join(", ")
        );
    }
    let share = (KEYS_MAX as f64 / keys.distinct().max(1) as f64).min(1.0);
    let mut models: Vec<Model> =
        sizes.iter().map(|size| Model::new(*size, lifetime, share)).collect();
    let largest = sizes.last().copied().unwrap_or_default();
    let factors = lifetime.into_iter().flat_map(|lifetime| {
        LIFETIME_FACTORS
            .into_iter()
            .filter(|factor| *factor != 1.0)
            .map(move |f| lifetime.mul_f64(f))
    });
    models.extend(factors.map(|lifetime| Model::new(largest, Some(lifetime), share)));
    each_request(&args.log, |request| {
        models.iter_mut().for_each(|model| model.request(&request));
    })?;
    let seconds = keys.span().as_secs_f64();
    let rows = models.iter().map(|model| row(model, &keys));
    let requests = keys.requests();
    Ok(Plan {
        requests,
        unusable,
        urls: keys.distinct(),
        modelled: share,
        seconds,
        rows: rows.collect(),
    })
}

fn row(model: &Model, keys: &Keys) -> Row {
    // A log of one moment has no rate.
    let seconds = keys.span().as_secs_f64().max(1.0);
    let ratio = model.hit_ratio(keys.requests());
    let misses = (1.0 - ratio) * keys.requests() as f64;
    Row {
        size: model.size(),
        lifetime: model.lifetime().map(|lifetime| lifetime.as_secs_f64()),
        hit_ratio: ratio,
        origin_per_second: misses / seconds,
        origin_per_second_peak: model.peak_per_second(),
        origin_bytes_per_second: model.origin_bytes() / seconds,
    }
}

fn sizes(given: &[String]) -> anyhow::Result<Vec<u64>> {
    if given.is_empty() {
        return Ok(SIZES.to_vec());
    }
    if given.len() > SIZES_MAX {
        bail!("--sizes has {} sizes; the maximum is {SIZES_MAX}", given.len());
    }
    let size = |text: &String| {
        parse_size(text).map_err(|error| anyhow::anyhow!("--sizes \"{text}\" {error}"))
    };
    let mut sizes = given.iter().map(size).collect::<anyhow::Result<Vec<_>>>()?;
    sizes.sort_unstable();
    Ok(sizes)
}

/// Calls `add` with each request of the files, and returns the number of other lines.
fn each_request(files: &[PathBuf], mut add: impl FnMut(Request)) -> anyhow::Result<u64> {
    let mut unusable = 0;
    for file in files {
        let opened = std::fs::File::open(file).with_context(|| cannot_read(file))?;
        let mut reader = BufReader::new(opened);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = std::io::Read::take(&mut reader, LINE_MAX);
            if limited.read_until(b'\n', &mut line).with_context(|| cannot_read(file))? == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            match LogLine::parse(text.trim()) {
                Some(line) => add(Request::of(&line)),
                None if text.trim().is_empty() => {}
                None => unusable += 1,
            }
        }
    }
    Ok(unusable)
}

fn cannot_read(file: &Path) -> String {
    format!("log {} cannot be read", file.display())
}

fn table(plan: &Plan) -> String {
    let mut text = format!("{} requests for about {} URLs", plan.requests, plan.urls);
    // Writing to a string cannot fail.
    let _ = write!(text, " in {:.0} s", plan.seconds);
    if plan.modelled < 1.0 {
        let _ = write!(text, ", {:.1} % of the URLs modelled", plan.modelled * 100.0);
    }
    if plan.unusable > 0 {
        let _ = write!(text, "; {} lines are no request", plan.unusable);
    }
    let _ = write!(
        text,
        "\n\n{:>10} {:>10} {:>7} {:>14} {:>14} {:>16}",
        "memory", "lifetime", "hits", "origin req/s", "peak minute", "origin bytes/s"
    );
    for row in &plan.rows {
        let lifetime = row.lifetime.map_or_else(|| "-".to_owned(), |it| format!("{it} s"));
        let bytes = ShortSize(whole(row.origin_bytes_per_second) >> 10 << 10).to_string();
        let _ = write!(
            text,
            "\n{:>10} {lifetime:>10} {:>5.1} % {:>14.2} {:>14.2} {bytes:>16}",
            ShortSize(row.size).to_string(),
            row.hit_ratio * 100.0,
            row.origin_per_second,
            row.origin_per_second_peak,
        );
    }
    text
}
