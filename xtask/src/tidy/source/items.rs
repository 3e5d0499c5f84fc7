//! Items in a run of tokens: where functions, implementations and tests begin and end.

use std::ops::Range;

use super::{Function, Token, is_word};

pub(super) const CFG_TEST: &[&str] = &["#", "[", "cfg", "(", "test", ")", "]"];

/// The lines of items behind `#[cfg(test)]`.
pub(super) fn test_items(tokens: &[Token]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for at in 0..tokens.len() {
        let rest = &tokens[at..];
        let line = tokens[at].line;
        let inside = found.last().is_some_and(|range| range.contains(&line));
        if !inside && starts(rest, CFG_TEST) {
            let end = item_end(&rest[CFG_TEST.len()..]).map_or(line, |token| token.line);
            found.push(line..end + 1);
        }
    }
    found
}

/// The last token of an item: its `;`, or the brace that closes its first one.
fn item_end(tokens: &[Token]) -> Option<&Token> {
    let open = first_outside(tokens, &["{", ";"])?;
    if tokens[open].text == ";" { tokens.get(open) } else { closing(&tokens[open..]) }
}

pub(super) const PAUSED: &str = "start_paused";

/// The lines of a function behind an attribute such as `#[tokio::test(start_paused = true)]`,
/// and whether it says so.
pub(super) fn test_at(tokens: &[Token]) -> Option<(Range<usize>, bool)> {
    if !starts(tokens, &["#", "["]) {
        return None;
    }
    let close = 2 + first_outside(&tokens[2..], &["]"])?;
    let attribute = &tokens[2..close];
    let named = attribute.iter().rposition(|token| token.text == "test")?;
    let ends_name = attribute.get(named + 1).is_none_or(|token| token.text == "(");
    let is_cfg = attribute[0].text == "cfg";
    let rest = &tokens[close..];
    let function = rest.iter().position(|token| token.text == "fn")?;
    let function = function_at(&rest[function..]).filter(|_| ends_name && !is_cfg)?;
    let is_paused = attribute.iter().any(|token| token.text == PAUSED);
    Some((function.line..function.line + function.lines, is_paused))
}

pub(super) fn trait_impl_at(tokens: &[Token]) -> Option<Range<usize>> {
    let first = tokens.first().filter(|token| token.text == "impl")?;
    let open = first_outside(tokens, &["{", ";"])?;
    let is_for = |pair: &[Token]| pair[0].text == "for" && pair[1].text != "<";
    if tokens[open].text != "{" || !tokens[..=open].windows(2).any(is_for) {
        return None;
    }
    closing(&tokens[open..]).map(|last| first.line..last.line + 1)
}

pub(super) fn function_at(tokens: &[Token]) -> Option<Function> {
    let name = tokens.get(1).filter(|token| token.text.starts_with(is_word))?;
    if tokens[0].text != "fn" {
        return None;
    }
    let body = first_outside(tokens, &["{", ";"]).filter(|at| tokens[*at].text == "{")?;
    let last = closing(&tokens[body..])?;
    Some(Function {
        name: name.text.clone(),
        line: tokens[0].line,
        lines: last.line - tokens[0].line + 1,
        bools: bools(&tokens[..body]),
    })
}

/// How many parameters of a signature are `name: bool`.
fn bools(signature: &[Token]) -> usize {
    let typed = |window: &&[Token]| {
        window[0].text == ":" && window[1].text == "bool" && [",", ")"].contains(&&*window[2].text)
    };
    signature.windows(3).filter(typed).count()
}

/// The index of the first of `wanted` that stands in no parentheses or brackets.
fn first_outside(tokens: &[Token], wanted: &[&str]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            text if depth == 0 && wanted.contains(&text) => return Some(at),
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at the start.
fn closing(tokens: &[Token]) -> Option<&Token> {
    let mut depth = 0_usize;
    tokens.iter().find(|token| {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

pub(super) fn starts(tokens: &[Token], with: &[&str]) -> bool {
    tokens.len() >= with.len() && tokens.iter().zip(with).all(|(token, text)| token.text == *text)
}
