//! `cargo xtask instructions`: what a hit costs in instructions, against what is on record.
//!
//! The example `hit_path` of forebay-http runs the hit path in pieces. Each piece runs under
//! callgrind twice, [`SHORT`] and [`LONG`] times: what the difference of the two counts comes to
//! for one time is its cost. Unlike time it does not depend on what else the machine does, and two
//! runs of one build differ by less than 0.2 %: by the seeds of hash maps and of tokio's dice.
//!
//! [`callgrind`] counts, [`ground`] says what a count holds for, [`record`] compares, [`page`]
//! writes the table for readers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::scratch::Scratch;
use crate::{Usage, needs, process, workspace};

mod callgrind;
mod ground;
mod page;
mod record;

use callgrind::Profile;
use ground::{Ground, Match};
use record::Record;

/// How often a piece runs in its two runs: whole rounds through its keys and through the service's
/// sampling of every 64th hit, and enough of them for what happens now and then.
const SHORT: u64 = 1_024;
const LONG: u64 = 3_072;

/// The piece whose instructions the page takes apart: a whole request.
const WHOLE: &str = "connection";

/// The piece that is the same without what is ours.
const BARE: &str = "bare-hyper";

/// What the arguments ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Compare,
    /// Where nothing can be counted or compared, say so and be content, unless this is CI.
    CompareIfPossible,
    Record,
}

/// One piece of the hit path, counted.
struct Counted {
    name: String,
    /// For one time, rounded.
    instructions: u64,
    profile: Profile,
}

/// Counts, prints, and compares or records.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let task = Task::parse(arguments)?;
    if let Err(error) = needs::ensure_for("instructions") {
        return task.without(&format!("{error:#}"), is_ci()).context("nothing was counted");
    }
    let ground = Ground::here()?;
    let counted = count_all(&build()?)?;
    let now = Record::new(ground, counted.iter().map(|one| (one.name.clone(), one.instructions)));
    if task == Task::Record {
        return write(&now, &counted);
    }
    compare(task, &now)
}

impl Task {
    fn parse(arguments: &[String]) -> Result<Self> {
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Self::Compare),
            ["--if-possible"] => Ok(Self::CompareIfPossible),
            ["--record"] => Ok(Self::Record),
            _ => Err(Usage("`instructions` takes --record or --if-possible".to_owned()).into()),
        }
    }

    /// What becomes of it where it cannot be done.
    fn without(self, why: &str, is_ci: bool) -> Result<()> {
        ensure!(self == Self::CompareIfPossible && !is_ci, "{why}");
        println!("not compared: {}", why.lines().next().unwrap_or_default());
        Ok(())
    }
}

/// Continuous integration says that it is by this variable, whoever runs it.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(&*value, "" | "0" | "false"))
}

/// The pieces, built as `cargo build --release` builds the product.
fn build() -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--locked", "--quiet"]);
    command.args(["--package", "forebay-http", "--example", "hit_path"]);
    let status = process::lines(&mut command, |line| println!("{line}"))?;
    ensure!(status.success(), "the example `hit_path` of forebay-http does not build");
    let target = workspace::target_dir(&workspace::metadata()?)?;
    Ok(target.join("release").join("examples").join("hit_path"))
}

fn count_all(program: &Path) -> Result<Vec<Counted>> {
    let scratch = Scratch::new("instructions")?;
    let names = callgrind::cases(program)?;
    names.iter().map(|name| count(program, name, scratch.path())).collect()
}

fn count(program: &Path, name: &str, scratch: &Path) -> Result<Counted> {
    let run = |times| callgrind::run((program, scratch), name, times);
    let profile = run(LONG)?.since(&run(SHORT)?).per(LONG - SHORT);
    let instructions = profile.total();
    ensure!(instructions > 0, "`{name}` costs nothing, which no piece of the hit path does");
    println!("{name:<14}{instructions:>8} instructions");
    Ok(Counted { name: name.to_owned(), instructions, profile })
}

fn write(now: &Record, counted: &[Counted]) -> Result<()> {
    let whole = counted.iter().find(|one| one.name == WHOLE).context("no whole request")?;
    now.write(&record::file())?;
    let file = page::file();
    std::fs::write(&file, page::render(now, &whole.profile))
        .with_context(|| format!("write {}", file.display()))?;
    println!("recorded in {} and {}", record::FILE, page::FILE);
    Ok(())
}

fn compare(task: Task, now: &Record) -> Result<()> {
    let before = Record::read(&record::file())?;
    match before.ground.compare(&now.ground) {
        Match::Same => {}
        Match::OtherToolchain(says) => anyhow::bail!("{says}; {}", record::AGAIN),
        Match::OtherMachine(says) => return task.without(&says, is_ci()),
    }
    let comparison = now.compare(&before);
    print!("{comparison}");
    ensure!(comparison.is_green(), "the hit path is not what is on record; {}", record::AGAIN);
    println!("{}", comparison.summary());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(line: &str) -> Result<Task> {
        Task::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        assert_eq!(task("").unwrap(), Task::Compare);
        assert_eq!(task("--record").unwrap(), Task::Record);
        assert_eq!(task("--if-possible").unwrap(), Task::CompareIfPossible);
        for line in ["--records", "--record --if-possible", "look"] {
            assert!(task(line).unwrap_err().is::<Usage>(), "{line}");
        }
    }

    #[test]
    fn only_a_gate_outside_of_ci_is_content_without_counts() {
        assert!(Task::CompareIfPossible.without("no valgrind", false).is_ok());
        for (task, is_ci) in [
            (Task::CompareIfPossible, true),
            (Task::Compare, false),
            (Task::Record, false),
            (Task::Record, true),
        ] {
            let error = task.without("no valgrind", is_ci).unwrap_err();
            assert_eq!(error.to_string(), "no valgrind", "{task:?}");
        }
    }

    #[test]
    fn the_page_shows_what_is_on_record() {
        let record = Record::read(&record::file()).unwrap();
        let shown = std::fs::read_to_string(page::file()).unwrap();
        assert!(shown.contains(&page::counts(&record)), "{}", record::AGAIN);
    }
}
