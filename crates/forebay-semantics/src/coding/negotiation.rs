//! Choice of the content coding for a client (RFC 9110 section 12.5.3).

use http::header::ACCEPT_ENCODING;

use super::{Coding, Codings};
use crate::fields::FieldLines;
use crate::variants::preferences::weight_of;

/// Weight of a member without one, in thousandths.
const WEIGHT_MAX: u16 = 1_000;

/// Values of `Accept-Encoding` that most clients send, with the codings that they accept.
const USUAL: [(&[u8], [bool; Coding::ALL.len()]); 4] = [
    (b"gzip, deflate, br, zstd", [true, true, true]),
    (b"gzip, deflate, br", [false, true, true]),
    (b"gzip, deflate", [false, false, true]),
    (b"gzip", [false, false, true]),
];

/// Returns the coding for a client, or `None` for the unencoded response.
///
/// The coding with the highest weight is chosen; among equal weights the first of `offered`. A
/// client that prefers `identity` gets it, and so does one that accepts no offered coding, whatever
/// it says about `identity`. A request without `Accept-Encoding` gets no coding: such a client may
/// not be able to decode one. A malformed member counts as absent. Of two weights for one coding
/// the lower applies.
#[must_use]
pub fn negotiate(request: &impl FieldLines, offered: Codings) -> Option<Coding> {
    let mut lines = request.lines(&ACCEPT_ENCODING);
    let first = lines.next()?;
    let Some(second) = lines.next() else { return negotiate_line(first, offered) };
    let mut weights = Weights::default();
    std::iter::once(first).chain([second]).chain(lines).for_each(|line| weights.add_all(line));
    weights.best(offered)
}

/// Returns the coding for a client with one `Accept-Encoding`; see [`negotiate`]. An empty value
/// accepts no coding.
#[must_use]
pub fn negotiate_line(line: &[u8], offered: Codings) -> Option<Coding> {
    if let Some((_, accepted)) = USUAL.iter().find(|(usual, _)| *usual == line) {
        return offered.iter().find(|coding| accepted[coding.index()]);
    }
    let mut weights = Weights::default();
    weights.add_all(line);
    weights.best(offered)
}

/// Weights that a client gives to codings, in thousandths.
#[derive(Debug, Default)]
struct Weights {
    codings: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    /// Weight of `*`: of everything that is not named.
    others: Option<u16>,
}

impl Weights {
    fn add_all(&mut self, line: &[u8]) {
        line.split(|byte| *byte == b',').for_each(|member| self.add(member));
    }

    fn add(&mut self, member: &[u8]) {
        let (name, weight) = match member.iter().position(|byte| *byte == b';') {
            None => (member.trim_ascii(), Some(WEIGHT_MAX)),
            Some(semicolon) => {
                let (name, weight) = member.split_at(semicolon);
                (name.trim_ascii(), weight_of(weight[1..].trim_ascii()))
            }
        };
        let (Some(place), Some(weight)) = (self.place(name), weight) else { return };
        *place = Some(place.map_or(weight, |known| known.min(weight)));
    }

    fn place(&mut self, name: &[u8]) -> Option<&mut Option<u16>> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if name == b"*" {
            return Some(&mut self.others);
        }
        if is("identity") {
            return Some(&mut self.identity);
        }
        // RFC 9110 section 8.4.1.3: `x-gzip` is `gzip`.
        if is("x-gzip") {
            return Some(&mut self.codings[Coding::Gzip.index()]);
        }
        let coding = Coding::ALL.into_iter().find(|coding| is(coding.name()))?;
        Some(&mut self.codings[coding.index()])
    }

    fn best(&self, offered: Codings) -> Option<Coding> {
        let weight = |coding: Coding| self.codings[coding.index()].or(self.others).unwrap_or(0);
        let mut best: Option<(Coding, u16)> = None;
        for coding in offered.iter() {
            let weight = weight(coding);
            if weight > best.map_or(0, |(_, best)| best) {
                best = Some((coding, weight));
            }
        }
        let identity = self.identity.or(self.others).unwrap_or(0);
        best.filter(|(_, weight)| *weight >= identity).map(|(coding, _)| coding)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn chosen(lines: &[&str], offered: Codings) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_str(line).expect("a field value"));
        }
        negotiate(&headers, offered)
    }

    #[test]
    fn the_highest_weight_wins_then_the_order_of_the_site() {
        use Coding::{Br, Gzip, Zstd};
        let all = Codings::new(Coding::ALL);
        let rows: [(&[&str], Option<Coding>); 31] = [
            (&[], None),
            (&[""], None),
            (&["gzip"], Some(Gzip)),
            (&["gzip, deflate"], Some(Gzip)),
            (&["gzip, deflate, br"], Some(Br)),
            (&["gzip, deflate, br, zstd"], Some(Zstd)),
            (&["deflate, gzip;q=1.0, *;q=0.5"], Some(Gzip)),
            (&["GZIP"], Some(Gzip)),
            (&["x-gzip"], Some(Gzip)),
            (&["br;q=0.9, gzip"], Some(Gzip)),
            (&["br;q=0.9,gzip;q=0.9"], Some(Br)),
            (&["br;q=0.8, zstd;q=0.801"], Some(Zstd)),
            (&["gzip", "br"], Some(Br)),
            (&["gzip;q=0.5", "br;q=0.4", "zstd;q=0"], Some(Gzip)),
            (&["gzip;q=0"], None),
            (&["*"], Some(Zstd)),
            (&["*;q=0"], None),
            (&["*, zstd;q=0"], Some(Br)),
            (&["gzip;q=0.1, *;q=0"], Some(Gzip)),
            (&["identity"], None),
            (&["identity;q=0"], None),
            (&["identity;q=0, gzip"], Some(Gzip)),
            (&["identity;q=0, deflate"], None),
            (&["identity, gzip;q=0.5"], None),
            (&["identity;q=0.5, gzip;q=0.5"], Some(Gzip)),
            (&["gzip;q=1.5"], None),
            (&["gzip;q=x, br;q=0.1"], Some(Br)),
            (&["gzip ; q=0.5"], Some(Gzip)),
            (&["gzip, gzip;q=0"], None),
            (&[", ,gzip,,"], Some(Gzip)),
            (&["compress, deflate, dcz"], None),
        ];
        for (lines, expected) in rows {
            assert_eq!(chosen(lines, all), expected, "{lines:?}");
        }
    }

    #[test]
    fn only_offered_codings_are_chosen_in_their_order() {
        use Coding::{Br, Gzip, Zstd};
        let line = &["gzip, deflate, br, zstd"];
        assert_eq!(chosen(line, Codings::new([Gzip, Zstd])), Some(Gzip));
        assert_eq!(chosen(line, Codings::new([Br])), Some(Br));
        assert_eq!(chosen(&["br"], Codings::new([Gzip])), None);
        assert_eq!(chosen(line, Codings::new([])), None);
        let listed: Vec<_> = Codings::new([Gzip, Br, Gzip, Zstd]).iter().collect();
        assert_eq!(listed, [Gzip, Br, Zstd]);
    }

    proptest! {
        #[test]
        fn usual_values_are_chosen_as_by_the_parser(at in 0..USUAL.len()) {
            let text = std::str::from_utf8(USUAL[at].0).expect("text");
            let all = Codings::new(Coding::ALL);
            // A second, empty line leads past the table.
            prop_assert_eq!(chosen(&[text], all), chosen(&[text, ""], all));
        }

        #[test]
        fn no_value_panics_or_selects_a_coding_that_is_not_offered(text in "[ -~]{0,60}") {
            let offered = Codings::new([Coding::Br]);
            prop_assert!(chosen(&[&text], offered).is_none_or(|coding| coding == Coding::Br));
        }
    }
}
