//! Numbers of the process and of its tiers in each step.

use forebay_http::metrics::{LatencyBucket, TierTotals};

use super::series::{MINUTES, Newest, SECONDS, Window};

/// Number of tiers with a history of their own: memory, disk and two in Redis.
pub(super) const TIERS_MAX: usize = 4;

/// Numbers of the process, before those of the tiers.
pub(super) const PROCESS: [&str; 3] = ["waiting", "memory_bytes", "cpu_seconds"];

/// Numbers of each tier.
pub(super) const OF_TIER: [&str; 3] = ["hits", "lookups", "evictions"];

/// Number of values of a step.
const VALUES: usize = PROCESS.len() + TIERS_MAX * OF_TIER.len();

/// Maximum number of bytes of the values.
pub(super) const GLOBAL_BYTES: usize =
    size_of::<Global>() + (SECONDS + MINUTES) * size_of::<[f32; VALUES]>() + TIERS_MAX * 6 * 600;

/// State of the process and its tiers at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalTotals {
    /// Requests that wait.
    pub(crate) waiting: u64,
    /// CPU seconds since the start.
    pub(crate) cpu_seconds: f64,
    /// Totals of the tiers, memory first.
    pub(crate) tiers: Vec<TierTotals>,
}

/// Steps of the process and its tiers.
#[derive(Debug, Default)]
pub(super) struct Global {
    pub(super) seconds: Newest<[f32; VALUES], SECONDS>,
    pub(super) minutes: Newest<[f32; VALUES], MINUTES>,
    minute: Option<[f32; VALUES]>,
    last: GlobalTotals,
    reads: Vec<Window>,
}

impl Global {
    /// Names of the tiers that have values, in order.
    pub(super) fn tiers(&self) -> impl Iterator<Item = &'static str> {
        self.last.tiers.iter().take(TIERS_MAX).map(|tier| tier.tier)
    }

    /// Returns the 99th percentile of the reads of a tier in the last 15 minutes.
    pub(super) fn reads_p99(&self, place: usize) -> Option<LatencyBucket> {
        self.reads.get(place)?.p99()
    }

    /// Adds a second; `None` was not observed.
    pub(super) fn push(&mut self, second: u64, now: Option<GlobalTotals>) {
        if second.is_multiple_of(60) {
            self.minutes.push(self.minute.take().unwrap_or([f32::NAN; VALUES]));
        }
        let Some(now) = now else {
            self.seconds.push([f32::NAN; VALUES]);
            return;
        };
        let values = self.values(second, &now);
        self.seconds.push(values);
        let minute = self.minute.get_or_insert([0.0; VALUES]);
        for (place, (sum, value)) in minute.iter_mut().zip(values).enumerate() {
            match place {
                // The most that waited.
                0 => *sum = sum.max(value),
                1 => *sum = value,
                _ => *sum += value,
            }
        }
        self.last = now;
    }

    fn values(&mut self, second: u64, now: &GlobalTotals) -> [f32; VALUES] {
        let mut values = [0.0; VALUES];
        values[0] = now.waiting as f32;
        values[1] = now.tiers.first().map_or(0.0, |memory| memory.bytes as f32);
        let cpu = now.cpu_seconds - self.last.cpu_seconds;
        // At the start, the time since the start of the process is not that of one second.
        values[2] = if self.last.tiers.is_empty() { 0.0 } else { ratio(cpu) };
        for (place, tier) in now.tiers.iter().take(TIERS_MAX).enumerate() {
            let before = self.last.tiers.get(place);
            let since =
                |of: fn(&TierTotals) -> u64| of(tier).saturating_sub(before.map_or(0, of)) as f32;
            let at = PROCESS.len() + place * OF_TIER.len();
            values[at] = since(|tier| tier.hits);
            values[at + 1] = since(|tier| tier.lookups);
            values[at + 2] = since(|tier| tier.evictions);
            if self.reads.len() <= place {
                self.reads.push(Window::short());
            }
            let reads = before.map_or_else(|| tier.reads.clone(), |b| tier.reads.since(&b.reads));
            self.reads[place].add(second, Some(&reads));
        }
        values
    }
}

/// Rounds to milliseconds, which is more than the clock ticks of the system have.
#[expect(clippy::cast_possible_truncation, reason = "a few seconds at most")]
fn ratio(seconds: f64) -> f32 {
    ((seconds * 1e3).round() / 1e3) as f32
}
