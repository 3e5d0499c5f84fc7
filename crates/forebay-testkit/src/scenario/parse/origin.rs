//! Parser of `origin` blocks.

use super::gates::Gates;
use super::{Fault, Line, fields};
use crate::origin::{Answer, Cut, Framing};
use crate::scenario::script::{Exchange, Expected, FieldCheck, FieldTest, pattern};

/// Maximum size of a patterned body in bytes.
const BODY_SIZE_MAX: usize = 64 << 20;

pub(super) fn exchanges(lines: Vec<Line<'_>>, gates: &mut Gates) -> Result<Vec<Exchange>, Fault> {
    let mut draft: Option<Draft> = None;
    let mut done: Vec<Exchange> = Vec::new();
    for line in lines {
        let mut words = line;
        if words.take("expect") {
            finish(draft.take(), &mut done)?;
            draft = Some(Draft::begin(words)?);
        } else {
            let none = || line.fault("an exchange begins with `expect METHOD TARGET`");
            draft = Some(draft.take().ok_or_else(none)?.line(line, gates)?);
        }
    }
    finish(draft, &mut done)?;
    Ok(done)
}

fn finish(draft: Option<Draft>, done: &mut Vec<Exchange>) -> Result<(), Fault> {
    let Some(draft) = draft else { return Ok(()) };
    let line = draft.exchange.line;
    if !matches!(draft.at, At::Answer | At::Whole | At::End) {
        return Err(Fault::new(line, "this exchange has no answer"));
    }
    if let Some(last) = done.last()
        && last.times.is_none()
    {
        let what =
            format!("the exchange at line {} repeats forever, so this never comes", last.line);
        return Err(Fault::new(line, what));
    }
    done.push(draft.exchange);
    Ok(())
}

/// Exchange under construction.
struct Draft {
    exchange: Exchange,
    at: At,
}

/// Part of the exchange that the next line may belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Expect,
    Before,
    Interim,
    Answer,
    /// Below an answer without parts, such as `hang`.
    Whole,
    End,
}

impl Draft {
    fn begin(mut words: Line<'_>) -> Result<Self, Fault> {
        let line = words.number;
        let mut expected = Expected::default();
        if !words.take("any") {
            let method = words.word("a method, or `any`")?.to_owned();
            expected.line = Some((method, words.word("a target")?.to_owned()));
        }
        words.end()?;
        let answer = Answer::status(200);
        Ok(Self { exchange: Exchange { line, expected, answer, times: Some(1) }, at: At::Expect })
    }

    fn line(self, line: Line<'_>, gates: &mut Gates) -> Result<Self, Fault> {
        if let Some((name, value)) = fields::field(&line)? {
            return self.field(&line, name, value);
        }
        match self.at {
            At::Expect => self.in_expect(line, gates),
            At::Before | At::Interim => self.before_answer(line, gates),
            At::Answer => self.in_answer(line, gates),
            At::Whole => self.repeat(line),
            At::End => Err(line.fault("expected `expect` or the end of the block")),
        }
    }

    fn field(mut self, line: &Line<'_>, name: &str, value: &str) -> Result<Self, Fault> {
        match self.at {
            At::Expect => {
                let test = FieldTest::Is(value.to_owned());
                self.exchange.expected.fields.push(FieldCheck { name: name.to_owned(), test });
                Ok(self)
            }
            At::Interim => Ok(self.change(|answer| answer.interim_field(name, value))),
            At::Answer => Ok(self.change(|answer| answer.field(name, value))),
            At::Before | At::Whole | At::End => {
                Err(line.fault("expected a step; nothing here has fields"))
            }
        }
    }

    fn in_expect(mut self, line: Line<'_>, gates: &mut Gates) -> Result<Self, Fault> {
        let mut words = line;
        if words.take("header") {
            self.exchange.expected.fields.push(fields::check(&mut words)?);
        } else if words.take("body") {
            self.exchange.expected.body = Some(words.quoted()?);
        } else {
            return self.before_answer(line, gates);
        }
        words.end()?;
        Ok(self)
    }

    fn before_answer(self, line: Line<'_>, gates: &mut Gates) -> Result<Self, Fault> {
        let mut words = line;
        let step = words.word("a step")?;
        let draft = match step {
            "await" => {
                let (_, gate) = gates.awaited(&mut words)?;
                self.change(|answer| answer.wait(&gate)).at(At::Before)
            }
            "signal" => {
                let gate = gates.signalled(&mut words)?;
                self.change(|answer| answer.arrive(&gate)).at(At::Before)
            }
            "delay" => {
                let delay = words.duration()?;
                self.change(|answer| answer.delay(delay)).at(At::Before)
            }
            "interim" => {
                let status = words.number("a status")?;
                self.change(|answer| answer.interim(status, &[])).at(At::Interim)
            }
            _ => return self.answer(line),
        };
        words.end()?;
        Ok(draft)
    }

    fn answer(self, mut words: Line<'_>) -> Result<Self, Fault> {
        let (answer, at) = match words.word("an answer")? {
            "answer" => (Answer::status(words.number("a status")?), At::Answer),
            "hang" => (Answer::hang(), At::Whole),
            "close" => (Answer::close(), At::Whole),
            "reset" => (Answer::reset(), At::Whole),
            "raw" => (Answer::raw(words.quoted()?), At::Whole),
            other => {
                let steps = "await, signal, delay, interim, answer, hang, close, reset or raw";
                return Err(words.fault(format!("expected {steps}, came `{other}`")));
            }
        };
        words.end()?;
        Ok(self.change(|before| before.become_answer(answer)).at(at))
    }

    fn in_answer(self, line: Line<'_>, gates: &mut Gates) -> Result<Self, Fault> {
        let mut words = line;
        if words.take("repeat") {
            return self.repeat(line);
        }
        let framed = |framing| move |answer: Answer| answer.framing(framing);
        let draft = match words.word("a part of the answer")? {
            "chunked" => self.change(framed(Framing::Chunked)),
            "until-close" => self.change(framed(Framing::UntilClose)),
            "as-given" => self.change(framed(Framing::AsGiven)),
            "http-1.0" => self.change(Answer::http_1_0),
            "hold" => {
                let offset = words.number("an offset in the body")?;
                let (_, gate) = gates.awaited(&mut words)?;
                self.change(|answer| answer.hold_at(offset, &gate))
            }
            part => self.body_part(part, &mut words)?,
        };
        words.end()?;
        Ok(draft)
    }

    fn body_part(self, part: &str, words: &mut Line<'_>) -> Result<Self, Fault> {
        match part {
            "body" => {
                let body = words.quoted()?;
                Ok(self.change(|answer| answer.body(body)))
            }
            "body-size" => {
                let body = pattern(body_size(words)?);
                Ok(self.change(|answer| answer.body(body)))
            }
            "trailer" => {
                let field = fields::field(words)?;
                let (name, value) = field.ok_or_else(|| words.fault("expected `Name: value`"))?;
                while words.end().is_err() {
                    words.word("the value")?;
                }
                Ok(self.change(|answer| answer.trailer(name, value)))
            }
            "drip" => {
                let pieces = words.number("a number of pieces")?;
                let pause = words.duration()?;
                Ok(self.change(|answer| answer.drip(pieces, pause)))
            }
            "truncate" => {
                let after = words.number("an offset in the body")?;
                let cut = if words.take("reset") { Cut::Reset } else { Cut::Close };
                Ok(self.change(|answer| answer.truncate(after, cut)))
            }
            other => Err(words.fault(format!(
                "expected a field, body, body-size, chunked, until-close, as-given, http-1.0, \
                 trailer, drip, hold, truncate, repeat or `expect`, came `{other}`"
            ))),
        }
    }

    fn repeat(mut self, mut words: Line<'_>) -> Result<Self, Fault> {
        words.keyword("repeat")?;
        self.exchange.times = match words.take("forever") {
            true => None,
            false => Some(words.number("a number of times, or `forever`")?),
        };
        words.end()?;
        Ok(self.at(At::End))
    }

    fn change(mut self, change: impl FnOnce(Answer) -> Answer) -> Self {
        self.exchange.answer = change(self.exchange.answer);
        self
    }

    fn at(mut self, at: At) -> Self {
        self.at = at;
        self
    }
}

/// Takes the size of a patterned body.
pub(super) fn body_size(words: &mut Line<'_>) -> Result<usize, Fault> {
    match words.number("a number of bytes")? {
        size if size > BODY_SIZE_MAX => {
            Err(words.fault(format!("expected at most {BODY_SIZE_MAX} bytes, came {size}")))
        }
        size => Ok(size),
    }
}
