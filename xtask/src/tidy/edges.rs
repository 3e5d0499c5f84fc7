//! Who may depend on whom. A new arrow needs a new entry here, and so a reviewer.

use serde_json::Value;

use super::Finding;

/// What one crate of the workspace may depend on.
struct Row {
    package: &'static str,
    /// Crates of the workspace that it is built from.
    normal: &'static [&'static str],
    /// Further crates of the workspace that its tests may use.
    tests: &'static [&'static str],
    /// Crates from outside that would break what it promises, with all their relatives
    /// (`http` bars `http-body` too).
    never: &'static [&'static str],
}

/// The pure crates know no runtime, no socket and no dice.
const PURE: &[&str] = &["tokio", "hyper", "rand", "futures"];

const ROWS: &[Row] = &[
    Row { package: "forebay-core", normal: &[], tests: &[], never: PURE },
    Row { package: "forebay-semantics", normal: &["forebay-core"], tests: &[], never: PURE },
    Row {
        package: "forebay-engine",
        normal: &["forebay-core"],
        tests: &["forebay-testkit"],
        // The engine serves every door, so it knows the language of none.
        never: &["http", "hyper"],
    },
    Row {
        package: "forebay-disk",
        normal: &["forebay-engine", "forebay-core"],
        tests: &["forebay-testkit"],
        // A tier knows the language of no door.
        never: &["http", "hyper"],
    },
    Row {
        package: "forebay-redis",
        normal: &["forebay-engine", "forebay-core"],
        tests: &["forebay-testkit"],
        // A tier knows no door.
        never: &["http", "hyper"],
    },
    Row {
        package: "forebay-http",
        normal: &["forebay-semantics", "forebay-engine", "forebay-core"],
        tests: &["forebay-testkit"],
        never: &[],
    },
    Row {
        package: "forebay",
        normal: &[
            "forebay-disk",
            "forebay-redis",
            "forebay-engine",
            "forebay-core",
            "forebay-macros",
        ],
        // Its own tests and examples ask for its test kit.
        tests: &["forebay-testkit", "forebay"],
        never: &["http", "hyper"],
    },
    // It makes source text, and knows the library by its name alone.
    Row { package: "forebay-macros", normal: &[], tests: &[], never: PURE },
    Row {
        package: "forebay-cli",
        normal: &[
            "forebay-http",
            "forebay-disk",
            "forebay-redis",
            "forebay-engine",
            "forebay-core",
            "forebay-semantics",
        ],
        tests: &["forebay-testkit"],
        never: &[],
    },
    Row {
        package: "forebay-fuzz",
        // It feeds the parsers of all of them; nobody depends on it.
        normal: &[
            "forebay",
            "forebay-http",
            "forebay-disk",
            "forebay-redis",
            "forebay-engine",
            "forebay-core",
            "forebay-semantics",
        ],
        tests: &[],
        never: &[],
    },
    // What a user of the library would write, and so built from it alone.
    Row { package: "users-service", normal: &["forebay"], tests: &[], never: &[] },
    Row { package: "forebay-testkit", normal: &["forebay-core"], tests: &[], never: &[] },
    Row { package: "xtask", normal: &[], tests: &[], never: &[] },
];

/// Compares what `cargo metadata` says with the table.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = packages.iter().filter_map(|one| one["name"].as_str()).collect();
    packages.iter().flat_map(|package| check_package(package, &names)).collect()
}

fn check_package(package: &Value, workspace: &[&str]) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let manifest = manifest_of(package);
    let Some(row) = ROWS.iter().find(|row| row.package == name) else {
        let says = format!("`{name}` has no row in xtask/src/tidy/edges.rs; add one");
        return vec![Finding::new(&manifest, 1, says)];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let complaints = dependencies.filter_map(|dependency| {
        let target = dependency["name"].as_str()?;
        let is_for_tests = dependency["kind"].as_str() == Some("dev");
        let inner = workspace.contains(&target);
        complaint(row, target, if is_for_tests { Kind::Tests } else { Kind::Normal }, inner)
    });
    complaints.map(|says| Finding::new(&manifest, 1, says)).collect()
}

/// What a dependency is for. Build scripts count as normal: they gate the build.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Tests,
}

fn complaint(row: &Row, target: &str, kind: Kind, is_inner: bool) -> Option<String> {
    let allowed = row.normal.contains(&target);
    let from = row.package;
    match kind {
        Kind::Normal if is_inner && !allowed => Some(format!(
            "`{from}` may not depend on `{target}`; move the code down, or change the table in \
             xtask/src/tidy/edges.rs with a decision record"
        )),
        Kind::Tests if is_inner && !allowed && !row.tests.contains(&target) => Some(format!(
            "the tests of `{from}` may not depend on `{target}`; see xtask/src/tidy/edges.rs"
        )),
        Kind::Normal if row.never.iter().any(|barred| is_relative(target, barred)) => Some(
            format!("`{from}` must stay free of `{target}`; take what it needs as an argument"),
        ),
        _ => None,
    }
}

fn is_relative(target: &str, barred: &str) -> bool {
    let rest = target.strip_prefix(barred);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// The manifest's path from the root, as far as the metadata lets it be known.
fn manifest_of(package: &Value) -> String {
    let full = package["manifest_path"].as_str().unwrap_or_default();
    let from = full.rfind("/crates/").or_else(|| full.rfind("/xtask/"));
    full[from.map_or(0, |at| at + 1)..].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn says(package: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let mut packages: Vec<Value> =
            ROWS.iter().map(|row| json!({ "name": row.package, "dependencies": [] })).collect();
        packages.retain(|one| one["name"] != package);
        packages.push(json!({
            "name": package,
            "manifest_path": format!("/there/crates/{package}/Cargo.toml"),
            "dependencies": [{ "name": dependency, "kind": kind }],
        }));
        let findings = check(&json!({ "packages": packages }));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_point_down() {
        assert!(says("forebay-engine", "forebay-core", None).is_empty());
        assert!(says("forebay-http", "forebay-engine", None).is_empty());
        let up = says("forebay-core", "forebay-engine", None);
        assert_eq!(up.len(), 1);
        assert!(up[0].starts_with("crates/forebay-core/Cargo.toml:1: "), "{up:?}");
        assert_eq!(says("forebay-core", "forebay-engine", Some("build")).len(), 1);
    }

    #[test]
    fn the_testkit_is_for_tests_alone() {
        assert!(says("forebay-http", "forebay-testkit", Some("dev")).is_empty());
        assert_eq!(says("forebay-http", "forebay-testkit", None).len(), 1);
        assert_eq!(says("forebay-core", "forebay-testkit", Some("dev")).len(), 1);
    }

    #[test]
    fn nobody_depends_on_the_fuzz_targets() {
        assert!(says("forebay-fuzz", "forebay-http", None).is_empty());
        for row in ROWS {
            let kinds = [None, Some("dev")];
            assert!(kinds.iter().all(|kind| !says(row.package, "forebay-fuzz", *kind).is_empty()));
        }
    }

    #[test]
    fn pure_crates_know_no_runtime() {
        for barred in ["tokio", "tokio-util", "rand", "rand_core", "futures-util", "hyper"] {
            assert_eq!(says("forebay-core", barred, None).len(), 1, "{barred}");
        }
        assert!(says("forebay-core", "bytes", None).is_empty());
        assert!(says("forebay-core", "proptest", Some("dev")).is_empty());
    }

    #[test]
    fn the_engine_does_not_speak_http() {
        assert_eq!(says("forebay-engine", "http", None).len(), 1);
        assert_eq!(says("forebay-engine", "http-body-util", None).len(), 1);
        assert!(says("forebay-engine", "tokio", None).is_empty());
        assert!(says("forebay-semantics", "http", None).is_empty());
        assert!(says("forebay-engine", "httpdate", None).is_empty());
    }

    #[test]
    fn a_tier_knows_no_door() {
        assert!(says("forebay-disk", "forebay-engine", None).is_empty());
        assert_eq!(says("forebay-disk", "forebay-http", None).len(), 1);
        assert_eq!(says("forebay-disk", "hyper", None).len(), 1);
        assert_eq!(says("forebay-engine", "forebay-disk", None).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        let new = says("forebay-new", "bytes", None);
        assert_eq!(new.len(), 1);
        assert!(new[0].contains("has no row"), "{new:?}");
    }
}
