//! Resources that the process uses, as Linux tells them below `/proc/self`.

use std::fs;

use forebay_http::metrics::ResourceUsage;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Returns what the process uses now. A number that the system does not tell is 0.
pub(super) fn of_process() -> ResourceUsage {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let system = fs::read_to_string("/proc/stat").unwrap_or_default();
    let open_files = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let open_files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ResourceUsage { open_files, open_files_max, ..of_stat(&stat, &system) }
}

/// Reads the numbers of `/proc/self/stat`, with the time of the boot in `/proc/stat`.
fn of_stat(stat: &str, system: &str) -> ResourceUsage {
    // The second column is the name of the program in parentheses, which may have spaces.
    let columns = stat.rsplit_once(") ").map_or("", |(_, columns)| columns);
    let columns: Vec<&str> = columns.split_ascii_whitespace().collect();
    // The manual counts columns from 1, and the third one is the first here.
    let column = |number: usize| {
        columns.get(number - 3).and_then(|column| column.parse::<u64>().ok()).unwrap_or(0)
    };
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|boot| boot.trim().parse::<u64>().ok()).unwrap_or(0);
    let started = seconds(column(22));
    ResourceUsage {
        cpu_seconds: seconds(column(14) + column(15)),
        resident_bytes: column(24) * page_size() as u64,
        virtual_bytes: column(23),
        started: seconds(boot * clock_ticks_per_second()) + started,
        threads: column(20),
        ..ResourceUsage::default()
    }
}

/// Converts clock ticks to seconds.
fn seconds(ticks: u64) -> f64 {
    let per_second = clock_ticks_per_second().max(1);
    let (whole, rest) = (ticks / per_second, ticks % per_second);
    let number = |ticks: u64| f64::from(u32::try_from(ticks).unwrap_or(u32::MAX));
    number(whole) + number(rest) / number(per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_follow_the_name_of_the_program() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4 10 0 0 0 250 150 0 0 20 0 9 0 1000 4096 3 18446744073";
        let usage = of_stat(stat, "cpu 1 2\nbtime 1000\nprocesses 3\n");
        let ticks = seconds(1).recip();
        assert_eq!(usage.cpu_seconds, 400.0 / ticks);
        assert_eq!((usage.threads, usage.virtual_bytes), (9, 4_096));
        assert_eq!(usage.resident_bytes, 3 * page_size() as u64);
        assert_eq!(usage.started, 1_000.0 + 1_000.0 / ticks);
        assert_eq!(of_stat("", ""), ResourceUsage::default());
        let own = of_process();
        assert!(own.threads > 0 && own.open_files > 2 && own.started > 1e9, "{own:?}");
    }
}
