//! Model of a disk tier, which an instance uses below memory and finds again after a restart.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta, Purge};
use forebay_engine::{Stored, Tier, TierError, WriteMode, Writer};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;

use super::link::Link;

/// Model of a disk. Clones share one disk, which outlives the instance that writes to it.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<Platter>>);

#[derive(Default)]
struct Platter {
    records: HashMap<Key, Record>,
    /// Purges in their order. A write that began before a purge does not outlive it.
    marks: Vec<Purge>,
}

#[derive(Clone)]
struct Record {
    meta: Meta,
    head: Bytes,
    body: Bytes,
}

impl Platter {
    fn mark(&mut self, what: &Purge) {
        self.records.retain(|key, record| !reaches(what, key, &record.meta));
        self.marks.push(what.clone());
    }

    fn commit(&mut self, key: Key, record: Record, begun: usize) {
        let is_purged = self.marks[begun..].iter().any(|what| reaches(what, &key, &record.meta));
        if !is_purged {
            self.records.insert(key, record);
        }
    }
}

fn reaches(what: &Purge, key: &Key, meta: &Meta) -> bool {
    match what {
        Purge::Tag(tag) => meta.tags().iter().any(|its| *its == **tag),
        what => what.is_about(key.borrowed()),
    }
}

/// Disk as one process of an instance uses it: a paused or killed process writes nothing.
pub(crate) struct OfOneLife {
    disk: Disk,
    link: Arc<Link>,
}

impl OfOneLife {
    pub(crate) fn tier(disk: &Disk, link: &Arc<Link>) -> Arc<dyn Tier> {
        Arc::new(Self { disk: disk.clone(), link: link.clone() })
    }

    async fn with<T>(&self, operate: impl FnOnce(&mut Platter) -> T) -> Result<T, TierError> {
        self.link.thawed().await;
        Ok(operate(&mut self.disk.0.lock()))
    }
}

impl Tier for OfOneLife {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        async move {
            let found = self.with(|platter| platter.records.get(key.bytes()).cloned()).await?;
            let stored = |Record { meta, head, body }| {
                Stored::new(meta, head, stream::iter([Ok(body)]).boxed())
            };
            Ok(found.map(stored))
        }
        .boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        _mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        async move {
            let begun = self.with(|platter| platter.marks.len()).await?;
            let record = Record { meta: meta.clone(), head: head.clone(), body: Bytes::new() };
            let life = Self { disk: self.disk.clone(), link: self.link.clone() };
            Ok(Box::new(Writing { life, key: key.to_key(), record, begun }) as Box<dyn Writer>)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.with(move |platter| platter.records.remove(key.bytes()).is_some()).boxed()
    }

    fn purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        self.with(|platter| platter.mark(what)).boxed()
    }
}

/// Write of one record that is not committed yet.
struct Writing {
    life: OfOneLife,
    key: Key,
    record: Record,
    begun: usize,
}

impl Writer for Writing {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        self.record.body = [&self.record.body[..], &piece].concat().into();
        async { Ok(()) }.boxed()
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let Self { life, key, record, begun } = *self;
            life.with(|platter| platter.commit(key, record, begun)).await
        }
        .boxed()
    }
}
