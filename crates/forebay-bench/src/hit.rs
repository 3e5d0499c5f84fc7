//! `cargo xtask bench-hit`: what a hit costs, beside bare hyper and nginx, in one run.
//!
//! Every server has one core, the load another; the rounds are interleaved, so that whatever
//! else the machine does meets all of them. What is compared is the processor time per request:
//! unlike requests per second it does not depend on how fast the load can be made.
//!
//! [`rivals`] starts the servers, [`nginx`] writes nginx's configuration, [`probe`] makes sure
//! that what is measured is a hit, [`load`] runs wrk, [`cpu`] reads the processor time,
//! [`report`] prints and keeps what came out.

use anyhow::{Context as _, Result};

use crate::scratch::Scratch;
use crate::{Usage, needs, workspace};

mod cpu;
mod load;
mod nginx;
mod probe;
mod report;
mod rivals;

use cpu::Cores;
use report::{Report, Row};
use rivals::Rival;

/// Hits of this size are measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    name: &'static str,
    bytes: usize,
}

const SIZES: &[Size] =
    &[Size { name: "1 KiB", bytes: 1024 }, Size { name: "1 MiB", bytes: 1024 * 1024 }];

/// How long and against whom.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    rounds: u32,
    seconds: u32,
    with_forebay: bool,
}

/// Measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = Plan::parse(arguments)?;
    needs::ensure_for("bench-hit")?;
    let programs = rivals::build(&plan)?;
    let cores = Cores::here()?;
    let scratch = Scratch::new("bench-hit")?;
    let started =
        rivals::start(&plan, &rivals::Ground { programs, cores, folder: scratch.path() })?;
    let mut report = Report::new(report::machine(cores), arguments);
    for size in SIZES {
        report.rows.extend(measure(*size, &plan, &started.rivals, cores)?);
    }
    print!("{report}");
    let file = workspace::target_dir(&workspace::metadata()?)?.join("bench-hit.json");
    std::fs::write(&file, report.json()?).with_context(|| format!("write {}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

/// One row per server, its rounds interleaved with those of the others.
fn measure(size: Size, plan: &Plan, rivals: &[Rival], cores: Cores) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for rival in rivals {
        probe::until_hit(rival, size)?;
        rows.push(Row { size: size.name, server: rival.name, samples: Vec::new() });
    }
    for _ in 0..plan.rounds {
        for (rival, row) in rivals.iter().zip(&mut rows) {
            let before = cpu::spent(rival.pid())?;
            let load = load::run(&rival.url(size), plan.seconds, cores)?;
            let after = cpu::spent(rival.pid())?;
            row.samples.push(report::Sample { load, cpu: after.since(before) });
        }
    }
    for rival in rivals {
        probe::until_hit(rival, size).context("after the measurement")?;
    }
    Ok(rows)
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self { rounds: 3, seconds: 3, with_forebay: true };
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            match flag.as_str() {
                "--quick" => (plan.rounds, plan.seconds) = (1, 1),
                "--rounds" => plan.rounds = number(flag, rest.next())?,
                "--seconds" => plan.seconds = number(flag, rest.next())?,
                "--without-forebay" => plan.with_forebay = false,
                _ => return Err(Usage(format!("`bench-hit` knows no `{flag}`")).into()),
            }
        }
        Ok(plan)
    }
}

fn number(flag: &str, value: Option<&String>) -> Result<u32> {
    let number = value.and_then(|text| text.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| Usage(format!("`{flag}` needs a whole number above 0")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan> {
        Plan::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        let default = Plan { rounds: 3, seconds: 3, with_forebay: true };
        assert_eq!(plan("").unwrap(), default);
        assert_eq!(plan("--quick").unwrap(), Plan { rounds: 1, seconds: 1, ..default });
        let told = plan("--rounds 5 --seconds 2 --without-forebay").unwrap();
        assert_eq!(told, Plan { rounds: 5, seconds: 2, with_forebay: false });
    }

    #[test]
    fn wrong_flags_are_wrong_usage() {
        for line in ["--fast", "--rounds", "--rounds 0", "--seconds many"] {
            assert!(plan(line).unwrap_err().is::<Usage>(), "{line}");
        }
    }
}
