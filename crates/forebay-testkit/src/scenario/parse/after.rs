//! Parser of `after` blocks.

use super::{Fault, Line, unknown_name};
use crate::origin::Counts;
use crate::scenario::metrics::Selector;
use crate::scenario::script::{Compare, Count, Counter, OriginCount, Script};

/// Takes `expect ORIGIN COUNT [PATH] OP N` or `expect FOREBAY metric NAME{…} OP N`.
pub(super) fn counter(mut line: Line<'_>, script: &Script) -> Result<Counter, Fault> {
    line.keyword("expect")?;
    let subject = line.word("an origin or a forebay")?;
    let count = if script.has_origin(subject) {
        Count::Origin(origin_count(&mut line)?)
    } else if script.has_front(subject) {
        line.keyword("metric")?;
        selector(&mut line)?
    } else {
        return Err(unknown_name(line.number, "origin or forebay", subject));
    };
    let counter = compared(&mut line, subject, count)?;
    line.end()?;
    Ok(counter)
}

/// Takes `FOREBAY NAME{…} OP N`.
pub(super) fn metric(line: &mut Line<'_>) -> Result<Counter, Fault> {
    let subject = line.word("a forebay")?;
    let count = selector(line)?;
    compared(line, subject, count)
}

fn selector(line: &mut Line<'_>) -> Result<Count, Fault> {
    let read = Selector::read(line.rest());
    let (selector, rest) =
        read.ok_or_else(|| line.fault(format!("`{}` is no metric", line.rest())))?;
    *line = line.skip_to(rest);
    Ok(Count::Metric(selector))
}

/// Takes `OP N`.
fn compared(line: &mut Line<'_>, subject: &str, count: Count) -> Result<Counter, Fault> {
    let sign = line.word("one of = != >= <= > <")?;
    let compare = Compare::named(sign)
        .ok_or_else(|| line.fault(format!("expected one of = != >= <= > <, came `{sign}`")))?;
    let number = line.number("a number")?;
    Ok(Counter { line: line.number, subject: subject.to_owned(), count, compare, number })
}

fn origin_count(line: &mut Line<'_>) -> Result<OriginCount, Fault> {
    let name = line.word("a count")?;
    if name == "requests" && line.rest().starts_with('/') {
        return Ok(OriginCount::RequestsTo(line.word("a path")?.to_owned()));
    }
    let named = NAMES.iter().find(|(known, _)| *known == name);
    let (_, count) = named.ok_or_else(|| {
        let known: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
        line.fault(format!("expected one of {}, came `{name}`", known.join(", ")))
    })?;
    Ok(OriginCount::Of(*count))
}

type Read = fn(&Counts) -> u64;

const NAMES: [(&str, Read); 8] = [
    ("requests", |counts| counts.requests),
    ("conditional", |counts| counts.conditional),
    ("connections", |counts| counts.connections),
    ("in-flight", |counts| counts.in_flight),
    ("in-flight-max", |counts| counts.in_flight_max),
    ("abandoned", |counts| counts.abandoned),
    ("broken-off", |counts| counts.broken_off),
    ("malformed", |counts| counts.malformed),
];
