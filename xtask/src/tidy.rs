//! `cargo xtask tidy`: checks that no linter knows, over every file that git tracks or would track.
//!
//! Five checks: patterns that must not occur ([`PATTERNS`]), links in Markdown, decision records, the
//! dependencies between crates ([`EDGES`]), and those between folders of a crate ([`imports`]). clippy and rustfmt check the rest of the style.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use regex::Regex;
use serde_json::Value;

use crate::{imports, needs, workspace};

/// A regular expression, the ending of the files it must not match in, and the reason.
const PATTERNS: &[(&str, &str, &str)] = &[
    (r"[ \t]+$", "", "white space at the end of the line"),
    (r#"(^|[\s"'`(=])/(home|root|work/[a-z]|tmp/[a-z])"#, "", "absolute path of one machine"),
    (
        r"^\s*(pub(\([a-z:]+\))? )?(struct|enum|trait|type) \w*(Manager|Helper|Util|Common|Misc|Impl)s?\b",
        ".rs",
        "type name that says nothing: name the type by what it is or does",
    ),
    (r"^\s*(pub(\([a-z:]+\))? )?fn (do|process)_", ".rs", "function name that says nothing"),
];

/// Headings that each decision record has.
const RECORD_HEADINGS: [&str; 3] = ["## Context", "## Decision", "## Consequences"];
const RECORDS: &str = "docs/adr/";

/// Largest number of lines of a Rust file: a longer one has two subjects.
const FILE_LINES_MAX: usize = 1_000;

/// Package, its crates of the workspace, those of its tests, and outside crates that it must not use.
type Edges =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Dependencies between crates: package, crates of the workspace that it may use, those that only
/// its tests may use, and outside crates that it must not use (`http` includes `http-body`).
///
/// A new edge needs a decision record.
const EDGES: &[Edges] = &[
    ("forebay-core", &[], &[], PURE),
    ("forebay-semantics", &["forebay-core"], &[], PURE),
    ("forebay-rules", &["forebay-semantics"], &[], PURE),
    ("forebay-macros", &[], &[], PURE),
    ("forebay-engine", &["forebay-core"], &["forebay-testkit", "forebay-engine"], HTTP),
    ("forebay-disk", &["forebay-engine", "forebay-core"], TESTKIT, HTTP),
    ("forebay-redis", &["forebay-engine", "forebay-core"], TESTKIT, HTTP),
    ("forebay-tls", &[], &[], &[]),
    (
        "forebay-http",
        &["forebay-tls", "forebay-rules", "forebay-semantics", "forebay-engine", "forebay-core"],
        TESTKIT,
        &[],
    ),
    (
        "forebay",
        &["forebay-disk", "forebay-redis", "forebay-engine", "forebay-core", "forebay-macros"],
        &["forebay-testkit", "forebay"],
        HTTP,
    ),
    ("forebay-cli", SERVER, TESTKIT, &[]),
    ("forebay-fuzz", EVERYTHING, &[], &[]),
    ("users-service", &["forebay"], &[], &[]),
    ("forebay-testkit", &["forebay-core"], &[], &[]),
    ("xtask", &[], &[], &[]),
];
/// The pure crates use no runtime, no socket and no random numbers.
const PURE: &[&str] = &["tokio", "hyper", "rand", "futures"];
const HTTP: &[&str] = &["http", "hyper"];
const TESTKIT: &[&str] = &["forebay-testkit"];
const SERVER: &[&str] = &[
    "forebay-http",
    "forebay-rules",
    "forebay-tls",
    "forebay-disk",
    "forebay-redis",
    "forebay-engine",
    "forebay-core",
    "forebay-semantics",
];
const EVERYTHING: &[&str] = &[
    "forebay",
    "forebay-http",
    "forebay-disk",
    "forebay-redis",
    "forebay-engine",
    "forebay-core",
    "forebay-semantics",
];

/// Prints each finding as `file:line: reason`, and fails if there is any.
pub(crate) fn run() -> Result<()> {
    needs::ensure_for("tidy")?;
    let files = files()?;
    let mut findings = records(&files);
    findings.extend(edges(&workspace::metadata()?));
    findings.extend(imports::findings(&files));
    for (path, text) in &files {
        findings.extend(patterns(path, text)?);
        findings.extend(links(path, text));
        if path.ends_with(".rs") && text.lines().count() > FILE_LINES_MAX {
            findings.push(format!("{path}:1: more than {FILE_LINES_MAX} lines"));
        }
    }
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings in {} files", findings.len(), files.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

/// Path from the root and text of every UTF-8 file that git tracks or would track.
fn files() -> Result<Vec<(String, String)>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let output = git.current_dir(workspace::root()).output().context("cannot start git")?;
    let paths: BTreeSet<String> =
        String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
    let read = |path: String| {
        let text = std::fs::read_to_string(workspace::root().join(&path)).ok()?;
        Some((path, text))
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

fn patterns(path: &str, text: &str) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (pattern, _, reason) in PATTERNS.iter().filter(|(_, ending, _)| path.ends_with(ending)) {
        let pattern = Regex::new(pattern)?;
        let lines = text.lines().zip(1..).filter(|(line, _)| pattern.is_match(line));
        findings.extend(lines.map(|(_, number)| format!("{path}:{number}: {reason}")));
    }
    Ok(findings)
}

/// Links to files of the repository that do not exist.
fn links(page: &str, text: &str) -> Vec<String> {
    if !page.ends_with(".md") {
        return Vec::new();
    }
    let link = Regex::new(r"\]\(<?([^)#\s>]*)|^\[[^\]]+\]: ([^#\s]*)").expect("a valid pattern");
    let mut findings = Vec::new();
    let mut is_code = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        // Inline code contains no links.
        let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for found in link.captures_iter(if is_code { "" } else { &prose }) {
            let target = found.get(1).or_else(|| found.get(2)).map_or("", |target| target.as_str());
            let is_elsewhere = target.is_empty() || target.contains(':');
            if !is_elsewhere && !exists(page, target) {
                findings.push(format!("{page}:{number}: no file `{target}`"));
            }
        }
    }
    findings
}

fn exists(page: &str, target: &str) -> bool {
    let mut path = PathBuf::new();
    let folder = Path::new(page).parent().unwrap_or_else(|| Path::new(""));
    for part in folder.join(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if !path.pop() => return false,
            _ => {}
        }
    }
    workspace::root().join(path).exists()
}

/// Decision records are `NNNN-title.md`, numbered from 1 without gaps, with the three headings.
fn records(files: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    let records = files.iter().filter(|(path, _)| path.starts_with(RECORDS));
    for ((path, text), number) in records.zip(1..) {
        if !path.starts_with(&format!("{RECORDS}{number:04}-")) {
            findings.push(format!("{path}:1: expected the number {number:04}"));
        }
        for heading in RECORD_HEADINGS {
            if !text.lines().any(|line| line == heading) {
                findings.push(format!("{path}:1: no heading `{heading}`"));
            }
        }
    }
    findings
}

/// Dependencies in the output of `cargo metadata` that [`EDGES`] does not allow.
fn edges(metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, normal, tests, never)) = EDGES.iter().find(|row| row.0 == name) else {
            findings.push(format!("`{name}` is missing in EDGES of xtask/src/tidy.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let is_for_tests = dependency["kind"] == "dev";
            let is_ours = EDGES.iter().any(|row| row.0 == target);
            let is_allowed = normal.contains(&target) || is_for_tests && tests.contains(&target);
            let is_barred = |barred: &&str| target.split(['-', '_']).next() == Some(barred);
            if is_ours && !is_allowed || !is_for_tests && never.iter().any(is_barred) {
                findings.push(format!("`{name}` may not depend on `{target}`: see EDGES"));
            }
        }
    }
    findings
}
