//! Target: `Vary`, and the selecting field values.

use forebay_core::Vary;
use forebay_semantics::vary::SELECTING_FIELDS_MAX;
use forebay_semantics::{Selects, selecting_value, selects};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::block::{Block, backwards, one};
use crate::run::{Outcome, Target};

/// Fuzz target for `Vary` and the values of selecting fields.
pub const TARGET: Target = Target { check, outcomes_min: 7 };

fn check(input: &[u8]) -> Outcome {
    let (request, stored) = Block::pair(input);
    let selected = selects(&stored.headers);
    assert_eq!(selects(&backwards(&stored.headers)), selected, "lines in another order");
    let has_star = stored
        .headers
        .get_all("vary")
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .any(|member| member.trim_ascii() == b"*");
    assert!(!has_star || selected == Selects::Everything, "{selected:?}");
    match &selected {
        Selects::Nothing => Outcome::of(0),
        Selects::Everything => Outcome::of((1, has_star)),
        Selects::By(vary) => {
            assert_names(vary);
            Outcome::of(
                vary.names().take(3).map(|n| value(&request.headers, n)).collect::<Vec<_>>(),
            )
        }
    }
}

fn assert_names(vary: &Vary) {
    let names: Vec<&str> = vary.names().collect();
    assert!((1..=SELECTING_FIELDS_MAX).contains(&names.len()), "{names:?}");
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "sorted, each once: {names:?}");
    let is_lower = |name: &&str| !name.bytes().any(|byte| byte.is_ascii_uppercase());
    assert!(names.iter().all(is_lower), "{names:?}");
    for line in [names.join(","), names.join(" ,, ").to_ascii_uppercase()] {
        let again = one("vary", line.as_bytes()).map(|headers| selects(&headers));
        assert_eq!(again, Some(Selects::By(vary.clone())), "written and read again");
    }
}

/// Number of lines of the field. Asserts that combining or padding lines does not change the value.
fn value(request: &HeaderMap, name: &str) -> usize {
    let lines: Vec<&[u8]> = request.get_all(name).into_iter().map(HeaderValue::as_bytes).collect();
    let value = selecting_value(request, name);
    assert_eq!(value.is_some(), !lines.is_empty(), "only an absent field has no value");
    let Some(value) = value else { return 0 };
    if lines.iter().all(|line| !line.is_empty()) {
        let padded = [b"\t", &lines.join(&b", "[..])[..], b" "].concat();
        let mut combined = HeaderMap::new();
        let field = HeaderName::from_bytes(name.as_bytes()).expect("the name of a field");
        combined.insert(field, HeaderValue::from_bytes(&padded).expect("parts of such values"));
        assert_eq!(selecting_value(&combined, name), Some(value), "on one line");
    }
    lines.len().min(3)
}
