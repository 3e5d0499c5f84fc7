//! Blanks out what only looks like code: comments, strings, characters.

/// The same text with every comment and the inside of every literal turned into spaces.
///
/// Lines stay where they are. A text that ends inside a literal is blank to its end.
pub(super) fn mask(text: &str) -> String {
    let mut cursor = Cursor { rest: text, out: String::with_capacity(text.len()) };
    while let Some(next) = cursor.rest.chars().next() {
        cursor.step(next);
    }
    cursor.out
}

struct Cursor<'a> {
    rest: &'a str,
    out: String,
}

impl Cursor<'_> {
    fn step(&mut self, next: char) {
        match next {
            '/' if self.rest.starts_with("//") => self.blank(line_end(self.rest)),
            '/' if self.rest.starts_with("/*") => self.blank(comment_end(self.rest)),
            '"' => self.literal(1, quoted_end(self.rest, '"')),
            '\'' => match character_end(self.rest) {
                Some(end) => self.literal(1, end),
                None => self.keep(1),
            },
            _ if next == '_' || next.is_alphanumeric() => self.word(),
            _ => self.keep(next.len_utf8()),
        }
    }

    /// A word may be the prefix of a raw string, in which a backslash means nothing.
    fn word(&mut self) {
        let other = |c: char| c != '_' && !c.is_alphanumeric();
        let length = self.rest.find(other).unwrap_or(self.rest.len());
        let (word, after) = self.rest.split_at(length);
        let hashes = after.len() - after.trim_start_matches('#').len();
        let is_raw = matches!(word, "r" | "br" | "cr") && after[hashes..].starts_with('"');
        self.keep(length);
        if is_raw {
            let close = format!("\"{}", "#".repeat(hashes));
            let inside = &self.rest[hashes + 1..];
            let end = inside.find(&close).map_or(inside.len(), |at| at + close.len());
            self.literal(hashes + 1, hashes + 1 + end);
        }
    }

    /// Keeps the `open` first bytes of a literal that is `length` long and blanks the others.
    fn literal(&mut self, open: usize, length: usize) {
        self.keep(open);
        self.blank(length - open);
    }

    fn keep(&mut self, length: usize) {
        let (text, rest) = self.rest.split_at(length);
        self.out.push_str(text);
        self.rest = rest;
    }

    fn blank(&mut self, length: usize) {
        let (text, rest) = self.rest.split_at(length);
        self.out.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

fn line_end(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The end of a block comment; they nest.
fn comment_end(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The end of a literal between `quote`s, the first of which stands at the start.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The end of a character, or None when the quote opens a lifetime.
fn character_end(text: &str) -> Option<usize> {
    let mut after = text[1..].chars();
    let first = after.next()?;
    let is_character = first == '\\' || after.next() == Some('\'');
    is_character.then(|| quoted_end(text, '\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of the code, white space squeezed.
    fn left(text: &str) -> String {
        mask(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blank() {
        assert_eq!(left("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(left("a /* never closed"), "a");
        assert_eq!(left("1 / 2"), "1 / 2");
    }

    #[test]
    fn strings_are_blank_inside() {
        assert_eq!(left(r#"a("b\"c", d)"#), "a(\" , d)");
        assert_eq!(left(r##"a(r#"b"c"#, d)"##), "a(r#\" , d)");
        assert_eq!(left(r#"a(r"b\", d)"#), "a(r\" , d)");
        assert_eq!(left(r##"a(br#"b"#, b"c", c"d")"##), "a(br#\" , b\" , c\" )");
        assert_eq!(left("a \"never closed"), "a \"");
    }

    #[test]
    fn characters_are_blank_and_lifetimes_are_not() {
        assert_eq!(left(r"['{', '\'', '\u{7d}', b'}', 'x']"), "[' , ' , ' , b' , ' ]");
        assert_eq!(left("fn a<'a>(x: &'a str) {}"), "fn a<'a>(x: &'a str) {}");
        assert_eq!(left("'outer: loop { break 'outer }"), "'outer: loop { break 'outer }");
    }

    #[test]
    fn raw_names_are_not_strings() {
        assert_eq!(left("r#type + bar"), "r#type + bar");
    }

    #[test]
    fn lines_and_columns_stay() {
        let text = "let a = \"x\ny\"; // ü\nlet b;";
        let masked = mask(text);
        assert_eq!(masked.lines().count(), text.lines().count());
        let same = masked.chars().count() == text.chars().count();
        assert!(same, "{masked:?}");
    }
}
