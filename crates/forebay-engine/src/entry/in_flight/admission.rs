//! Waiting for room among the bodies in flight: in turn, within a time, and not for those who do
//! not read.

use std::pin::pin;
use std::time::Duration;

use forebay_core::KeyRef;
use futures_util::FutureExt;

use crate::Engine;
use crate::entry::in_flight::{Charged, Waiting, Want};
use crate::flight::load::LoadError;
use crate::runtime::event::Event;
use crate::runtime::sync::timeout;

/// How long a load waits for room before it is refused: longer than any healthy origin needs to
/// bring the bodies before it, shorter than a client's patience.
const LOAD_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a body waits for room to grow before it is passed on through a window: those aboard
/// see it pause meanwhile. Longer than it takes to find out who stands still.
const GROWTH_WAIT_MAX: Duration = Duration::from_millis(2_500);

/// How often those who wait look for bodies that nobody moves in.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Engine {
    /// Room for a load to depart. Those who would follow it wait with it.
    ///
    /// # Errors
    /// If there is none in time, or too many wait already.
    pub(crate) async fn room_for_load(&self, key: KeyRef<'_>) -> Result<Charged, LoadError> {
        let room = match self.in_flight.queue(Want::Load) {
            Ok(waiting) => {
                if waiting.waits() {
                    self.observer.observe(Event::LoadWaits(key));
                }
                self.granted(waiting, LOAD_WAIT_MAX).await
            }
            Err(_) => None,
        };
        room.ok_or_else(|| {
            self.in_flight.refuse();
            self.observer.observe(Event::LoadRefused(key));
            LoadError::Overloaded("there is no room for another body")
        })
    }

    /// Room for a body to grow; nothing if there is none in time.
    pub(crate) async fn room_for_body(&self, want: Want) -> Option<Charged> {
        let waiting = self.in_flight.queue(want).ok()?;
        self.granted(waiting, GROWTH_WAIT_MAX).await
    }

    async fn granted(&self, waiting: Waiting, wait_max: Duration) -> Option<Charged> {
        let mut waiting = pin!(waiting);
        if let Some(room) = waiting.as_mut().now_or_never() {
            return Some(room);
        }
        for _ in 0..wait_max.as_millis() / LOOK_EVERY.as_millis() {
            self.make_room();
            if let Ok(room) = timeout(LOOK_EVERY, waiting.as_mut()).await {
                return Some(room);
            }
        }
        None
    }

    fn make_room(&self) {
        let gone = self.in_flight.make_room(self.clock.now());
        if gone > 0 {
            self.observer.observe(Event::BodiesLetGo(gone));
        }
    }
}
