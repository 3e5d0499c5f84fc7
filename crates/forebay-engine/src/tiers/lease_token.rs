//! Identity of a lease.

use std::fmt;

/// What names a lease: random, and never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub [u8; 16]);

impl fmt::Debug for LeaseToken {
    // Who knows a token may fill.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(..)")
    }
}
