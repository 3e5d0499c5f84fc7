//! A tier that notes when what was filled in it was acknowledged, and is otherwise the one behind
//! it.

use std::sync::Arc;

use bytes::Bytes;
use forebay::codec::{Codec, MessagePack};
use forebay::{Cache, Cluster, Tier, TierError};
use forebay_core::{KeyRef, Meta};
use forebay_engine::{Budget, Stored, SystemClock, WriteMode, Writer};
use forebay_redis::Redis;
use futures_util::future::BoxFuture;

use super::peer::{self, SharedNotes, machine_now};

/// A cache over a Redis whose fills are noted.
pub(crate) fn cache(url: &str, noted: &SharedNotes) -> anyhow::Result<Cache<String>> {
    let redis = Redis::connect(peer::settings(url), Arc::new(SystemClock), Arc::new(()))?;
    let redis = Arc::new(redis);
    let tier = Arc::new(Watched { tier: redis.clone(), noted: noted.clone() });
    let builder = peer::builder().tiers(Codec::new(MessagePack), [tier]);
    Ok(builder.cluster(Cluster::new(redis.clone(), redis)).build()?)
}

/// Implements what the Redis tier does, apart from reading several keys at once.
struct Watched {
    tier: Arc<Redis>,
    noted: SharedNotes,
}

/// An entry on its way.
struct Filling {
    writer: Box<dyn Writer>,
    noted: SharedNotes,
}

impl Tier for Watched {
    fn name(&self) -> &'static str {
        self.tier.name()
    }

    fn budget(&self) -> Budget {
        self.tier.budget()
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.tier.open(key)
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        Box::pin(async move {
            let writer = self.tier.begin(key, meta, head, mode).await?;
            if !matches!(mode, WriteMode::Leased(_)) {
                return Ok(writer);
            }
            Ok(Box::new(Filling { writer, noted: self.noted.clone() }) as Box<dyn Writer>)
        })
    }

    fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.tier.remove(key)
    }
}

impl Writer for Filling {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        self.writer.write(piece)
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        Box::pin(async move {
            self.writer.commit().await?;
            self.noted.0.lock().fills.push(machine_now());
            Ok(())
        })
    }
}
