//! What the code measures, crate by crate: lengths of files and functions, without tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Source;

/// A table with a row per crate.
pub(super) fn table(sources: &[Source]) -> String {
    let mut crates: BTreeMap<&str, Lengths> = BTreeMap::new();
    for source in sources.iter().filter(|one| !one.is_test_file() && !one.is_example()) {
        crates.entry(package(&source.path)).or_default().add(source);
    }
    let mut out = format!(
        "{:<20} {:>5} {:>19} {:>6} {:>19}\n",
        "crate", "files", "lines med/p90/max", "fns", "lines med/p90/max"
    );
    for (name, lengths) in &mut crates {
        let files = spread(&mut lengths.files);
        let functions = spread(&mut lengths.functions);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{name:<20} {:>5} {files:>19} {:>6} {functions:>19}",
            lengths.files.len(),
            lengths.functions.len()
        );
    }
    out
}

#[derive(Default)]
struct Lengths {
    files: Vec<usize>,
    functions: Vec<usize>,
}

impl Lengths {
    fn add(&mut self, source: &Source) {
        self.files.push(source.length());
        let functions = source.functions();
        let product = functions.iter().filter(|one| !source.is_test(one.line));
        self.functions.extend(product.map(|one| one.lines));
    }
}

/// `crates/NAME/...` belongs to NAME, anything else to its first folder.
fn package(path: &str) -> &str {
    let inner = path.strip_prefix("crates/").unwrap_or(path);
    inner.split('/').next().unwrap_or(inner)
}

/// Median, ninetieth percentile and maximum.
fn spread(lengths: &mut [usize]) -> String {
    lengths.sort_unstable();
    let at = |percent: usize| {
        let last = lengths.len().checked_sub(1)?;
        lengths.get(last * percent / 100)
    };
    match (at(50), at(90), at(100)) {
        (Some(median), Some(high), Some(max)) => format!("{median}/{high}/{max}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_per_crate_without_tests() {
        let text = "fn a() {}\nfn b() {\n}\n\n#[cfg(test)]\nmod tests {\n  fn c() {}\n}\n";
        let sources = [
            Source::parse("crates/forebay-core/src/lib.rs", text),
            Source::parse("crates/forebay-core/tests/a.rs", text),
            Source::parse("xtask/src/main.rs", "fn main() {}\n"),
        ];
        let table = table(&sources);
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["forebay-core", "1", "4/4/4", "2", "1/1/2"]);
        assert_eq!(rows[1], ["xtask", "1", "1/1/1", "1", "1/1/1"]);
    }

    #[test]
    fn spreads_are_of_sorted_lengths() {
        assert_eq!(spread(&mut [9, 1, 5]), "5/5/9");
        assert_eq!(spread(&mut []), "-");
        let mut many: Vec<usize> = (1..=100).collect();
        assert_eq!(spread(&mut many), "50/90/100");
    }
}
