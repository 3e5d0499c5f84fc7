//! Identity of a lease.

use std::fmt;

/// Identity of one lease: 16 random bytes that are used once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub [u8; 16]);

impl fmt::Debug for LeaseToken {
    // The token is a secret: it allows filling the tier.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(..)")
    }
}
