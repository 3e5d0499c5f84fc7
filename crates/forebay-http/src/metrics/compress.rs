//! Metrics of compression.

use std::time::Duration;

use forebay_semantics::coding::Coding;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Metrics, SECONDS};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompressionLabels {
    site: Box<str>,
    coding: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodingLabel {
    coding: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    coding: &'static str,
    direction: &'static str,
}

#[derive(Debug)]
pub(super) struct CompressMetrics {
    compressions: Family<CompressionLabels, Counter>,
    seconds: Family<CodingLabel, Histogram, fn() -> Histogram>,
    bytes: Family<DirectionLabels, Counter>,
    queue: Gauge,
}

impl Default for CompressMetrics {
    fn default() -> Self {
        Self {
            compressions: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            bytes: Family::default(),
            queue: Gauge::default(),
        }
    }
}

impl CompressMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "compressions",
            "Compressions of responses, by site, coding and result (made; larger: less than 10 % \
             smaller, or too large for memory; busy: not made because the queue was full; failed)",
            self.compressions.clone(),
        );
        registry.register(
            "compress_seconds",
            "Seconds of computation for one stored response in a coding, without the wait in the \
             queue",
            self.seconds.clone(),
        );
        registry.register(
            "compress_bytes",
            "Bytes of responses before (in) and after (out) their compression, by coding and \
             direction",
            self.bytes.clone(),
        );
        registry.register(
            "compress_queue",
            "Compressions that wait now for a thread",
            self.queue.clone(),
        );
    }
}

/// Counters of the compressions of one site in one coding.
#[derive(Clone, Debug)]
pub(crate) struct CompressionCounts {
    made: Counter,
    larger: Counter,
    busy: Counter,
    failed: Counter,
    seconds: Histogram,
    bytes_in: Counter,
    bytes_out: Counter,
}

impl CompressionCounts {
    /// Counts a compression of a stored response, with its duration and the lengths of the body
    /// before and after it.
    pub(crate) fn made(&self, took: Duration, before: u64, after: u64) {
        self.seconds.observe(took.as_secs_f64());
        self.passed(before, after);
    }

    /// Counts a compression of a response that is not stored.
    pub(crate) fn passed(&self, before: u64, after: u64) {
        self.made.inc();
        self.bytes_in.inc_by(before);
        self.bytes_out.inc_by(after);
    }

    /// Counts a result that is not worth its memory.
    pub(crate) fn larger(&self) {
        self.larger.inc();
    }

    /// Counts a compression that was not made because the queue was full.
    pub(crate) fn busy(&self) {
        self.busy.inc();
    }

    /// Counts an error of a codec.
    pub(crate) fn failed(&self) {
        self.failed.inc();
    }
}

/// Number of compressions that wait for a thread.
#[derive(Clone, Debug)]
pub(crate) struct CompressionQueue(Gauge);

impl CompressionQueue {
    /// Sets the number.
    pub(crate) fn set(&self, length: usize) {
        self.0.set(i64::try_from(length).unwrap_or(i64::MAX));
    }
}

impl Metrics {
    /// Returns the counters of the compressions of a site in a coding.
    pub(crate) fn compressions(&self, site: &str, coding: Coding) -> CompressionCounts {
        let (metrics, coding) = (&self.compress, coding.name());
        let counter = |result| {
            let labels = CompressionLabels { site: site.into(), coding, result };
            metrics.compressions.get_or_create_owned(&labels)
        };
        let bytes =
            |direction| metrics.bytes.get_or_create_owned(&DirectionLabels { coding, direction });
        CompressionCounts {
            made: counter("made"),
            larger: counter("larger"),
            busy: counter("busy"),
            failed: counter("failed"),
            seconds: metrics.seconds.get_or_create_owned(&CodingLabel { coding }),
            bytes_in: bytes("in"),
            bytes_out: bytes("out"),
        }
    }

    /// Returns the gauge of waiting compressions.
    pub(crate) fn compression_queue(&self) -> CompressionQueue {
        CompressionQueue(self.compress.queue.clone())
    }
}
