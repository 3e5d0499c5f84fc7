//! Rust text as the rules see it: tokens without comments and literals, and what is test code.
//!
//! This is no parser. It knows where strings, characters and comments end and how brackets
//! match, which is enough to find functions, names and calls without being fooled by a text.

use std::ops::Range;

mod items;
mod mask;

/// A word, a lifetime or a single character of punctuation, and the line it stands in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// A function that has a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of its `fn`.
    pub(super) line: usize,
    /// From the line of its `fn` to that of its last brace.
    pub(super) lines: usize,
    /// How many of its parameters are plain `bool`.
    pub(super) bools: usize,
}

/// One Rust file.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) lines: Vec<String>,
    pub(super) tokens: Vec<Token>,
    tests: Vec<Range<usize>>,
    is_test_file: bool,
}

impl Source {
    pub(super) fn parse(path: &str, text: &str) -> Self {
        let tokens = tokens(&mask::mask(text));
        let tests = items::test_items(&tokens);
        let lines = text.lines().map(str::to_owned).collect();
        let is_test_file = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        Self { path: path.to_owned(), lines, tokens, tests, is_test_file }
    }

    /// Whether the file is nothing but tests: `tests.rs`, anything in a folder `tests`, or a
    /// module that only tests declare.
    pub(super) fn is_test_file(&self) -> bool {
        self.is_test_file
    }

    pub(super) fn set_test_file(&mut self) {
        self.is_test_file = true;
    }

    /// The paths, without their ending, of the modules declared by `#[cfg(test)] mod NAME;`.
    pub(super) fn test_modules(&self) -> Vec<String> {
        let folder = module_folder(&self.path);
        let declared = self.tokens.windows(items::CFG_TEST.len() + 3).filter_map(|window| {
            let (attribute, declaration) = window.split_at(items::CFG_TEST.len());
            let is_module = declaration[0].text == "mod" && declaration[2].text == ";";
            (items::starts(attribute, items::CFG_TEST) && is_module).then(|| &declaration[1].text)
        });
        declared.map(|name| format!("{folder}{name}")).collect()
    }

    /// Whether the file is an example or a benchmark: a program, but not the product's.
    pub(super) fn is_example(&self) -> bool {
        self.path.split('/').any(|part| part == "examples" || part == "benches")
    }

    /// Whether a line belongs to tests.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.is_test_file() || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Whether time stands still in a line of tests: sleeping there waits for nothing.
    ///
    /// It does in a test that pauses the clock, and in what is beside the tests of a file where
    /// some do.
    pub(super) fn is_paused(&self, line: usize) -> bool {
        let mut tests = (0..self.tokens.len()).filter_map(|at| items::test_at(&self.tokens[at..]));
        match tests.find(|(lines, _)| lines.contains(&line)) {
            Some((_, is_paused)) => is_paused,
            None => self.tokens.iter().any(|token| token.text == items::PAUSED),
        }
    }

    /// The lines of implementations of traits, where the traits have chosen the names.
    pub(super) fn trait_lines(&self) -> Vec<Range<usize>> {
        (0..self.tokens.len()).filter_map(|at| items::trait_impl_at(&self.tokens[at..])).collect()
    }

    /// How many lines are not tests (all of them, in a file of tests).
    pub(super) fn length(&self) -> usize {
        let tests: usize = self.tests.iter().map(ExactSizeIterator::len).sum();
        self.lines.len() - tests
    }

    /// Every function with a body, in the order of the text.
    pub(super) fn functions(&self) -> Vec<Function> {
        (0..self.tokens.len()).filter_map(|at| items::function_at(&self.tokens[at..])).collect()
    }

    /// The lines where these tokens stand one after the other.
    pub(super) fn lines_with(&self, pattern: &[Token]) -> Vec<usize> {
        let same = |window: &[Token]| window.iter().zip(pattern).all(|(a, b)| a.text == b.text);
        let windows = self.tokens.windows(pattern.len().max(1));
        windows.filter(|window| same(window)).map(|window| window[0].line).collect()
    }
}

/// Where the modules that a file declares lie: beside a crate root, below any other file.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    match stem {
        "lib" | "main" | "mod" => format!("{folder}/"),
        stem => format!("{folder}/{stem}/"),
    }
}

/// Cuts text without literals and comments into tokens.
pub(super) fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = token_length(rest, first);
            let (text, after) = rest.split_at(length);
            if !first.is_whitespace() {
                found.push(Token { text: text.to_owned(), line: index + 1 });
            }
            rest = after;
        }
    }
    found
}

fn token_length(rest: &str, first: char) -> usize {
    let word = |text: &str| text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    match first {
        // A lifetime is one token, so that `'static str` is not taken for a definition.
        '\'' => 1 + word(&rest[1..]),
        first if is_word(first) => word(rest),
        first => first.len_utf8(),
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_lengths(text: &str) -> Vec<(String, usize)> {
        let functions = Source::parse("a.rs", text).functions();
        functions.into_iter().map(|function| (function.name, function.lines)).collect()
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "fn one() {\n  if x { \"}\" } else { '}' };\n  // }\n}\nfn two() -> u8 { 2 }\n";
        assert_eq!(names_and_lengths(text), [("one".to_owned(), 4), ("two".to_owned(), 1)]);
    }

    #[test]
    fn signatures_may_hold_semicolons_and_types_of_functions() {
        let text = "fn a(x: [u8; 4], f: fn(u8) -> u8)\nwhere\n  T: Fn(),\n{\n}\n";
        assert_eq!(names_and_lengths(text), [("a".to_owned(), 5)]);
    }

    #[test]
    fn declarations_and_pointers_are_not_functions() {
        assert_eq!(names_and_lengths("trait A { fn a(&self); }\ntype F = fn(u8);"), []);
    }

    #[test]
    fn a_function_in_a_function_counts_twice() {
        let text = "fn outer() {\n  fn inner() {\n  }\n}\n";
        assert_eq!(names_and_lengths(text), [("outer".to_owned(), 4), ("inner".to_owned(), 2)]);
    }

    #[test]
    fn only_plain_bools_are_counted() {
        let text = "fn a(x: bool, y: &bool, z: Option<bool>, w: bool) -> bool { true }";
        assert_eq!(Source::parse("a.rs", text).functions()[0].bools, 2);
    }

    #[test]
    fn test_items_are_found_and_not_counted() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n\n#[cfg(test)]\nmod more {\n}\n";
        let source = Source::parse("a.rs", text);
        let tests: Vec<usize> = (1..=8).filter(|line| source.is_test(*line)).collect();
        assert_eq!(tests, [2, 3, 6, 7, 8]);
        assert_eq!(source.length(), 3);
    }

    #[test]
    fn files_of_tests_are_known_by_their_path() {
        for path in ["crates/a/src/flight/tests.rs", "crates/a/tests/race.rs"] {
            assert!(Source::parse(path, "").is_test(1), "{path}");
        }
        assert!(!Source::parse("crates/a/src/contests.rs", "").is_test(1));
    }

    #[test]
    fn modules_that_only_tests_declare_are_known() {
        let text = "#[cfg(test)]\nmod samples;\nmod other;\n#[cfg(test)]\nmod tests {}\n";
        let declared = |path| Source::parse(path, text).test_modules();
        assert_eq!(declared("crates/a/src/front.rs"), ["crates/a/src/front/samples"]);
        assert_eq!(declared("crates/a/src/lib.rs"), ["crates/a/src/samples"]);
    }

    #[test]
    fn time_stands_still_in_paused_tests_alone() {
        let text = "fn beside() {\n}\n\
            #[tokio::test(start_paused = true)]\nasync fn paused() {\n}\n\
            #[tokio::test]\nasync fn real() {\n}\n";
        let paused = |text| {
            let source = Source::parse("a/tests/b.rs", text);
            (1..=8).filter(|line| source.is_paused(*line)).collect::<Vec<_>>()
        };
        assert_eq!(paused(text), [1, 2, 3, 4, 5, 6]);
        assert_eq!(paused(&text.replace("(start_paused = true)", "")), [0; 0]);
    }

    #[test]
    fn implementations_of_traits_are_known() {
        let text = "impl Tier {\n}\nimpl<T> Body for Tier<T>\nwhere\n  T: A,\n{\n}\n\
            fn a(x: impl for<'a> Fn(&'a u8)) {\n}\n";
        let found = Source::parse("a.rs", text).trait_lines();
        assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    }

    #[test]
    fn tokens_ignore_white_space_but_not_lines() {
        let source =
            Source::parse("a.rs", "let now =\n  Instant\n  :: now();\nlet s = \"Instant::now\";");
        assert_eq!(source.lines_with(&tokens("Instant::now")), [2]);
    }

    #[test]
    fn a_lifetime_is_one_token() {
        let texts: Vec<String> = tokens("&'static str").into_iter().map(|t| t.text).collect();
        assert_eq!(texts, ["&", "'static", "str"]);
    }
}
