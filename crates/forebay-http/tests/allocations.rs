//! Allocations of direct hits, counted on the thread that serves the connection.

use anyhow::Result;

#[expect(dead_code, reason = "the other pieces are for the instruction counts")]
#[path = "../benches/hit_path/front_end.rs"]
mod front_end;
#[path = "../benches/hit_path/replay.rs"]
mod replay;
#[expect(dead_code, reason = "only the ordinary path is measured with rules")]
#[path = "../benches/hit_path/rule_mix.rs"]
mod rule_mix;

/// Runs a piece and returns the number of successful repetitions.
type Run = Box<dyn FnMut() -> usize>;

fn measured<T>(piece: impl FnOnce() -> T) -> T {
    piece()
}

/// Returns the number of allocations of a connection with this number of requests.
fn allocations(connection: fn(usize) -> Result<Run>, requests: usize) -> Result<u64> {
    let mut run = connection(requests)?;
    let mut hits = 0;
    let counted = allocation_counter::measure(|| hits = run());
    assert_eq!(hits, requests);
    Ok(counted.count_total)
}

#[test]
fn a_direct_hit_allocates_nothing() -> Result<()> {
    for connection in [front_end::connection, front_end::connection_form] {
        // The first connection of a process initialises statics.
        allocations(connection, 100)?;
        let of_connection = allocations(connection, 100)?;
        assert!(of_connection > 0, "the counter works");
        let of_hits = allocations(connection, 2_100)?.saturating_sub(of_connection);
        // Timers allocate now and then. One allocation for each hit would be 2,000.
        assert!(of_hits < 20, "{of_hits} in 2,000 hits");
    }
    Ok(())
}
