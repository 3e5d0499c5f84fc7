//! Runs the exchanges of an origin in the order in which requests arrive.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Fault, Now};
use crate::origin::{Answer, Received};
use crate::scenario::script::{Exchange, Expected};

pub(super) struct Play {
    name: String,
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
    pub(super) fn new(name: String, exchanges: Vec<Exchange>, now: Arc<Now>) -> Self {
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
        if let Err(what) = check(&exchange.expected, received, &self.now) {
            return progress.refuse(Fault::new(exchange.line, format!("{}: {what}", self.name)));
        }
        progress.played += 1;
        exchange.answer.clone().map_values(|value| self.now.expand(value))
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
        let what = match &exchange.expected.line {
            Some((method, target)) => format!("{method} {target}"),
            None => "any request".to_owned(),
        };
        let (name, played) = (&self.name, progress.played);
        let what = format!("{name}: expected {what} {times} times in all, came {played} times");
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

fn check(expected: &Expected, received: &Received, now: &Now) -> Result<(), String> {
    if let Some((method, target)) = &expected.line
        && (*method != received.method || *target != received.target)
    {
        let (came_method, came_target) = (&received.method, &received.target);
        return Err(format!("expected {method} {target}, came {came_method} {came_target}"));
    }
    for field in &expected.fields {
        field.check(&received.fields, |value| now.expand(value))?;
    }
    match &expected.body {
        Some(body) if *body != received.body => Err(format!(
            "expected the body \"{}\", came \"{}\"",
            body.escape_ascii(),
            received.body.escape_ascii()
        )),
        _ => Ok(()),
    }
}
