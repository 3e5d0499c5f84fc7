use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::format::layout::Kind;
use crate::fuzz_support::{MemoryFile, SegmentBuilder, run_script};

#[test]
fn lost_removal_is_detected_and_lost_entry_is_not() {
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
fn body_full_of_record_magic_needs_no_extra_calls() {
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
