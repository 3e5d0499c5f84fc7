//! Limits of the machine: memory, open files, file systems, user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{statfs, statvfs};
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::system::sysinfo;

/// Type of a tmpfs in statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// Type of an NFS in statfs(2).
const NFS: u64 = 0x6969;

/// Maximum number of files whose sizes are added up.
const FILES_MAX: usize = 100_000;

/// Bytes of a block in the metadata of a file.
const BLOCK: u64 = 512;

/// Memory that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    /// Limit in bytes.
    pub(crate) bytes: u64,
    /// Source of the limit.
    pub(crate) source: MemorySource,
}

/// Source of a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySource {
    /// Control group of the process, or one above it.
    ControlGroup,
    /// Memory of the machine.
    Machine,
}

/// Facts about the directory of a disk tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryFacts {
    /// Bytes that the tier can use: free ones, and those of its own files.
    pub(crate) usable: u64,
    /// Kind of the file system.
    pub(crate) file_system: FileSystem,
}

/// Kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// In memory.
    Tmpfs,
    /// On another machine.
    Nfs,
    /// Any other.
    Other,
}

/// Returns the memory that this process may use: the smallest limit of its control groups, or the
/// memory of the machine if that is smaller. `None` if neither is known.
pub(crate) fn memory() -> Option<MemoryLimit> {
    // A hardened service sees no /proc/meminfo.
    let machine = sysinfo();
    let bytes = machine.totalram.saturating_mul(machine.mem_unit.into());
    smallest(bytes, Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"))
}

fn smallest(machine: u64, own: &Path, groups: &Path) -> Option<MemoryLimit> {
    let machine = MemoryLimit { bytes: machine, source: MemorySource::Machine };
    let machine = Some(machine).filter(|machine| machine.bytes > 0);
    let own = fs::read_to_string(own).unwrap_or_default();
    let limits = own.lines().flat_map(|line| group_limits(line, groups));
    let group = limits.min().map(|bytes| MemoryLimit { bytes, source: MemorySource::ControlGroup });
    // A group without a limit has a number above all memory in version 1.
    [group, machine].into_iter().flatten().min_by_key(|limit| limit.bytes)
}

/// Limits of a group and of all groups above it. `line` is one of `/proc/self/cgroup`:
/// `0::/path` (version 2) or `4:memory:/path` (version 1).
fn group_limits(line: &str, groups: &Path) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, file) = match controllers {
        "" => (groups.to_owned(), "memory.max"),
        names if names.split(',').any(|name| name == "memory") => {
            (groups.join("memory"), "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let path = PathBuf::from(path.trim_start_matches('/'));
    // The path may be one outside of a container; its root is then the group itself.
    let files = path.ancestors().map(|above| root.join(above).join(file));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

/// Returns the maximum number of open files; `None` if there is no limit.
pub(crate) fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns `true` if the process runs as root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Returns facts about a directory, which need not exist yet. `None` if they are not known.
pub(crate) fn directory(path: &Path) -> Option<DirectoryFacts> {
    let existing = path.ancestors().find(|above| above.exists())?;
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let space = statvfs(existing).ok()?;
    let kind = u64::try_from(statfs(existing).ok()?.f_type).unwrap_or_default();
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let mut files_left = FILES_MAX;
    Some(DirectoryFacts {
        usable: free.saturating_add(bytes_in(path, &mut files_left)),
        file_system: match kind {
            TMPFS => FileSystem::Tmpfs,
            NFS => FileSystem::Nfs,
            _ => FileSystem::Other,
        },
    })
}

/// Bytes on the disk of all files in a directory.
fn bytes_in(path: &Path, files_left: &mut usize) -> u64 {
    let mut sum = 0_u64;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if *files_left == 0 {
            break;
        }
        *files_left -= 1;
        let Ok(metadata) = entry.metadata() else { continue };
        sum = sum.saturating_add(match metadata.is_dir() {
            true => bytes_in(&entry.path(), files_left),
            false => metadata.blocks().saturating_mul(BLOCK),
        });
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a folder.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn the_smallest_limit_counts() {
        let (group, machine) = (MemorySource::ControlGroup, MemorySource::Machine);
        let two = ("self", "0::/a/b\n");
        let one = ("self", "4:cpu,memory:/a\n");
        let rows: [(u64, &[(&str, &str)], _); 7] = [
            (0, &[], None),
            (2048, &[], Some((2048, machine))),
            (2048, &[two, ("groups/a/b/memory.max", "max\n")], Some((2048, machine))),
            (2048, &[two, ("groups/a/b/memory.max", "1024\n")], Some((1024, group))),
            (
                2048,
                &[two, ("groups/a/b/memory.max", "1024\n"), ("groups/a/memory.max", "99\n")],
                Some((99, group)),
            ),
            // In a container, the group is the root.
            (2048, &[two, ("groups/memory.max", "512\n")], Some((512, group))),
            (
                2048,
                &[one, ("groups/memory/a/memory.limit_in_bytes", "9223372036854771712\n")],
                Some((2048, machine)),
            ),
        ];
        for (total, files, expected) in rows {
            let folder = tree(files);
            let found = smallest(total, &folder.path().join("self"), &folder.path().join("groups"));
            assert_eq!(found.map(|limit| (limit.bytes, limit.source)), expected, "{files:?}");
        }
    }

    #[test]
    fn a_directory_that_does_not_exist_has_the_facts_of_the_one_above() {
        let folder = tree(&[("tier/a", "x"), ("tier/deep/b", "y")]);
        let tier = directory(&folder.path().join("tier")).unwrap();
        let missing = directory(&folder.path().join("none/below")).unwrap();
        assert_eq!(tier.file_system, missing.file_system);
        assert!(bytes_in(&folder.path().join("tier"), &mut FILES_MAX.clone()) > 0);
        assert_eq!(bytes_in(folder.path(), &mut 0), 0);
    }
}
