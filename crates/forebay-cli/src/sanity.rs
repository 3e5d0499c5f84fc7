//! Checks of the configuration against the machine: mistakes that would show under load only.

use crate::config::resolved::{ResolvedConfig, ResolvedDisk};
use crate::config::units::ShortSize;
use crate::config::warnings;
use crate::machine::{self, DirectoryFacts, FileSystem, MemoryLimit, MemorySource};

/// Percentage of the memory above which `memory.size` is warned of: the rest of the process needs
/// memory too.
const MEMORY_WARN: u64 = 75;

/// Percentage of the memory above which the start is refused: the system would kill the process.
const MEMORY_REFUSE: u64 = 95;

/// Number of open files below which a warning is logged.
const OPEN_FILES_MIN: u64 = 4_096;

/// Facts about the machine.
pub(crate) struct MachineFacts {
    memory: Option<MemoryLimit>,
    open_files: Option<u64>,
    is_root: bool,
    disk: Option<DirectoryFacts>,
}

impl MachineFacts {
    /// Reads the facts. `disk` is the disk tier to check, if there is one.
    pub(crate) fn read(disk: Option<&ResolvedDisk>) -> Self {
        Self {
            memory: machine::memory(),
            open_files: machine::open_files(),
            is_root: machine::is_root(),
            disk: disk.and_then(|disk| machine::directory(&disk.path)),
        }
    }
}

/// Returns warnings about the configuration on this machine, one sentence each.
///
/// # Errors
/// If `memory.size` is so large that the system would kill the process.
pub(crate) fn check(config: &ResolvedConfig, facts: &MachineFacts) -> anyhow::Result<Vec<String>> {
    let mut warnings = warnings::of(config);
    warnings.extend(of_memory(config.memory.size, facts.memory)?);
    if let Some(files) = facts.open_files.filter(|files| *files < OPEN_FILES_MIN) {
        warnings.push(format!(
            "open files are limited to {files}, which limits client connections: raise the hard \
             limit to at least {OPEN_FILES_MIN} (ulimit -n, or LimitNOFILE= of systemd)"
        ));
    }
    if facts.is_root {
        warnings.push(
            "forebay runs as root: run it as another user, with CAP_NET_BIND_SERVICE or socket \
             activation for ports below 1024"
                .to_owned(),
        );
    }
    if let (Some(disk), Some(facts)) = (&config.disk, facts.disk) {
        warnings.extend(of_disk(disk, facts));
    }
    Ok(warnings)
}

fn of_memory(size: u64, limit: Option<MemoryLimit>) -> anyhow::Result<Option<String>> {
    let Some(MemoryLimit { bytes, source }) = limit else { return Ok(None) };
    let share = |percent: u64| bytes / 100 * percent;
    if size <= share(MEMORY_WARN) {
        return Ok(None);
    }
    let limit = match source {
        MemorySource::ControlGroup => "memory limit of the control group",
        MemorySource::Machine => "memory of this machine",
    };
    let above = |percent: u64| {
        format!(
            "memory.size ({}) is above {percent} % of the {limit} ({} bytes)",
            ShortSize(size),
            bytes
        )
    };
    if size > share(MEMORY_REFUSE) {
        anyhow::bail!(
            "{}: the system would kill the process; set memory.size to at most \"{MEMORY_WARN}%\"",
            above(MEMORY_REFUSE)
        );
    }
    Ok(Some(format!(
        "{}: little is left for connections and the system; set memory.size lower, such as \"60%\"",
        above(MEMORY_WARN)
    )))
}

fn of_disk(disk: &ResolvedDisk, facts: DirectoryFacts) -> Vec<String> {
    let (path, mut warnings) = (disk.path.display(), Vec::new());
    if disk.size > facts.usable {
        warnings.push(format!(
            "disk.size ({}) is above the space that {path} can use ({} bytes): the disk tier will \
             stop storing before it is full",
            ShortSize(disk.size),
            facts.usable
        ));
    }
    match facts.file_system {
        FileSystem::Tmpfs => warnings.push(format!(
            "disk.path {path} is on a tmpfs, whose files use memory: name a directory on a disk, or \
             omit the disk tier"
        )),
        FileSystem::Nfs => warnings.push(format!(
            "disk.path {path} is on an NFS: its delays and failures become those of the disk tier; \
             name a directory on a local disk"
        )),
        FileSystem::Other => {}
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(bytes: u64) -> Option<MemoryLimit> {
        Some(MemoryLimit { bytes, source: MemorySource::ControlGroup })
    }

    #[test]
    fn memory_beyond_the_limit_is_warned_of_or_refused() {
        let is_warned = |size, bytes| of_memory(size, limit(bytes)).map(|found| found.is_some());
        assert!(!is_warned(75, 100).unwrap());
        assert!(is_warned(76, 100).unwrap());
        assert!(is_warned(95, 100).unwrap());
        let refused = is_warned(96 << 20, 100 << 20).unwrap_err().to_string();
        assert!(refused.starts_with("memory.size (96MiB) is above 95 % of the memory limit"));
        assert!(of_memory(u64::MAX, None).unwrap().is_none());
    }

    #[test]
    fn a_disk_tier_is_checked_against_its_file_system() {
        let disk = ResolvedDisk { path: "/d".into(), size: 1_000, object_max: 1 };
        let warnings = |usable, file_system| of_disk(&disk, DirectoryFacts { usable, file_system });
        assert!(warnings(1_000, FileSystem::Other).is_empty());
        assert!(warnings(999, FileSystem::Other)[0].contains("(999 bytes)"));
        assert!(warnings(1_000, FileSystem::Tmpfs)[0].contains("tmpfs"));
        assert_eq!(warnings(1, FileSystem::Nfs).len(), 2);
    }
}
