//! Regular expressions: one alone, and many of them in one automaton.

use std::fmt;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::Look;

use crate::bits::Bits;

/// Maximum length of an expression in bytes.
const PATTERN_MAX: usize = 1_024;

/// Maximum size of one compiled expression in bytes.
const COMPILED_MAX: usize = 256 << 10;

/// Maximum size of the joint automaton of a site, and of its construction, in bytes. Expressions
/// that do not fit run alone.
const AUTOMATON_MAX: usize = 512 << 10;

/// Regular expression. It reads bytes: `\w` and `\d` are ASCII.
#[derive(Clone)]
pub struct Pattern {
    text: Box<str>,
    regex: Regex,
    is_anchored: bool,
}

/// Syntax of all expressions.
fn syntax_config() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the expression.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_MAX {
            return Err(format!("is longer than {PATTERN_MAX} bytes"));
        }
        Self::compiled(text)
    }

    /// Compiles an expression of any length.
    pub(crate) fn compiled(text: &str) -> Result<Self, String> {
        let hir = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(text)
            .map_err(|error| format!("is not a regular expression: {}", cause(&error)))?;
        let regex = Regex::builder()
            .syntax(syntax_config())
            .configure(
                Regex::config()
                    .utf8_empty(false)
                    .nfa_size_limit(Some(COMPILED_MAX))
                    .hybrid_cache_capacity(COMPILED_MAX),
            )
            .build(text)
            .map_err(|_| "is too large; shorten it or its repetitions".to_owned())?;
        let is_anchored = hir.properties().look_set_prefix().contains(Look::Start);
        Ok(Self { text: text.into(), regex, is_anchored })
    }

    /// Returns the expression as typed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the expression can match at the start of the text only.
    #[must_use]
    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// Returns true if the expression is found in the text.
    #[must_use]
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Replaces the groups in `to` (`$1`) by those of the first match. `None` without a match.
    #[must_use]
    pub(crate) fn expand(&self, text: &str, to: &str) -> Option<String> {
        let mut groups = self.regex.create_captures();
        self.regex.captures(text, &mut groups);
        groups.is_match().then(|| groups.interpolate_string(text, to))
    }
}

/// Last line of a syntax error, which names the cause.
fn cause(error: &regex_syntax::Error) -> String {
    let text = error.to_string();
    text.lines().next_back().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

/// Alternatives to which a match belongs, for each reading of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) first: Bits,
    pub(crate) second: Bits,
}

/// Reading of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    First,
    Second,
}

/// Automaton of many expressions, which are all matched in one pass over the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternSet {
    /// The automaton and its state before the first byte.
    automaton: Option<(dense::DFA<Vec<u32>>, StateID)>,
    marks: Vec<Marks>,
    /// Alternatives without a condition of this kind.
    unconditional: Bits,
}

/// Expressions before they are compiled together.
#[derive(Debug)]
pub(crate) struct PatternSetBuilder {
    sources: Vec<String>,
    marks: Vec<Marks>,
    conditional: Bits,
}

impl PatternSetBuilder {
    pub(crate) fn new() -> Self {
        Self { sources: Vec::new(), marks: Vec::new(), conditional: Bits::NONE }
    }

    /// Adds an expression that must match the whole text.
    pub(crate) fn add(&mut self, source: String, alternative: usize, readings: &[Reading]) {
        self.conditional.insert(alternative);
        let n = self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.marks.push(Marks::default());
            self.sources.len() - 1
        });
        for reading in readings {
            match reading {
                Reading::First => self.marks[n].first.insert(alternative),
                Reading::Second => self.marks[n].second.insert(alternative),
            }
        }
    }

    /// Compiles the expressions. `None` if they do not fit into [`AUTOMATON_MAX`].
    pub(crate) fn build(self) -> Option<PatternSet> {
        let unconditional = !self.conditional;
        if self.sources.is_empty() {
            return Some(PatternSet { unconditional, ..PatternSet::default() });
        }
        let automaton = automaton(&self.sources)?;
        let start = start::Config::new().anchored(Anchored::Yes);
        let start = automaton.start_state(&start).ok()?;
        Some(PatternSet { automaton: Some((automaton, start)), marks: self.marks, unconditional })
    }
}

/// Returns the expression as one that must match the whole text.
pub(crate) fn whole(pattern: &Pattern) -> String {
    let start = if pattern.is_anchored { r"\A" } else { r"\A(?s-u:.*)" };
    format!(r"{start}(?:{})(?s-u:.*)\z", pattern.text)
}

/// Compiles expressions that match whole texts. `None` if they are too large together.
pub(crate) fn automaton(sources: &[String]) -> Option<dense::DFA<Vec<u32>>> {
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Anchored)
        .dfa_size_limit(Some(AUTOMATON_MAX))
        .determinize_size_limit(Some(4 * AUTOMATON_MAX));
    dense::Builder::new()
        .configure(config)
        .syntax(syntax_config())
        .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(4 * AUTOMATON_MAX)))
        .build_many(sources)
        .ok()
}

impl PatternSet {
    /// Returns the alternatives that have no condition of this kind or one that matches.
    pub(crate) fn matches(&self, text: &[u8], reading: Reading) -> Bits {
        let mut found = self.unconditional;
        let Some((automaton, start)) = &self.automaton else { return found };
        let mut state = *start;
        for byte in text {
            state = automaton.next_state(state, *byte);
            if automaton.is_special_state(state) && automaton.is_dead_state(state) {
                return found;
            }
        }
        state = automaton.next_eoi_state(state);
        if automaton.is_match_state(state) {
            for n in 0..automaton.match_len(state) {
                let marks = &self.marks[automaton.match_pattern(state, n).as_usize()];
                found |= if reading == Reading::First { marks.first } else { marks.second };
            }
        }
        found
    }

    /// Size of the automaton in bytes.
    pub(crate) fn size(&self) -> usize {
        self.automaton.as_ref().map_or(0, |(automaton, _)| automaton.memory_usage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_finds_what_its_expressions_find() {
        let texts = ["^/a", "b$", "^/[a-z]+/x$", "(?i)Q", "c|^/d", "^$", "^/e|f"];
        let patterns: Vec<Pattern> = texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
        let mut builder = PatternSetBuilder::new();
        for (n, pattern) in patterns.iter().enumerate() {
            builder.add(whole(pattern), n, &[Reading::First]);
        }
        let set = builder.build().unwrap();
        for text in
            ["", "/a", "/ab", "/q/x", "/Q", "/zc", "/d", "x/d", "/e", "f", "/x\n", "/\u{e4}"]
        {
            let found = set.matches(text.as_bytes(), Reading::First);
            for (n, pattern) in patterns.iter().enumerate() {
                let expected = pattern.is_match(text.as_bytes());
                assert_eq!(found.contains(n), expected, "{pattern:?} in {text:?}");
            }
            assert!(found.contains(200), "alternatives without an expression");
            assert!(!set.matches(text.as_bytes(), Reading::Second).contains(0));
        }
    }

    #[test]
    fn anchors_are_recognized() {
        for (text, expected) in [("^a", true), ("a", false), ("^a|^b", true), ("^a|b", false)] {
            assert_eq!(Pattern::new(text).unwrap().is_anchored(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_expressions_are_refused_with_their_cause() {
        let error = Pattern::new("a(").unwrap_err();
        assert_eq!(error, "is not a regular expression: unclosed group");
        assert!(Pattern::new(&"a".repeat(2_000)).is_err());
        assert!(Pattern::new("(?:[a-z]{500}){500}").is_err());
    }

    #[test]
    fn groups_are_expanded() {
        let pattern = Pattern::new("^/p/([0-9]+)").unwrap();
        assert_eq!(pattern.expand("/p/42/x", "/product/$1").as_deref(), Some("/product/42"));
        assert_eq!(pattern.expand("/x", "/y"), None);
    }
}
