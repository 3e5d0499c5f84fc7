use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn spelled(name: &str, value: &str) -> String {
    let normalized = normalized(name, Cow::Borrowed(value.as_bytes()));
    String::from_utf8(normalized.into_owned()).unwrap()
}

fn assert_groups(name: &str, groups: &[&[&str]]) {
    for (place, group) in groups.iter().enumerate() {
        let own = spelled(name, group[0]);
        for value in *group {
            assert_eq!(spelled(name, value), own, "{value}");
        }
        for other in &groups[place + 1..] {
            assert_ne!(spelled(name, other[0]), own, "{} and {}", group[0], other[0]);
        }
    }
}

#[test]
fn equal_encoding_preferences_have_one_normal_form() {
    // RFC 9110 sections 12.4.2, 12.5.3, 8.4.1. Each group is one variant.
    assert_groups(
        "accept-encoding",
        &[
            &[
                "gzip, deflate, br",
                "gzip,deflate,br",
                " br ,\tgzip,, deflate , ",
                "GZIP, Deflate, BR",
                "x-gzip, br, deflate",
                "gzip;q=1, deflate;q=1.000, br; q=1.0",
                "deflate ;q=1,gzip, gzip,br",
            ],
            &["gzip, br", "br, gzip"],
            &["gzip;q=0.5, br", "br,gzip;q=0.500", "br;q=1, gzip;Q=0.50"],
            &["gzip;q=0.501, br"],
            &["gzip, br;q=0.5"],
            &["br, gzip;q=0", "gzip;q=0.000,br"],
            &["br"],
            &["br, *"],
            &["br, *;q=0"],
            &["br, identity;q=0"],
            &["*"],
            &["identity"],
            &["", " , "],
            // Malformed values and values with two weights are each their own group.
            &["gzip;q=2, br"],
            &["gzip;q=0.5555, br"],
            &["gzip;level=1, br"],
            &["gzip;q=.5, br"],
            &["gzip;q=0.5, gzip;q=0.6"],
            &["gzip;q=0.6, gzip;q=0.5"],
            &["gz ip, br"],
            &["gzip;q=0.5;q=0.5, br"],
            &["\"gzip\", br"],
        ],
    );
}

#[test]
fn equal_language_preferences_have_one_normal_form() {
    // RFC 9110 section 12.5.4.
    assert_groups(
        "accept-language",
        &[
            &["en,de", "en, de", "de, en", "eN, De", " en ,   de", "de;q=1.0,en"],
            &["en,de;q=0.5", "de;q=0.5, EN"],
            &["de,en;q=0.5"],
            &["fr;q=0.5, de;q=1.0", "de,fr;q=0.5"],
            &["en-US,en;q=0.9", "en-us, en;q=0.90"],
            &["en"],
            &["en,*;q=0.1"],
            &["zh-Hant-TW", "ZH-HANT-tw"],
            &["en-a-us-ca"],
            &["en_US"],
            &["en-"],
            &["123456789"],
            &["12"],
            &["en-*"],
        ],
    );
}

#[test]
fn what_browsers_send_is_not_copied() {
    for (name, value) in [
        ("accept-encoding", "gzip, deflate"),
        ("accept-encoding", "gzip, deflate, br"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("accept-encoding", "gzip"),
        ("accept-encoding", "identity"),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-language", "de-AT,de;q=0.9,en-US;q=0.8,en;q=0.7"),
        ("accept-language", "zh-Hant-TW,zh;q=0.9,*;q=0.001"),
    ] {
        let normalized = normalized(name, Cow::Borrowed(value.as_bytes()));
        assert!(matches!(normalized, Cow::Borrowed(_)), "{name}: {value}");
    }
}

#[test]
fn what_is_taken_as_spelled_at_sight_is() {
    let rows = [
        (&ENCODINGS, "gzip, deflate, br;q=0.9, *;q=0", true),
        (&ENCODINGS, "gzip", true),
        (&ENCODINGS, "gzip, deflate, br, zstd", true),
        (&ENCODINGS, "deflate, gzip", false),
        (&ENCODINGS, "gzip,br", false),
        (&ENCODINGS, "gzip, gzip", false),
        (&ENCODINGS, "gzip, gzip;q=0.5", false),
        (&ENCODINGS, "gzip, ", false),
        (&ENCODINGS, "gzip,", false),
        (&ENCODINGS, "x-gzip", false),
        (&ENCODINGS, "br;q=0.5, gzip", false),
        (&ENCODINGS, "br;q=1", false),
        (&ENCODINGS, "br;q=0.50", false),
        (&ENCODINGS, "br;q=0.", false),
        (&ENCODINGS, "br;q=0.0", false),
        (&ENCODINGS, "br;q=0.1234", false),
        (&LANGUAGES, "de-AT,de;q=0.9,en-US;q=0.8,en;q=0.7,*;q=0.001", true),
        (&LANGUAGES, "de,en", true),
        (&LANGUAGES, "en,de", false),
        (&LANGUAGES, "de-at", false),
        (&LANGUAGES, "", false),
    ];
    for (style, value, expected) in rows {
        assert_eq!(style.is_spelled(value.as_bytes()), expected, "{value}");
    }
}

#[test]
fn what_is_not_read_at_each_lookup_is_normal() {
    for usual in ENCODINGS_USUAL {
        assert_eq!(&ENCODINGS.spell(usual).unwrap()[..], usual);
    }
}

#[test]
fn other_fields_stay_as_they_are() {
    for value in ["b, a", " A;q=1", "1,2"] {
        assert_eq!(spelled("foo", value), value);
        assert_eq!(spelled("accept", value), value);
    }
}

#[test]
fn too_many_members_are_unchanged() {
    let many = |count: usize| (0..count).rev().map(|n| format!("a{n:02}")).collect::<Vec<_>>();
    let enough = many(MEMBERS_MAX).join(",");
    assert_ne!(spelled("accept-encoding", &enough), enough);
    let more = many(MEMBERS_MAX + 1).join(",");
    assert_eq!(spelled("accept-encoding", &more), more);
}

/// Returns name and weight of each member, parsed independently of the code under test.
fn meaning(value: &str) -> BTreeMap<String, String> {
    let member = |part: &str| {
        let (name, weight) = part.split_once(";q=").unwrap_or((part, "1"));
        let weight: f64 = weight.trim().parse().unwrap();
        (name.trim().to_ascii_lowercase(), format!("{weight:.3}"))
    };
    value.split(',').filter(|part| !part.trim().is_empty()).map(member).collect()
}

proptest! {
    #[test]
    fn the_normal_spelling_is_its_own_and_says_the_same(
        members in prop::collection::btree_map(
            prop::sample::select(&["en", "de-AT", "fr", "*", "zh-Hant", "gzip", "br", "EN-gb"][..]),
            prop::sample::select(&["", ";q=0", ";q=1", ";q=0.3", ";q=0.300", ";q=0.007"][..]),
            0..6,
        ).prop_map(|members| members.into_iter().collect::<Vec<_>>()).prop_shuffle(),
        name in prop::sample::select(&["accept-language", "accept-encoding"][..]),
    ) {
        let parts: Vec<String> = members.iter().map(|(name, q)| format!("{name}{q}")).collect();
        let sent = parts.join(" ,");
        let once = spelled(name, &sent);
        prop_assert_eq!(spelled(name, &once), once.clone(), "again");
        for style in [ENCODINGS, LANGUAGES] {
            let at_sight = [&sent, &once].map(|value| style.is_spelled(value.as_bytes()));
            for (value, at_sight) in [&sent, &once].into_iter().zip(at_sight) {
                let normalized = style.spell(value.as_bytes());
                let is_own = normalized.is_some_and(|normalized| &normalized[..] == value.as_bytes());
                prop_assert!(!at_sight || is_own, "{value}");
            }
        }
        prop_assert_eq!(meaning(&once), meaning(&sent));
    }

    #[test]
    fn whatever_is_sent_is_spelled_once(value in "[a-zA-Z*;q=0-9., \t-]{0,60}") {
        for (name, style) in [("accept-language", LANGUAGES), ("accept-encoding", ENCODINGS)] {
            let once = spelled(name, &value);
            let normalized = style.spell(value.as_bytes());
            let is_own = normalized.is_some_and(|normalized| &normalized[..] == value.as_bytes());
            prop_assert!(is_own || !style.is_spelled(value.as_bytes()), "at sight");
            prop_assert_eq!(spelled(name, &once), once);
        }
    }
}
