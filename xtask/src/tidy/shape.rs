//! How long things may get: lines, functions, files; and two bools in one signature.

use super::{Finding, Source};

/// What rustfmt wraps code at; it leaves comments and strings alone.
const LINE_MAX: usize = 100;
/// Beyond this a function has two ideas.
const FUNCTION_LINES_MAX: usize = 70;
/// Beyond this a file has two ideas.
const FILE_LINES_MAX: usize = 600;
/// Tables of cases are long and simple.
const TEST_FILE_LINES_MAX: usize = 1_000;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = long_file(source);
    findings.extend(long_lines(source));
    findings.extend(functions(source));
    findings
}

fn long_file(source: &Source) -> Vec<Finding> {
    let max = if source.is_test_file() { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
    let length = source.length();
    let says = format!("{length} lines, {max} at most; split it by idea");
    (length > max).then(|| Finding::new(&source.path, max + 1, says)).into_iter().collect()
}

fn long_lines(source: &Source) -> impl Iterator<Item = Finding> {
    source.lines.iter().zip(1..).filter_map(|(line, number)| {
        let length = line.chars().count();
        let says = format!("a line of {length}, {LINE_MAX} at most; wrap it");
        (length > LINE_MAX).then(|| Finding::new(&source.path, number, says))
    })
}

fn functions(source: &Source) -> impl Iterator<Item = Finding> {
    let product = source.functions().into_iter().filter(|one| !source.is_test(one.line));
    product.filter_map(|function| {
        let name = &function.name;
        let says = if function.lines > FUNCTION_LINES_MAX {
            format!(
                "`{name}` has {} lines, {FUNCTION_LINES_MAX} at most; give its parts names",
                function.lines
            )
        } else if function.bools > 1 {
            format!("`{name}` takes {} bools; give the choices an enum", function.bools)
        } else {
            return None;
        };
        Some(Finding::new(&source.path, function.line, says))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Source::parse(path, text)).iter().map(ToString::to_string).collect()
    }

    fn function_of(lines: usize) -> String {
        format!("\nfn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn lines_are_counted_in_characters() {
        let line = format!("// {}", "ü".repeat(97));
        assert_eq!(findings("a.rs", &line), [""; 0]);
        let found = findings("a.rs", &format!("\n{line}x"));
        assert_eq!(found, ["a.rs:2: a line of 101, 100 at most; wrap it"]);
    }

    #[test]
    fn functions_are_counted_to_their_last_brace() {
        assert_eq!(findings("a.rs", &function_of(70)), [""; 0]);
        let found = findings("a.rs", &function_of(71));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:2: `long` has 71 lines"), "{found:?}");
        assert_eq!(findings("crates/a/tests/b.rs", &function_of(71)), [""; 0]);
    }

    #[test]
    fn files_are_counted_without_their_tests() {
        let code = "const A: u8 = 0;\n".repeat(600);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(300));
        assert_eq!(findings("a.rs", &format!("{code}{tests}")), [""; 0]);
        let found = findings("a.rs", &format!("{code}\n{tests}"));
        assert_eq!(found, ["a.rs:601: 601 lines, 600 at most; split it by idea"]);
    }

    #[test]
    fn files_of_tests_may_be_longer() {
        assert_eq!(findings("crates/a/src/b/tests.rs", &"\n".repeat(1_000)), [""; 0]);
        assert_eq!(findings("crates/a/src/b/tests.rs", &"\n".repeat(1_001)).len(), 1);
    }

    #[test]
    fn two_bools_are_one_too_many() {
        assert_eq!(findings("a.rs", "fn a(x: bool, y: u8) {}"), [""; 0]);
        let found = findings("a.rs", "fn a(x: bool, y: bool) {}");
        assert_eq!(found, ["a.rs:1: `a` takes 2 bools; give the choices an enum"]);
    }
}
