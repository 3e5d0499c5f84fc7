//! What instances tell each other: purges, in one order, and whether anything may have been missed.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Key, Purge, Reach};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use super::bookmark::{Bookmark, Chain};
use super::error::TierError;

/// Purges, carried to all instances.
pub trait Bus: Send + Sync + 'static {
    /// Removes what is shared, and tells all instances. Once it is acknowledged, no load that
    /// departed before can fill a shared tier with what was purged, and each instance that hears
    /// the bus will know of it within the time that a message takes.
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>>;

    /// The same for the versions of what stands under a key that are older than one that is about
    /// to be stored, or was removed: `None`, and nothing is done, if a version that is not older
    /// is known where entries are shared. From then on no older one can be stored there, for as
    /// long as it says or a newer one lives. A bus that knows no versions purges what stands there.
    fn publish_version<'a>(
        &'a self,
        key: &'a Key,
        _newer: Newer,
    ) -> BoxFuture<'a, Result<Option<Published>, TierError>> {
        async move { self.publish(&Purge::Key(key.clone()), Reach::Hard).await.map(Some) }.boxed()
    }

    /// Who is told from now on what others publish. What this instance publishes itself is not
    /// repeated to it. At first nothing counts as heard.
    ///
    /// A bus that can tell of all that was published since the listener's
    /// [bookmark](Listener::bookmark) goes on from there. One that cannot says [`Notice::Gap`]
    /// before [`Notice::Heard`].
    fn listen(&self, listener: Arc<dyn Listener>);
}

/// New version of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer {
    /// Number of the version.
    pub version: u64,
    /// Minimum time for which older versions are refused: longer than any writer or load of an
    /// older version takes.
    pub keep: Duration,
}

/// A purge that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its place in the order of all purges.
    pub id: Box<str>,
    /// How many instances were alive a moment ago, this one included.
    pub instances: usize,
    /// Whether anything shared was removed.
    pub found: bool,
}

/// Who hears.
pub trait Listener: Send + Sync {
    /// Called in the order of the bus, from one thread at a time. It must not block.
    fn hear(&self, notice: Notice);

    /// Up to where an earlier life of this listener was told, and has carried out what it was
    /// told; nothing if it begins anew.
    fn bookmark(&self) -> Option<Bookmark> {
        None
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another instance has purged.
    Purged {
        /// What.
        what: Purge,
        /// How hard.
        reach: Reach,
    },
    /// Another instance is about to store a version, or has removed what was there as of one:
    /// what is older is gone.
    Outdated {
        /// Of what.
        key: Key,
        /// Which one.
        newer: Newer,
    },
    /// Messages may have been missed: whatever is held here is suspect.
    Gap,
    /// Nothing was heard for as long as silence is trusted. What is held is suspect from now on,
    /// and so is what comes.
    Lost,
    /// The bus is heard again. A [`Notice::Gap`] came before it if anything may have been missed.
    Heard,
    /// All that was published up to here has been told, but for what a gap has told of.
    Reached(Bookmark),
}
