//! Versions of entries, compared atomically in Redis.
//!
//! A name per key holds its newest version as twenty digits, which compare like numbers. It is kept
//! while an older version may still arrive, or as long as the entry. `fill.lua` rejects a fill of
//! an older version and `raise.lua` a version that is not newer, each within one script.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::bus::Published;
use forebay_engine::{Newer, TierError};
use redis::{RedisResult, Value};

use super::publish::{Publication, PublishOutcome, Publisher};
use super::{Inner, KEPT_MAX, PurgeGuard};
use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Link, millis, written_version};
use crate::connection::scripts;
use crate::counts::count;
use crate::entry::names::{Names, floor_name};
use crate::error::unexpected;
use crate::purges::generation::BusId;
use crate::purges::pending_removals::Reason;
use crate::state::failed;
use crate::state::sharing::{Sharing, channels};

/// Encodes a version and the minimum time for which it is remembered.
pub(crate) fn written_newer(newer: Newer) -> String {
    format!("{} {}", written_version(newer.version), millis(newer.keep))
}

/// Decodes a version; `None` if it is not in canonical form.
pub(crate) fn read_newer(text: &[u8]) -> Option<Newer> {
    let (version, keep) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let keep = Duration::from_millis(keep.parse().ok()?).min(KEPT_MAX);
    let newer = Newer { version: version.parse().ok()?, keep };
    (written_version(newer.version) == version).then_some(newer)
}

impl Inner {
    /// Publishes on the endpoint in use and waits for it. The other endpoints remove the entry
    /// later.
    pub(super) async fn publish_version(
        self: &Arc<Self>,
        sharing: &Arc<Sharing>,
        key: &Key,
        newer: Newer,
    ) -> Result<Option<Published>, TierError> {
        // Recorded first, so that dropping this future does not cancel the purge.
        let (what, names) = (Purge::Key(key.clone()), self.names(key.borrowed()));
        let guards = |endpoint: &Arc<Endpoint>| PurgeGuard {
            endpoint: endpoint.clone(),
            number: endpoint.pending_purges.add(&what, Reach::Hard),
            entry: Some(endpoint.begin_removal(&names, Reason::Removed)),
        };
        let mut guards: Vec<_> = self.endpoints.iter().map(guards).collect();
        let (at, used) = self.used()?;
        let own = guards.swap_remove(at);
        let publisher = Publisher { namespace: &self.namespace, sharing, endpoint: used };
        let publication = used.run(used.write_timeout, |link| async move {
            publisher.send_version(&link, key, newer).await
        });
        let outcome = publication.await.map_err(failed)?;
        own.complete();
        let Some(outcome) = outcome else {
            // The known version is as new, so the other endpoints have nothing to remove.
            guards.into_iter().for_each(PurgeGuard::complete);
            return Ok(None);
        };
        if let Some(id) = BusId::read(outcome.id.as_bytes()) {
            sharing.bus.progress.reached(used, id);
        }
        count(&self.counters.published);
        Ok(Some(outcome))
    }
}

impl Publisher<'_> {
    /// Removes the older version, then publishes the purge, so that a receiver finds no entry or a
    /// newer one.
    async fn send_version(
        self,
        link: &Link,
        key: &Key,
        newer: Newer,
    ) -> RedisResult<Option<Published>> {
        let names = Names::of(self.namespace, key.borrowed());
        let floor = floor_name(self.namespace, key.borrowed());
        let Names { entry, leases, waiters } = &names;
        let call = scripts::RAISE.call([&**entry, &**leases, &**waiters, &*floor]);
        let call = call.arg(channels(self.namespace)).arg(written_version(newer.version));
        let removed = match link.run(&call.number(millis(newer.keep).max(1))).await? {
            Value::Int(-1) => return Ok(None),
            Value::Int(removed) => removed > 0,
            _ => return Err(unexpected()),
        };
        let what = &Purge::Key(key.clone());
        let publication =
            Publication { what, reach: Reach::Hard, before: None, newer: Some(newer) };
        let outcome = self.send(link, publication).await?;
        let PublishOutcome::Sent { id, instances, .. } = outcome else { return Err(unexpected()) };
        let (id, instances) = (id.to_string().into(), instances.max(1));
        Ok(Some(Published { id, instances, found: removed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_round_trips() {
        for version in [0, 9, 10, u64::MAX] {
            let newer = Newer { version, keep: Duration::from_secs(60) };
            assert_eq!(read_newer(written_newer(newer).as_bytes()), Some(newer));
        }
        assert!(written_version(9) < written_version(10), "as the numbers do");
        for wrong in [&b""[..], b"7 1", b"00000000000000000007", b"00000000000000000007 x"] {
            assert_eq!(read_newer(wrong), None);
        }
        let ever = read_newer(b"00000000000000000007 99999999999999999");
        assert_eq!(ever.map(|newer| newer.keep), Some(KEPT_MAX));
    }
}
