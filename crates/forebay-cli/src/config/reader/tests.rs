use super::*;
use crate::config::problem::Place;
use std::fmt::Debug;

/// Reads one value as it would be typed; the error contains every problem.
fn read<T: Debug>(reader: &Reader<T>, text: &str) -> Result<T, String> {
    let typed = Typed::from_default("field".into(), text).unwrap();
    let mut problems = Problems::new(None);
    let value = (reader.read)(&typed, &mut problems);
    assert_eq!(value.is_none(), !problems.is_empty(), "{text}: {value:?} {problems}");
    value.ok_or_else(|| problems.to_string())
}

/// Reads and prints a value.
fn shown<T: Debug>(reader: &Reader<T>, text: &str) -> String {
    (reader.show)(&read(reader, text).unwrap())
}

#[test]
fn a_printed_value_can_be_typed() {
    assert_eq!(shown(&ADDRESS, r#""[::1]:80""#), r#""[::1]:80""#);
    assert_eq!(shown(&ADDRESSES, r#""127.0.0.1:1, [::1]:2""#), r#"["127.0.0.1:1", "[::1]:2"]"#);
    assert_eq!(shown(&ADDRESSES, r#"["127.0.0.1:1"]"#), r#"["127.0.0.1:1"]"#);
    assert_eq!(shown(&SIZE, r#""1048576B""#), r#""1MiB""#);
    assert_eq!(shown(&DURATION, r#""60s""#), r#""1m""#);
    assert_eq!(shown(&TRUTH, "true"), "true");
    assert_eq!(shown(&COUNT, "0x10"), "16");
    assert_eq!(shown(&PREFIX, r#""/shop/v%201""#), r#""/shop/v%201""#);
    assert_eq!(shown(&ORIGIN_HOST, r#""shop.internal:81""#), r#""shop.internal:81""#);
    assert_eq!(shown(&QUERY_NAMES, r#"["utm_*", "fbclid"]"#), r#"["utm_*", "fbclid"]"#);
    assert_eq!(shown(&METHODS, r#"["QUERY", "POST"]"#), r#"["QUERY", "POST"]"#);
    for level in ["error", "warn", "info", "debug", "trace"] {
        let text = format!("\"{level}\"");
        assert_eq!(shown(&LEVEL, &text), text);
    }
    for chosen in ["off", "common", "json"] {
        let text = format!("\"{chosen}\"");
        assert_eq!(shown(&ACCESS_LOG, &text), text);
    }
}

#[test]
fn a_number_without_a_unit_is_refused_with_an_example() {
    assert_eq!(read(&DURATION, "250").unwrap_err(), "field: 250 needs a unit, such as \"250ms\"");
    assert_eq!(read(&SIZE, "64").unwrap_err(), "field: 64 needs a unit, such as \"64MiB\"");
    assert!(read(&SIZE, "1.5").unwrap_err().contains("string with a unit"));
    assert!(read(&DURATION, "\"5min\"").unwrap_err().contains("\"5min\" has the unknown unit"));
}

#[test]
fn a_value_of_the_wrong_type_names_both_types() {
    assert_eq!(read(&COUNT, "\"4\"").unwrap_err(), "field: must be an integer, not a string");
    assert!(read(&COUNT, "-4").unwrap_err().contains("negative"));
    assert!(read(&TRUTH, "\"true\"").unwrap_err().contains("without quotes"));
    assert!(read(&ADDRESS, "8080").unwrap_err().contains("must be a string, not an integer"));
    assert!(read(&HOSTS, "\"a\"").unwrap_err().contains("must be a list in [ ], not a string"));
    assert!(read(&PATH, "{ a = 1 }").unwrap_err().contains("not a table"));
    assert!(read(&LEVEL, "\"loud\"").unwrap_err().contains("one of \"error\", \"warn\""));
}

#[test]
fn every_bad_item_of_a_list_is_reported_with_its_own_path() {
    let error = read(&HOSTS, r#"["a:1", "ok", 3]"#).unwrap_err();
    assert!(error.contains("field[0]: \"a:1\" must not have a port"), "{error}");
    assert!(error.contains("field[2]: must be a string, not an integer"), "{error}");
    assert_eq!(error.lines().count(), 2);
    let error = read(&METHODS, r#"["QUERY", "GET", "post"]"#).unwrap_err();
    assert!(error.contains("field[1]: \"GET\" must be one of \"POST\", \"QUERY\""), "{error}");
    assert_eq!(error.lines().count(), 2);
}

#[test]
fn invalid_names_and_paths_are_refused() {
    for bad in ["\"shop\"", "\"/\"", "\"/a/\"", "\"/a//b\"", "\"/a/../b\"", "\"/a?b\"", "\"/ä\""] {
        assert!(read(&PREFIX, bad).is_err(), "{bad}");
    }
    let long = format!("\"{}\"", "a".repeat(65));
    for bad in ["\"\"", "\"Shop\"", "\"a_b\"", "\"a b\"", long.as_str()] {
        assert!(read(&SITE_ID, bad).unwrap_err().contains("1 to 64"), "{bad}");
    }
    assert!(read(&SITE_ID, &format!("\"{}\"", "a".repeat(64))).is_ok());
    for bad in [r#"[""]"#, r#"["a*b"]"#, r#"["a=b"]"#, r#"["a&b"]"#] {
        assert!(read(&QUERY_NAMES, bad).is_err(), "{bad}");
    }
    for bad in ["\"\"", "\"a b\"", "\"me@host\""] {
        assert!(read(&ORIGIN_HOST, bad).is_err(), "{bad}");
    }
    assert!(read(&PATH, "\"\"").is_err());
}

#[test]
fn one_to_64_different_origins_are_accepted() {
    assert!(read(&ORIGINS, "[]").unwrap_err().contains("must name the origin"));
    let list = |count: usize| {
        let urls: Vec<String> = (0..count).map(|number| format!("\"http://o{number}\"")).collect();
        format!("[{}]", urls.join(", "))
    };
    assert_eq!(read(&ORIGINS, &list(64)).unwrap().len(), 64);
    assert!(
        read(&ORIGINS, &list(65)).unwrap_err().contains("has 65 URLs; at most 64 are possible")
    );
    let two = r#"["http://a", { url = "unix:/run/b.sock", weight = 3 }]"#;
    let read_two = read(&ORIGINS, two).unwrap();
    assert_eq!((read_two[0].url.address().label().as_str(), read_two[1].weight), ("a:80", 3));
    assert_eq!((ORIGINS.show)(&read_two), two);
    assert_eq!(Typed::flag("--origin", "x").place, Place::Flag);
}
