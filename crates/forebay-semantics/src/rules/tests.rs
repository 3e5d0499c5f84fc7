use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().flat_map(|chapter| chapter.rules)
}

#[test]
fn the_page_equals_the_rendered_rules() {
    let page: PathBuf = here().join("../../docs/http.md");
    let rendered = render();
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&page, &rendered).unwrap();
    }
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/http.md differs from the rules; rewrite it with: \
         FOREBAY_BLESS=1 cargo test -p forebay-semantics rules"
    );
}

/// Returns true if one of these files defines a test with that name.
fn defines(files: &[PathBuf], name: &str) -> bool {
    let definition = format!("fn {name}(");
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    texts.into_iter().any(|text| text.contains(&definition))
}

fn exists(test: &str) -> bool {
    if let Some(name) = test.strip_prefix("scenario ") {
        let folder = here().join("../forebay-http/tests/scenarios");
        return folder.join(format!("{name}.scn")).is_file();
    }
    let (folder, test) = match test.strip_prefix("core ") {
        Some(test) => (here().join("../forebay-core/src"), test),
        None => (here().join("src"), test),
    };
    let Some((file, name)) = test.split_once("::") else { return false };
    let folders = std::fs::read_dir(&folder).unwrap().map(|one| one.unwrap().path());
    let files = folders
        .chain([folder])
        .flat_map(|folder| [folder.join(format!("{file}.rs")), folder.join(file).join("tests.rs")]);
    defines(&files.collect::<Vec<_>>(), name)
}

#[test]
fn every_rule_names_a_test_that_exists() {
    for rule in all() {
        assert!(exists(rule.test), "{}: {}", rule.section, rule.test);
    }
    assert!(!exists("storable::nothing_of_that_name") && !exists("scenario z99"));
    assert!(!exists("core judge::nothing_of_that_name") && !exists("storable"));
}

#[test]
fn rules_are_distinct_sentences_with_a_section() {
    let rules: BTreeSet<_> = all().map(|rule| (rule.section, rule.sentence)).collect();
    assert_eq!(rules.len(), all().count());
    for rule in all() {
        assert!(rule.section.starts_with(|c: char| c.is_ascii_digit()), "{}", rule.section);
        for text in [rule.sentence, rule.does] {
            assert!(text.ends_with('.') && !text.contains("  "), "{text}");
        }
        assert!(rule.why.is_empty() || rule.why.ends_with('.'), "{}", rule.why);
    }
}

#[test]
fn every_rule_has_one_row() {
    let page = render();
    for rule in all() {
        assert_eq!(page.matches(&row(rule)).count(), 1, "{}", rule.sentence);
    }
}
