//! Processor time and processors, as Linux tells of them below /proc.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result};

/// The processors that the servers and the load are pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) server: usize,
    pub(super) load: usize,
}

impl Cores {
    /// The first two that this program may run on; one for both when there is only one.
    pub(super) fn here() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").context("read /proc")?;
        let cores = allowed(&status).context("no Cpus_allowed_list in /proc/self/status")?;
        Ok(cores)
    }

    pub(super) fn are_shared(self) -> bool {
        self.server == self.load
    }
}

fn allowed(status: &str) -> Option<Cores> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    let mut cores = ranges.flatten();
    let server = cores.next()?;
    Some(Cores { server, load: cores.next().unwrap_or(server) })
}

/// Processor time that a server has used, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spent {
    pub(super) user_us: f64,
    pub(super) system_us: f64,
}

impl Spent {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            user_us: self.user_us - before.user_us,
            system_us: self.system_us - before.system_us,
        }
    }

    pub(super) fn total_us(self) -> f64 {
        self.user_us + self.system_us
    }
}

/// What a process and all that descend from it have used so far, all their threads included.
pub(super) fn spent(pid: u32) -> Result<Spent> {
    let ticks_per_second = ticks_per_second()?;
    let all = processes()?;
    let (mut user, mut system) = (0.0, 0.0);
    for stat in family(&all, pid) {
        user += stat.user;
        system += stat.system;
    }
    let us_per_tick = 1e6 / ticks_per_second;
    Ok(Spent { user_us: user * us_per_tick, system_us: system * us_per_tick })
}

/// What /proc says of one process; times in clock ticks.
#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    user: f64,
    system: f64,
}

fn processes() -> Result<BTreeMap<u32, Stat>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("list /proc")? {
        let entry = entry.context("list /proc")?;
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A process may end between the listing and the reading; then it is nobody's cost.
        let stat = std::fs::read_to_string(entry.path().join("stat"));
        if let (Some(pid), Ok(stat)) = (pid, stat) {
            found.extend(parse(&stat).map(|stat| (pid, stat)));
        }
    }
    Ok(found)
}

/// Reads /proc/PID/stat: the name in parentheses may itself hold spaces and parentheses.
fn parse(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        user: fields.get(11)?.parse().ok()?,
        system: fields.get(12)?.parse().ok()?,
    })
}

/// A process and its descendants.
fn family(all: &BTreeMap<u32, Stat>, root: u32) -> Vec<&Stat> {
    let mut members = vec![root];
    let mut at = 0;
    while let Some(&member) = members.get(at) {
        let is_new = |pid: &u32| !members.contains(pid);
        let children: Vec<u32> = all
            .iter()
            .filter(|(pid, stat)| stat.parent == member && is_new(pid))
            .map(|(pid, _)| *pid)
            .collect();
        members.extend(children);
        at += 1;
    }
    members.iter().filter_map(|pid| all.get(pid)).collect()
}

fn ticks_per_second() -> Result<f64> {
    let output = Command::new("getconf").arg("CLK_TCK").output().context("start getconf")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("getconf CLK_TCK printed `{}`", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(parent: u32, user: u32, system: u32) -> String {
        format!("7 (a (b) c) S {parent} 7 7 0 -1 4194560 100 0 0 0 {user} {system} 5 6 20 0 1 0 9")
    }

    #[test]
    fn a_stat_line_is_read_behind_any_name() {
        let read = parse(&stat(3, 12, 34)).unwrap();
        assert_eq!(read, Stat { parent: 3, user: 12.0, system: 34.0 });
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_family_is_the_process_and_its_descendants() {
        let parents = [(1, 0), (7, 1), (8, 7), (9, 8), (10, 1)];
        let all: BTreeMap<u32, Stat> = parents
            .iter()
            .map(|&(pid, parent)| (pid, parse(&stat(parent, pid, 0)).unwrap()))
            .collect();
        let mut users: Vec<f64> = family(&all, 7).iter().map(|stat| stat.user).collect();
        users.sort_by(f64::total_cmp);
        assert_eq!(users, [7.0, 8.0, 9.0]);
        assert!(family(&all, 99).is_empty());
    }

    #[test]
    fn this_process_has_spent_something_sometime() {
        let before = spent(std::process::id()).unwrap();
        let after = spent(std::process::id()).unwrap();
        assert!(after.since(before).total_us() >= 0.0);
        assert!(processes().unwrap().contains_key(&std::process::id()));
    }

    #[test]
    fn cores_are_the_first_two_allowed() {
        let cores = |list: &str| allowed(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n"));
        assert_eq!(cores("0-3"), Some(Cores { server: 0, load: 1 }));
        assert_eq!(cores("2,5-7"), Some(Cores { server: 2, load: 5 }));
        assert_eq!(cores("4"), Some(Cores { server: 4, load: 4 }));
        assert!(cores("4").unwrap().are_shared());
        assert_eq!(cores(""), None);
    }
}
