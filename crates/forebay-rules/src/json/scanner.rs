//! Scanner of JSON text (RFC 8259): positions of values, without copies.

use std::borrow::Cow;

use super::Malformed;

/// Maximum number of nested arrays and objects.
pub(crate) const DEPTH_MAX: usize = 128;

/// Position in a JSON text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'j> {
    pub(crate) text: &'j [u8],
    pub(crate) at: usize,
}

impl<'j> Scanner<'j> {
    /// Begins at the start of a text. It must be UTF-8.
    pub(crate) fn new(text: &'j [u8]) -> Result<Self, Malformed> {
        str::from_utf8(text).map_err(|_| Malformed)?;
        Ok(Self { text, at: 0 })
    }

    /// Skips white space, and returns the next byte without taking it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Takes the next byte if it is this one, behind white space.
    pub(crate) fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes this byte.
    pub(crate) fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.takes(byte) { Ok(()) } else { Err(Malformed) }
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), Malformed> {
        if self.peek().is_none() { Ok(()) } else { Err(Malformed) }
    }

    /// Takes a string, and returns its decoded text.
    pub(crate) fn string(&mut self) -> Result<Cow<'j, str>, Malformed> {
        self.expect(b'"')?;
        let start = self.at;
        let mut is_plain = true;
        loop {
            match self.text.get(self.at).ok_or(Malformed)? {
                b'"' => break,
                b'\\' => {
                    is_plain = false;
                    self.at += 2;
                }
                0..=0x1f => return Err(Malformed),
                _ => self.at += 1,
            }
        }
        let raw = self.text.get(start..self.at).ok_or(Malformed)?;
        self.at += 1;
        let raw = str::from_utf8(raw).map_err(|_| Malformed)?;
        if is_plain { Ok(Cow::Borrowed(raw)) } else { decoded(raw).map(Cow::Owned) }
    }

    /// Takes one value of any kind.
    pub(crate) fn skip(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        match self.peek().ok_or(Malformed)? {
            b'"' => self.string().map(|_| ()),
            b'{' => {
                self.at += 1;
                self.members(b'}', |scanner| {
                    scanner.string()?;
                    scanner.expect(b':')?;
                    scanner.skip(depth + 1)
                })
            }
            b'[' => {
                self.at += 1;
                self.members(b']', |scanner| scanner.skip(depth + 1))
            }
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    /// Takes members up to `close`, separated by commas.
    pub(crate) fn members(
        &mut self,
        close: u8,
        mut member: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if self.takes(close) {
            return Ok(());
        }
        loop {
            member(self)?;
            if self.takes(close) {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Malformed> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Malformed);
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        let take = |scanner: &mut Self, byte: u8| {
            let is_next = scanner.text.get(scanner.at) == Some(&byte);
            scanner.at += usize::from(is_next);
            is_next
        };
        take(self, b'-');
        if !take(self, b'0') {
            self.digits()?;
        }
        if take(self, b'.') {
            self.digits()?;
        }
        if take(self, b'e') || take(self, b'E') {
            let _ = take(self, b'+') || take(self, b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(Malformed) }
    }
}

/// Decodes the escapes of a string.
fn decoded(raw: &str) -> Result<String, Malformed> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let kind = rest.as_bytes().get(at + 1).ok_or(Malformed)?;
        rest = rest.get(at + 2..).ok_or(Malformed)?;
        match kind {
            b'"' | b'\\' | b'/' => text.push(char::from(*kind)),
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'n' => text.push('\n'),
            b'r' => text.push('\r'),
            b't' => text.push('\t'),
            b'u' => {
                let mut unit = hex(&mut rest)?;
                let mut pair = None;
                if (0xd800..0xdc00).contains(&unit)
                    && let Some(mut after) = rest.strip_prefix("\\u")
                    && let low @ 0xdc00..0xe000 = hex(&mut after)?
                {
                    pair = char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
                    rest = after;
                }
                if (0xd800..0xe000).contains(&unit) {
                    // A half of a pair alone names nothing that UTF-8 can hold.
                    unit = 0xfffd;
                }
                text.push(pair.or_else(|| char::from_u32(unit)).ok_or(Malformed)?);
            }
            _ => return Err(Malformed),
        }
    }
    text.push_str(rest);
    Ok(text)
}

fn hex(rest: &mut &str) -> Result<u32, Malformed> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let digits = digits.ok_or(Malformed)?;
    *rest = &rest[4..];
    u32::from_str_radix(digits, 16).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(text: &str) -> bool {
        let read = |text: &str| {
            let mut scanner = Scanner::new(text.as_bytes())?;
            scanner.skip(0)?;
            scanner.end()
        };
        read(text).is_ok()
    }

    #[test]
    fn json_is_told_from_other_text() {
        let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let good = [
            "1",
            " -0.5e+3 ",
            "\"a\\u00e9\\n\"",
            "[]",
            "{}",
            "[1, 2]",
            "{\"a\":{\"b\":[null,true]}}",
        ];
        for text in good {
            assert!(is_valid(text), "{text}");
        }
        let bad = [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "01",
            "1.",
            "-",
            "+1",
            "nul",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\t\"",
            "1 2",
            "[1 2]",
            "{\"a\":1,}",
            "\"\\",
            "NaN",
        ];
        for text in bad {
            assert!(!is_valid(text), "{text}");
        }
        assert!(is_valid(&deep(DEPTH_MAX)) && !is_valid(&deep(DEPTH_MAX + 1)));
        assert!(Scanner::new(b"\"\xff\"").is_err());
    }

    #[test]
    fn escapes_are_decoded() {
        let of = |text: &str| Scanner::new(text.as_bytes()).unwrap().string().unwrap().into_owned();
        assert_eq!(of(r#""a\u0062\/\"\\ \ud83d\ude00\ud83d""#), "ab/\"\\ \u{1f600}\u{fffd}");
    }
}
