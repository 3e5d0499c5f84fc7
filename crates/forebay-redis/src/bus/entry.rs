//! Entries of the bus. They are untrusted input.

use forebay_core::{Purge, Reach};
use forebay_engine::Newer;
use redis::{RedisResult, Value};

use super::version::read_newer;
use crate::entry::names::key_of_plain;
use crate::error::unexpected;
use crate::purges::generation::{BusId, Token, read_prefix, read_reach};
use crate::purges::tombstones::Tombstone;

/// Maximum bytes of a purge's target. A longer one makes the entry invalid.
const TARGET_LEN_MAX: usize = 128 << 10;

/// One entry of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: BusId,
    pub(crate) message: Message,
}

/// Content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// An instance published a purge.
    Purged {
        /// Id of the preceding entry.
        previous: BusId,
        what: Purge,
        reach: Reach,
        /// Id of the publishing instance.
        instance: Box<str>,
        /// Random part of the purge's token.
        random: u64,
        /// The new version of the key, if the purge is about older versions only.
        newer: Option<Newer>,
    },
    /// An instance created the bus. The entry makes this bus distinguishable from one created after
    /// a loss.
    Started { previous: BusId },
    /// An instance published a message that this version does not understand.
    Unknown { previous: BusId },
    /// Another program requests a purge.
    Requested { what: Purge, reach: Reach },
    /// The entry has no known format.
    Invalid,
}

impl Entry {
    /// Returns the token of the purge.
    pub(crate) fn token(&self) -> Option<Token> {
        match self.message {
            Message::Purged { random, .. } => Some(Token { id: self.id, random }),
            _ => None,
        }
    }

    /// Returns whether the purge leaves this version in place, because it only removes older ones.
    pub(crate) fn keeps_version(&self, version: Option<u64>) -> bool {
        let newer = match &self.message {
            Message::Purged { newer, .. } => *newer,
            Message::Started { .. }
            | Message::Unknown { .. }
            | Message::Requested { .. }
            | Message::Invalid => None,
        };
        newer.zip(version).is_some_and(|(newer, version)| newer.version <= version)
    }

    /// Returns the tombstone of a purge. A purge of older versions has none: the version floor
    /// protects against them.
    pub(crate) fn tombstone(&self) -> Option<Tombstone> {
        let (what, reach, random) = match &self.message {
            Message::Purged { newer: Some(_), .. } => return None,
            Message::Purged { what, reach, random, .. } => (what, *reach, *random),
            // Requests have no random number; one is derived from the entry's id.
            Message::Requested { what, reach } => {
                (what, *reach, self.id.millis.rotate_left(20) ^ self.id.number)
            }
            Message::Started { .. } | Message::Unknown { .. } | Message::Invalid => return None,
        };
        let token = Token { id: self.id, random };
        Some(Tombstone { what: what.clone(), reach, token })
    }

    /// Returns the target of the purge, if the entry is one.
    pub(crate) const fn what(&self) -> Option<&Purge> {
        match &self.message {
            Message::Purged { what, .. } | Message::Requested { what, .. } => Some(what),
            Message::Started { .. } | Message::Unknown { .. } | Message::Invalid => None,
        }
    }

    /// Parses the entries of a reply to `XRANGE`.
    pub(crate) fn read_all(entries: &Value) -> RedisResult<Vec<Self>> {
        let Value::Array(entries) = entries else { return Err(unexpected()) };
        entries.iter().map(|entry| Self::read(entry).ok_or_else(unexpected)).collect()
    }

    /// Parses the entries of a reply to `XREAD` of one stream.
    pub(crate) fn read_stream(answer: Value) -> RedisResult<Vec<Self>> {
        match answer {
            Value::Nil => Ok(Vec::new()),
            Value::Map(streams) => {
                streams.first().map_or(Ok(Vec::new()), |(_, entries)| Self::read_all(entries))
            }
            Value::Array(streams) => match streams.first() {
                Some(Value::Array(stream)) => stream.get(1).map_or(Ok(Vec::new()), Self::read_all),
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    fn read(entry: &Value) -> Option<Self> {
        let Value::Array(parts) = entry else { return None };
        let [Value::BulkString(id), fields] = &parts[..] else { return None };
        let id = BusId::read(id)?;
        let message = Fields::read(fields).map_or(Message::Invalid, |fields| fields.message());
        Some(Self { id, message })
    }
}

/// Known fields of an entry; a repeated field overrides the earlier one.
#[derive(Default)]
struct Fields<'a> {
    previous: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    what: Option<&'a [u8]>,
    reach: Option<&'a [u8]>,
    instance: Option<&'a [u8]>,
    random: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    requested_kind: Option<&'a [u8]>,
    requested: Option<&'a [u8]>,
    requested_reach: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn read(fields: &'a Value) -> Option<Self> {
        let Value::Array(fields) = fields else { return None };
        let mut read = Self::default();
        for pair in fields.chunks_exact(2) {
            let [Value::BulkString(name), Value::BulkString(value)] = pair else { return None };
            let field = match &name[..] {
                b"p" => &mut read.previous,
                b"k" => &mut read.kind,
                b"w" => &mut read.what,
                b"r" => &mut read.reach,
                b"i" => &mut read.instance,
                b"e" => &mut read.random,
                b"v" => &mut read.version,
                b"kind" => &mut read.requested_kind,
                b"what" => &mut read.requested,
                b"reach" => &mut read.requested_reach,
                _ => continue,
            };
            if value.len() > TARGET_LEN_MAX {
                return None;
            }
            *field = Some(value);
        }
        Some(read)
    }

    fn message(&self) -> Message {
        match self.previous.and_then(BusId::read) {
            Some(previous) if self.kind == Some(b"begin") => Message::Started { previous },
            Some(previous) => self.purged(previous).unwrap_or(Message::Unknown { previous }),
            None => self.request().unwrap_or(Message::Invalid),
        }
    }

    fn purged(&self, previous: BusId) -> Option<Message> {
        let what = self.what?;
        let text = || std::str::from_utf8(what).ok().map(Box::from);
        let what = match self.kind? {
            b"key" => Purge::Key(read_key(what)?),
            b"tag" => Purge::Tag(text()?),
            b"site" => Purge::Site(text()?),
            b"prefix" => read_prefix(what)?,
            b"all" => Purge::All,
            _ => return None,
        };
        let random = std::str::from_utf8(self.random?).ok()?;
        Some(Message::Purged {
            previous,
            what,
            reach: read_reach(self.reach?)?,
            instance: std::str::from_utf8(self.instance?).ok()?.into(),
            random: u64::from_str_radix(random, 16).ok()?,
            // An invalid version is ignored, so the purge removes all versions.
            newer: self.version.and_then(read_newer),
        })
    }

    /// Parses a request, whose fields are written in plain words.
    fn request(&self) -> Option<Message> {
        let text = std::str::from_utf8(self.requested.unwrap_or_default()).ok()?;
        let what = match self.requested_kind? {
            b"key" => Purge::Key(key_of_plain(text)?),
            b"tag" if !text.is_empty() => Purge::Tag(text.into()),
            b"site" if !text.is_empty() => Purge::Site(text.into()),
            b"all" => Purge::All,
            _ => return None,
        };
        let reach = match self.requested_reach {
            None | Some(b"hard") => Reach::Hard,
            Some(b"soft") => Reach::Soft,
            Some(_) => return None,
        };
        Some(Message::Requested { what, reach })
    }
}

/// Decodes a key from its bytes; `None` if they are not complete parts.
fn read_key(bytes: &[u8]) -> Option<forebay_core::Key> {
    let mut key = forebay_core::KeyBuf::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (part, behind) = after.split_at_checked(length)?;
        key.part(part);
        rest = behind;
    }
    Some(key.borrowed().to_key())
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    fn bulk(bytes: &[u8]) -> Value {
        Value::BulkString(bytes.to_vec())
    }

    fn entry(fields: &[(&str, &[u8])]) -> Value {
        let fields = fields.iter().flat_map(|(name, value)| [bulk(name.as_bytes()), bulk(value)]);
        Value::Array(vec![bulk(b"9-1"), Value::Array(fields.collect())])
    }

    fn message(fields: &[(&str, &[u8])]) -> Message {
        let read = Entry::read_all(&Value::Array(vec![entry(fields)])).unwrap().remove(0);
        assert_eq!(read.id, BusId { millis: 9, number: 1 });
        read.message
    }

    #[test]
    fn message_of_an_instance_is_a_chained_purge() {
        let key = KeyBuf::new("shop").part(b"/").borrowed().to_key();
        let rows: [(&[u8], &[u8], Purge); 5] = [
            (b"key", key.borrowed().bytes(), Purge::Key(key.clone())),
            (b"tag", b"red", Purge::Tag("red".into())),
            (b"site", b"shop", Purge::Site("shop".into())),
            (b"all", b"", Purge::All),
            (
                b"prefix",
                b"\x04\0shop/a",
                Purge::Prefix { site: "shop".into(), prefix: "/a".into() },
            ),
        ];
        let previous = BusId { millis: 8, number: 0 };
        for (kind, what, purge) in rows {
            let fields: [(&str, &[u8]); 6] =
                [("p", b"8-0"), ("k", kind), ("w", what), ("r", b"s"), ("i", b"me"), ("e", b"ff")];
            let instance = "me".into();
            let (reach, random) = (Reach::Soft, 255);
            let newer = None;
            let purged = Message::Purged { previous, what: purge, reach, instance, random, newer };
            assert_eq!(message(&fields), purged);
        }
        let key = ("w", &b"\x01\0\0\0x"[..]);
        for (told, version) in [(&b"00000000000000000007 60000"[..], Some(7)), (b"7", None)] {
            let version_of = |message| match message {
                Message::Purged { newer, .. } => newer.map(|newer: Newer| newer.version),
                _ => None,
            };
            let fields: [(&str, &[u8]); 7] = [
                ("p", b"8-0"),
                ("k", b"key"),
                key,
                ("r", b"h"),
                ("i", b"me"),
                ("e", b"ff"),
                ("v", told),
            ];
            assert!(matches!(message(&fields), Message::Purged { .. }), "a purge in any case");
            assert_eq!(version_of(message(&fields)), version);
        }
        assert_eq!(message(&[("p", b"8-0"), ("k", b"begin")]), Message::Started { previous });
        let unknown = Message::Unknown { previous };
        assert_eq!(message(&[("p", b"8-0"), ("k", b"later"), ("w", b"x")]), unknown);
        assert_eq!(message(&[("p", b"8-0"), ("k", b"key"), ("w", b"\x09\0\0\0x")]), unknown);
    }

    #[test]
    fn message_of_another_program_is_a_request_or_invalid() {
        let request = |what| Message::Requested { what, reach: Reach::Hard };
        assert_eq!(
            message(&[("kind", b"tag"), ("what", b"red")]),
            request(Purge::Tag("red".into()))
        );
        assert_eq!(message(&[("kind", b"all")]), request(Purge::All));
        let key = KeyBuf::new("shop").part(b"/a b").borrowed().to_key();
        let plain: &[u8] = b"shop|/a%20b|";
        assert_eq!(message(&[("kind", b"key"), ("what", plain)]), request(Purge::Key(key)));
        let soft = message(&[("kind", b"site"), ("what", b"shop"), ("reach", b"soft")]);
        assert_eq!(
            soft,
            Message::Requested { what: Purge::Site("shop".into()), reach: Reach::Soft }
        );
        let long = vec![b'x'; TARGET_LEN_MAX + 1];
        let rows: [&[(&str, &[u8])]; 6] = [
            &[("a", b"b")],
            &[("kind", b"tag")],
            &[("kind", b"tag"), ("what", b"\xff")],
            &[("kind", b"key"), ("what", b"shop")],
            &[("kind", b"tag"), ("what", b"red"), ("reach", b"?")],
            &[("kind", b"tag"), ("what", &long)],
        ];
        for row in rows {
            assert_eq!(message(row), Message::Invalid);
        }
    }

    #[test]
    fn unexpected_reply_shape_is_an_error() {
        assert!(Entry::read_stream(Value::Int(1)).is_err());
        assert!(Entry::read_stream(Value::Array(vec![Value::Int(1)])).is_err());
        assert!(Entry::read_all(&Value::Array(vec![Value::Nil])).is_err());
        assert_eq!(Entry::read_stream(Value::Nil).unwrap(), []);
        let stream = Value::Map(vec![(bulk(b"n"), Value::Array(vec![entry(&[])]))]);
        assert_eq!(Entry::read_stream(stream).unwrap().len(), 1);
    }
}
