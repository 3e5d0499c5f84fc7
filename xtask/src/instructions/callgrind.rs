//! Runs a piece under callgrind, and reads what callgrind wrote.
//!
//! Of its format (valgrind's manual, "Callgrind Format Specification") this reads what one program
//! with one event makes: who is at cost (`fn=`, with `fl=` and `ob=`), what it costs itself, and
//! what its calls cost (the line behind `calls=`). A name stands in full once, behind a number
//! that stands for it from then on.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{needs, process};

/// What is counted: everything that runs within this function of the example.
const COUNTED: &str = "hit_path::measured*";

/// A piece takes a second; one that waits for something never ends.
const LIMIT: Duration = Duration::from_secs(120);

/// The pieces, as the example lists them.
pub(super) fn cases(program: &Path) -> Result<Vec<String>> {
    let text = output(Command::new(program).arg("list"))?;
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    ensure!(!names.is_empty(), "the example lists no pieces");
    Ok(names)
}

/// Runs a piece so many times, and counts.
pub(super) fn run((program, scratch): (&Path, &Path), name: &str, times: u64) -> Result<Profile> {
    let file = scratch.join(format!("{name}.{times}"));
    let mut command = Command::new(needs::find("valgrind")?);
    command
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args([name, &times.to_string()]);
    output(&mut command).with_context(|| format!("count `{name}`, {times} times"))?;
    let text = std::fs::read_to_string(&file).context("read what callgrind wrote")?;
    Profile::parse(&text).with_context(|| format!("in what callgrind wrote of `{name}`"))
}

fn output(command: &mut Command) -> Result<String> {
    let captured = process::capture(command, LIMIT)?;
    match captured.status {
        Some(status) if status.success() => Ok(captured.text),
        Some(status) => bail!("{status}:\n{}", captured.text),
        None => bail!("it was still running after {} s:\n{}", LIMIT.as_secs(), captured.text),
    }
}

/// Where the instructions of a program went.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    total: u64,
    functions: BTreeMap<String, Cost>,
}

/// What one function costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// In itself, with what the compiler has put into it.
    pub(super) own: u64,
    /// With all that it calls. A function that comes up again within itself counts twice.
    pub(super) inclusive: u64,
    /// The file of the program or library that it is in, as far as it is known.
    pub(super) object: String,
    /// Its source, as far as it is known.
    pub(super) source: String,
}

impl Profile {
    fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader::default();
        for (number, line) in text.lines().enumerate() {
            reader.read(line).with_context(|| format!("line {}", number + 1))?;
        }
        let profile = reader.profile;
        let own: u64 = profile.functions.values().map(|cost| cost.own).sum();
        ensure!(own == profile.total, "{own} instructions in functions, {} in all", profile.total);
        Ok(profile)
    }

    /// All instructions.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Every function with its cost.
    pub(super) fn functions(&self) -> impl Iterator<Item = (&str, &Cost)> {
        self.functions.iter().map(|(name, cost)| (&**name, cost))
    }

    /// What this run costs beyond a shorter one.
    pub(super) fn since(mut self, shorter: &Self) -> Self {
        self.total = self.total.saturating_sub(shorter.total);
        for (name, cost) in &mut self.functions {
            if let Some(before) = shorter.functions.get(name) {
                cost.own = cost.own.saturating_sub(before.own);
                cost.inclusive = cost.inclusive.saturating_sub(before.inclusive);
            }
        }
        self
    }

    /// What one of so many times costs, rounded.
    pub(super) fn per(mut self, times: u64) -> Self {
        let one = |all: u64| (all + times / 2) / times;
        self.total = one(self.total);
        for cost in self.functions.values_mut() {
            (cost.own, cost.inclusive) = (one(cost.own), one(cost.inclusive));
        }
        self
    }
}

/// Names by their numbers.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// Reads `(1) name`, which introduces a name, `(1)`, which repeats it, or a bare name.
    fn read(&mut self, text: &str) -> Result<String> {
        let Some((number, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')'))
        else {
            return Ok(text.to_owned());
        };
        match name.trim() {
            "" => self.0.get(number).cloned().with_context(|| format!("name {number} is unknown")),
            name => {
                self.0.insert(number.to_owned(), name.to_owned());
                Ok(name.to_owned())
            }
        }
    }
}

#[derive(Default)]
struct Reader {
    profile: Profile,
    functions: Names,
    sources: Names,
    objects: Names,
    source: String,
    object: String,
    function: Option<String>,
    /// The next line of cost is that of a call.
    in_call: bool,
}

impl Reader {
    fn read(&mut self, line: &str) -> Result<()> {
        if let Some((key, value)) = line.split_once('=') {
            return self.read_position(key, value);
        }
        if let Some(total) = line.strip_prefix("totals: ") {
            self.profile.total = total.trim().parse()?;
        }
        // Lines of cost begin with a line number, plain or relative. Others are `key: value`.
        if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let (_, cost) = line.rsplit_once(' ').context("a place without a cost")?;
            self.add(cost.parse()?)?;
        }
        Ok(())
    }

    fn read_position(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "fn" => {
                let name = self.functions.read(value)?;
                let cost = self.profile.functions.entry(name.clone()).or_default();
                (cost.object, cost.source) = (self.object.clone(), self.source.clone());
                self.function = Some(name);
            }
            "ob" => self.object = self.objects.read(value)?,
            "fl" => self.source = self.sources.read(value)?,
            "calls" => self.in_call = true,
            // The other end of a call, and what is inlined; they may introduce a name.
            "cfn" => drop(self.functions.read(value)?),
            "cob" => drop(self.objects.read(value)?),
            "cfi" | "cfl" | "fi" | "fe" => drop(self.sources.read(value)?),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, cost: u64) -> Result<()> {
        let function = self.function.as_ref().context("a cost of nobody")?;
        let sum = self.profile.functions.get_mut(function).context("a cost of nobody known")?;
        sum.inclusive += cost;
        if !std::mem::take(&mut self.in_call) {
            sum.own += cost;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "\
version: 1
cmd:  program look 3
positions: line
events: Ir
summary: 130

ob=(1) /there/program
fl=(1) ???
fn=(1) program::outer
0 10
+3 20
cob=(2) /lib/libc.so.6
cfi=(2) ./string/memmove.S
cfn=(2) memcpy
calls=2 0
* 60
cfn=(3) program::inner
calls=1 0
0 40

fn=(3)
fi=(3) inlined.rs
7 15
fe=(1)
-2 25

ob=(2)
fl=(2)
fn=(2)
1 60

totals: 130
";

    fn cost(profile: &Profile, name: &str) -> (u64, u64) {
        let cost = &profile.functions[name];
        (cost.own, cost.inclusive)
    }

    #[test]
    fn costs_are_told_from_the_costs_of_calls() {
        let profile = Profile::parse(WRITTEN).unwrap();
        assert_eq!(profile.total(), 130);
        assert_eq!(cost(&profile, "program::outer"), (30, 130));
        assert_eq!(cost(&profile, "program::inner"), (40, 40));
        assert_eq!(cost(&profile, "memcpy"), (60, 60));
        let copying = &profile.functions["memcpy"];
        assert_eq!((&*copying.object, &*copying.source), ("/lib/libc.so.6", "./string/memmove.S"));
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        let less = WRITTEN.replace("totals: 130", "totals: 131");
        let error = Profile::parse(&less).unwrap_err().to_string();
        assert_eq!(error, "130 instructions in functions, 131 in all");
        let unknown = WRITTEN.replace("fn=(3)\n", "fn=(9)\n");
        assert!(format!("{:#}", Profile::parse(&unknown).unwrap_err()).contains("name 9"));
        assert!(Profile::parse("events: Ir\n1 5\n").is_err());
    }

    #[test]
    fn two_runs_make_the_cost_of_one_time() {
        let scale = |text: &str, add: u64| {
            let mut profile = Profile::parse(text).unwrap();
            profile.total += add;
            let outer = profile.functions.get_mut("program::outer").unwrap();
            (outer.own, outer.inclusive) = (outer.own + add, outer.inclusive + add);
            profile
        };
        let one = scale(WRITTEN, 1_007).since(&scale(WRITTEN, 0)).per(10);
        assert_eq!(one.total(), 101);
        assert_eq!(cost(&one, "program::outer"), (101, 101));
        assert_eq!(cost(&one, "memcpy"), (0, 0));
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = output(Command::new("sh").args(["-c", "echo why; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }
}
