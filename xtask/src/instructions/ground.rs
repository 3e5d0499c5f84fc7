//! What instruction counts hold for: one compiler, and one kind of machine.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Where counts were made. The C library and the vectors that it may use decide what copying and
/// allocating cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ground {
    toolchain: String,
    target: String,
    libc: String,
    vectors: String,
}

/// How two grounds compare.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Match {
    Same,
    /// The repository names the toolchain, so whoever changes it there records anew.
    OtherToolchain(String),
    /// Nobody's fault, and nothing to compare.
    OtherMachine(String),
}

impl Ground {
    pub(super) fn here() -> Result<Self> {
        let verbose = said(Command::new("rustc").arg("-vV"))?;
        let part = |name| verbose.lines().find_map(|line: &str| line.strip_prefix(name));
        let release = part("release: ").context("rustc does not tell its release")?;
        let target = part("host: ").context("rustc does not tell its host")?;
        // Another libc has no such variable; it is a machine of another kind all the same.
        let libc = said(Command::new("getconf").arg("GNU_LIBC_VERSION"));
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Ok(Self {
            toolchain: format!("rustc {release}"),
            target: target.to_owned(),
            libc: libc.map_or_else(|_| "another libc".to_owned(), |text| text.trim().to_owned()),
            vectors: vectors(&processor).to_owned(),
        })
    }

    pub(super) fn compare(&self, now: &Self) -> Match {
        if self.toolchain != now.toolchain {
            let (was, is) = (&self.toolchain, &now.toolchain);
            return Match::OtherToolchain(format!("the record was made with {was}, this is {is}"));
        }
        if self != now {
            let (was, is) = (self.machine(), now.machine());
            return Match::OtherMachine(format!("the record was made on {was}, this is {is}"));
        }
        Match::Same
    }

    pub(super) fn toolchain(&self) -> &str {
        &self.toolchain
    }

    /// The kind of machine, in words.
    pub(super) fn machine(&self) -> String {
        format!("{} with {} and {}", self.target, self.libc, self.vectors)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "toolchain": self.toolchain,
            "target": self.target,
            "libc": self.libc,
            "vectors": self.vectors,
        })
    }

    pub(super) fn read(json: &Value) -> Result<Self> {
        let text = |name: &str| {
            let found = json[name].as_str().map(str::to_owned);
            found.with_context(|| format!("the record's ground has no `{name}`"))
        };
        Ok(Self {
            toolchain: text("toolchain")?,
            target: text("target")?,
            libc: text("libc")?,
            vectors: text("vectors")?,
        })
    }
}

/// The widest vectors that valgrind passes on to what it runs: it knows none beyond these.
fn vectors(processor: &str) -> &'static str {
    let flags = processor.lines().find(|line| line.starts_with("flags"));
    if flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "avx2")) {
        "avx2"
    } else {
        "no avx2"
    }
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.current_dir(crate::workspace::root()).output();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output.with_context(|| format!("start `{program}`"))?;
    ensure!(output.status.success(), "`{program}` failed");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground {
            toolchain: "rustc 1.0.0".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            libc: "glibc 2.36".to_owned(),
            vectors: "avx2".to_owned(),
        }
    }

    #[test]
    fn a_ground_survives_its_json() {
        assert_eq!(Ground::read(&ground().json()).unwrap(), ground());
        let error = Ground::read(&json!({ "toolchain": "rustc 1.0.0" })).unwrap_err();
        assert!(error.to_string().contains("`target`"), "{error}");
    }

    #[test]
    fn a_toolchain_weighs_more_than_a_machine() {
        let toolchain = Ground { toolchain: "rustc 1.1.0".to_owned(), ..ground() };
        let machine = Ground { libc: "glibc 2.41".to_owned(), ..ground() };
        let both = Ground { libc: "glibc 2.41".to_owned(), ..toolchain.clone() };
        assert_eq!(ground().compare(&ground()), Match::Same);
        assert!(matches!(ground().compare(&toolchain), Match::OtherToolchain(_)));
        assert!(matches!(ground().compare(&both), Match::OtherToolchain(_)));
        let Match::OtherMachine(says) = ground().compare(&machine) else { panic!("the same") };
        assert!(says.contains("glibc 2.36") && says.contains("glibc 2.41"), "{says}");
    }

    #[test]
    fn vectors_are_read_from_the_flags_alone() {
        assert_eq!(vectors("model name : avx2\nflags\t\t: fpu avx avx2 sse\n"), "avx2");
        assert_eq!(vectors("model name : avx2\nflags\t\t: fpu avx sse\n"), "no avx2");
        assert_eq!(vectors(""), "no avx2");
    }

    #[test]
    fn the_toolchain_here_is_known() {
        assert!(Ground::here().unwrap().toolchain().starts_with("rustc 1."));
    }
}
