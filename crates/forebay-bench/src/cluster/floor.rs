//! Cost of a message through the same Redis between two minimal programs: no cache in this place
//! can be faster. Each waits in a blocking call, with no runtime in between.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::client::Timings;
use forebay_testkit::redis::RedisLaunch;
use redis::Commands as _;

use super::peer::machine_now;
use crate::report::Table;

/// Argument that makes this program the receiver.
pub(crate) const LISTENER: &str = "listener";

/// Channel that it listens on.
const CHANNEL: &str = "channel";

/// Both are idle for as long as callers are that wait for a load.
const PAUSE: Duration = Duration::from_millis(50);

/// Times from before a value is stored and published, until the other process has received the
/// message, and until it has read the value.
pub(crate) async fn messages(rounds: usize, table: &mut Table) -> Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let url = redis.url();
    let times = tokio::task::spawn_blocking(move || publish(&url, rounds)).await??;
    let (received, read): (Vec<_>, Vec<_>) = times.into_iter().unzip();
    for (name, times) in [("heard", received), ("heard, then read", read)] {
        let times = Timings::new(times);
        let name = format!("bare SET and PUBLISH, 1 KiB, in another process {name}");
        table.shown(format!("{name}: p50"), times.p50());
        table.shown(format!("{name}: p99"), times.p99());
    }
    Ok(())
}

fn publish(redis: &str, rounds: usize) -> Result<Vec<(Duration, Duration)>> {
    let mut receiver = Command::new(std::env::current_exe()?)
        .args([LISTENER, redis])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = receiver.stdout.take().context("the receiver has no output")?;
    let mut lines = BufReader::new(output).lines();
    let mut next = || lines.next().context("the receiver has ended")?.context("read its line");
    ensure!(next()? == "listens", "the receiver does not listen");
    let mut connection = redis::Client::open(redis)?.get_connection()?;
    let mut all = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (key, value) = (format!("key:{round}"), "x".repeat(1_024));
        std::thread::sleep(PAUSE);
        let began = machine_now();
        let message = format!("{key} {value}");
        let mut both = redis::pipe();
        both.set(key, value).ignore().publish(CHANNEL, message).ignore();
        let () = both.query(&mut connection)?;
        let times = next()?;
        let (received, read) = times.split_once(' ').context("no times")?;
        let after = |micros: &str| anyhow::Ok(Duration::from_micros(micros.parse()?) - began);
        all.push((after(received)?, after(read)?));
    }
    receiver.kill()?;
    receiver.wait()?;
    Ok(all)
}

/// Prints when a message came and when its key was read, until it is killed.
pub(crate) fn listen(redis: &str) -> Result<()> {
    let client = redis::Client::open(redis)?;
    let (mut listening, mut reading) = (client.get_connection()?, client.get_connection()?);
    let mut channel = listening.as_pubsub();
    channel.subscribe(CHANNEL)?;
    println!("listens");
    loop {
        let message: String = channel.get_message()?.get_payload()?;
        let received = machine_now();
        let (key, _) = message.split_once(' ').context("no key")?;
        let value: String = reading.get(key)?;
        ensure!(value.len() == 1_024, "another value");
        println!("{} {}", received.as_micros(), machine_now().as_micros());
    }
}
