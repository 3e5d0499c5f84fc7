//! Readers of counts, rates, sizes and durations.

use super::{Problems, Raw, Reader, Typed, bracketed, list, quoted, refuse, text, word_of};
use crate::config::units::{
    Quantity, ShortDuration, ShortSize, UnitError, parse_duration, parse_size,
};
use crate::machine;
use std::time::Duration;

/// Number of requests in a unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestRate {
    /// Number of requests; at least one.
    pub(crate) requests: u32,
    unit: RateUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateUnit {
    Second,
    Minute,
    Hour,
}

impl RequestRate {
    /// Unit of time.
    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(match self.unit {
            RateUnit::Second => 1,
            RateUnit::Minute => 60,
            RateUnit::Hour => 3_600,
        })
    }
}

const RATE_UNITS: [(&str, RateUnit); 3] =
    [("s", RateUnit::Second), ("m", RateUnit::Minute), ("h", RateUnit::Hour)];

pub(crate) const REQUEST_RATE: Reader<RequestRate> = Reader {
    kind: "rate",
    read: |typed, problems| text(typed, problems, parse_rate),
    show: |rate| quoted(format_args!("{}/{}", rate.requests, word_of(&RATE_UNITS, &rate.unit))),
    order: None,
};

pub(crate) const COUNT: Reader<u64> = Reader {
    kind: "integer",
    read: |typed, problems| match &typed.raw {
        Raw::Integer(_, Some(value)) => Some(*value),
        Raw::Integer(written, None) => {
            refuse(typed, problems, format!("{written} is negative or too large"))
        }
        other => refuse(typed, problems, format!("must be an integer, not {}", other.shape())),
    },
    show: u64::to_string,
    order: Some(Ord::cmp),
};

pub(crate) const NUMBER: Reader<f64> = Reader {
    kind: "number",
    read: |typed, problems| match &typed.raw {
        Raw::Integer(written, _) | Raw::Fraction(written) => match written.parse::<f64>() {
            Ok(value) if value.is_finite() => Some(value),
            _ => refuse(typed, problems, format!("{written} is not a finite number")),
        },
        other => refuse(typed, problems, format!("must be a number, not {}", other.shape())),
    },
    show: |number| format!("{number:?}"),
    order: Some(f64::total_cmp),
};

pub(crate) const RATE: Reader<u32> = Reader {
    kind: "number per second",
    read: |typed, problems| {
        text(typed, problems, |rate| {
            let number = rate.strip_suffix("/s").and_then(|number| number.parse::<u32>().ok());
            number
                .ok_or_else(|| format!("\"{rate}\" must be a number per second, such as \"10/s\""))
        })
    },
    show: |rate| quoted(format_args!("{rate}/s")),
    order: None,
};

pub(crate) const SIZE: Reader<u64> = Reader {
    kind: "size",
    read: |typed, problems| measure(typed, problems, Quantity::Size, parse_size),
    show: |size| quoted(ShortSize(*size)),
    order: Some(Ord::cmp),
};

pub(crate) const MEMORY_SIZE: Reader<u64> = Reader {
    kind: "size, or percentage of the memory",
    read: |typed, problems| match &typed.raw {
        Raw::Text(percentage) if percentage.ends_with('%') => {
            text(typed, problems, percentage_of_memory)
        }
        _ => (SIZE.read)(typed, problems),
    },
    show: SIZE.show,
    order: SIZE.order,
};

pub(crate) const DURATION: Reader<Duration> = Reader {
    kind: "duration",
    read: |typed, problems| measure(typed, problems, Quantity::Duration, parse_duration),
    show: |duration| quoted(ShortDuration(*duration)),
    order: Some(Ord::cmp),
};

pub(crate) const COUNTS: Reader<Vec<u64>> = Reader {
    kind: "list of status codes",
    read: |typed, problems| {
        list(typed, problems, |item, problems| match (COUNT.read)(item, problems)? {
            status @ 100..=599 => Some(status),
            other => {
                refuse(item, problems, format!("{other} must be at least 100 and at most 599"))
            }
        })
    },
    show: |all| bracketed(all, u64::to_string),
    order: None,
};

/// Reads a percentage of the memory that this process may use, in whole MiB.
fn percentage_of_memory(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<u64>().ok());
    let Some(number) = number.filter(|number| (1..=100).contains(number)) else {
        return Err(format!("\"{text}\" must be a whole number from 1% to 100%"));
    };
    let Some(limit) = machine::memory() else {
        let example = Quantity::Size.example();
        return Err(format!(
            "\"{text}\" cannot be used: the memory of this machine is not known; write a size such \
             as {example}"
        ));
    };
    Ok((limit.bytes / 100 * number) >> 20 << 20)
}

fn parse_rate(text: &str) -> Result<RequestRate, String> {
    let parsed = text.split_once('/').and_then(|(requests, unit)| {
        let (_, unit) = RATE_UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let requests = requests.parse().ok().filter(|requests| *requests > 0)?;
        Some(RequestRate { requests, unit })
    });
    parsed.ok_or_else(|| {
        format!("\"{text}\" is not a rate such as \"50/s\", \"600/m\" or \"1000/h\"")
    })
}

/// Reads a number with its unit.
fn measure<T>(
    typed: &Typed,
    problems: &mut Problems,
    quantity: Quantity,
    parse: fn(&str) -> Result<T, UnitError>,
) -> Option<T> {
    match &typed.raw {
        Raw::Integer(written, _) => {
            refuse(typed, problems, format!("{written} {}", UnitError::NoUnit(quantity)))
        }
        Raw::Text(written) => match parse(written) {
            Ok(value) => Some(value),
            Err(error) => refuse(typed, problems, format!("\"{written}\" {error}")),
        },
        other => {
            let (shape, example) = (other.shape(), quantity.example());
            let message = format!("must be a string with a unit, such as {example}, not {shape}");
            refuse(typed, problems, message)
        }
    }
}
