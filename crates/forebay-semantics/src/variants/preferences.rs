//! Normalisation of `Accept-Encoding` and `Accept-Language`, so that equal preferences select the
//! same variant.
//!
//! RFC 9111 section 4.1 lets a cache normalise selecting fields whose values have the same meaning
//! by the definition of the field. These differences have no meaning for an origin that follows
//! RFC 9110:
//!
//! - white space around members, empty members, and combined lines (sections 5.3 and 5.6.1);
//! - the case of codings (section 8.4.1) and of language tags (section 8.5.1);
//! - `x-gzip` and `gzip`, `x-compress` and `compress` (sections 8.4.1.1 and 8.4.1.3);
//! - a weight of 1 and no weight, and trailing zeros of a weight (section 12.4.2);
//! - the order of members, because weights state the preference. Section 12.5.4 warns that some
//!   recipients treat the order of languages of equal weight as a preference, and that a client
//!   cannot rely on it. Members of different weights never change places, because the weights are
//!   kept;
//! - repetition of a member with the same weight.
//!
//! Everything else remains distinct: other weights, `q=0` and absence, `*` and the members that it
//! covers, an empty field and an absent one. A malformed value, or one that gives a member two
//! weights, is kept byte for byte. It never equals a normal form, because every normal form is
//! well-formed and names each member once.

use std::borrow::Cow;
use std::cmp::Reverse;

use smallvec::SmallVec;

/// Maximum number of members that are normalised. A longer list is left unchanged, because no
/// client has so many preferences and each lookup would pay for the comparison.
const MEMBERS_MAX: usize = 64;

/// Number of members that the fast check handles; a longer list is parsed in full.
const USUAL_MEMBERS: usize = 12;

/// A weight of 1, in thousandths (RFC 9110 section 12.4.2).
const WEIGHT_MAX: u16 = 1_000;

/// Codings in the order in which most clients send them, so that their values are already normal
/// and need no copy.
const CODINGS_USUAL: [&[u8]; 4] = [b"gzip", b"deflate", b"br", b"zstd"];

/// Values of `Accept-Encoding` that most clients send, each already normal.
const ENCODINGS_USUAL: [&[u8]; 4] =
    [b"gzip, deflate, br, zstd", b"gzip, deflate, br", b"gzip, deflate", b"gzip"];

/// Name of a member, inline up to the usual length.
type Name = SmallVec<[u8; 16]>;

/// A member of a list with its weight.
struct Member {
    name: Name,
    /// Weight in thousandths.
    weight: u16,
}

/// Normal form of the members of a field.
struct Style {
    read: fn(&[u8]) -> Option<Name>,
    /// Returns true if `read` would not change the name. False negatives are permitted.
    is_read: fn(&[u8]) -> bool,
    /// Sort key of members with equal weight; the name is the second key.
    rank: fn(&[u8]) -> usize,
    separator: &'static [u8],
}

/// Style of browsers: `gzip, deflate, br;q=0.5`.
const ENCODINGS: Style =
    Style { read: coding, is_read: is_coding, rank: coding_rank, separator: b", " };

/// Style of browsers: `de-AT,de;q=0.9,*;q=0.1`.
const LANGUAGES: Style =
    Style { read: language, is_read: is_language, rank: |_| 0, separator: b"," };

/// Returns the normal form of a field value, borrowed if it is unchanged.
pub(crate) fn normalized<'a>(name: &str, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
    let style = match name {
        "accept-encoding" if ENCODINGS_USUAL.contains(&&*value) => return value,
        "accept-encoding" => ENCODINGS,
        "accept-language" => LANGUAGES,
        _ => return value,
    };
    if style.is_spelled(&value) {
        return value;
    }
    match style.spell(&value) {
        Some(normalized) if normalized[..] != *value => Cow::Owned(normalized.into_vec()),
        _ => value,
    }
}

impl Style {
    /// Returns true if a value is already normal. False negatives are permitted. Nearly all values
    /// pass, so this check is the usual cost of a lookup.
    fn is_spelled(&self, value: &[u8]) -> bool {
        let mut known: SmallVec<[&[u8]; USUAL_MEMBERS]> = SmallVec::new();
        let mut before = WEIGHT_MAX;
        let mut rest = value;
        while known.len() < USUAL_MEMBERS {
            let end = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            let (member, behind) = rest.split_at(end);
            let Some((name, weight)) = usual_weight(member) else { return false };
            let is_behind = |last: &&[u8]| {
                weight < before || ((self.rank)(last), *last) < ((self.rank)(name), name)
            };
            let is_next = weight <= before && known.last().is_none_or(is_behind);
            if !is_next || known.contains(&name) || !(self.is_read)(name) {
                return false;
            }
            if behind.is_empty() {
                return true;
            }
            let Some(next) = behind.strip_prefix(self.separator) else { return false };
            known.push(name);
            before = weight;
            rest = next;
        }
        false
    }

    fn spell(&self, value: &[u8]) -> Option<SmallVec<[u8; 128]>> {
        let mut members = self.members(value)?;
        // An empty list is an empty field, which differs from an absent one.
        let key = |member: &Member| (Reverse(member.weight), (self.rank)(&member.name));
        members.sort_by(|one, other| {
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        members.dedup_by(|one, other| one.weight == other.weight && one.name == other.name);
        let mut text = SmallVec::new();
        for (place, member) in members.iter().enumerate() {
            if place > 0 {
                text.extend_from_slice(self.separator);
            }
            text.extend_from_slice(&member.name);
            write_weight(member.weight, &mut text);
        }
        Some(text)
    }

    /// Parses the members; `None` if the value is malformed or gives one member two weights.
    fn members(&self, value: &[u8]) -> Option<SmallVec<[Member; 8]>> {
        let mut members: SmallVec<[Member; 8]> = SmallVec::new();
        let parts = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for part in parts.filter(|part| !part.is_empty()) {
            let member = self.member(part)?;
            let is_twice = |known: &Member| known.name == member.name;
            let contradicts = |known: &Member| known.weight != member.weight;
            if members.iter().any(|known| is_twice(known) && contradicts(known))
                || members.len() == MEMBERS_MAX
            {
                return None;
            }
            members.push(member);
        }
        Some(members)
    }

    fn member(&self, part: &[u8]) -> Option<Member> {
        let Some(semicolon) = part.iter().position(|byte| *byte == b';') else {
            return Some(Member { name: (self.read)(part)?, weight: WEIGHT_MAX });
        };
        let (name, weight) = part.split_at(semicolon);
        let name = (self.read)(name.trim_ascii_end())?;
        Some(Member { name, weight: weight_of(weight.get(1..)?.trim_ascii_start())? })
    }
}

/// Parses `q=0.5` into thousandths (RFC 9110 section 12.4.2).
pub(crate) fn weight_of(text: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), rest @ ..] = text else { return None };
    let fraction = match rest {
        [] => &[],
        [b'.', fraction @ ..] if fraction.len() <= 3 => fraction,
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0');
    for place in 0..3 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        thousandths = thousandths * 10 + digit;
    }
    (thousandths <= WEIGHT_MAX).then_some(thousandths)
}

/// Returns name and weight of a member in the form that [`write_weight`] writes.
fn usual_weight(member: &[u8]) -> Option<(&[u8], u16)> {
    let Some(semicolon) = member.iter().position(|byte| *byte == b';') else {
        return Some((member, WEIGHT_MAX));
    };
    let (name, weight) = member.split_at(semicolon);
    let thousandths = match weight {
        b";q=0" => 0,
        [b';', b'q', b'=', b'0', b'.', fraction @ ..] => weight_in(fraction)?,
        _ => return None,
    };
    Some((name, thousandths))
}

/// Parses one to three digits without a trailing zero, in thousandths.
const fn weight_in(fraction: &[u8]) -> Option<u16> {
    let (a, b, c) = match fraction {
        [a] => (*a, b'0', b'0'),
        [a, b] => (*a, *b, b'0'),
        [a, b, c] => (*a, *b, *c),
        _ => return None,
    };
    let is_plain = a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit();
    if !is_plain || matches!(fraction, [.., b'0']) {
        return None;
    }
    Some((a - b'0') as u16 * 100 + (b - b'0') as u16 * 10 + (c - b'0') as u16)
}

fn write_weight(weight: u16, text: &mut SmallVec<[u8; 128]>) {
    if weight == WEIGHT_MAX {
        return;
    }
    text.extend_from_slice(b";q=0");
    let mut left = weight;
    let mut unit = 100;
    if left > 0 {
        text.push(b'.');
    }
    while left > 0 {
        let digit = u8::try_from(left / unit).unwrap_or_default();
        text.push(b'0' + digit);
        left %= unit;
        unit /= 10;
    }
}

/// Returns a coding in lower case under its registered name.
fn coding(text: &[u8]) -> Option<Name> {
    if text.is_empty() || !text.iter().all(|byte| is_token(*byte)) {
        return None;
    }
    let mut name = Name::from_slice(text);
    name.make_ascii_lowercase();
    if matches!(&name[..], b"x-gzip" | b"x-compress") {
        name.drain(..2);
    }
    Some(name)
}

/// Returns true for lower-case letters and digits, which suffices for the usual codings; `x-`
/// aliases contain a hyphen.
fn is_coding(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'*')
}

fn coding_rank(name: &[u8]) -> usize {
    CODINGS_USUAL.iter().position(|usual| *usual == name).unwrap_or(CODINGS_USUAL.len())
}

/// Returns a language range of RFC 4647 section 2.1 in the case that RFC 5646 section 2.1.1
/// recommends and clients send: `zh-Hant-TW`.
fn language(text: &[u8]) -> Option<Name> {
    let mut name = Name::from_slice(text);
    if text == b"*" {
        return Some(name);
    }
    name.make_ascii_lowercase();
    let mut after_singleton = false;
    for (place, part) in name.split_mut(|byte| *byte == b'-').enumerate() {
        let is_part = (1..=8).contains(&part.len()) && part.iter().all(u8::is_ascii_alphanumeric);
        let is_primary = place == 0 && part.iter().all(u8::is_ascii_alphabetic);
        if !is_part || !(place > 0 || is_primary) {
            return None;
        }
        match part.len() {
            2 if place > 0 && !after_singleton => part.make_ascii_uppercase(),
            4 if place > 0 && !after_singleton => part[..1].make_ascii_uppercase(),
            _ => {}
        }
        after_singleton |= part.len() == 1;
    }
    Some(name)
}

/// Returns true for `de`, `de-AT` and `*`, the forms that nearly all clients send.
const fn is_language(name: &[u8]) -> bool {
    match name {
        [b'*'] => true,
        [a, b] => a.is_ascii_lowercase() && b.is_ascii_lowercase(),
        [a, b, b'-', c, d] => {
            a.is_ascii_lowercase()
                && b.is_ascii_lowercase()
                && c.is_ascii_uppercase()
                && d.is_ascii_uppercase()
        }
        _ => false,
    }
}

/// RFC 9110 section 5.6.2.
const fn is_token(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`'
            | b'|' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z'
    )
}

#[cfg(test)]
mod tests;
