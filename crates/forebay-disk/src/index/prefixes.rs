//! Purges by prefix: rules that older entries are compared with.
//!
//! A prefix purge is a purge record of its site, with the prefix as payload: length of the site's
//! id in 2 bytes, the id, the prefix, and a checksum of 8 bytes. If the payload cannot be read, the
//! whole site counts as purged.

use bytes::Bytes;
use forebay_core::{KeyPattern, KeyRef, PREFIXES_MAX, Reach};

use crate::format::layout::{RECORD_HEADER_LEN, RecordHeader, RecordId, Seed, seal, sealed};

/// Maximum bytes of a payload. A longer prefix purges its whole site.
const PREFIX_PURGE_MAX: usize = 16 << 10;

/// Maximum number of prefix records read at opening. Older ones purge their whole site.
pub(crate) const PREFIX_READS_MAX: usize = 4_096;

/// Checksum position of a payload, distinct from those of records.
const CHECKSUM_POSITION: u64 = u64::MAX;

/// Target of a prefix purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrefixPurge {
    pub(crate) site: Box<str>,
    pub(crate) prefix: KeyPattern,
    /// Effect of the purge. The digest of its record has it, and not the payload.
    pub(crate) reach: Reach,
}

impl PrefixPurge {
    /// Encodes the payload; `None` if it is too long.
    pub(crate) fn written(&self, seed: Seed) -> Option<Bytes> {
        let site = u16::try_from(self.site.len()).ok()?;
        let prefix = self.prefix.as_str().as_bytes();
        let mut out = Vec::with_capacity(2 + self.site.len() + prefix.len() + 8);
        out.extend_from_slice(&site.to_le_bytes());
        out.extend_from_slice(self.site.as_bytes());
        out.extend_from_slice(prefix);
        out.extend_from_slice(&[0; 8]);
        seal(&mut out, seed, CHECKSUM_POSITION);
        (out.len() <= PREFIX_PURGE_MAX).then(|| out.into())
    }

    /// Decodes a record as a hard purge; `None` if it is not a valid prefix purge.
    pub(crate) fn of_record(bytes: &[u8], seed: Seed, at: RecordId) -> Option<Self> {
        let header = RecordHeader::decode(bytes, seed, at)?;
        let end = RECORD_HEADER_LEN.checked_add(usize::try_from(header.payload).ok()?)?;
        let body = sealed(bytes.get(RECORD_HEADER_LEN..end)?, seed, CHECKSUM_POSITION)?;
        let (length, rest) = body.split_first_chunk::<2>()?;
        let (site, prefix) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let (site, prefix) = (text(site)?.into(), text(prefix)?.into());
        Some(Self { site, prefix, reach: Reach::Hard })
    }

    /// True if a record of this length may be a prefix purge.
    pub(crate) const fn may_be(len: u32) -> bool {
        len as usize > RECORD_HEADER_LEN && len as usize <= RECORD_HEADER_LEN + PREFIX_PURGE_MAX + 8
    }
}

/// Active prefix purges, with the log position of each.
#[derive(Default)]
pub(crate) struct PrefixPurges(Vec<(PrefixPurge, u64)>);

impl PrefixPurges {
    /// Adds a purge. Beyond the limit the oldest one is removed and returned.
    pub(crate) fn add(&mut self, purge: PrefixPurge, position: u64) -> Option<(PrefixPurge, u64)> {
        if let Some((_, known)) = self.0.iter_mut().find(|(known, _)| *known == purge) {
            *known = position.max(*known);
            return None;
        }
        self.0.push((purge, position));
        if self.0.len() <= PREFIXES_MAX {
            return None;
        }
        let oldest = (0..self.0.len()).min_by_key(|at| self.0[*at].1)?;
        Some(self.0.swap_remove(oldest))
    }

    /// Removes purges before this log position, which reach no entry any more.
    pub(crate) fn forget_before(&mut self, position: u64) {
        self.0.retain(|(_, its)| *its >= position);
    }

    /// True if a soft purge, or a hard one, reaches an entry of this generation.
    pub(crate) fn reach(&self, reach: Reach, generation: u64, key: KeyRef<'_>) -> bool {
        let is_newer = |rule: &&(PrefixPurge, u64)| rule.1 >= generation && rule.0.reach == reach;
        self.0.iter().filter(is_newer).any(|(purge, _)| purge.prefix.matches(&purge.site, key))
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;
    use crate::format::layout::{Digest, Kind, Moment};

    fn purge(site: &str, prefix: &str) -> PrefixPurge {
        PrefixPurge { site: site.into(), prefix: prefix.into(), reach: Reach::Hard }
    }

    #[test]
    fn prefix_record_round_trips_or_is_rejected() {
        let (seed, at) = (Seed(5), RecordId { segment: 3, offset: 40 });
        let payload = purge("shop", "/items/").written(seed).unwrap();
        let header = RecordHeader {
            kind: Kind::Purge,
            payload: u32::try_from(payload.len()).unwrap(),
            segment: at.segment,
            digest: Digest::of(b"shop", seed),
            removals: 1,
            generation: 0,
            stored: Moment { session: 1, monotonic: 2, wall: 3 },
        };
        let right = [&header.encode(seed, at.offset)[..], &payload, &[0; 3]].concat();
        assert_eq!(PrefixPurge::of_record(&right, seed, at), Some(purge("shop", "/items/")));
        for bit in 0..(RECORD_HEADER_LEN + payload.len()) * 8 {
            let mut bytes = right.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PrefixPurge::of_record(&bytes, seed, at), None, "bit {bit}");
        }
        for len in 0..RECORD_HEADER_LEN + payload.len() {
            assert_eq!(PrefixPurge::of_record(&right[..len], seed, at), None, "{len}");
        }
        assert_eq!(purge("shop", &"x".repeat(PREFIX_PURGE_MAX)).written(seed), None);
    }

    #[test]
    fn prefix_purges_are_limited_and_the_oldest_is_returned() {
        let mut rules = PrefixPurges::default();
        for number in (0..PREFIXES_MAX as u64).rev() {
            assert_eq!(rules.add(purge("shop", &format!("/{number}/")), number), None);
        }
        assert_eq!(rules.add(purge("shop", "/0/"), 900), None, "it is known already");
        assert_eq!(rules.add(purge("shop", "/new/"), 901), Some((purge("shop", "/1/"), 1)));
        let key = |path: &str| KeyBuf::new("shop").part(path.as_bytes()).clone();
        let reaches = |rules: &PrefixPurges, path, generation| {
            rules.reach(Reach::Hard, generation, key(path).borrowed())
        };
        assert!(reaches(&rules, "/0/a", 900) && !reaches(&rules, "/0/a", 901));
        assert!(!reaches(&rules, "/1/a", 0) && !reaches(&rules, "/0", 0));
        rules.forget_before(901);
        assert!(!reaches(&rules, "/0/a", 0) && reaches(&rules, "/new/a", 0));
    }
}
