//! Line of a scenario, read word by word.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bstr::ByteVec as _;

use super::date;

/// Maximum size of a patterned body in bytes.
const BODY_SIZE_MAX: usize = 64 << 20;

/// Rest of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) rest: &'static str,
}

/// Non-empty lines, without comments.
pub(super) fn lines(text: &'static str) -> impl Iterator<Item = Line> {
    let lines = text.lines().zip(1..).map(|(line, number)| Line { number, rest: bare(line) });
    lines.filter(|line| !line.rest.is_empty())
}

impl Line {
    /// Line as a field: a token as the name, directly followed by a colon and the value.
    pub(super) fn as_field(&self) -> Option<(&'static str, &'static str)> {
        let (name, value) = self.rest.split_once(':')?;
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        (!name.is_empty() && name.chars().all(is_token)).then(|| (name, value.trim()))
    }

    /// Takes the next word; `what` describes it in the error of a line that has ended.
    pub(super) fn word(&mut self, what: &str) -> anyhow::Result<&'static str> {
        let (word, rest) = self.rest.split_once(char::is_whitespace).unwrap_or((self.rest, ""));
        ensure!(!word.is_empty(), "expected {what}, came the end of the line");
        self.rest = rest.trim_start();
        Ok(word)
    }

    /// Takes the next word if it equals `word`.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let mut ahead = *self;
        let taken = ahead.word(word).is_ok_and(|next| next == word);
        if taken {
            *self = ahead;
        }
        taken
    }

    /// Takes the next word, which must equal `word`.
    pub(super) fn keyword(&mut self, word: &str) -> anyhow::Result<()> {
        let next = self.word(&format!("`{word}`"))?;
        ensure!(next == word, "expected `{word}`, came `{next}`");
        Ok(())
    }

    /// Takes a number.
    pub(super) fn number<N: FromStr>(&mut self, what: &str) -> anyhow::Result<N> {
        let word = self.word(what)?;
        word.parse().ok().with_context(|| format!("expected {what}, came `{word}`"))
    }

    /// Takes a time with its unit.
    pub(super) fn duration(&mut self) -> anyhow::Result<Duration> {
        let word = self.word("a time such as 250ms or 2s")?;
        let time = date::duration(word);
        time.with_context(|| format!("expected a time such as 250ms or 2s, came `{word}`"))
    }

    /// Takes bytes between double quotes.
    pub(super) fn quoted(&mut self) -> anyhow::Result<Vec<u8>> {
        let Some(inner) = self.rest.strip_prefix('"') else {
            bail!("expected quoted text, came `{}`", self.rest);
        };
        let end = closing_quote(inner).with_context(|| format!("no quote ends `\"{inner}`"))?;
        self.rest = inner[end + 1..].trim_start();
        // A quote within the text is escaped, which bstr does not know.
        Ok(Vec::unescape_bytes(inner[..end].replace("\\\"", "\"")))
    }

    /// Takes text between double quotes.
    pub(super) fn text(&mut self) -> anyhow::Result<String> {
        String::from_utf8(self.quoted()?).context("expected UTF-8")
    }

    /// Takes the rest of the line, quoted or not.
    pub(super) fn value(&mut self) -> anyhow::Result<String> {
        if self.rest.starts_with('"') {
            return self.text();
        }
        ensure!(!self.rest.is_empty(), "expected a value, came the end of the line");
        Ok(std::mem::take(&mut self.rest).to_owned())
    }

    /// Takes the size of a body, and makes it: reproducible, and without a period that is a power
    /// of two.
    pub(super) fn pattern(&mut self) -> anyhow::Result<Vec<u8>> {
        const PERIOD: u8 = 251;
        let size: usize = self.number("a number of bytes")?;
        ensure!(size <= BODY_SIZE_MAX, "expected at most {BODY_SIZE_MAX} bytes, came {size}");
        Ok((0..PERIOD).cycle().take(size).collect())
    }

    /// Fails unless the line is at its end.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        ensure!(self.rest.is_empty(), "unexpected `{}` at the end of the line", self.rest);
        Ok(())
    }
}

/// Removes the comment, and white space at both ends.
fn bare(line: &str) -> &str {
    let mut before = ' ';
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' if before != '\\' => quoted = !quoted,
            '#' if !quoted && before.is_whitespace() => return line[..at].trim(),
            _ => {}
        }
        // An escaped backslash does not escape the next character.
        before = if before == '\\' && c == '\\' { ' ' } else { c };
    }
    line.trim()
}

fn closing_quote(inner: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}
