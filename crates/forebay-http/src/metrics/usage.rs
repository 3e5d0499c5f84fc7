//! Resources that the process uses, under the names that Prometheus clients share.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Resources that the process uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUsage {
    /// User and system time since the start, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Number of open file descriptors.
    pub open_files: u64,
    /// Soft limit of open file descriptors.
    pub open_files_max: u64,
    /// Time of the start in seconds since 1970.
    pub started: f64,
    /// Number of threads.
    pub threads: u64,
}

#[derive(Debug, Default)]
pub(super) struct UsageMetrics {
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge<u64, AtomicU64>,
    virtual_memory: Gauge<u64, AtomicU64>,
    open_files: Gauge<u64, AtomicU64>,
    open_files_max: Gauge<u64, AtomicU64>,
    started: Gauge<f64, AtomicU64>,
    threads: Gauge<u64, AtomicU64>,
}

impl UsageMetrics {
    /// Returns a registry of its own, because these names have no prefix.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("process");
        registry.register(
            "cpu_seconds",
            "User and system CPU time of the process, in seconds",
            self.cpu.clone(),
        );
        registry.register(
            "resident_memory_bytes",
            "Resident memory of the process, in bytes",
            self.resident.clone(),
        );
        registry.register(
            "virtual_memory_bytes",
            "Virtual memory of the process, in bytes",
            self.virtual_memory.clone(),
        );
        registry.register("open_fds", "Open file descriptors", self.open_files.clone());
        registry.register(
            "max_fds",
            "Soft limit on open file descriptors",
            self.open_files_max.clone(),
        );
        registry.register(
            "start_time_seconds",
            "Start of the process, in seconds since 1970",
            self.started.clone(),
        );
        registry.register("threads", "Threads of the process", self.threads.clone());
        registry
    }

    pub(super) fn set(&self, usage: ResourceUsage) {
        self.cpu.inc_by((usage.cpu_seconds - self.cpu.get()).max(0.0));
        self.resident.set(usage.resident_bytes);
        self.virtual_memory.set(usage.virtual_bytes);
        self.open_files.set(usage.open_files);
        self.open_files_max.set(usage.open_files_max);
        self.started.set(usage.started);
        self.threads.set(usage.threads);
    }
}
