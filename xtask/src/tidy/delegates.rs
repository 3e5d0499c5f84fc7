//! What stands in front of a trait's implementation hands every method on, also those that have a
//! default: the compiler would not miss one that is forgotten, and its default would be taken.

use super::Finding;
use super::source::{Source, Token};

/// A type that hands on what a trait asks for.
struct Row {
    name: &'static str,
    /// Where the trait is.
    declared: &'static str,
    /// The file of the type, and the type.
    wrapper: (&'static str, &'static str),
}

const ROWS: &[Row] = &[
    Row {
        name: "Tier",
        declared: "crates/forebay-engine/src/tier.rs",
        wrapper: ("crates/forebay/src/tier_config.rs", "CappedTier"),
    },
    Row {
        name: "Tier",
        declared: "crates/forebay-engine/src/tier.rs",
        wrapper: ("crates/forebay-cli/src/shared.rs", "SharedTier"),
    },
    Row {
        name: "Tier",
        declared: "crates/forebay-engine/src/tier.rs",
        wrapper: ("crates/forebay/examples/processes/filled.rs", "Watched"),
    },
];

/// Compares each of them with its trait.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    // A row whose trait and type are both gone is for a tree without them.
    ROWS.iter().flat_map(|row| check_row(row, sources)).collect()
}

fn check_row(row: &Row, sources: &[Source]) -> Vec<Finding> {
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    let Row { name, declared, wrapper: (path, wrapper) } = row;
    let (declares, wraps) = (find(declared), find(path));
    if declares.is_none() && wraps.is_none() {
        return Vec::new();
    }
    let wanted = declares.and_then(|source| body(source, &["trait", name]));
    let given = wraps.and_then(|source| body(source, &["impl", name, "for", wrapper]));
    let (Some((_, wanted)), Some((line, given))) = (wanted, given) else {
        let says = format!("`{name}` of {declared} and `{wrapper}` are not both there: see ROWS");
        return vec![Finding::new(path, 1, says)];
    };
    let missing = wanted.into_iter().filter(|method| !given.contains(method));
    let says = |method| format!("`{wrapper}` does not hand on `{method}`, and a default would");
    missing.map(|method| Finding::new(path, line, says(method))).collect()
}

/// The line where an item begins that starts with these words, and its methods.
fn body(source: &Source, start: &[&str]) -> Option<(usize, Vec<String>)> {
    let begins = |at: &usize| {
        let tokens = &source.tokens[*at..];
        start.iter().zip(tokens).filter(|(word, token)| token.text == **word).count() == start.len()
    };
    let at = (0..source.tokens.len()).find(begins)?;
    Some((source.tokens[at].line, methods(&source.tokens[at..])))
}

/// The functions within the first pair of braces, but not within those functions.
fn methods(tokens: &[Token]) -> Vec<String> {
    let mut depth = 0_usize;
    let mut methods = Vec::new();
    for pair in tokens.windows(2) {
        match &*pair[0].text {
            "{" => depth += 1,
            "}" if depth == 1 => return methods,
            "}" => depth -= 1,
            "fn" if depth == 1 => methods.push(pair[1].text.clone()),
            _ => {}
        }
    }
    methods
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIT: &str = "pub trait Tier: Send {\n fn name(&self);\n fn takes(&self) -> bool { { \
                         true } }\n}\npub struct Other;\nimpl Other { fn more() {} }\n";

    fn findings(wrapper: &str) -> Vec<Finding> {
        let row = Row { name: "Tier", declared: "a.rs", wrapper: ("b.rs", "Shorter") };
        let sources = [Source::parse("a.rs", TRAIT), Source::parse("b.rs", wrapper)];
        check_row(&row, &sources)
    }

    #[test]
    fn a_method_with_a_default_must_be_handed_on_too() {
        let whole = "impl Tier for Shorter { fn name(&self) {} fn takes(&self) -> bool { true } }";
        assert!(findings(whole).is_empty());
        let part = "struct Shorter;\nimpl Tier for Shorter { fn name(&self) { fn takes() {} } }";
        let found = findings(part);
        assert_eq!(found.len(), 1);
        assert!(found[0].says.contains("`takes`"), "{}", found[0]);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn a_row_that_nothing_is_behind_is_found() {
        assert_eq!(findings("struct Shorter;").len(), 1);
    }
}
