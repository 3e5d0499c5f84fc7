//! What a door stores without being asked to load it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, Purge, Reach};

use crate::Engine;
use crate::entry::Head;
use crate::flight::Boarder;
use crate::land::Landing;
use crate::load::Load;

impl Engine {
    /// Stores an entry under a primary key, in all tiers. `false` if none of them takes it.
    ///
    /// It is a flight that is over as soon as it has departed: what departed before it is cut
    /// short, so that a load which began earlier and ends later cannot put the older answer in its
    /// place; and a purge finds it.
    pub async fn put<L: Load>(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        (meta, head, body): (Meta, Head, Bytes),
        select: L,
    ) -> bool {
        self.flights.cut(key, || ());
        // A load may depart in between. It lands before this one and is overwritten, or after it
        // and finds itself outrun.
        let boarder = Boarder { primary: key, key, passed_over: None, now: self.clock.exact() };
        let came = self.flights.alone(boarder, || self.position());
        // What other instances hold is older, and what they load may be. If one of them tells of a
        // purge from here on, it finds this flight, and theirs came later.
        self.tell(&Purge::Key(key.to_key()), Reach::Hard).await;
        let seat = self.flights.alone(boarder, || came.flight().position);
        if came.unless_cut(|| ()).is_none() {
            return false;
        }
        drop(came);
        Landing::of_put(self.clone(), seat, select).put(meta, head, body).await
    }
}
