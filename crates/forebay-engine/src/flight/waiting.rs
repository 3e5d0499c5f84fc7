//! Callers that wait for a load, as its front end sees them.

use std::sync::Arc;

use super::Flight;

/// Shows a [`Load`](super::load::Load) whether callers wait for its answer, so that a front end can
/// load first what is waited for.
#[derive(Clone, Debug)]
pub struct Waiting {
    flight: Arc<Flight>,
    is_refresh: bool,
}

impl Waiting {
    pub(crate) const fn new(flight: Arc<Flight>, is_refresh: bool) -> Self {
        Self { flight, is_refresh }
    }

    /// Returns `true` if the load began as a refresh in the background.
    #[must_use]
    pub const fn is_refresh(&self) -> bool {
        self.is_refresh
    }

    /// Returns `true` if callers other than the one that began the load wait for it now.
    #[must_use]
    pub fn has_followers(&self) -> bool {
        self.flight.has_followers()
    }

    /// Lets no further caller wait for the load, which is about to fail: the next one begins a load
    /// of its own. Those who wait already get the result.
    pub fn close(&self) {
        self.flight.close();
    }
}
