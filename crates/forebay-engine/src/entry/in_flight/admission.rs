//! Admission of loads and growing bodies: each waits its turn for memory, up to a time limit, while
//! bodies whose readers have stopped are dropped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::KeyRef;
use futures_util::FutureExt;

use super::{Charged, InFlight, Waiting, Want};
use crate::runtime::event::{Event, Observer};
use crate::runtime::sync::timeout;

/// Maximum wait of a load for memory: longer than any healthy origin needs to send the bodies before
/// it, shorter than a client waits.
const LOAD_WAIT_MAX: Duration = Duration::from_secs(5);

/// Maximum wait of a growing body for memory, before it is streamed through a window. Its readers
/// pause meanwhile. Longer than it takes to find readers that have stopped.
const GROWTH_WAIT_MAX: Duration = Duration::from_millis(2_500);

/// Interval at which waiting loads and bodies look for bodies whose readers have stopped.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);

impl InFlight {
    /// Charges the memory that a load starts with; its followers wait with it. `None` if there is
    /// none in time, or too many wait already.
    pub(crate) async fn admit_load(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        observer: &dyn Observer,
    ) -> Option<Charged> {
        let admitted = match self.queue(Want::Load) {
            Ok(waiting) => {
                if waiting.waits() {
                    observer.observe(Event::LoadWaits(key));
                }
                self.admitted(waiting, LOAD_WAIT_MAX, observer).await
            }
            Err(_) => None,
        };
        if admitted.is_none() {
            self.refuse();
            observer.observe(Event::LoadRefused(key));
        }
        admitted
    }

    /// Charges memory for a growing body. `None` if there is none in time.
    pub(crate) async fn admit_body(
        self: &Arc<Self>,
        want: Want,
        observer: &dyn Observer,
    ) -> Option<Charged> {
        let waiting = self.queue(want).ok()?;
        self.admitted(waiting, GROWTH_WAIT_MAX, observer).await
    }

    async fn admitted(
        &self,
        waiting: Waiting,
        wait_max: Duration,
        observer: &dyn Observer,
    ) -> Option<Charged> {
        let mut waiting = pin!(waiting);
        if let Some(admitted) = waiting.as_mut().now_or_never() {
            return Some(admitted);
        }
        for _ in 0..wait_max.as_millis() / RECLAIM_INTERVAL.as_millis() {
            let dropped = self.make_room(self.clock.now());
            if dropped > 0 {
                observer.observe(Event::BodiesDropped(dropped));
            }
            if let Ok(admitted) = timeout(RECLAIM_INTERVAL, waiting.as_mut()).await {
                return Some(admitted);
            }
        }
        None
    }
}
