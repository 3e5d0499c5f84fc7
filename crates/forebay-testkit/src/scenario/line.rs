//! Line of a scenario, read word by word.

use std::str::FromStr;
use std::time::Duration;

use bstr::ByteVec as _;

use super::Fault;
use super::date;

/// Rest of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) number: usize,
    rest: &'a str,
}

/// Non-empty lines, without comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let numbered = text.lines().enumerate();
    let lines = numbered.map(|(index, line)| Line { number: index + 1, rest: bare(line) });
    lines.filter(|line| !line.rest.is_empty())
}

impl<'a> Line<'a> {
    /// Unread rest of the line.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Line as a field: a token as the name, directly followed by a colon and the value.
    pub(super) fn as_field(&self) -> Option<(&'a str, &'a str)> {
        let (name, value) = self.rest.split_once(':')?;
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        (!name.is_empty() && name.chars().all(is_token)).then(|| (name, value.trim()))
    }

    /// Copy of the line with only `rest` left.
    pub(super) fn skip_to(&self, rest: &'a str) -> Self {
        Self { number: self.number, rest: rest.trim_start() }
    }

    /// Copy of the line without the suffix `part`; `None` if it has no such suffix.
    pub(super) fn without_end(&self, part: &str) -> Option<Self> {
        let rest = self.rest.strip_suffix(part)?.trim_end();
        Some(Self { number: self.number, rest })
    }

    /// Takes the next word; `what` describes it in the fault of a line that has ended.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, Fault> {
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(self.fault(format!("expected {what}, came the end of the line")));
        }
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
    pub(super) fn keyword(&mut self, word: &str) -> Result<(), Fault> {
        match self.word(&format!("`{word}`"))? {
            next if next == word => Ok(()),
            next => Err(self.fault(format!("expected `{word}`, came `{next}`"))),
        }
    }

    /// Takes a number.
    pub(super) fn number<N: FromStr>(&mut self, what: &str) -> Result<N, Fault> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.fault(format!("expected {what}, came `{word}`")))
    }

    /// Takes a time with its unit.
    pub(super) fn duration(&mut self) -> Result<Duration, Fault> {
        let word = self.word("a time such as 250ms or 2s")?;
        let unknown = || self.fault(format!("expected a time such as 250ms or 2s, came `{word}`"));
        date::duration(word).ok_or_else(unknown)
    }

    /// Takes text between double quotes.
    pub(super) fn quoted(&mut self) -> Result<Vec<u8>, Fault> {
        let not_quoted = || self.fault(format!("expected quoted text, came `{}`", self.rest));
        let inner = self.rest.strip_prefix('"').ok_or_else(not_quoted)?;
        let end = closing_quote(inner)
            .ok_or_else(|| self.fault(format!("no closing quote after `\"{inner}`")))?;
        // A quote within the text is escaped, which bstr does not know.
        let bytes = Vec::unescape_bytes(inner[..end].replace("\\\"", "\""));
        self.rest = inner[end + 1..].trim_start();
        Ok(bytes)
    }

    /// Fails unless the line is at its end.
    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.fault(format!("unexpected `{}` at the end of the line", self.rest)))
    }

    /// Fault at this line.
    pub(super) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::new(self.number, what)
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
