//! Versions of entries, compared where they are shared.
//!
//! The newest version of a key stands in a name of its own, as twenty digits that compare as the
//! numbers do, for as long as anything of an older version may still be on its way, or as the entry
//! lives. A fill of an older version is refused (`fill.lua`), and so is a version that comes too
//! late (`raise.lua`); both in one step with what they do.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Key, Purge, Reach};
use forebay_engine::bus::Published;
use forebay_engine::{Newer, TierError};
use redis::{RedisResult, Value};

use super::publish::{Publication, PublishOutcome, Publisher};
use super::{Inner, KEPT_MAX, PurgeGuard};
use crate::counts::count;
use crate::endpoint::Endpoint;
use crate::generation::BusId;
use crate::link::{Link, millis, unexpected};
use crate::names::{Names, floor_name};
use crate::pending_removals::Reason;
use crate::scripts;
use crate::sharing::{Sharing, channels};
use crate::tier::failed;

/// A version as it stands in Redis.
pub(crate) fn written(version: u64) -> String {
    format!("{version:020}")
}

/// The same as it is outcome, and for how long it counts at least.
pub(crate) fn written_newer(newer: Newer) -> String {
    format!("{} {}", written(newer.version), millis(newer.keep))
}

/// Nothing if it is not as it would be written.
pub(crate) fn read_newer(text: &[u8]) -> Option<Newer> {
    let (version, keep) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let keep = Duration::from_millis(keep.parse().ok()?).min(KEPT_MAX);
    let newer = Newer { version: version.parse().ok()?, keep };
    (written(newer.version) == version).then_some(newer)
}

impl Inner {
    /// Tells the endpoint that is used, and waits for it; the others are rid of the entry later.
    pub(super) async fn publish_version(
        self: &Arc<Self>,
        sharing: &Arc<Sharing>,
        key: &Key,
        newer: Newer,
    ) -> Result<Option<Published>, TierError> {
        // Noted first: whoever drops this half-way has purged all the same.
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
            // What is known there is as new, so none of them has anything to be rid of.
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
    /// First what is shared makes way, then everybody is outcome: who hears of it finds it gone, or
    /// finds what is newer.
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
        let call = call.arg(channels(self.namespace)).arg(written(newer.version));
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
    fn a_version_is_read_as_it_was_told() {
        for version in [0, 9, 10, u64::MAX] {
            let newer = Newer { version, keep: Duration::from_secs(60) };
            assert_eq!(read_newer(written_newer(newer).as_bytes()), Some(newer));
        }
        assert!(written(9) < written(10), "as the numbers do");
        for wrong in [&b""[..], b"7 1", b"00000000000000000007", b"00000000000000000007 x"] {
            assert_eq!(read_newer(wrong), None);
        }
        let ever = read_newer(b"00000000000000000007 99999999999999999");
        assert_eq!(ever.map(|newer| newer.keep), Some(KEPT_MAX));
    }
}
