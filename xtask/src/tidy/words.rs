//! Names that say nothing: of files, and of the types, functions and modules that code defines.
//!
//! Names of tests are sentences, so inside tests anything may be said. The names in an
//! implementation of a trait are the trait's choice and are looked at where it is defined.

use super::{Finding, Source};

/// Words that could stand on any door.
const EMPTY: &[&str] = &["manager", "helper", "util", "common", "misc", "data", "info", "context"];
/// A type that handles does something that has a better name.
const EMPTY_IN_TYPES: &[&str] = &["handler"];
/// Openings of function names that add nothing to what follows.
const OPENINGS: &[&str] = &["do_", "process_", "get_"];
/// Endings of type names that add nothing to what precedes.
const ENDINGS: &[&str] = &["Impl"];

/// Names that stay in spite of all this: the name, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("get_or_load", "as its users know it from other caches: get, or else load"),
    ("get_or_load_with", "the same"),
    ("get_many", "the same, for `get`"),
    ("get_many_or_load", "the same"),
];

/// Looks at each folder and file name of a path.
pub(super) fn check_path(path: &str) -> Vec<Finding> {
    let parts = path.split('/').flat_map(|part| part.split('.'));
    let mut found = parts.flat_map(words).filter_map(|word| empty(&word, EMPTY));
    let says = found.next().map(|word| format!("a path with `{word}`; say what is in it"));
    says.map(|says| Finding::new(path, 1, says)).into_iter().collect()
}

/// Looks at what a source defines.
pub(super) fn check_names(source: &Source) -> Vec<Finding> {
    let of_traits = source.trait_lines();
    let definitions = source.tokens.windows(2).filter(|pair| {
        let line = pair[0].line;
        !source.is_test(line) && !of_traits.iter().any(|lines| lines.contains(&line))
    });
    let complaints = definitions.filter_map(|pair| {
        let says = complaint(&pair[0].text, &pair[1].text)?;
        Some(Finding::new(&source.path, pair[1].line, says))
    });
    complaints.collect()
}

fn complaint(keyword: &str, name: &str) -> Option<String> {
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
    let is_named = is_type || matches!(keyword, "fn" | "mod");
    if !is_named || ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
        return None;
    }
    let bad = |part: &str| Some(format!("`{name}`: no `{part}`; name it by what it is or does"));
    if let Some(word) = words(name).iter().find_map(|word| empty(word, EMPTY)) {
        return bad(word);
    }
    if is_type {
        let handler = words(name).iter().find_map(|word| empty(word, EMPTY_IN_TYPES));
        let ending = ENDINGS.iter().copied().find(|ending| name.ends_with(ending));
        return handler.or(ending).and_then(bad);
    }
    let opening = OPENINGS.iter().copied().find(|opening| name.starts_with(opening));
    opening.filter(|_| keyword == "fn").and_then(bad)
}

/// The word of `table` that this one is, alone or in the plural.
fn empty(word: &str, table: &[&'static str]) -> Option<&'static str> {
    table.iter().copied().find(|bad| word == *bad || word.strip_suffix('s') == Some(bad))
}

/// `HttpDataStore` and `http_data-store` are each `http`, `data`, `store`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || c == '-' || (c.is_uppercase() && !before.is_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c != '_' && c != '-') {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let source = Source::parse("a.rs", text);
        check_names(&source).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_cut_into_words() {
        assert_eq!(words("HttpDataStore"), ["http", "data", "store"]);
        assert_eq!(words("http_data-store"), ["http", "data", "store"]);
        assert_eq!(words("metadata"), ["metadata"]);
        assert_eq!(words("TTL"), ["ttl"]);
    }

    #[test]
    fn empty_words_trip() {
        for text in [
            "struct TierManager;",
            "enum Helpers {}",
            "mod utils;",
            "trait Common {}",
            "fn misc() {}",
            "type Data = u8;",
            "fn build_info() {}",
            "struct PurgeContext;",
            "struct PurgeHandler;",
            "fn do_purge() {}",
            "fn process_purge() {}",
            "fn get_tier() {}",
            "struct TierImpl;",
        ] {
            assert_eq!(findings(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn names_that_say_something_do_not_trip() {
        for text in [
            "struct Tier; // a manager of a context",
            "fn handler() {}",
            "fn metadata() -> &'static str { \"struct Data;\" }",
            "fn target() {}",
            "fn forget_tier() {}",
            "fn undo_purge() {}",
            "mod imply;",
            "use anyhow::Context;",
            "impl Body for Window { type Data = Bytes; fn get_ref(&self) {} }",
            "let context = data.info();",
        ] {
            assert_eq!(findings(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn tests_may_say_anything() {
        assert_eq!(findings("#[cfg(test)]\nmod tests {\n  fn get_is_cached() {}\n}"), [""; 0]);
    }

    #[test]
    fn a_finding_names_the_line_and_the_part() {
        let found = findings("\nfn get_tier() {}");
        assert_eq!(found, ["a.rs:2: `get_tier`: no `get_`; name it by what it is or does"]);
    }

    #[test]
    fn paths_are_names_too() {
        for path in ["crates/a/src/utils.rs", "crates/common/src/lib.rs", "docs/misc.md"] {
            assert_eq!(check_path(path).len(), 1, "{path}");
        }
        for path in ["crates/a/src/metadata.rs", "README.md", "crates/a/src/handler.rs"] {
            assert_eq!(check_path(path), [], "{path}");
        }
    }
}
