//! What a door stores without being asked to load it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, Purge, Reach, Validator, version};

use crate::engine::Engine;
use crate::entry::Head;
use crate::fill::Landing;
use crate::flight::Boarder;
use crate::flight::load::Load;
use crate::tiers::bus::Newer;

impl Engine {
    /// Stores an entry under a primary key, in all tiers. `false` if none of them takes it.
    ///
    /// It is a flight that is over as soon as it has departed: what departed before it is cut
    /// short, so that a load which began earlier and ends later cannot put the older answer in its
    /// place; and a purge finds it.
    pub async fn put<L: Load>(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        entry: (Meta, Head, Bytes),
        select: L,
    ) -> bool {
        self.flights.cut(key, || ());
        self.put_as((key, None), entry, select).await
    }

    /// The same for what is one of several versions: nothing is stored, and the answer is `false`,
    /// where one that is as new is stored or was [removed](Self::remove_version).
    pub async fn put_version<L: Load>(
        self: &Arc<Self>,
        (key, newer): (KeyRef<'_>, Newer),
        (mut meta, head, body): (Meta, Head, Bytes),
        select: L,
    ) -> bool {
        let tag = Some(version::written(newer.version));
        meta.set_validator(Some(Validator { tag, modified: None }));
        let below = self.version_below(key).await;
        // An older version must not cut the flight of a newer one.
        let is_newer = self.flights.cut_if(key, || self.raise_floor(key, below, newer));
        is_newer && self.put_as((key, Some(newer)), (meta, head, body), select).await
    }

    /// What departed before has been cut.
    async fn put_as<L: Load>(
        self: &Arc<Self>,
        (key, newer): (KeyRef<'_>, Option<Newer>),
        (meta, head, body): (Meta, Head, Bytes),
        select: L,
    ) -> bool {
        // A load may depart in between. It lands before this one and is overwritten, or after it
        // and finds itself outrun.
        let boarder = Boarder { primary: key, key, passed_over: None, now: self.clock.exact() };
        let came = self.flights.alone(boarder, || self.log.position());
        // What other instances hold is older, and what they load may be. If one of them tells of a
        // purge from here on, it finds this flight, and theirs came later.
        match newer {
            None => drop(self.publish(&Purge::Key(key.to_key()), Reach::Hard).await),
            Some(newer) if !self.publish_version(key, newer).await => return false,
            Some(_) => {}
        }
        let seat = self.flights.alone(boarder, || came.flight().position);
        if came.unless_cut(|| ()).is_none() {
            return false;
        }
        drop(came);
        Landing::of_put(self.clone(), seat, select).put(meta, head, body).await
    }
}
