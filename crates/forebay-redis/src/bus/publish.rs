//! Publication of a purge on one server, for the first time or again.

use std::sync::Arc;

use forebay_core::{KeyRef, Purge, Reach};
use forebay_engine::Newer;
use forebay_engine::bus::Published;
use redis::{RedisResult, Value};

use super::{ALIVE, KEPT_MAX, RULES_MAX, SharedNames, foreign, version};
use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Link, millis};
use crate::connection::scripts::{self, Call};
use crate::entry::envelope::{TOKEN_AT, value_prefix};
use crate::entry::names::{Names, shared_name};
use crate::error::unexpected;
use crate::purges::generation::{BusId, PrefixRule, Scope, Token, written_prefix, written_reach};
use crate::purges::tombstones::{self, Tombstone};
use crate::state::sharing::{Sharing, channels};

/// TTL of the note that a purge was published again: longer than any instance keeps its tombstone.
const REPUBLISH_NOTE_TTL: std::time::Duration = tombstones::RETENTION.saturating_mul(2);

/// A purge to publish.
#[derive(Clone, Copy)]
pub(crate) struct Publication<'a> {
    pub(crate) what: &'a Purge,
    pub(crate) reach: Reach,
    /// Token of an earlier publication. If the bus still has it, nothing is published.
    pub(crate) before: Option<Token>,
    /// The new version of the key, if the purge is about older versions only.
    pub(crate) newer: Option<Newer>,
}

/// Publishes purges over a connection to one endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Publisher<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) sharing: &'a Sharing,
    pub(crate) endpoint: &'a Arc<Endpoint>,
}

/// Result of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublishOutcome {
    Sent {
        id: BusId,
        found: bool,
        instances: usize,
        token: Token,
        /// `false` if the bus already had the purge.
        is_new: bool,
    },
    TooManyRules,
}

impl Publisher<'_> {
    /// Removes the shared entry or makes it stale, then publishes the purge, so that a receiver
    /// finds that done.
    pub(crate) async fn publish(
        self,
        link: &Link,
        publication: Publication<'_>,
    ) -> RedisResult<Published> {
        let removed = match publication.what {
            Purge::Key(key) if publication.before.is_none() => {
                Some(self.purge_entry(link, key.borrowed(), publication.reach).await?)
            }
            _ => None,
        };
        let mut publication = publication;
        let mut outcome = self.send(link, publication).await?;
        let whole;
        if let (PublishOutcome::TooManyRules, Purge::Prefix { site, .. }) =
            (&outcome, publication.what)
        {
            whole = Purge::Site(site.clone());
            publication.what = &whole;
            outcome = self.send(link, publication).await?;
        }
        let PublishOutcome::Sent { id, found, instances, token, is_new } = outcome else {
            return Err(unexpected());
        };
        self.purge_again(link, publication, is_new).await?;
        let (what, reach) = (publication.what, publication.reach);
        if is_new {
            self.remember(what, reach, token);
        }
        self.endpoint.remember(Tombstone { what: what.clone(), reach, token });
        let found = removed.unwrap_or(found);
        Ok(Published { id: id.to_string().into(), instances: instances.max(1), found })
    }

    /// Purges an entry once more that may have come back with another server. For instances that
    /// know the purge it is purged, since its load started earlier.
    ///
    /// If the bus still has the purge, its server has carried it out as well. In a Cluster another
    /// server may hold the entry.
    async fn purge_again(
        self,
        link: &Link,
        publication: Publication<'_>,
        is_new: bool,
    ) -> RedisResult<()> {
        let (Purge::Key(key), Some(_)) = (publication.what, publication.before) else {
            return Ok(());
        };
        if is_new || matches!(link, Link::Cluster(_)) {
            self.purge_entry(link, key.borrowed(), publication.reach).await?;
        }
        Ok(())
    }

    async fn purge_entry(self, link: &Link, key: KeyRef<'_>, reach: Reach) -> RedisResult<bool> {
        let names = Names::of(self.namespace, key);
        match link.run(&purge_call(self.namespace, &names, reach, self.sharing)).await? {
            Value::Int(purged) => Ok(purged > 0),
            _ => Err(unexpected()),
        }
    }

    pub(super) async fn send(
        self,
        link: &Link,
        publication: Publication<'_>,
    ) -> RedisResult<PublishOutcome> {
        let Publication { what, reach, before, newer } = publication;
        let names = SharedNames::of(self.namespace);
        let generation = Scope::of_purge(what).map(|scope| scope.name(self.namespace));
        let random = before.map_or_else(|| self.sharing.random(), |before| before.random);
        let digits = format!("{random:016x}");
        let again = shared_name(self.namespace, "r", digits.as_bytes());
        let keys = [&*names.bus, &*names.instances, &*names.rules, &*again];
        let settings = &self.sharing.settings;
        let written = match what {
            Purge::Key(key) => key.borrowed().bytes().to_vec(),
            Purge::Tag(text) | Purge::Site(text) => text.as_bytes().to_vec(),
            Purge::Prefix { site, prefix } => written_prefix(site, prefix.as_str()),
            Purge::All => Vec::new(),
        };
        let call = scripts::PUBLISH.call(keys.into_iter().chain(generation.as_deref()));
        let call = call.arg(what.kind()).arg(written).arg(written_reach(reach));
        let call = call.arg(&self.sharing.instance).number(settings.bus_length);
        let call = call.arg(&digits).number(millis(KEPT_MAX * 2)).number(RULES_MAX);
        let position = before.map(|before| before.id.to_string()).unwrap_or_default();
        let call = call.number(millis(ALIVE)).arg(position).number(millis(REPUBLISH_NOTE_TTL));
        let call = match newer {
            Some(newer) => call.arg(version::written_newer(newer)),
            None => call,
        };
        PublishOutcome::read(link.run(&call).await?, random)
    }

    /// Records the purge, so that entries stored and read from now on take it into account.
    fn remember(self, what: &Purge, reach: Reach, token: Token) {
        let progress = &self.sharing.bus.progress;
        match Scope::of_purge(what) {
            Some(scope) => progress.update_known(|known| known.purged(scope, reach, token)),
            None if matches!(what, Purge::Prefix { .. }) => {
                progress.add_rule(PrefixRule { id: token.id, what: what.clone(), reach });
            }
            None => {}
        }
    }
}

/// Returns the script that removes an entry, or makes it and its variants stale.
pub(super) fn purge_call<'a>(
    namespace: &str,
    names: &'a Names,
    reach: Reach,
    sharing: &Sharing,
) -> Call<'a> {
    let Names { entry, leases, waiters } = names;
    let keys = [&**entry, &**leases, &**waiters];
    let channels = channels(namespace);
    match reach {
        Reach::Hard => scripts::REMOVE.call(keys).arg(channels),
        Reach::Soft => {
            let call = scripts::SOFTEN.call(keys).arg(channels).arg(value_prefix());
            call.number(TOKEN_AT as u64).arg(sharing.random().to_le_bytes())
        }
    }
}

impl PublishOutcome {
    fn read(answer: Value, random: u64) -> RedisResult<Self> {
        let Value::Array(parts) = answer else { return Err(unexpected()) };
        match &parts[..] {
            [
                Value::BulkString(id),
                Value::Int(found),
                Value::Int(instances),
                Value::Int(is_new),
            ] => {
                let id = BusId::read(id).ok_or_else(unexpected)?;
                Ok(Self::Sent {
                    id,
                    found: *found == 1,
                    instances: usize::try_from(*instances).unwrap_or(0),
                    token: Token { id, random },
                    is_new: *is_new == 1,
                })
            }
            [Value::BulkString(said)] if said.is_empty() => Ok(Self::TooManyRules),
            _ => Err(foreign()),
        }
    }
}
