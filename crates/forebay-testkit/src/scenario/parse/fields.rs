//! Fields and field checks of several blocks.

use super::{Fault, Line};
use crate::scenario::date;
use crate::scenario::script::{Compare, FieldCheck, FieldTest};

/// Line as a field with valid dates; `None` if it is a step.
pub(super) fn field<'a>(line: &Line<'a>) -> Result<Option<(&'a str, &'a str)>, Fault> {
    let Some((name, value)) = line.as_field() else { return Ok(None) };
    dated(line, value)?;
    Ok(Some((name, value)))
}

/// Takes `NAME present`, `absent`, `= VALUE`, `contains "…"`, `lacks "…"`, `>= N` or `<= N`.
pub(super) fn check(line: &mut Line<'_>) -> Result<FieldCheck, Fault> {
    let name = line.word("a field's name")?.to_owned();
    let test = match line.word("present, absent, =, contains, lacks, >= or <=")? {
        "present" => FieldTest::Present,
        "absent" => FieldTest::Absent,
        "=" => FieldTest::Is(value(line)?),
        "contains" => FieldTest::Contains(text(line)?),
        "lacks" => FieldTest::Lacks(text(line)?),
        sign => match Compare::named(sign) {
            Some(compare) => FieldTest::Number(compare, line.number("a number")?),
            None => {
                let tests = "present, absent, =, contains, lacks, >= or <=";
                return Err(line.fault(format!("expected {tests}, came `{sign}`")));
            }
        },
    };
    line.end()?;
    Ok(FieldCheck { name, test })
}

/// Takes the rest of the line, quoted or not.
fn value(line: &mut Line<'_>) -> Result<String, Fault> {
    if line.rest().starts_with('"') {
        return text(line);
    }
    let value = line.rest();
    line.word("a value")?;
    dated(line, value)?;
    while line.end().is_err() {
        line.word("a word of the value")?;
    }
    Ok(value.to_owned())
}

fn text(line: &mut Line<'_>) -> Result<String, Fault> {
    let bytes = line.quoted()?;
    String::from_utf8(bytes).map_err(|_| line.fault("a field's value must be UTF-8 here"))
}

fn dated(line: &Line<'_>, value: &str) -> Result<(), Fault> {
    date::expand(value, 0).map(|_| ()).map_err(|what| line.fault(what))
}
