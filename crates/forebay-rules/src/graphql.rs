//! Kind of the GraphQL operation in a request body.

use std::borrow::Cow;

use crate::json::Malformed;
use crate::json::scanner::Scanner;

/// Kind of a GraphQL operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads data.
    Query,
    /// Changes data.
    Mutation,
    /// Receives events.
    Subscription,
}

impl Operation {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Query, Self::Mutation, Self::Subscription];

    /// Returns the keyword of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
            Self::Subscription => "subscription",
        }
    }

    /// Returns the kind of the operation that a JSON body executes. `None` if the body or its document
    /// is malformed, has several operations of which none is selected, or names a member twice: then
    /// servers could read it in different ways.
    #[must_use]
    pub fn of(body: &[u8]) -> Option<Self> {
        let Body { query, name } = read(body).ok()?;
        let query = query?;
        let found = operations(&query)?;
        let name = name.as_deref().filter(|name| !name.is_empty());
        let mut selected = found.iter().filter(|one| name.is_none() || one.name == name);
        let first = selected.next()?;
        // Two operations with one name, or several without a selection.
        if selected.next().is_some() { None } else { Some(first.kind) }
    }
}

/// Members of a request body.
#[derive(Default)]
struct Body<'j> {
    query: Option<Cow<'j, str>>,
    name: Option<Cow<'j, str>>,
}

fn read(body: &[u8]) -> Result<Body<'_>, Malformed> {
    let mut found = Body::default();
    let (mut queries, mut names) = (0, 0);
    let mut scanner = Scanner::new(body)?;
    scanner.expect(b'{')?;
    scanner.members(b'}', |scanner| {
        let name = scanner.string()?;
        scanner.expect(b':')?;
        match &*name {
            "query" => {
                queries += 1;
                found.query = Some(scanner.string()?);
            }
            "operationName" => {
                names += 1;
                match scanner.peek() {
                    Some(b'"') => found.name = Some(scanner.string()?),
                    _ => scanner.skip(1)?,
                }
            }
            _ => scanner.skip(1)?,
        }
        Ok(())
    })?;
    scanner.end()?;
    if queries > 1 || names > 1 { Err(Malformed) } else { Ok(found) }
}

/// Operation of a document.
struct Named<'d> {
    kind: Operation,
    name: Option<&'d str>,
}

/// Returns the operations of a document; `None` if it is malformed.
fn operations(document: &str) -> Option<Vec<Named<'_>>> {
    let mut found = Vec::new();
    let mut rest = document;
    let mut depth = 0_usize;
    // Operation or fragment whose braces have not begun.
    let mut is_headed = false;
    while let Some(token) = next_token(&mut rest)? {
        match token {
            "{" | "(" | "[" => {
                if depth == 0 && token == "{" {
                    if !is_headed {
                        found.push(Named { kind: Operation::Query, name: None });
                    }
                    is_headed = false;
                }
                depth += 1;
            }
            "}" | ")" | "]" => depth = depth.checked_sub(1)?,
            word if depth == 0 && !is_headed => {
                is_headed = true;
                let kind = Operation::ALL.into_iter().find(|kind| kind.as_str() == word);
                match kind {
                    Some(kind) => found.push(Named { kind, name: name_ahead(rest) }),
                    None if word == "fragment" => {}
                    None => return None,
                }
            }
            _ => {}
        }
    }
    (depth == 0 && !is_headed).then_some(found)
}

/// Returns the name that follows a keyword, if one does.
fn name_ahead(mut rest: &str) -> Option<&str> {
    next_token(&mut rest).flatten().filter(|token| token.starts_with(is_name_start))
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

/// Takes the next token: a name, or one other character; a string is left out. `Some(None)` at the end,
/// `None` if a string does not end.
#[expect(clippy::option_option, reason = "the end differs from an error")]
fn next_token<'d>(rest: &mut &'d str) -> Option<Option<&'d str>> {
    loop {
        let text = rest.trim_start_matches([' ', '\t', '\r', '\n', ',', '\u{feff}']);
        if let Some(comment) = text.strip_prefix('#') {
            let end = comment.find(['\n', '\r']).unwrap_or(comment.len());
            *rest = &comment[end..];
        } else if let Some(block) = text.strip_prefix("\"\"\"") {
            *rest = after_block(block)?;
        } else if let Some(string) = text.strip_prefix('"') {
            *rest = after_string(string)?;
        } else {
            let Some(first) = text.chars().next() else {
                *rest = text;
                return Some(None);
            };
            let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
            let end = match is_part(first) {
                true => text.find(|c| !is_part(c)).unwrap_or(text.len()),
                false => first.len_utf8(),
            };
            let (token, after) = text.split_at(end);
            *rest = after;
            return Some(Some(token));
        }
    }
}

fn after_block(block: &str) -> Option<&str> {
    let mut rest = block;
    loop {
        let at = rest.find("\"\"\"")?;
        let is_escaped = rest[..at].ends_with('\\');
        rest = &rest[at + 3..];
        if !is_escaped {
            return Some(rest);
        }
    }
}

fn after_string(string: &str) -> Option<&str> {
    let mut is_escaped = false;
    for (at, byte) in string.bytes().enumerate() {
        match byte {
            b'\n' | b'\r' => return None,
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(&string[at + 1..]),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(document: &str, name: &str) -> Option<Operation> {
        let document = document.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        Operation::of(format!(r#"{{"query":"{document}","operationName":{name}}}"#).as_bytes())
    }

    #[test]
    fn the_operation_that_is_executed_decides() {
        use Operation::{Mutation, Query, Subscription};
        let two = "query A { a } mutation B { b }";
        let rows = [
            ("{ a }", "null", Some(Query)),
            ("query { a(x: {b: 1}) }", "null", Some(Query)),
            ("mutation M($a: [Int!] = [1]) @d(x: \"}\") { a }", "null", Some(Mutation)),
            ("subscription S { a }", "null", Some(Subscription)),
            ("# mutation { a }\nquery { a }", "null", Some(Query)),
            ("query Q { a(s: \"} mutation { b }\") }", "null", Some(Query)),
            ("query Q { a(s: \"\"\"} \\\"\"\" mutation { b }\"\"\") }", "null", Some(Query)),
            ("fragment mutation on T { a } query { ...mutation }", "null", Some(Query)),
            (two, "\"B\"", Some(Mutation)),
            (two, "\"A\"", Some(Query)),
            (two, "null", None),
            (two, "\"C\"", None),
            ("query A { a } mutation A { b }", "\"A\"", None),
            ("type T { a: Int }", "null", None),
            ("query { a", "null", None),
            ("query { a } }", "null", None),
            ("query", "null", None),
            ("", "null", None),
        ];
        for (document, name, expected) in rows {
            assert_eq!(of(document, name), expected, "{document} {name}");
        }
    }

    #[test]
    fn other_bodies_have_no_operation() {
        let rows = [
            r#"[{"query":"{ a }"}]"#,
            r#"{"query":"{ a }","query":"mutation { a }"}"#,
            r#"{"query":"{ a }","qu\u0065ry":"mutation { a }"}"#,
            r#"{"operationName":"A"}"#,
            r#"{"query":5}"#,
            r#"{"query":"{ a }"} x"#,
            "",
        ];
        for body in rows {
            assert_eq!(Operation::of(body.as_bytes()), None, "{body}");
        }
        let extended = r#"{"variables":{"query":"x"},"query":"{ a }","extensions":{}}"#;
        assert_eq!(Operation::of(extended.as_bytes()), Some(Operation::Query));
    }
}
