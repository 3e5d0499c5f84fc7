//! Checks of fields and numbers.

use anyhow::{bail, ensure};

use super::line::Line;
use super::run::Now;
use crate::fields::Fields;

/// Checks the fields of one name by the rest of a line: `NAME present`, `absent`, `= VALUE`,
/// `contains "…"`, `lacks "…"`, or `NAME OP NUMBER`. Several fields are joined with commas.
pub(super) fn field(mut words: Line, fields: &Fields, now: &Now) -> anyhow::Result<()> {
    let name = words.word("a field's name")?;
    let value = fields.joined(name);
    let came = value.as_deref();
    let (holds, expected) = match words.word("present, absent, =, contains, lacks, >= or <=")? {
        "present" => (came.is_some(), "present".to_owned()),
        "absent" => (came.is_none(), "absent".to_owned()),
        "=" => {
            let wanted = now.expand(&words.value()?)?;
            (came == Some(wanted.as_str()), format!("= {wanted:?}"))
        }
        "contains" => {
            let part = words.text()?;
            (came.is_some_and(|came| came.contains(&part)), format!("with {part:?} in it"))
        }
        "lacks" => {
            let part = words.text()?;
            (!came.unwrap_or("").contains(&part), format!("without {part:?} in it"))
        }
        sign => {
            let number = words.number("a number")?;
            let came = came.and_then(|came| came.parse().ok());
            (holds(came, sign, number)?, format!("{sign} {number}"))
        }
    };
    words.end()?;
    let came = came.map_or_else(|| "no such field".to_owned(), |came| format!("{came:?}"));
    ensure!(holds, "expected field {name} {expected}, came {came}");
    Ok(())
}

/// Compares numbers; nothing compares with a number that is missing.
pub(super) fn holds(came: Option<f64>, sign: &str, number: f64) -> anyhow::Result<bool> {
    let test: fn(&f64, &f64) -> bool = match sign {
        "=" => f64::eq,
        "!=" => f64::ne,
        ">=" => f64::ge,
        "<=" => f64::le,
        ">" => f64::gt,
        "<" => f64::lt,
        other => bail!("expected one of = != >= <= > <, came `{other}`"),
    };
    Ok(came.is_some_and(|came| test(&came, &number)))
}
