//! Cost of a message through the same Redis between two minimal programs: no cache in
//! this place can be faster. Each waits in a blocking call, with no runtime in between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use forebay_testkit::client::Timings;
use forebay_testkit::redis::RedisLaunch;

use super::peer::machine_now;
use crate::report::Table;

/// Argument that makes this program the receiver.
pub(crate) const LISTENER: &str = "listener";

/// Channel on which the listening process receives messages.
const CHANNEL: &str = "channel";

/// Both are idle for as long as callers are that wait for a load.
const PAUSE: Duration = Duration::from_millis(50);

/// From before a value is stored and told of, by one command each in one piece, to when the other
/// process has heard of it with the value; and to when it has asked for the value and has it.
pub(crate) async fn messages(rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let address = redis.address();
    let told = tokio::task::spawn_blocking(move || tell(address, rounds)).await??;
    let (heard, read): (Vec<_>, Vec<_>) = told.into_iter().unzip();
    for (name, times) in [("heard", heard), ("heard, then read", read)] {
        let times = Timings::new(times);
        let name = format!("bare SET and PUBLISH, 1 KiB, in another process {name}");
        table.shown(format!("{name}: p50"), times.p50());
        table.shown(format!("{name}: p99"), times.p99());
    }
    Ok(())
}

/// Delays until a message was received, and until its value was read.
type Told = (Duration, Duration);

fn tell(redis: SocketAddr, rounds: usize) -> anyhow::Result<Vec<Told>> {
    let mut hearer = Command::new(std::env::current_exe()?)
        .args([LISTENER, &redis.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = hearer.stdout.take().context("it has no output")?;
    let mut lines = BufReader::new(lines).lines();
    let mut next = || lines.next().context("it has ended")?.context("read its line");
    ensure!(next()? == "hears", "it does not listen");
    let mut bare = Bare::connect(redis)?;
    let mut all = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (key, value) = (format!("key:{round}"), "x".repeat(1_024));
        std::thread::sleep(PAUSE);
        let began = machine_now();
        let told = format!("{key} {value}");
        bare.send(&[&["SET", &key, &value], &["PUBLISH", CHANNEL, &told]])?;
        bare.receive()?;
        bare.receive()?;
        let times = next()?;
        let times = times.split_once(' ').context("it says not when")?;
        let later =
            |micros: &str| anyhow::Ok(Duration::from_micros(micros.parse()?).saturating_sub(began));
        all.push((later(times.0)?, later(times.1)?));
    }
    hearer.kill()?;
    hearer.wait()?;
    Ok(all)
}

/// Prints the times of receipt and of the read for each key, until the process is killed.
pub(crate) fn listen(redis: &str) -> anyhow::Result<()> {
    let redis = redis.parse()?;
    let (mut listening, mut reading) = (Bare::connect(redis)?, Bare::connect(redis)?);
    listening.send(&[&["SUBSCRIBE", CHANNEL]])?;
    listening.receive()?;
    println!("hears");
    loop {
        let told = listening.receive()?;
        let heard = machine_now();
        let (key, _) = told.split_once(' ').context("no key")?;
        reading.send(&[&["GET", key]])?;
        ensure!(reading.receive()?.len() == 1_024, "another value");
        println!("{} {}", heard.as_micros(), machine_now().as_micros());
    }
}

/// A connection, and as much of the protocol as it takes.
struct Bare {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Bare {
    fn connect(redis: SocketAddr) -> anyhow::Result<Self> {
        let to = TcpStream::connect(redis)?;
        to.set_nodelay(true)?;
        Ok(Self { from: BufReader::new(to.try_clone()?), to })
    }

    fn send(&mut self, commands: &[&[&str]]) -> anyhow::Result<()> {
        let mut all = String::new();
        for command in commands {
            all += &format!("*{}\r\n", command.len());
            command.iter().for_each(|word| all += &format!("${}\r\n{word}\r\n", word.len()));
        }
        Ok(self.to.write_all(all.as_bytes())?)
    }

    /// One answer, or one message: of several parts, the last.
    fn receive(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.from.read_line(&mut line)? > 0, "Redis has ended");
        let length = || line[1..].trim_end().parse::<usize>();
        match &line[..1] {
            "$" => {
                let mut bytes = vec![0; length()? + 2];
                self.from.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(String::from_utf8(bytes)?)
            }
            "*" => (0..length()?).try_fold(String::new(), |_, _| self.receive()),
            "+" | ":" => Ok(line[1..].trim_end().to_owned()),
            _ => anyhow::bail!("{line}"),
        }
    }
}
