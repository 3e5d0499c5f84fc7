use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::layout::Kind;
use crate::rehearse::{Bytes, Made, rehearse};

#[test]
fn a_lost_removal_shows_and_a_lost_entry_does_not_matter() {
    for (kind, floor) in [(Kind::Entry, false), (Kind::Removal, true), (Kind::Purge, true)] {
        let mut made = Made::new();
        made.record(Kind::Entry, b"first");
        made.record(kind, b"");
        made.damage(200);
        made.record(Kind::Entry, b"last");
        let survey = Bytes::new(made.bytes.clone()).survey();
        assert_eq!((survey.rows.len(), survey.holes), (2, 1));
        assert_eq!(survey.floor > 0, floor, "{kind:?}");
        assert_eq!(survey.removals, Some((0, made.removals)));
    }
}

#[test]
fn a_body_full_of_beginnings_of_records_costs_no_calls() {
    let mut made = Made::new();
    made.record(Kind::Entry, &b"FBR\xf7\x01\0\0\0".repeat(200_000));
    made.damage(0);
    made.record(Kind::Entry, b"last");
    let file = Bytes::new(made.bytes.clone());
    assert_eq!(file.survey().rows, made.rows);
    let reads = file.reads.load(Ordering::Relaxed);
    assert!(reads < 20, "{reads} calls for {} bytes", made.bytes.len());
}

proptest! {
    #[test]
    fn any_script_is_surveyed_rightly(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = rehearse(&script);
    }
}
