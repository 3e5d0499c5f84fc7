//! Conformance test of tiers: a correct tier passes, and each defect is found.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Lifetime, Meta};
use forebay_engine::{Stored, SystemClock, Tier, TierError, WriteMode, Writer, check_tier};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};

use crate::faulty_tier::FaultyTier;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    Name,
    Head,
    Body,
    Lifetime,
    Order,
    Removal,
    EarlyVisibility,
    SharedKey,
    Purge,
}

/// Tier with one defect.
struct Defective {
    tier: FaultyTier,
    defect: Defect,
}

impl Defective {
    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// Key under which an entry is stored.
    fn key(&self, key: KeyRef<'_>) -> Key {
        let parts = key.parts().collect::<Vec<_>>();
        if !self.has(Defect::SharedKey) || parts.iter().all(|part| !part.contains(&b'/')) {
            return key.to_key();
        }
        let namespace = String::from_utf8_lossy(key.namespace()).into_owned();
        forebay_core::KeyBuf::new(&namespace).part(b"shared").borrowed().to_key()
    }
}

impl Tier for Defective {
    fn name(&self) -> &'static str {
        if self.has(Defect::Name) { "Two words" } else { "defective" }
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        async move {
            let key = self.key(key);
            let found = self.tier.open(key.borrowed()).await?;
            Ok(found.map(|mut stored| {
                if self.has(Defect::Head) {
                    stored.head = Bytes::new();
                }
                if self.has(Defect::Body) {
                    stored.body = stored.body.take(2).boxed();
                }
                stored
            }))
        }
        .boxed()
    }

    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        async move {
            let mut all = Vec::new();
            for key in keys {
                all.push(self.open(key.borrowed()).await?);
            }
            if self.has(Defect::Order) {
                all.reverse();
                all.rotate_left(1);
            }
            Ok(all)
        }
        .boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let (key, mut meta) = (self.key(key), meta.clone());
            if self.has(Defect::Lifetime) {
                meta.set_lifetime(Lifetime::default());
            }
            if self.has(Defect::EarlyVisibility) {
                self.tier.begin(key.borrowed(), &meta, head, mode).await?.commit().await?;
            }
            self.tier.begin(key.borrowed(), &meta, head, mode).await
        }
        .boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        async move {
            if self.has(Defect::Removal) {
                return Ok(true);
            }
            let key = self.key(key);
            self.tier.remove(key.borrowed()).await
        }
        .boxed()
    }

    fn carries_out_purges(&self) -> bool {
        self.has(Defect::Purge)
    }
}

fn faulty_tier() -> FaultyTier {
    FaultyTier::new("faulty", Arc::new(SystemClock))
}

#[tokio::test]
async fn a_correct_tier_conforms() {
    check_tier(&faulty_tier(), &SystemClock).await.unwrap();
}

#[tokio::test]
async fn every_defect_breaks_its_rule() {
    let rows = [
        (Defect::Name, "the name is one lower-case word"),
        (Defect::Head, "an entry is read as it was written"),
        (Defect::Body, "an entry is read as it was written"),
        (Defect::Lifetime, "an entry is read as it was written"),
        (
            Defect::Order,
            "a read of several keys returns one result for each, in the order of the keys",
        ),
        (
            Defect::Removal,
            "a removal returns true if there was an entry, and removes exactly this key",
        ),
        (Defect::EarlyVisibility, "the previous entry stays visible until the commit"),
        (Defect::SharedKey, "keys are compared in full"),
        (Defect::Purge, "a tier that carries out purges does not return a purged entry"),
    ];
    for (defect, rule) in rows {
        let broken = check_tier(&Defective { tier: faulty_tier(), defect }, &SystemClock).await;
        assert_eq!(broken.map_err(|broken| broken.rule), Err(rule), "{defect:?}");
    }
}
