//! `cargo xtask ci`: everything that gates a change, as a list of questions.
//!
//! A green step says one line; a red one prints all that it has, and ends the run.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{process, workspace};

/// A question and the cargo command whose exit status answers it.
struct Step {
    question: &'static str,
    cargo: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Whether the last line that the command prints is worth showing when it is green.
    tells: bool,
}

const fn step(question: &'static str, cargo: &'static [&'static str]) -> Step {
    Step { question, cargo, environment: &[], tells: false }
}

/// Cheapest first; the snippets run the binary that "builds?" has built.
const STEPS: &[Step] = &[
    step("formatted?", &["fmt", "--all", "--check"]),
    step("tidy?", &["xtask", "tidy"]),
    step(
        "clean?",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    ),
    step(
        "clean under the scheduler?",
        &[
            "clippy",
            "--package",
            "forebay-engine",
            "--features",
            "interleavings",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    ),
    Step { tells: true, ..step("with any features?", &["xtask", "features"]) },
    step("clean outside of the workspace?", &["xtask", "outside"]),
    step("builds?", &["build", "--release", "--locked", "--quiet"]),
    Step { tells: true, ..step("documents true?", &["xtask", "snippets"]) },
    Step {
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        ..step("docs build?", &["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
    },
    Step {
        environment: &[("FOREBAY_FUZZ_SECONDS", "30"), ("FOREBAY_FUZZ_SEED", "1")],
        ..step(
            "parsers survive?",
            &["test", "--package", "forebay-fuzz", "--test", "every_target", "--locked", "--quiet"],
        )
    },
    Step {
        tells: true,
        ..step("as fast as on record?", &["xtask", "instructions", "--if-possible"])
    },
    Step { tells: true, ..step("tests pass?", &["xtask", "test"]) },
];

/// Runs every step, in order, up to the first that is red.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    crate::no_arguments("ci", arguments)?;
    let started = Instant::now();
    for step in STEPS {
        ask(step, &mut std::io::stdout())?;
    }
    println!("ci: {} steps green in {:.1} s", STEPS.len(), started.elapsed().as_secs_f64());
    Ok(())
}

fn ask(step: &Step, out: &mut impl Write) -> Result<()> {
    write!(out, "== {} == ", step.question)?;
    out.flush()?;
    let started = Instant::now();
    let mut printed = Vec::new();
    let mut command = workspace::cargo();
    command.args(step.cargo).envs(step.environment.iter().copied());
    let status = process::lines(&mut command, |line| printed.push(line.to_owned()))?;
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        writeln!(out, "no ({seconds:.1} s)\n{}", printed.join("\n"))?;
        bail!("{} No. Alone: {}", step.question, alone(step));
    }
    let told = printed.last().filter(|_| step.tells);
    let told = told.map(|line| format!(", {line}")).unwrap_or_default();
    writeln!(out, "yes ({seconds:.1} s){told}")?;
    Ok(())
}

/// The command line that asks this one question again.
fn alone(step: &Step) -> String {
    let environment = step.environment.iter().map(|(name, value)| format!("{name}='{value}' "));
    format!("{}cargo {}", environment.collect::<String>(), step.cargo.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(step: &Step) -> (String, Option<String>) {
        let mut out = Vec::new();
        let result = ask(step, &mut out);
        (String::from_utf8(out).unwrap(), result.err().map(|error| error.to_string()))
    }

    #[test]
    fn a_green_step_is_one_line() {
        let (out, error) = answer(&step("there?", &["--version"]));
        assert!(out.starts_with("== there? == yes ("), "{out}");
        assert_eq!((out.lines().count(), error), (1, None));
        assert!(!out.contains("cargo"), "{out}");
    }

    #[test]
    fn a_step_that_tells_shows_its_last_line() {
        let (out, _) = answer(&Step { tells: true, ..step("there?", &["--version"]) });
        assert!(out.contains("s), cargo 1."), "{out}");
    }

    #[test]
    fn a_red_step_shows_all_and_how_to_ask_again() {
        let (out, error) = answer(&Step {
            environment: &[("WITH", "a value")],
            ..step("there?", &["no-such-command"])
        });
        assert!(out.contains("no such command"), "{out}");
        assert_eq!(error.unwrap(), "there? No. Alone: WITH='a value' cargo no-such-command");
    }

    #[test]
    fn the_last_step_is_exactly_the_tests() {
        assert_eq!(STEPS.last().map(|step| step.cargo), Some(&["xtask", "test"][..]));
    }
}
