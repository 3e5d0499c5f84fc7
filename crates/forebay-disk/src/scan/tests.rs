use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::fuzz_support::{MemoryFile, SegmentBuilder, run_script};
use crate::layout::Kind;

#[test]
fn a_lost_removal_shows_and_a_lost_entry_does_not_matter() {
    for (kind, floor) in [(Kind::Entry, false), (Kind::Removal, true), (Kind::Purge, true)] {
        let mut builder = SegmentBuilder::new();
        builder.record(Kind::Entry, b"first");
        builder.record(kind, b"");
        builder.damage(200);
        builder.record(Kind::Entry, b"last");
        let scan = MemoryFile::new(builder.bytes.clone()).scan();
        assert_eq!((scan.rows.len(), scan.holes), (2, 1));
        assert_eq!(scan.floor > 0, floor, "{kind:?}");
        assert_eq!(scan.removals, Some((0, builder.removals)));
    }
}

#[test]
fn a_body_full_of_beginnings_of_records_costs_no_calls() {
    let mut builder = SegmentBuilder::new();
    builder.record(Kind::Entry, &b"FBR\xf7\x01\0\0\0".repeat(200_000));
    builder.damage(0);
    builder.record(Kind::Entry, b"last");
    let file = MemoryFile::new(builder.bytes.clone());
    assert_eq!(file.scan().rows, builder.rows);
    let reads = file.reads.load(Ordering::Relaxed);
    assert!(reads < 20, "{reads} calls for {} bytes", builder.bytes.len());
}

proptest! {
    #[test]
    fn any_script_is_surveyed_rightly(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = run_script(&script);
    }
}
