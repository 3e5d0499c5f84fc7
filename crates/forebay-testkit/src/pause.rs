//! A pause that is as long as it should be, for those who measure what comes after it.

use std::time::{Duration, Instant};

/// Waits for so long and a tenth of a millisecond. The timers of a runtime count whole ones, and
/// add one; this takes a thread, so it is for a few at a time.
pub async fn exactly(span: Duration) {
    let ends = Instant::now() + span;
    let pausing = move || {
        // It may be woken by nobody before that.
        while let Some(left) = ends.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
    };
    // It ends with an error where the runtime does, and nobody waits there any more.
    let _ = tokio::task::spawn_blocking(pausing).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_never_shorter() {
        for span in [0, 1, 5].map(Duration::from_millis) {
            let began = Instant::now();
            exactly(span).await;
            assert!(began.elapsed() >= span);
        }
    }
}
