//! A date that jumps while entries are stored: lifetimes go by the monotonic clock.

use crate::world::{World, secs};

const HOUR: i64 = 3_600;

#[tokio::test]
async fn a_jump_of_the_date_neither_ends_a_lifetime_nor_prolongs_it() {
    for jump in [HOUR, -HOUR] {
        let world = World::with(|builder| builder.stale_if_error(secs(600)));
        assert_eq!(*world.load("a").await.unwrap(), "1");
        world.clock.jump_wall(jump);
        world.clock.advance(secs(59));
        assert_eq!(*world.load("a").await.unwrap(), "1", "dropped early after {jump} s");
        world.clock.jump_wall(-2 * jump);
        world.clock.advance(secs(1));
        assert_eq!(*world.load("a").await.unwrap(), "2", "fresh for too long after {jump} s");

        world.clock.jump_wall(2 * jump);
        world.clock.advance(secs(60 + 599));
        assert_eq!(*world.fail("a").await.unwrap(), "2", "no fallback after {jump} s");
        world.clock.jump_wall(-jump);
        world.clock.advance(secs(2));
        assert!(world.fail("a").await.is_err(), "stale for too long after {jump} s");
    }
}
