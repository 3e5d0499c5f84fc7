//! Exact pause, for measurements of what follows it.

use std::time::{Duration, Instant};

/// Sleeps for `span` with a precision of about 0.1 ms. Timers of the runtime count milliseconds and
/// add one. A pause occupies a thread, so only a few may run at once.
pub async fn exactly(span: Duration) {
    let ends = Instant::now() + span;
    let pausing = move || {
        // A parked thread may wake up early.
        while let Some(left) = ends.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
    };
    // Fails only while the runtime shuts down, which drops the waiting task as well.
    let _ = tokio::task::spawn_blocking(pausing).await;
}
