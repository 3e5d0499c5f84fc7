//! Conformance test of tiers: the rules of [`Tier`] and [`Writer`] that every implementation keeps.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyBuf, Lifetime, Meta, Purge, TagSet, Validator, Vary};
use futures_util::StreamExt;

use super::error::TierError;
use super::tier::{Stored, Tier, WriteMode, Writer};
use crate::entry::body::PieceStream;
use crate::runtime::clock::Clock;

/// Length in bytes of the large body: more than tiers hold in one piece.
const LARGE: usize = 1 << 20;

/// Length in bytes of the pieces that a body is written in.
const PIECE: usize = 64 << 10;

/// Maximum deviation of an entry's time: tiers store times in milliseconds.
const TIME_TOLERANCE: Duration = Duration::from_secs(2);

/// Rule that a tier breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tier breaks the rule \"{rule}\": {found}")]
#[non_exhaustive]
pub struct BrokenRule {
    /// Rule, as one sentence.
    pub rule: &'static str,
    /// Observed behaviour.
    pub found: String,
}

/// Entry that the test writes.
struct Sample {
    key: Key,
    meta: Meta,
    head: Bytes,
    body: Bytes,
}

/// Runs the conformance test on an empty tier: reads, writes, replacements, removals and purges.
/// `clock` is the clock that the tier was created with. Faults, time limits and crashes are not a
/// part of it: the engine handles a tier that fails.
///
/// # Errors
/// The first rule that the tier breaks.
pub async fn check_tier(tier: &dyn Tier, clock: &dyn Clock) -> Result<(), BrokenRule> {
    let checks = Checks { tier, clock };
    checks.description()?;
    checks.missing().await?;
    checks.round_trip("a", Bytes::from_static(b"body")).await?;
    checks.round_trip("no body", Bytes::new()).await?;
    checks.round_trip("large", large()).await?;
    checks.visibility().await?;
    checks.replacement().await?;
    checks.many().await?;
    checks.keys().await?;
    checks.writers().await?;
    checks.removal().await?;
    checks.purge().await
}

struct Checks<'a> {
    tier: &'a dyn Tier,
    clock: &'a dyn Clock,
}

impl Checks<'_> {
    fn description(&self) -> Result<(), BrokenRule> {
        let name = self.tier.name();
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_valid = !name.is_empty() && name.bytes().all(is_word);
        holds("the name is one lower-case word", is_valid, name)?;
        let budget = self.tier.budget();
        let is_limited = !budget.read.is_zero() && !budget.write.is_zero();
        holds("each operation has a time limit above zero", is_limited, format!("{budget:?}"))
    }

    async fn missing(&self) -> Result<(), BrokenRule> {
        let found = self.body(&key("missing")).await?;
        holds("a key that was never written is missing", found.is_none(), "an entry")
    }

    async fn round_trip(&self, name: &str, body: Bytes) -> Result<(), BrokenRule> {
        let rule = "an entry is read as it was written";
        let sample = self.sample(name, body);
        self.write(&sample).await?;
        let Some(stored) = self.open(&sample.key).await? else {
            return holds(rule, false, format!("the entry \"{name}\" is missing"));
        };
        let Stored { meta, head, body, .. } = stored;
        let now = self.clock.now();
        let is_near = |a: Duration, b: Duration| a.abs_diff(b) <= TIME_TOLERANCE;
        let written = &sample.meta;
        holds(rule, head == sample.head, "another head")?;
        holds(rule, meta.tags() == written.tags(), format!("tags {:?}", meta.tags()))?;
        holds(rule, meta.validator() == written.validator(), "another validator")?;
        holds(rule, meta.vary() == written.vary(), format!("vary {:?}", meta.vary()))?;
        holds(rule, meta.presence == written.presence, format!("{:?}", meta.presence))?;
        let (left, expected) = (meta.fresh_left(now), written.fresh_left(now));
        holds(rule, is_near(left, expected), format!("{left:?} of freshness, not {expected:?}"))?;
        let (age, expected) = (meta.age(now), written.age(now));
        holds(rule, is_near(age, expected), format!("age {age:?}, not {expected:?}"))?;
        let body = collected(body).await?;
        let lengths = format!("{} bytes of a body of {}", body.len(), sample.body.len());
        holds(rule, body == sample.body, lengths)
    }

    async fn visibility(&self) -> Result<(), BrokenRule> {
        let sample = self.sample("visibility", Bytes::from_static(b"old"));
        self.write(&sample).await?;
        let rule = "the previous entry stays visible until the commit";
        let newer = Sample { body: Bytes::from_static(b"new"), ..sample };
        let writer = self.written(&newer).await?;
        self.expect(rule, &newer.key, Some(b"old")).await?;
        drop(writer);
        let rule = "a writer that is dropped without a commit has no effect";
        self.expect(rule, &newer.key, Some(b"old")).await?;
        let unpublished = self.sample("unpublished", Bytes::from_static(b"new"));
        drop(self.written(&unpublished).await?);
        self.expect(rule, &unpublished.key, None).await?;
        let rule = "a commit whose future is never polled has no effect";
        drop(self.written(&unpublished).await?.commit());
        self.expect(rule, &unpublished.key, None).await
    }

    async fn replacement(&self) -> Result<(), BrokenRule> {
        let mut sample = self.sample("replaced", Bytes::from(vec![b'x'; PIECE + 1]));
        self.write(&sample).await?;
        sample.body = Bytes::from_static(b"shorter");
        self.write(&sample).await?;
        let rule = "a commit replaces the previous entry of the key";
        self.expect(rule, &sample.key, Some(b"shorter")).await
    }

    async fn many(&self) -> Result<(), BrokenRule> {
        for (name, body) in [("many 1", &b"one"[..]), ("many 3", b"three")] {
            self.write(&self.sample(name, Bytes::from_static(body))).await?;
        }
        let keys = ["many 1", "many 2", "many 3", "many 1"].map(key);
        let found =
            self.tier.open_many(&keys).await.map_err(|error| failed("open_many", &error))?;
        let rule = "a read of several keys returns one result for each, in the order of the keys";
        holds(rule, found.len() == keys.len(), format!("{} results", found.len()))?;
        let expected = [Some(&b"one"[..]), None, Some(b"three"), Some(b"one")];
        for (stored, expected) in found.into_iter().zip(expected) {
            let body = match stored {
                Some(stored) => Some(collected(stored.body).await?),
                None => None,
            };
            holds(rule, body.as_deref() == expected, format!("{body:?}, not {expected:?}"))?;
        }
        let none = self.tier.open_many(&[]).await.map_err(|error| failed("open_many", &error))?;
        holds(rule, none.is_empty(), "results without keys")
    }

    /// Keys that a careless encoding confuses.
    async fn keys(&self) -> Result<(), BrokenRule> {
        let rule = "keys are compared in full";
        let long = "k".repeat(4_000);
        let parts: [&[&[u8]]; 8] = [
            &[b"a/b"],
            &[b"a", b"b"],
            &[b"A/B"],
            &[b"a/b "],
            &[b"a\0b"],
            &[b"\xff\xfe"],
            &[b"../a"],
            &[long.as_bytes()],
        ];
        let keys: Vec<Key> = parts.iter().map(|parts| key_of(parts)).collect();
        for (number, key) in keys.iter().enumerate() {
            let body = Bytes::from(number.to_string());
            self.write(&Sample { key: key.clone(), ..self.sample("", body) }).await?;
        }
        for (number, key) in keys.iter().enumerate() {
            self.expect(rule, key, Some(number.to_string().as_bytes())).await?;
        }
        Ok(())
    }

    async fn writers(&self) -> Result<(), BrokenRule> {
        let sample = self.sample("writers", Bytes::from(vec![b'1'; 3 * PIECE]));
        let other = Sample {
            body: Bytes::from(vec![b'2'; 2 * PIECE]),
            ..self.sample("writers", Bytes::new())
        };
        let (one, two) = (self.written(&sample).await?, self.written(&other).await?);
        // A tier may refuse one of them, if the other came later.
        let (first, second) = futures_util::future::join(one.commit(), two.commit()).await;
        let rule = "two writers of one key leave one whole entry";
        holds(rule, first.is_ok() || second.is_ok(), "both commits failed")?;
        let body = self.body(&sample.key).await?.unwrap_or_default();
        let is_whole = body == sample.body || body == other.body;
        holds(rule, is_whole, format!("{} bytes", body.len()))
    }

    async fn removal(&self) -> Result<(), BrokenRule> {
        let (kept, gone) = (self.sample("kept", large()), self.sample("removed", large()));
        self.write(&kept).await?;
        self.write(&gone).await?;
        let remove = async || {
            let removed = self.tier.remove(gone.key.borrowed()).await;
            removed.map_err(|error| failed("remove", &error))
        };
        let rule = "a removal returns true if there was an entry, and removes exactly this key";
        holds(rule, remove().await?, "false for an entry")?;
        self.expect(rule, &gone.key, None).await?;
        holds(rule, !remove().await?, "true for a missing entry")?;
        let body = self.body(&kept.key).await?;
        holds(rule, body.as_ref() == Some(&kept.body), "another entry is affected")
    }

    /// Shared tiers are purged over the bus.
    async fn purge(&self) -> Result<(), BrokenRule> {
        if self.tier.is_shared() {
            return Ok(());
        }
        let sample = self.sample("tagged", Bytes::from_static(b"tagged"));
        self.write(&sample).await?;
        let purge = Purge::Tag("red".into());
        self.tier.purge(&purge).await.map_err(|error| failed("purge", &error))?;
        if self.tier.carries_out_purges() {
            let rule = "a tier that carries out purges does not return a purged entry";
            self.expect(rule, &sample.key, None).await?;
        }
        let rule = "an entry that is written after a purge is read";
        self.write(&self.sample("tagged", Bytes::from_static(b"newer"))).await?;
        self.expect(rule, &sample.key, Some(b"newer")).await
    }

    fn sample(&self, name: &str, body: Bytes) -> Sample {
        let lifetime = Lifetime {
            stale_if_error: Duration::from_secs(60),
            ..Lifetime::fresh(Duration::from_secs(600))
        };
        let mut meta = Meta::new(self.clock.now(), lifetime);
        meta.set_tags(TagSet::new(["red", "blue"]));
        meta.set_validator(Some(Validator { tag: Some("\"v1\"".into()), modified: None }));
        meta.set_vary(Vary::new(["accept-language"]));
        Sample { key: key(name), meta, head: Bytes::from_static(b"head\0\xff"), body }
    }

    /// Writes an entry without the commit.
    async fn written(&self, sample: &Sample) -> Result<Box<dyn Writer>, BrokenRule> {
        let Sample { key, meta, head, body } = sample;
        let begun = self.tier.begin(key.borrowed(), meta, head, WriteMode::Loaded).await;
        let mut writer = begun.map_err(|error| failed("begin", &error))?;
        for start in (0..body.len()).step_by(PIECE) {
            let piece = body.slice(start..body.len().min(start + PIECE));
            writer.write(piece).await.map_err(|error| failed("write", &error))?;
        }
        Ok(writer)
    }

    async fn write(&self, sample: &Sample) -> Result<(), BrokenRule> {
        let committed = self.written(sample).await?.commit().await;
        committed.map_err(|error| failed("commit", &error))
    }

    async fn open(&self, key: &Key) -> Result<Option<Stored>, BrokenRule> {
        self.tier.open(key.borrowed()).await.map_err(|error| failed("open", &error))
    }

    async fn body(&self, key: &Key) -> Result<Option<Bytes>, BrokenRule> {
        match self.open(key).await? {
            Some(stored) => collected(stored.body).await.map(Some),
            None => Ok(None),
        }
    }

    async fn expect(
        &self,
        rule: &'static str,
        key: &Key,
        expected: Option<&[u8]>,
    ) -> Result<(), BrokenRule> {
        let body = self.body(key).await?;
        let found = body.as_ref().map_or_else(|| "no entry".to_owned(), |body| format!("{body:?}"));
        holds(rule, body.as_deref() == expected, found)
    }
}

fn large() -> Bytes {
    (0..LARGE).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect()
}

fn key(name: &str) -> Key {
    key_of(&[name.as_bytes()])
}

fn key_of(parts: &[&[u8]]) -> Key {
    let mut key = KeyBuf::new("conformance");
    for part in parts {
        key.part(part);
    }
    key.borrowed().to_key()
}

async fn collected(mut body: PieceStream) -> Result<Bytes, BrokenRule> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| BrokenRule {
            rule: "the body of a stored entry can be read",
            found: error.to_string(),
        })?;
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}

fn failed(operation: &'static str, error: &TierError) -> BrokenRule {
    BrokenRule {
        rule: "an operation without a fault succeeds",
        found: format!("{operation}: {error}"),
    }
}

fn holds(rule: &'static str, is_kept: bool, found: impl Into<String>) -> Result<(), BrokenRule> {
    if is_kept { Ok(()) } else { Err(BrokenRule { rule, found: found.into() }) }
}
