//! Parsed scenario.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::front::Setting;
use super::metrics::Selector;
use crate::client::Request;
use crate::fields::Fields;
use crate::gate::Gate;
use crate::origin::{Answer, Counts};

#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) origins: Vec<OriginBlock>,
    pub(super) fronts: Vec<FrontBlock>,
    pub(super) clients: Vec<ClientBlock>,
    pub(super) after: Vec<Counter>,
    pub(super) gates: BTreeMap<String, Gate>,
}

#[derive(Debug)]
pub(super) struct OriginBlock {
    pub(super) name: String,
    pub(super) exchanges: Vec<Exchange>,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) line: usize,
    pub(super) expected: Expected,
    pub(super) answer: Answer,
    /// Number of times that it runs; `None` is unlimited.
    pub(super) times: Option<u64>,
}

/// Expected request of an exchange.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Method and target; `None` matches any.
    pub(super) line: Option<(String, String)>,
    pub(super) fields: Vec<FieldCheck>,
    pub(super) body: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct FrontBlock {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) target: String,
    pub(super) settings: Vec<Setting>,
}

#[derive(Debug)]
pub(super) struct ClientBlock {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) target: String,
    pub(super) copies: usize,
    pub(super) steps: Vec<(usize, Step)>,
}

#[derive(Debug)]
pub(super) enum Step {
    Send(Request),
    SendRaw(Vec<u8>),
    Expect(Expect),
    Close,
    Reconnect,
    Await(String, Gate),
    Signal(Gate),
    WaitOrigin(String, u64),
    Shut(String),
    WaitMetric(Counter),
    Advance(Duration),
}

#[derive(Debug)]
pub(super) enum Expect {
    Reply(u16),
    Head(u16),
    Version(String),
    Interim(u16),
    NoInterim,
    Header(FieldCheck),
    Trailer(FieldCheck),
    Body(Vec<u8>),
    BodyBegins(Vec<u8>),
    BodyLength(u64),
    Truncated,
    Closed,
}

/// Check of the fields with one name.
#[derive(Debug)]
pub(super) struct FieldCheck {
    pub(super) name: String,
    pub(super) test: FieldTest,
}

#[derive(Debug)]
pub(super) enum FieldTest {
    Present,
    Absent,
    Is(String),
    Contains(String),
    Lacks(String),
    Number(Compare, f64),
}

impl FieldCheck {
    /// Checks the fields; several fields with the name are joined with commas.
    ///
    /// # Errors
    /// Expected and actual value.
    pub(super) fn check(
        &self,
        fields: &Fields,
        expand: impl Fn(&str) -> String,
    ) -> Result<(), String> {
        let value = fields.joined(&self.name);
        let came = value.as_deref();
        let (holds, expected) = match &self.test {
            FieldTest::Present => (came.is_some(), "present".to_owned()),
            FieldTest::Absent => (came.is_none(), "absent".to_owned()),
            FieldTest::Is(wanted) => {
                let wanted = expand(wanted);
                (came == Some(wanted.as_str()), format!("= {wanted:?}"))
            }
            FieldTest::Contains(part) => {
                (came.is_some_and(|came| came.contains(part)), format!("with {part:?} in it"))
            }
            FieldTest::Lacks(part) => {
                (!came.unwrap_or("").contains(part), format!("without {part:?} in it"))
            }
            FieldTest::Number(compare, number) => {
                let came = came.and_then(|came| came.parse().ok());
                let holds = came.is_some_and(|came| compare.holds(came, *number));
                (holds, format!("{compare} {number}"))
            }
        };
        if holds {
            return Ok(());
        }
        let came = came.map_or_else(|| "no such field".to_owned(), |came| format!("{came:?}"));
        Err(format!("expected field {} {expected}, came {came}", self.name))
    }
}

/// Counter of the `after` block.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) line: usize,
    pub(super) subject: String,
    pub(super) count: Count,
    pub(super) compare: Compare,
    pub(super) number: f64,
}

#[derive(Debug)]
pub(super) enum Count {
    Origin(OriginCount),
    Metric(Selector),
}

#[derive(Debug)]
pub(super) enum OriginCount {
    RequestsTo(String),
    Of(fn(&Counts) -> u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    More,
    Less,
}

impl Compare {
    const ALL: [(Self, &str); 6] = [
        (Self::Equal, "="),
        (Self::NotEqual, "!="),
        (Self::AtLeast, ">="),
        (Self::AtMost, "<="),
        (Self::More, ">"),
        (Self::Less, "<"),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, sign)| *sign == name).map(|(compare, _)| compare)
    }

    pub(super) fn holds(self, came: f64, expected: f64) -> bool {
        match self {
            Self::Equal => came == expected,
            Self::NotEqual => came != expected,
            Self::AtLeast => came >= expected,
            Self::AtMost => came <= expected,
            Self::More => came > expected,
            Self::Less => came < expected,
        }
    }
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = Self::ALL.iter().find(|(compare, _)| compare == self);
        f.write_str(sign.map_or("?", |(_, sign)| sign))
    }
}

/// Bytes of `body-size N`: reproducible, and without a period that is a power of two.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    const PERIOD: u8 = 251;
    (0..PERIOD).cycle().take(length).collect()
}
