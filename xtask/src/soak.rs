//! `cargo xtask soak NAME [MINUTES]`: a suite that the tests run too, with many more rounds, or for
//! so long.

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
    /// The variable for how long it takes, if that can be chosen, and what is usual.
    minutes: Option<(&'static str, u32)>,
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "flights",
        package: "forebay-engine",
        build: &[],
        filter: "race",
        environment: &[("FOREBAY_SOAK_ROUNDS", "100")],
        minutes: None,
    },
    Soak {
        name: "cluster",
        package: "forebay-engine",
        build: &["--release", "--test", "it"],
        // 100,000 histories, and everything else about several instances.
        filter: "cluster::",
        environment: &[("FOREBAY_SOAK_ROUNDS", "10")],
        minutes: None,
    },
    Soak {
        name: "cluster-redis",
        package: "forebay-redis",
        build: &["--release", "--test", "it"],
        // A million operations with all that can fail, a thousand cuts, a tag of a million members,
        // and as many tagged writes as the names in the server must not outgrow.
        filter: "histories",
        environment: &[
            ("FOREBAY_HISTORY_OPERATIONS", "1000000"),
            // With as few as in the tests it takes half an hour, and the machine is idle.
            ("FOREBAY_HISTORY_CALLERS", "48"),
            // All five of them at once, on however few cores: they wait, too.
            ("RUST_TEST_THREADS", "5"),
            ("FOREBAY_HISTORY_CUTS", "1000"),
            ("FOREBAY_TEST_WRITES", "100000"),
            ("FOREBAY_TEST_MEMBERS", "1000000"),
        ],
        minutes: None,
    },
    Soak {
        name: "variants",
        package: "forebay-http",
        build: &["--package", "forebay-cli", "--release", "--test", "it"],
        // 100,000 histories in front of one cache, and 4,000 over disks and a Redis.
        filter: "apart::",
        environment: &[("FOREBAY_SOAK_ROUNDS", "100")],
        minutes: None,
    },
    Soak {
        name: "interleavings",
        package: "forebay-engine",
        build: &["--features", "interleavings", "--lib"],
        filter: "interleavings",
        environment: &[("FOREBAY_SOAK_ROUNDS", "20")],
        minutes: None,
    },
    Soak {
        name: "disk",
        package: "forebay-disk",
        build: &[],
        // Killed processes, and every single call of the file system failing.
        filter: "wrong",
        environment: &[("FOREBAY_SOAK_ROUNDS", "1000")],
        minutes: None,
    },
    Soak {
        name: "disk-churn",
        package: "forebay-disk",
        build: &["--test", "it"],
        filter: "churn",
        environment: &[],
        minutes: Some(("FOREBAY_SOAK_MINUTES", 30)),
    },
    Soak {
        name: "fuzz",
        package: "forebay-fuzz",
        build: &[],
        // Every test: no part of a name is common to all targets.
        filter: "",
        environment: &[("FOREBAY_FUZZ_SECONDS", "600")],
        minutes: None,
    },
];

/// Runs the soak that the first argument names.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (soak, minutes) = chosen(arguments)?;
    let mut command = workspace::cargo();
    command
        .args(["test", "--locked", "--package", soak.package])
        .args(soak.build)
        .arg(soak.filter)
        .envs(soak.environment.iter().copied())
        .envs(minutes);
    let outcome = test::counted(&mut command)?;
    println!("{}", outcome.tally);
    ensure!(outcome.green(), "the soak `{}` is not green", soak.name);
    Ok(())
}

/// A soak, and the variable that says how long it takes.
type Chosen = (&'static Soak, Option<(&'static str, String)>);

fn chosen(arguments: &[String]) -> Result<Chosen> {
    let names: Vec<&str> = SOAKS.iter().map(|soak| soak.name).collect();
    let named = || Usage(format!("name one soak of: {}", names.join(", ")));
    let (name, rest) = arguments.split_first().ok_or_else(named)?;
    let soak = SOAKS.iter().find(|soak| soak.name == name).ok_or_else(named)?;
    match (soak.minutes, rest) {
        (None, []) => Ok((soak, None)),
        (Some((variable, usual)), []) => Ok((soak, Some((variable, usual.to_string())))),
        (Some((variable, _)), [minutes]) if minutes.parse::<u32>().is_ok_and(|count| count > 0) => {
            Ok((soak, Some((variable, minutes.clone()))))
        }
        (Some(_), _) => Err(Usage(format!("`{name}` takes a number of minutes")).into()),
        (None, _) => Err(Usage(format!("`{name}` takes no argument")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_chosen() {
        let (soak, minutes) = chosen(&words("flights")).unwrap();
        assert_eq!((soak.package, soak.filter, minutes), ("forebay-engine", "race", None));
        assert_eq!(chosen(&words("fuzz")).unwrap().0.package, "forebay-fuzz");
    }

    #[test]
    fn some_take_as_long_as_they_are_told_to() {
        for (typed, minutes) in [("disk-churn", "30"), ("disk-churn 2", "2")] {
            let (_, told) = chosen(&words(typed)).unwrap();
            assert_eq!(told, Some(("FOREBAY_SOAK_MINUTES", minutes.to_owned())));
        }
        for typed in ["disk-churn 0", "disk-churn ever", "disk-churn 1 2", "disk 5"] {
            assert!(chosen(&words(typed)).err().unwrap().is::<Usage>(), "{typed}");
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
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
