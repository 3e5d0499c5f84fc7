//! The load: wrk, on a core of its own, and what it says in the end.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::cpu::Cores;
use crate::{needs, process};

/// Enough to keep a one-core server busy, few enough that none waits long.
const CONNECTIONS: u32 = 32;
/// How much longer than asked wrk may take: it first opens its connections.
const SLACK: Duration = Duration::from_secs(20);

/// What came of one run of wrk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) requests: f64,
    pub(super) seconds: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Asks for `url` as often as can be for some seconds; any answer but a good one is a failure.
pub(super) fn run(url: &str, seconds: u32, cores: Cores) -> Result<Load> {
    let mut command = Command::new(needs::find("taskset")?);
    command
        .args(["-c", &cores.load.to_string()])
        .arg(needs::find("wrk")?)
        .args(["--threads", "1", "--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{seconds}s"), "--latency", url]);
    let limit = Duration::from_secs(seconds.into()) + SLACK;
    let captured = process::capture(&mut command, limit)?;
    let ended_well = captured.status.is_some_and(|status| status.success());
    ensure!(ended_well, "wrk against {url} failed:\n{}", captured.text);
    parse(&captured.text).with_context(|| format!("wrk against {url} said\n{}", captured.text))
}

fn parse(text: &str) -> Result<Load> {
    for complaint in ["Non-2xx or 3xx responses", "Socket errors"] {
        if text.contains(complaint) {
            bail!("{complaint} are no hits");
        }
    }
    let (requests, rest) = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .context("no count of requests")?;
    let span = rest.split(',').next().and_then(microseconds).context("no time")?;
    let percentile = |name: &str| {
        let found = text.lines().find_map(|line| microseconds(line.trim().strip_prefix(name)?));
        found.with_context(|| format!("no percentile {name}"))
    };
    let requests: f64 = requests.parse().context("no count of requests")?;
    ensure!(requests > 0.0 && span > 0.0, "nothing was answered");
    Ok(Load {
        requests,
        seconds: span / 1e6,
        p50_us: percentile("50%")?,
        p99_us: percentile("99%")?,
    })
}

/// Reads a time with its unit: `812.00us`, `1.20ms`, `3.00s`, `1.00m`.
fn microseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 3s test @ http://127.0.0.1:1/1k
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   412.30us  100.00us   9.00ms   90.00%
    Req/Sec    70.00k     2.00k   75.00k    80.00%
  Latency Distribution
     50%  400.00us
     75%  450.00us
     90%  500.00us
     99%    1.25ms
  216000 requests in 3.10s, 250.00MB read
Requests/sec:  69677.41
";

    #[test]
    fn what_wrk_says_is_read() {
        let expected = Load { requests: 216_000.0, seconds: 3.1, p50_us: 400.0, p99_us: 1250.0 };
        assert_eq!(parse(SAID).unwrap(), expected);
    }

    #[test]
    fn errors_are_no_measurement() {
        let errors = format!("{SAID}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        assert!(parse(&errors).is_err());
        assert!(parse(&format!("{SAID}  Non-2xx or 3xx responses: 5\n")).is_err());
        assert!(parse(&SAID.replace("216000", "0")).is_err());
        assert!(parse("unable to connect to 127.0.0.1:1 Connection refused\n").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(microseconds(" 812.50us"), Some(812.5));
        assert_eq!(microseconds("1.20ms"), Some(1_200.0));
        assert_eq!(microseconds("2.00s"), Some(2_000_000.0));
        assert_eq!(microseconds("1.00m"), Some(60_000_000.0));
        assert_eq!(microseconds("12"), None);
        assert_eq!(microseconds("1.2h"), None);
    }
}
