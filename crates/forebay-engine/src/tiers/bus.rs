//! Bus: purges that instances publish to each other, in one order, and reports of missed messages.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Key, Purge, Reach};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use super::bookmark::{Bookmark, Chain};
use super::error::TierError;

/// Bus that carries purges between all instances, in one order.
pub trait Bus: Send + Sync + 'static {
    /// Purges shared entries, and publishes the purge. After the acknowledgement no load that
    /// started before can fill a shared tier with a purged entry. Each connected instance receives
    /// the purge within the delay of the bus.
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>>;

    /// Purges shared entries of versions older than one that is about to be stored, or was removed,
    /// and publishes that. Returns `None` and does nothing if a version that is as new or newer is
    /// known for the shared entry. Afterwards no older version can be stored there for
    /// [`Newer::keep`], or for longer while a newer version is stored. A bus without versions
    /// purges the key.
    fn publish_version<'a>(
        &'a self,
        key: &'a Key,
        _newer: Newer,
    ) -> BoxFuture<'a, Result<Option<Published>, TierError>> {
        async move { self.publish(&Purge::Key(key.clone()), Reach::Hard).await.map(Some) }.boxed()
    }

    /// Registers the listener for messages of other instances. Purges published by this instance
    /// are not sent to it. At first the bus counts as disconnected.
    ///
    /// A bus that stores messages continues from the listener's [bookmark](Listener::bookmark).
    /// Otherwise it sends [`Notice::Gap`] before [`Notice::Connected`].
    fn listen(&self, listener: Arc<dyn Listener>);
}

/// Version of a value that replaces older versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer {
    /// Number of the version; a larger number is newer.
    pub version: u64,
    /// Minimum time for which older versions are refused. It must be longer than a writer or a load
    /// of an older version can take.
    pub keep: Duration,
}

/// Acknowledgement of the bus that a purge is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Position of the purge on the bus: ids are in the order of all purges.
    pub id: Box<str>,
    /// Number of instances that are alive, including this one.
    pub instances: usize,
    /// For a purge of one key: `true` if an entry was removed from the shared tier. Other purges do
    /// not search for their entries, so that the value means nothing.
    pub found: bool,
}

/// Receiver of the messages that a bus delivers to one instance: purges, and changes of the state
/// of the bus.
pub trait Listener: Send + Sync {
    /// Receives a message. Called in the order of the bus, by one thread at a time. It must not
    /// block.
    fn hear(&self, notice: Notice);

    /// Returns the position up to which an earlier process has received and applied all messages.
    /// `None` if there was none.
    fn bookmark(&self) -> Option<Bookmark> {
        None
    }
}

/// Message that a bus delivers to its listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another instance has purged entries, or another program has changed a shared entry.
    Purged {
        /// Entries to purge.
        what: Purge,
        /// Effect on them: stale or removed.
        reach: Reach,
    },
    /// Another instance is about to store a version of a value, or has removed it: older versions
    /// must be removed.
    Outdated {
        /// Key of the entry.
        key: Key,
        /// Version below which the entry must be removed.
        newer: Newer,
    },
    /// Messages may have been missed, so that any entry of this instance may have been purged.
    Gap,
    /// The bus is disconnected: it delivered nothing for longer than silence is trusted. From now
    /// on, any entry of this instance may have been purged, also one that is stored later.
    Disconnected,
    /// The bus is connected. If messages may have been missed, a [`Notice::Gap`] came first.
    Connected,
    /// All messages up to this position of the bus are delivered, except those of a reported gap.
    Reached(Bookmark),
}
