//! Entries that a caller stores without a load.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, Purge, Reach, Validator, version};

use crate::engine::Engine;
use crate::entry::Head;
use crate::entry::select::Credentials;
use crate::fill::cluster_lease::LeaseUse;
use crate::fill::{FillRules, Leading};
use crate::flight::JoinRequest;
use crate::flight::load::Load;
use crate::tiers::bus::Newer;

/// Entry that a caller stores without a load.
pub struct NewEntry {
    /// Metadata of the entry.
    pub meta: Meta,
    /// Head of the entry: bytes that only the front end interprets.
    pub head: Head,
    /// Complete body of the entry.
    pub body: Bytes,
}

impl Engine {
    /// Stores an entry under a primary key, in all tiers, and removes the entry of the key from
    /// other instances. Returns `false` if memory did not store it, and no lower tier takes it in
    /// its place; whether the writes to lower tiers succeed is not considered. `select` gives the
    /// selecting fields of a variant, and the options.
    ///
    /// A load that began before the put and ends later does not replace the entry.
    pub async fn put<L: Load>(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        entry: NewEntry,
        select: L,
    ) -> bool {
        self.flights.purge(key, || ());
        self.store_put(key, None, entry, select).await
    }

    /// Stores one version of an entry, as [`put`](Self::put) does, and refuses older versions for
    /// `newer.keep`. Stores nothing and returns `false` if a version that is as new or newer is
    /// stored or was [removed](Self::remove_version).
    pub async fn put_version<L: Load>(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        newer: Newer,
        mut entry: NewEntry,
        select: L,
    ) -> bool {
        let tag = Some(version::written(newer.version));
        entry.meta.set_validator(Some(Validator { tag, modified: None }));
        let below = self.version_below(key).await;
        // An older version must not affect the flight of a newer one.
        let is_newer = self.flights.purge_if(key, || self.raise_floor(key, below, newer));
        is_newer && self.store_put(key, Some(newer), entry, select).await
    }

    /// Stores an entry after earlier flights were removed from the table.
    async fn store_put<L: Load>(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        newer: Option<Newer>,
        entry: NewEntry,
        load: L,
    ) -> bool {
        // A load may start in between. It ends before this flight and is replaced, or after it and
        // finds a newer entry stored.
        let request = JoinRequest { primary: key, key, passed_over: None, now: self.clock.exact() };
        let first = self.flights.lead_alone(request, || self.log.position());
        // Entries and loads of other instances may be older. A purge that one of them publishes from
        // here on finds this flight, and came later.
        match newer {
            None => drop(self.publish(&Purge::Key(key.to_key()), Reach::Hard).await),
            Some(newer) if !self.publish_version(key, newer).await => return false,
            Some(_) => {}
        }
        let leader = self.flights.lead_alone(request, || first.flight().position);
        if first.is_purged() {
            return false;
        }
        drop(first);
        let rules = FillRules {
            store: true,
            credentials: Credentials::Anonymous,
            tiers: None,
            lease_use: LeaseUse::Once,
            yields: false,
        };
        let (engine, options) = (self.clone(), load.options());
        let leading = Leading { engine, leader, rules, load, options, reply: None };
        let NewEntry { meta, head, body } = entry;
        leading.put(meta, head, body).await
    }
}
