//! Implementation of the engine's [`Tier`] trait.

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, Purge, Reach};
use forebay_engine::bus::{Bookmark, Chain};
use forebay_engine::{Stored, Tier, TierError, WriteMode, Writer};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::counts::count;
use crate::error::Refusal;
use crate::format::layout::Digest;
use crate::index::prefixes::PrefixPurge;
use crate::open::Disk;
use crate::read::Read;
use crate::shared::queue::Op;
use crate::write::draft::Draft;

impl Tier for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        async move { Ok(self.shared.read(key).await?.map(Read::whole)) }.boxed()
    }

    fn peek<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        async move { Ok(self.shared.peek(key).await?.map(Read::whole)) }.boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        _mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let shared = &self.shared;
            if !shared.health.may_write(shared.clock.now()) {
                count(&shared.counters.refused);
                return Err(Refusal::WriteFailed.into());
            }
            let draft = Draft::begin(shared.clone(), key.to_key(), meta.clone(), head.clone());
            let writer: Box<dyn Writer> = Box::new(draft);
            Ok(writer)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        let digest = Digest::of(key.bytes(), self.shared.seed);
        async move { self.shared.ask(|reply| Op::Remove { digest, reply }).await }.boxed()
    }

    /// Purges for this session and later ones. Writes that began before the purge are reached as
    /// well.
    fn purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        self.record_purge(what, Reach::Hard).boxed()
    }

    fn soft_purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        self.record_purge(what, Reach::Soft).boxed()
    }

    fn soften<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        async move {
            let shared = &self.shared;
            let purge = Purge::Key(key.to_key());
            let mark = shared.purge_marks.digest(&purge, Reach::Soft);
            let Some(digest) = mark.filter(|digest| shared.purge_marks.takes_key(*digest)) else {
                return self.remove(key).await;
            };
            let is_stored = shared.index.get(Digest::of(key.bytes(), shared.seed)).is_some();
            shared.ask(|reply| Op::Soften { digest, reply }).await?;
            Ok(is_stored)
        }
        .boxed()
    }

    fn carries_out_purges(&self) -> bool {
        true
    }

    fn carries_out_soft_purges(&self) -> bool {
        true
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.shared.bookmark.read().clone()
    }

    fn keep_bookmark<'a>(
        &'a self,
        bookmark: &'a Bookmark,
        chain: Chain,
    ) -> BoxFuture<'a, Result<(), TierError>> {
        let bookmark = bookmark.clone();
        async move { self.shared.ask(|reply| Op::Keep { bookmark, chain, reply }).await }.boxed()
    }

    fn has_drafts(&self) -> bool {
        true
    }
}

impl Disk {
    async fn record_purge(&self, what: &Purge, reach: Reach) -> Result<(), TierError> {
        if let Purge::Key(key) = what {
            let done = match reach {
                Reach::Soft => self.soften(key.borrowed()).await,
                Reach::Hard => self.remove(key.borrowed()).await,
            };
            return done.map(drop);
        }
        let Some(digest) = self.shared.purge_marks.digest(what, reach) else { return Ok(()) };
        let prefix_purge = match what {
            Purge::Prefix { site, prefix } => {
                Some(PrefixPurge { site: site.clone(), prefix: prefix.clone(), reach })
            }
            _ => None,
        };
        self.shared.ask(|reply| Op::Purge { digest, prefix_purge, reply }).await
    }
}
