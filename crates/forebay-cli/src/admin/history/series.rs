//! Steps of one site, or of all sites together.

use std::collections::VecDeque;

use forebay_http::metrics::{LatencyBucket, LatencySum};

use super::point::{Point, Step};

/// Number of steps of one second: 15 minutes.
pub(super) const SECONDS: usize = 900;

/// Number of steps of one minute: a day.
pub(super) const MINUTES: usize = 1_440;

/// Slots of the window of 15 minutes, and seconds of a slot.
const SHORT: Slots = Slots { max: 5, seconds: 180 };

/// Slots of the window of a day, and seconds of a slot.
const LONG: Slots = Slots { max: 8, seconds: 10_800 };

/// Maximum number of bytes of one series.
pub(super) const SERIES_BYTES: usize = size_of::<Series>()
    + (SECONDS + MINUTES) * size_of::<Point>()
    + (SHORT.max + LONG.max) * size_of::<LatencySum>();

/// The newest values of a sequence.
#[derive(Debug)]
pub(super) struct Newest<T, const MAX: usize>(VecDeque<T>);

impl<T, const MAX: usize> Default for Newest<T, MAX> {
    fn default() -> Self {
        // Grows by doubling, so that a history of one site takes no more than it needs at first.
        Self(VecDeque::new())
    }
}

impl<T, const MAX: usize> Newest<T, MAX> {
    pub(super) fn push(&mut self, value: T) {
        if self.0.len() >= MAX {
            self.0.pop_front();
        } else if self.0.len() == self.0.capacity() {
            let more = self.0.len().max(64).min(MAX - self.0.len());
            self.0.reserve_exact(more);
        }
        self.0.push_back(value);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.0.back()
    }
}

/// Number and length of the slots of a window.
#[derive(Clone, Copy, Debug)]
struct Slots {
    max: usize,
    seconds: u64,
}

/// Durations of the newest slots of time.
#[derive(Debug)]
pub(super) struct Window {
    slots: VecDeque<LatencySum>,
    bounds: Slots,
    current: LatencySum,
}

impl Window {
    pub(super) fn short() -> Self {
        Self::of(SHORT)
    }

    fn of(bounds: Slots) -> Self {
        let slots = VecDeque::with_capacity(bounds.max);
        Self { slots, bounds, current: LatencySum::default() }
    }

    /// Adds what was observed in a second.
    pub(super) fn add(&mut self, second: u64, observed: Option<&LatencySum>) {
        if second.is_multiple_of(self.bounds.seconds) {
            if self.slots.len() == self.bounds.max {
                self.slots.pop_front();
            }
            self.slots.push_back(std::mem::take(&mut self.current));
        }
        if let Some(observed) = observed {
            self.current.merge(observed);
        }
    }

    /// Returns the 99th percentile. The window is longer by up to one slot.
    pub(super) fn p99(&self) -> Option<LatencyBucket> {
        let mut sum = self.current.clone();
        self.slots.iter().for_each(|slot| sum.merge(slot));
        sum.percentile(99)
    }
}

/// Steps by second and by minute.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) seconds: Newest<Point, SECONDS>,
    pub(super) minutes: Newest<Point, MINUTES>,
    pub(super) short: Window,
    pub(super) long: Window,
    /// Steps of the minute that has not ended; `None` if nothing was observed in it.
    minute: Option<Box<Step>>,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            seconds: Newest::default(),
            minutes: Newest::default(),
            short: Window::short(),
            long: Window::of(LONG),
            minute: None,
        }
    }
}

impl Series {
    /// Adds a second; `None` was not observed.
    pub(super) fn push(&mut self, second: u64, step: Option<&Step>) {
        if second.is_multiple_of(60) {
            let minute = self.minute.take();
            self.minutes.push(minute.map_or(Point::GAP, |minute| minute.point()));
        }
        self.seconds.push(step.map_or(Point::GAP, Step::point));
        let heads = step.map(|step| &step.heads);
        self.short.add(second, heads);
        self.long.add(second, heads);
        if let Some(step) = step {
            self.minute.get_or_insert_default().merge(step);
        }
    }
}
