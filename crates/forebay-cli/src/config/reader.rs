//! Readers that convert raw values to typed ones, one for each type of option.

use super::problem::Problems;
use super::typed::{Raw, Typed};
use std::cmp::Ordering;
use std::fmt::Display;

/// Declares readers, by the form of the value:
///
/// - `text(PARSE)`: a string;
/// - `words[(WORD, VALUE), …]`: one of a few words;
/// - `list(READER)`: a list of what another reader reads.
macro_rules! readers {
    ($($name:ident: $type:ty = $kind:literal, $form:ident $of:tt;)*) => {
        $(pub(crate) const $name: Reader<$type> = Reader {
            kind: $kind,
            read: |typed, problems| readers!(@read $form $of typed, problems),
            show: |value| readers!(@show $form $of value),
            order: None,
        };)*
    };
    (@read text ($parse:expr) $typed:ident, $problems:ident) => {
        text($typed, $problems, $parse)
    };
    (@show text $parse:tt $value:ident) => { quoted($value) };
    (@read words $words:tt $typed:ident, $problems:ident) => {
        word($typed, $problems, &$words)
    };
    (@show words $words:tt $value:ident) => { quoted(word_of(&$words, $value)) };
    (@read list ($item:expr) $typed:ident, $problems:ident) => {
        list($typed, $problems, $item.read)
    };
    (@show list ($item:expr) $values:ident) => { bracketed($values, $item.show) };
}

// Below the macro, which is in scope from here on.
mod addresses;
mod endpoints;
mod quantities;
mod texts;
mod words;

pub(crate) use addresses::*;
pub(crate) use endpoints::*;
pub(crate) use quantities::*;
pub(crate) use texts::*;
pub(crate) use words::*;

/// Name, parser and printer of one type of value.
#[derive(Debug)]
pub(crate) struct Reader<T> {
    /// Name of the type in `docs/config.md`.
    pub(crate) kind: &'static str,
    /// Parses a value; reports every error in it.
    pub(crate) read: fn(&Typed, &mut Problems) -> Option<T>,
    /// Prints a value as it would be typed.
    pub(crate) show: fn(&T) -> String,
    /// Order of values, for types with bounds.
    pub(crate) order: Option<fn(&T, &T) -> Ordering>,
}

pub(super) const TRUTH: Reader<bool> = Reader {
    kind: "true or false",
    read: |typed, problems| match &typed.raw {
        Raw::Truth(truth) => Some(*truth),
        other => {
            let shape = other.shape();
            refuse(typed, problems, format!("must be true or false (without quotes), not {shape}"))
        }
    },
    show: bool::to_string,
    order: None,
};

/// Reads a string with `parse`, whose error is the message.
pub(super) fn text<T>(
    typed: &Typed,
    problems: &mut Problems,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    match &typed.raw {
        Raw::Text(text) => match parse(text) {
            Ok(value) => Some(value),
            Err(message) => refuse(typed, problems, message),
        },
        other => refuse(typed, problems, format!("must be a string, not {}", other.shape())),
    }
}

/// Reads one of a few words.
fn word<T: Copy>(typed: &Typed, problems: &mut Problems, words: &[(&str, T)]) -> Option<T> {
    text(typed, problems, |text| {
        let found = words.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<String> = words.iter().map(|(name, _)| quoted(name)).collect();
            format!("\"{text}\" must be one of {}", names.join(", "))
        })
    })
}

/// Word of a value.
fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(name, _)| *name)
}

/// Reads a list with the reader of its items; every invalid item is reported.
fn list<T>(
    typed: &Typed,
    problems: &mut Problems,
    read: impl Fn(&Typed, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    match &typed.raw {
        Raw::List(items) => each(items, problems, read),
        other => refuse(typed, problems, format!("must be a list in [ ], not {}", other.shape())),
    }
}

fn each<T>(
    items: &[Typed],
    problems: &mut Problems,
    read: impl Fn(&Typed, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    // Collected first: stopping at the first invalid item would hide the others.
    let values: Vec<Option<T>> = items.iter().map(|item| read(item, problems)).collect();
    values.into_iter().collect()
}

fn refuse<T>(typed: &Typed, problems: &mut Problems, message: impl Into<String>) -> Option<T> {
    problems.report(typed.place, &typed.path, message);
    None
}

fn quoted(value: impl Display) -> String {
    format!("\"{value}\"")
}

fn bracketed<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = items.iter().map(show).collect();
    format!("[{}]", shown.join(", "))
}

#[cfg(test)]
mod tests;
