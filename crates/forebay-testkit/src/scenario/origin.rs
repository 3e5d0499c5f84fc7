//! Exchanges of an origin, in the order in which requests arrive.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;

use super::gates::Gates;
use super::line::Line;
use super::run::Now;
use super::{Fault, check, date};
use crate::origin::{Answer, Cut, Framing, Received};

#[derive(Debug)]
pub(super) struct Exchange {
    line: usize,
    expected: Expected,
    answer: Answer,
    /// Number of times that it runs; `None` is unlimited.
    times: Option<u64>,
    at: At,
}

/// Expected request of an exchange.
#[derive(Debug, Default)]
struct Expected {
    /// Method and target; `None` matches any.
    line: Option<(&'static str, &'static str)>,
    fields: Vec<(&'static str, &'static str)>,
    checks: Vec<Line>,
    body: Option<Vec<u8>>,
}

/// Part of the exchange that the next line may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Expect,
    Before,
    Interim,
    Answer,
    /// Below an answer without parts, such as `hang`.
    Whole,
    End,
}

/// Parses the lines of an `origin` block.
pub(super) fn exchanges(lines: Vec<Line>, gates: &Gates) -> Result<Vec<Exchange>, Fault> {
    let mut done: Vec<Exchange> = Vec::new();
    for line in lines {
        let mut words = line;
        let outcome = match (words.take("expect"), done.pop()) {
            (true, before) => {
                done.extend(before);
                Exchange::begin(words)
            }
            (false, Some(exchange)) => exchange.line(line, gates),
            (false, None) => Err(anyhow::anyhow!("an exchange begins with `expect METHOD TARGET`")),
        };
        done.push(outcome.map_err(|error| Fault::new(line.number, format!("{error:#}")))?);
    }
    for (number, exchange) in done.iter().enumerate() {
        if !matches!(exchange.at, At::Answer | At::Whole | At::End) {
            return Err(Fault::new(exchange.line, "this exchange has no answer"));
        }
        if exchange.times.is_none() && number + 1 < done.len() {
            return Err(Fault::new(exchange.line, "only the last exchange may repeat forever"));
        }
    }
    Ok(done)
}

impl Exchange {
    fn begin(mut words: Line) -> anyhow::Result<Self> {
        let mut expected = Expected::default();
        if !words.take("any") {
            expected.line = Some((words.word("a method, or `any`")?, words.word("a target")?));
        }
        words.end()?;
        let (line, answer) = (words.number, Answer::status(200));
        Ok(Self { line, expected, answer, times: Some(1), at: At::Expect })
    }

    fn line(self, line: Line, gates: &Gates) -> anyhow::Result<Self> {
        if let Some((name, value)) = line.as_field() {
            return self.field(name, value);
        }
        let mut words = line;
        let part = words.word("a step")?;
        let exchange = match (self.at, part) {
            (At::Expect, "header") => {
                let mut exchange = self;
                exchange.expected.checks.push(words);
                return Ok(exchange);
            }
            (At::Expect, "body") => {
                let mut exchange = self;
                exchange.expected.body = Some(words.quoted()?);
                exchange
            }
            (At::Expect | At::Before | At::Interim, _) => {
                self.before_answer(part, &mut words, gates)?
            }
            (At::Answer | At::Whole, "repeat") => {
                let forever = words.take("forever");
                let times = (!forever).then(|| words.number("a number of times, or `forever`"));
                Self { times: times.transpose()?, at: At::End, ..self }
            }
            (At::Answer, _) => self.in_answer(part, &mut words, gates)?,
            (At::Whole | At::End, _) => bail!("expected `expect` or the end, came `{part}`"),
        };
        words.end()?;
        Ok(exchange)
    }

    fn field(mut self, name: &'static str, value: &'static str) -> anyhow::Result<Self> {
        // A mistake in a date is found before the first request.
        date::expand(value, 0)?;
        match self.at {
            At::Expect => self.expected.fields.push((name, value)),
            At::Interim => self.answer = self.answer.interim_field(name, value),
            At::Answer => self.answer = self.answer.field(name, value),
            At::Before | At::Whole | At::End => bail!("nothing here has fields"),
        }
        Ok(self)
    }

    fn before_answer(self, part: &str, words: &mut Line, gates: &Gates) -> anyhow::Result<Self> {
        let before = self.answer;
        let (answer, at) = match part {
            "await" => (before.wait(&gates.named(words)?), At::Before),
            "signal" => (before.arrive(&gates.named(words)?), At::Before),
            "delay" => (before.delay(words.duration()?), At::Before),
            "interim" => (before.interim(words.number("a status")?, &[]), At::Interim),
            "answer" => {
                (before.become_answer(Answer::status(words.number("a status")?)), At::Answer)
            }
            "hang" => (before.become_answer(Answer::hang()), At::Whole),
            "close" => (before.become_answer(Answer::close()), At::Whole),
            "reset" => (before.become_answer(Answer::reset()), At::Whole),
            "raw" => (before.become_answer(Answer::raw(words.quoted()?)), At::Whole),
            other => bail!("`{other}` is neither an answer nor a step before one"),
        };
        Ok(Self { answer, at, ..self })
    }

    fn in_answer(self, part: &str, words: &mut Line, gates: &Gates) -> anyhow::Result<Self> {
        let answer = self.answer;
        let answer = match part {
            "chunked" => answer.framing(Framing::Chunked),
            "until-close" => answer.framing(Framing::UntilClose),
            "as-given" => answer.framing(Framing::AsGiven),
            "http-1.0" => answer.http_1_0(),
            "body" => answer.body(words.quoted()?),
            "body-size" => answer.body(words.pattern()?),
            "hold" => {
                let offset = words.number("an offset in the body")?;
                answer.hold_at(offset, &gates.named(words)?)
            }
            "trailer" => {
                let (name, value) = words.as_field().context("expected `Name: value`")?;
                words.rest = "";
                answer.trailer(name, value)
            }
            "drip" => answer.drip(words.number("a number of pieces")?, words.duration()?),
            "truncate" => {
                let after = words.number("an offset in the body")?;
                answer.truncate(after, if words.take("reset") { Cut::Reset } else { Cut::Close })
            }
            other => bail!("expected a part of the answer, `repeat` or `expect`, came `{other}`"),
        };
        Ok(Self { answer, ..self })
    }
}

pub(super) struct Play {
    name: &'static str,
    exchanges: Vec<Exchange>,
    now: Arc<Now>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Index of the next exchange, and number of times it has run.
    next: usize,
    played: u64,
    faults: Vec<Fault>,
}

impl Play {
    pub(super) fn new(name: &'static str, exchanges: Vec<Exchange>, now: Arc<Now>) -> Self {
        Self { name, exchanges, now, progress: Mutex::default() }
    }

    /// Answer of the next exchange if the request matches it; otherwise 500, and a fault.
    pub(super) fn answer(&self, received: &Received) -> Answer {
        let mut progress = self.progress.lock();
        progress.skip_played(&self.exchanges);
        let came = format!("{} {}", received.method, received.target);
        let Some(exchange) = self.exchanges.get(progress.next) else {
            let last = self.exchanges.last().map_or(0, |exchange| exchange.line);
            let what = format!("{}: unexpected {came} after the last exchange", self.name);
            return progress.refuse(Fault::new(last, what));
        };
        if let Err(what) = exchange.expected.check(received, &self.now) {
            return progress.refuse(Fault::new(exchange.line, format!("{}: {what}", self.name)));
        }
        progress.played += 1;
        // The values were expanded once already, when they were parsed.
        let expand = |value: &str| self.now.expand(value).unwrap_or_default();
        exchange.answer.clone().map_values(expand)
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        self.progress.lock().faults.clone()
    }

    /// Fault for the first exchange whose request did not arrive.
    pub(super) fn unplayed(&self) -> Option<Fault> {
        let mut progress = self.progress.lock();
        progress.skip_played(&self.exchanges);
        let exchange = self.exchanges.get(progress.next)?;
        let times = exchange.times?;
        let (method, target) = exchange.expected.line.unwrap_or(("any", "request"));
        let (name, played) = (&self.name, progress.played);
        let what =
            format!("{name}: expected {method} {target} {times} times in all, came {played} times");
        Some(Fault::new(exchange.line, what))
    }
}

impl Progress {
    fn skip_played(&mut self, exchanges: &[Exchange]) {
        while exchanges.get(self.next).and_then(|exchange| exchange.times) == Some(self.played) {
            self.next += 1;
            self.played = 0;
        }
    }

    fn refuse(&mut self, fault: Fault) -> Answer {
        let answer = Answer::status(500).body(format!("scenario: {}", fault.what));
        self.faults.push(fault);
        answer.field("Cache-Control", "no-store")
    }
}

impl Expected {
    fn check(&self, received: &Received, now: &Now) -> anyhow::Result<()> {
        if let Some((method, target)) = self.line {
            let (came_method, came_target) = (&received.method, &received.target);
            ensure!(
                method == came_method && target == came_target,
                "expected {method} {target}, came {came_method} {came_target}"
            );
        }
        for (name, value) in &self.fields {
            let (value, came) = (now.expand(value)?, received.fields.joined(name));
            let came = came.unwrap_or_else(|| "no such field".to_owned());
            ensure!(came == value, "expected field {name} = {value:?}, came {came:?}");
        }
        for line in &self.checks {
            check::field(*line, &received.fields, now)?;
        }
        if let Some(body) = &self.body {
            let (body, came) = (body.escape_ascii(), received.body.escape_ascii());
            let (body, came) = (body.to_string(), came.to_string());
            ensure!(body == came, "expected the body \"{body}\", came \"{came}\"");
        }
        Ok(())
    }
}
