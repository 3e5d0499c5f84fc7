//! `cargo xtask soak NAME`: a suite that the tests run too, with many more rounds.

use anyhow::{Result, ensure};

use crate::{Usage, test, workspace};

/// A name, what makes cargo run the suite, and what makes the suite run longer.
struct Soak {
    name: &'static str,
    package: &'static str,
    /// What of the package is built, and how, if it is not all of it as usual.
    build: &'static [&'static str],
    filter: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "flights",
        package: "forebay-engine",
        build: &[],
        filter: "race",
        environment: &[("FOREBAY_SOAK_ROUNDS", "100")],
    },
    Soak {
        name: "cluster",
        package: "forebay-engine",
        build: &[],
        // 100,000 histories, and everything else about several instances.
        filter: "cluster::",
        environment: &[("FOREBAY_SOAK_ROUNDS", "20")],
    },
    Soak {
        name: "interleavings",
        package: "forebay-engine",
        build: &["--features", "interleavings", "--lib"],
        filter: "interleavings",
        environment: &[("FOREBAY_SOAK_ROUNDS", "20")],
    },
    Soak {
        name: "disk",
        package: "forebay-disk",
        build: &[],
        // Killed processes, and every single call of the file system failing.
        filter: "wrong",
        environment: &[("FOREBAY_SOAK_ROUNDS", "1000")],
    },
    Soak {
        name: "fuzz",
        package: "forebay-fuzz",
        build: &[],
        // Every test: no part of a name is common to all targets.
        filter: "",
        environment: &[("FOREBAY_FUZZ_SECONDS", "600")],
    },
];

/// Runs the soak that the one argument names.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let soak = chosen(arguments)?;
    let mut command = workspace::cargo();
    command
        .args(["test", "--locked", "--package", soak.package])
        .args(soak.build)
        .arg(soak.filter)
        .envs(soak.environment.iter().copied());
    let outcome = test::counted(&mut command)?;
    println!("{}", outcome.tally);
    ensure!(outcome.green(), "the soak `{}` is not green", soak.name);
    Ok(())
}

fn chosen(arguments: &[String]) -> Result<&'static Soak> {
    let names: Vec<&str> = SOAKS.iter().map(|soak| soak.name).collect();
    let found = match arguments {
        [name] => SOAKS.iter().find(|soak| soak.name == name),
        _ => None,
    };
    found.ok_or_else(|| Usage(format!("name one soak of: {}", names.join(", "))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_chosen() {
        let soak = chosen(&["flights".to_owned()]).unwrap();
        assert_eq!((soak.package, soak.filter), ("forebay-engine", "race"));
        assert_eq!(chosen(&["fuzz".to_owned()]).unwrap().package, "forebay-fuzz");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        for arguments in [vec![], vec!["flight".to_owned()]] {
            let error = chosen(&arguments).err().unwrap();
            assert!(error.is::<Usage>());
            assert!(error.to_string().contains("flights"), "{error}");
        }
    }
}
