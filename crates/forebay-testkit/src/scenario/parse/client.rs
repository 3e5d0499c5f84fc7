//! Parser of `client` blocks.

use super::gates::Gates;
use super::{Fault, Line, after, fields, origin};
use crate::client::Request;
use crate::scenario::script::{Expect, Step, pattern};

pub(super) fn steps(lines: Vec<Line<'_>>, gates: &mut Gates) -> Result<Vec<(usize, Step)>, Fault> {
    let mut steps: Vec<(usize, Step)> = Vec::new();
    for line in lines {
        match steps.pop() {
            Some((at, Step::Send(request))) => match under_send(request, line)? {
                Under::Same(request) => steps.push((at, Step::Send(request))),
                Under::Next(request) => {
                    steps.push((at, Step::Send(request)));
                    steps.push((line.number, step(line, gates)?));
                }
            },
            other => {
                steps.extend(other);
                steps.push((line.number, step(line, gates)?));
            }
        }
    }
    Ok(steps)
}

/// Result of a line below a request: part of the request, or the next step.
enum Under {
    Same(Request),
    Next(Request),
}

fn under_send(request: Request, line: Line<'_>) -> Result<Under, Fault> {
    if let Some((name, value)) = fields::field(&line)? {
        return Ok(Under::Same(request.field(name, value)));
    }
    let mut words = line;
    let request = match words.word("a step")? {
        "body" => request.body(words.quoted()?),
        "body-size" => request.body(pattern(origin::body_size(&mut words)?)),
        "chunked" => request.chunked(),
        "no-host" => request.without_host(),
        _ => return Ok(Under::Next(request)),
    };
    words.end()?;
    Ok(Under::Same(request))
}

fn step(mut line: Line<'_>, gates: &mut Gates) -> Result<Step, Fault> {
    if line.as_field().is_some() {
        return Err(line.fault("a field must stand under a `send`"));
    }
    let step = match line.word("a step")? {
        "send" => Step::Send(Request::new(line.word("a method")?, line.word("a target")?)),
        "send-raw" => Step::SendRaw(line.quoted()?),
        "expect" => Step::Expect(expect(&mut line)?),
        "close" => Step::Close,
        "reconnect" => Step::Reconnect,
        "await" => {
            let (name, gate) = gates.awaited(&mut line)?;
            Step::Await(name, gate)
        }
        "signal" => Step::Signal(gates.signalled(&mut line)?),
        "wait-origin" => Step::WaitOrigin(
            line.word("an origin")?.to_owned(),
            line.number("a number of requests")?,
        ),
        "shut" => Step::Shut(line.word("an origin")?.to_owned()),
        "wait-metric" => Step::WaitMetric(after::metric(&mut line)?),
        "advance" => Step::Advance(line.duration()?),
        other => {
            let steps = "send, send-raw, expect, close, reconnect, await, signal, wait-origin, \
                         shut, wait-metric or advance";
            return Err(line.fault(format!("expected {steps}, came `{other}`")));
        }
    };
    line.end()?;
    Ok(step)
}

fn interim(line: &mut Line<'_>) -> Result<Expect, Fault> {
    Ok(match line.word("a status or none")? {
        "none" => Expect::NoInterim,
        status => Expect::Interim(
            status
                .parse()
                .map_err(|_| line.fault(format!("expected a status or none, came `{status}`")))?,
        ),
    })
}

fn expect(line: &mut Line<'_>) -> Result<Expect, Fault> {
    Ok(match line.word("what to expect")? {
        "head" => Expect::Head(line.number("a status")?),
        "version" => Expect::Version(line.word("a version")?.to_owned()),
        "interim" => interim(line)?,
        "header" => Expect::Header(fields::check(line)?),
        "trailer" => Expect::Trailer(fields::check(line)?),
        "body" => Expect::Body(line.quoted()?),
        "body-size" => Expect::Body(pattern(origin::body_size(line)?)),
        "body-begins" => Expect::BodyBegins(line.quoted()?),
        "body-length" => Expect::BodyLength(line.number("a number of bytes")?),
        "truncated" => Expect::Truncated,
        "closed" => Expect::Closed,
        status => Expect::Reply(status.parse().map_err(|_| {
            let known = "a status, head, version, interim, header, trailer, body, body-size, \
                         body-begins, body-length, truncated or closed";
            line.fault(format!("expected {known}, came `{status}`"))
        })?),
    })
}
