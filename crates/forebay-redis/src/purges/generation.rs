//! Generations: purges by tag, by site or of everything without a search for members.
//!
//! Each tag, each site and the whole cache has a generation in Redis: two random tokens, one for
//! hard and one for soft purges. An entry stores the tokens of its generations as its *label*. A
//! purge replaces a token, and entries with the old token are purged. Tokens are compared for
//! equality only: a missing one (evicted, expired or lost) equals none.
//!
//! Format of a label, little-endian: bus position at the start of the load (8 bytes of
//! milliseconds, 8 of a number), then the hard and the soft token, 8 bytes each, of everything, the
//! site and each tag in order. The bus position determines which prefix rules reach the entry.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{KeyRef, Purge, PurgeState, Reach, TagSet};
use redis::Value;

use crate::entry::names::shared_name;

/// Maximum number of cached generations. Beyond it all are dropped and read again.
const KNOWN_MAX: usize = 100_000;

/// Maximum bytes of a generation in Redis.
const TEXT_MAX: usize = 128;

/// Id of a bus entry: milliseconds, and a number within them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BusId {
    pub(crate) millis: u64,
    pub(crate) number: u64,
}

impl std::fmt::Display for BusId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.millis, self.number)
    }
}

impl BusId {
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (millis, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self { millis: millis.parse().ok()?, number: number.parse().ok()? })
    }
}

/// One token of a generation, with the id of the purge that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) id: BusId,
    pub(crate) random: u64,
}

impl Token {
    fn read(text: &str) -> Option<Self> {
        let (id, random) = text.rsplit_once('-')?;
        let random = u64::from_str_radix(random, 16).ok()?;
        Some(Self { id: BusId::read(id.as_bytes())?, random })
    }
}

/// Generation as stored in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) hard: Token,
    pub(crate) soft: Token,
}

impl Generation {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let Value::BulkString(text) = value else { return None };
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_MAX)?;
        let (hard, soft) = text.split_once(' ')?;
        Some(Self { hard: Token::read(hard)?, soft: Token::read(soft)? })
    }

    pub(crate) fn newest(&self) -> BusId {
        self.hard.id.max(self.soft.id)
    }

    const fn pair(&self) -> (u64, u64) {
        (self.hard.random, self.soft.random)
    }
}

/// Target that has a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    All,
    Site(&'a [u8]),
    Tag(&'a str),
}

impl<'a> Scope<'a> {
    /// Returns all scopes of an entry in the order of its label.
    pub(crate) fn of(key: KeyRef<'a>, tags: &'a TagSet) -> impl Iterator<Item = Self> {
        Self::of_site(key).into_iter().chain(tags.iter().map(Self::Tag))
    }

    /// Returns the scopes that an entry has regardless of its tags.
    pub(crate) fn of_site(key: KeyRef<'a>) -> [Self; 2] {
        [Self::All, Self::Site(key.namespace())]
    }

    /// Returns the scope of a purge, if it has one.
    pub(crate) fn of_purge(what: &'a Purge) -> Option<Self> {
        match what {
            Purge::Key(_) | Purge::Prefix { .. } => None,
            Purge::Tag(tag) => Some(Self::Tag(tag)),
            Purge::Site(site) => Some(Self::Site(site.as_bytes())),
            Purge::All => Some(Self::All),
        }
    }

    /// Returns the name of the generation in Redis.
    pub(crate) fn name(self, namespace: &str) -> String {
        match self {
            Self::All => shared_name(namespace, "a", b""),
            Self::Site(site) => shared_name(namespace, "s", site),
            Self::Tag(tag) => shared_name(namespace, "t", tag.as_bytes()),
        }
    }
}

/// Purge label of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Bus position at the start of the load.
    pub(crate) load_position: BusId,
    /// Hard and soft token of each scope.
    pub(crate) tokens: Vec<(u64, u64)>,
}

impl Label {
    pub(crate) fn written(load_position: BusId, generations: &[Generation]) -> Bytes {
        let mut out = Vec::with_capacity(16 * (generations.len() + 1));
        let position = (load_position.millis, load_position.number);
        let numbers = generations.iter().map(Generation::pair);
        for (one, other) in std::iter::once(position).chain(numbers) {
            out.extend_from_slice(&one.to_le_bytes());
            out.extend_from_slice(&other.to_le_bytes());
        }
        out.into()
    }

    /// Decodes a label; `None` if it is not one of an entry with this number of tags.
    pub(crate) fn read(bytes: &[u8], tags: usize) -> Option<Self> {
        let (chunks, rest) = bytes.as_chunks::<16>();
        let mut pairs = chunks.iter().map(|chunk| {
            let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|it| chunk[at + it]));
            (number(0), number(8))
        });
        let (millis, number) = pairs.next()?;
        let tokens: Vec<_> = pairs.collect();
        let is_sound = rest.is_empty() && tokens.len() == tags + 2;
        is_sound.then_some(Self { load_position: BusId { millis, number }, tokens })
    }

    /// Returns the purge state of the entry; `None` stands for a missing generation.
    pub(crate) fn standing(&self, generations: &[Option<Generation>]) -> PurgeState {
        let all = self.tokens.iter().zip(generations.iter().copied());
        all.fold(PurgeState::Valid, |worst, ((hard, soft), generation)| {
            worst.max(standing(*hard, *soft, generation))
        })
    }
}

/// Returns the purge state of an entry with these tokens.
pub(crate) fn standing(hard: u64, soft: u64, generation: Option<Generation>) -> PurgeState {
    match generation.map(|generation| generation.pair()) {
        Some((current_hard, current_soft)) if current_hard == hard && current_soft == soft => {
            PurgeState::Valid
        }
        Some((current_hard, _)) if current_hard == hard => PurgeState::SoftPurged,
        _ => PurgeState::Removed,
    }
}

/// An active purge by prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrefixRule {
    pub(crate) id: BusId,
    pub(crate) what: Purge,
    pub(crate) reach: Reach,
}

impl PrefixRule {
    /// Returns the purge state of an entry whose load started at this bus position.
    pub(crate) fn standing(rules: &[Self], key: KeyRef<'_>, load_position: BusId) -> PurgeState {
        let reaching =
            rules.iter().filter(|rule| load_position < rule.id && rule.what.is_about(key));
        reaching.fold(PurgeState::Valid, |worst, rule| worst.max(standing_of(rule.reach)))
    }

    /// Parses all rules; `None` if the data is invalid.
    pub(crate) fn read_all(value: &Value) -> Option<Vec<Self>> {
        let pairs: Vec<(&Value, &Value)> = match value {
            Value::Array(all) => all.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
            Value::Map(all) => all.iter().map(|(field, value)| (field, value)).collect(),
            _ => return None,
        };
        pairs.into_iter().map(|(field, value)| Self::read(field, value)).collect()
    }

    fn read(field: &Value, value: &Value) -> Option<Self> {
        let (Value::BulkString(field), Value::BulkString(value)) = (field, value) else {
            return None;
        };
        let (reach, what) = field.split_first()?;
        let id = value.split(|byte| *byte == b' ').next()?;
        Some(Self { id: BusId::read(id)?, what: read_prefix(what)?, reach: read_reach(&[*reach])? })
    }
}

/// Returns the purge state of an entry that a purge of this reach targets.
pub(crate) const fn standing_of(reach: Reach) -> PurgeState {
    match reach {
        Reach::Soft => PurgeState::SoftPurged,
        Reach::Hard => PurgeState::Removed,
    }
}

pub(crate) const fn written_reach(reach: Reach) -> &'static str {
    match reach {
        Reach::Soft => "s",
        Reach::Hard => "h",
    }
}

pub(crate) fn read_reach(bytes: &[u8]) -> Option<Reach> {
    match bytes {
        b"s" => Some(Reach::Soft),
        b"h" => Some(Reach::Hard),
        _ => None,
    }
}

/// Encodes a prefix: length of the site in 2 bytes, the site, and the prefix.
pub(crate) fn written_prefix(site: &str, prefix: &str) -> Vec<u8> {
    let length = u16::try_from(site.len()).unwrap_or(u16::MAX);
    [&length.to_le_bytes()[..], site.as_bytes(), prefix.as_bytes()].concat()
}

pub(crate) fn read_prefix(bytes: &[u8]) -> Option<Purge> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (site, prefix) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    Some(Purge::Prefix { site: text(site)?.into(), prefix: text(prefix)?.into() })
}

/// Returns whether a purge targets the entry.
pub(crate) fn reaches(what: &Purge, key: KeyRef<'_>, tags: &TagSet) -> bool {
    match what {
        // A variant's key begins with its primary key.
        Purge::Key(purged) => key.bytes().starts_with(purged.borrowed().bytes()),
        Purge::Tag(tag) => tags.iter().any(|its| its == &**tag),
        other => other.is_about(key),
    }
}

/// Known tokens of a generation. A purge reveals only one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PartialGeneration {
    hard: Option<Token>,
    soft: Option<Token>,
    /// Earliest expiry in Redis, in milliseconds of the exact clock.
    kept_until: u64,
}

impl PartialGeneration {
    fn whole(&self) -> Option<Generation> {
        Some(Generation { hard: self.hard?, soft: self.soft? })
    }
}

/// Generations known on this instance.
#[derive(Debug, Default)]
pub(crate) struct KnownGenerations {
    all: PartialGeneration,
    sites: HashMap<Box<[u8]>, PartialGeneration>,
    tags: HashMap<Arc<str>, PartialGeneration>,
}

impl KnownGenerations {
    pub(crate) fn get(&self, scope: Scope<'_>) -> Option<Generation> {
        self.partial(scope)?.whole()
    }

    /// Returns the generation if it does not expire in Redis before `until`.
    pub(crate) fn kept(&self, scope: Scope<'_>, until: u64) -> Option<Generation> {
        self.partial(scope).filter(|partial| partial.kept_until >= until)?.whole()
    }

    fn partial(&self, scope: Scope<'_>) -> Option<&PartialGeneration> {
        match scope {
            Scope::All => Some(&self.all),
            Scope::Site(site) => self.sites.get(site),
            Scope::Tag(tag) => self.tags.get(tag),
        }
    }

    fn entry(&mut self, scope: Scope<'_>) -> &mut PartialGeneration {
        if self.sites.len() + self.tags.len() >= KNOWN_MAX {
            self.sites.clear();
            self.tags.clear();
        }
        match scope {
            Scope::All => &mut self.all,
            Scope::Site(site) => self.sites.entry(site.into()).or_default(),
            Scope::Tag(tag) => self.tags.entry(tag.into()).or_default(),
        }
    }

    /// Records a generation from Redis that is not older than the last received purge.
    pub(crate) fn put(&mut self, scope: Scope<'_>, generation: Generation, kept_until: u64) {
        let partial = self.entry(scope);
        let kept_until = partial.kept_until.max(kept_until);
        *partial = PartialGeneration {
            hard: Some(generation.hard),
            soft: Some(generation.soft),
            kept_until,
        };
    }

    /// Records the token of a purge.
    pub(crate) fn purged(&mut self, scope: Scope<'_>, reach: Reach, token: Token) {
        let partial = self.entry(scope);
        let its = match reach {
            Reach::Soft => &mut partial.soft,
            Reach::Hard => &mut partial.hard,
        };
        if its.is_none_or(|its| its.id < token.id) {
            *its = Some(token);
        }
    }

    /// Drops a generation after a purge request, whose token is unknown.
    pub(crate) fn forget(&mut self, scope: Scope<'_>) {
        *self.entry(scope) = PartialGeneration::default();
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    const fn generation(hard: u64, soft: u64) -> Generation {
        let id = BusId { millis: 1, number: 0 };
        Generation { hard: Token { id, random: hard }, soft: Token { id, random: soft } }
    }

    #[test]
    fn entry_has_the_worst_state_of_its_generations() {
        let load_position = BusId { millis: 5, number: 7 };
        let bytes =
            Label::written(load_position, &[generation(1, 2), generation(3, 4), generation(5, 6)]);
        let label = Label::read(&bytes, 1).unwrap();
        assert_eq!(label.load_position, load_position);
        let generations = |last| [Some(generation(1, 2)), Some(generation(3, 4)), last];
        assert_eq!(label.standing(&generations(Some(generation(5, 6)))), PurgeState::Valid);
        assert_eq!(label.standing(&generations(Some(generation(5, 9)))), PurgeState::SoftPurged);
        assert_eq!(label.standing(&generations(Some(generation(9, 6)))), PurgeState::Removed);
        assert_eq!(label.standing(&generations(None)), PurgeState::Removed);
        for wrong in [&bytes[..0], &bytes[..15], &bytes[..48], &bytes[..63]] {
            assert_eq!(Label::read(wrong, 1), None);
        }
        assert_eq!(Label::read(&bytes, 2), None);
    }

    #[test]
    fn generation_round_trips_or_is_rejected() {
        let value = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let sound = "1-2-00000000000000ff 3-4-0000000000000001";
        let id = |millis, number| BusId { millis, number };
        let hard = Token { id: id(1, 2), random: 255 };
        let soft = Token { id: id(3, 4), random: 1 };
        assert_eq!(Generation::read(&value(sound)), Some(Generation { hard, soft }));
        assert_eq!(Generation { hard, soft }.newest(), id(3, 4));
        for wrong in ["", "x", "1-2-ff", "1-2-ff 3-4-", "1-2-ff 3-g", &"1".repeat(200)] {
            assert_eq!(Generation::read(&value(wrong)), None, "{wrong}");
        }
        assert_eq!(Generation::read(&Value::Nil), None);
    }

    #[test]
    fn older_purge_does_not_replace_a_newer_token() {
        let mut known = KnownGenerations::default();
        let tag = Scope::Tag("red");
        let token = |millis| Token { id: BusId { millis, number: 0 }, random: millis };
        known.purged(tag, Reach::Hard, token(7));
        assert_eq!(known.get(tag), None, "of the soft partial nothing is known");
        known.put(tag, generation(1, 2), 50);
        known.purged(tag, Reach::Hard, token(9));
        known.purged(tag, Reach::Hard, token(8));
        assert_eq!(known.get(tag).map(|generation| generation.hard.random), Some(9));
        assert!(known.kept(tag, 50).is_some() && known.kept(tag, 51).is_none());
        known.forget(tag);
        assert_eq!(known.get(tag), None);
    }

    #[test]
    fn prefix_rule_reaches_earlier_loads() {
        let key = KeyBuf::new("shop").part(b"/a/b").clone();
        let what = Purge::Prefix { site: "shop".into(), prefix: "/a".into() };
        assert_eq!(read_prefix(&written_prefix("shop", "/a")), Some(what.clone()));
        assert_eq!(read_prefix(b"\x09\0shop"), None);
        let rule = PrefixRule { id: BusId { millis: 5, number: 0 }, what, reach: Reach::Soft };
        let field = [b"s", &written_prefix("shop", "/a")[..]].concat();
        let stored =
            Value::Array(vec![Value::BulkString(field), Value::BulkString(b"5-0 123456".to_vec())]);
        assert_eq!(PrefixRule::read_all(&stored), Some(vec![rule.clone()]));
        let at = |millis| BusId { millis, number: 0 };
        let rules = [rule];
        assert_eq!(PrefixRule::standing(&rules, key.borrowed(), at(4)), PurgeState::SoftPurged);
        assert_eq!(PrefixRule::standing(&rules, key.borrowed(), at(5)), PurgeState::Valid);
        let other = KeyBuf::new("blog").part(b"/a/b").clone();
        assert_eq!(PrefixRule::standing(&rules, other.borrowed(), at(4)), PurgeState::Valid);
    }
}
