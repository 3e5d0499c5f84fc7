//! Tools from outside that our commands need, and how to come by them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;

/// One tool: how it is called, the Debian package that holds it, the commands that need it.
#[derive(Debug)]
struct Need {
    tool: &'static str,
    package: &'static str,
    commands: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need { tool: "git", package: "git", commands: &["tidy", "bench-hit"] },
    Need {
        tool: "redis-server",
        package: "redis-server",
        commands: &["test", "snippets", "bench-tier", "bench-library", "conformance"],
    },
    Need { tool: "faketime", package: "faketime", commands: &["test"] },
    Need { tool: "curl", package: "curl", commands: &["snippets"] },
    Need { tool: "node", package: "nodejs", commands: &["conformance", "real-software"] },
    Need { tool: "npm", package: "npm", commands: &["conformance", "real-software"] },
    Need { tool: "nginx", package: "nginx-light", commands: &["bench-hit", "real-software"] },
    Need { tool: "flask", package: "python3-flask", commands: &["real-software"] },
    Need { tool: "haproxy", package: "haproxy", commands: &["real-software"] },
    Need { tool: "chromium", package: "chromium", commands: &["real-software"] },
    Need { tool: "wrk", package: "wrk", commands: &["bench-hit"] },
    Need { tool: "valgrind", package: "valgrind", commands: &["instructions", "bench-library"] },
    Need { tool: "taskset", package: "util-linux", commands: &["bench-hit"] },
];

/// Where servers are installed that an ordinary user's search path leaves out.
const SERVER_FOLDERS: &[&str] = &["/usr/sbin", "/usr/local/sbin"];

/// Installs what `command` needs and does not find, or fails with the names of the packages.
pub(crate) fn ensure_for(command: &str) -> Result<()> {
    let missing = missing_for(command);
    match plan(&missing, &Machine::here()) {
        Plan::Nothing => Ok(()),
        Plan::Install(packages) => {
            install(&packages)?;
            let still: Vec<&str> = missing_for(command).iter().map(|need| need.tool).collect();
            ensure!(still.is_empty(), "installed, yet not found: {}", still.join(", "));
            Ok(())
        }
        Plan::Tell(packages) => bail!(
            "`cargo xtask {command}` needs {}; install the Debian packages (or your system's \
             own): {}",
            missing.iter().map(|need| need.tool).collect::<Vec<_>>().join(", "),
            packages.join(" ")
        ),
    }
}

/// Where a tool lies.
pub(crate) fn find(tool: &str) -> Result<PathBuf> {
    search(tool).with_context(|| format!("`{tool}` is not installed"))
}

enum Plan {
    Nothing,
    Install(Vec<&'static str>),
    Tell(Vec<&'static str>),
}

struct Machine {
    has_apt: bool,
    is_root: bool,
}

impl Machine {
    fn here() -> Self {
        let id = Command::new("id").arg("-u").output();
        Self {
            has_apt: Path::new("/etc/debian_version").exists() && search("apt-get").is_some(),
            is_root: id.is_ok_and(|output| output.stdout.trim_ascii() == b"0"),
        }
    }
}

fn plan(missing: &[&'static Need], machine: &Machine) -> Plan {
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    match machine {
        _ if packages.is_empty() => Plan::Nothing,
        Machine { has_apt: true, is_root: true } => Plan::Install(packages),
        _ => Plan::Tell(packages),
    }
}

fn missing_for(command: &str) -> Vec<&'static Need> {
    let needed = NEEDS.iter().filter(|need| need.commands.contains(&command));
    needed.filter(|need| search(need.tool).is_none()).collect()
}

fn install(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    apt(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let mut output = String::new();
    let status = process::lines(&mut command, |line| {
        output.push_str(line);
        output.push('\n');
    })?;
    ensure!(status.success(), "apt-get {} failed:\n{output}", arguments.join(" "));
    Ok(())
}

fn search(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(tool)).find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN_ROOT: Machine = Machine { has_apt: true, is_root: true };
    const DEBIAN_USER: Machine = Machine { has_apt: true, is_root: false };
    const OTHER_ROOT: Machine = Machine { has_apt: false, is_root: true };

    #[test]
    fn each_tool_is_named_once_and_for_commands_that_exist() {
        for need in NEEDS {
            assert_eq!(NEEDS.iter().filter(|other| other.tool == need.tool).count(), 1);
            for command in need.commands {
                assert!(crate::COMMANDS.iter().any(|known| known.name == *command), "{command}");
            }
        }
    }

    #[test]
    fn only_root_on_debian_installs() {
        let missing: Vec<_> =
            NEEDS.iter().filter(|need| ["curl", "nginx", "wrk"].contains(&need.tool)).collect();
        let wanted = ["curl", "nginx-light", "wrk"];
        assert!(matches!(plan(&missing, &DEBIAN_ROOT), Plan::Install(p) if p == wanted));
        assert!(matches!(plan(&missing, &DEBIAN_USER), Plan::Tell(p) if p == wanted));
        assert!(matches!(plan(&missing, &OTHER_ROOT), Plan::Tell(p) if p == wanted));
    }

    #[test]
    fn nothing_missing_means_nothing_done() {
        assert!(matches!(plan(&[], &DEBIAN_ROOT), Plan::Nothing));
        assert!(matches!(plan(&[], &DEBIAN_USER), Plan::Nothing));
        assert!(missing_for("soak").is_empty());
    }

    #[test]
    fn a_tool_is_searched_for_by_name() {
        assert!(find("sh").unwrap().ends_with("sh"));
        let error = find("no-such-tool-here").unwrap_err().to_string();
        assert!(error.contains("no-such-tool-here"));
    }
}
