//! Key part of a user: a digest of the credential under a random key of the process.
//!
//! The credential itself is in no key: keys are compared and printed in places where secrets must not
//! be. Without the key of the process, a digest tells nothing about a guessed credential.

use std::sync::OnceLock;

use ring::hmac::{HMAC_SHA256, Key, Tag, sign};
use ring::rand::SystemRandom;

/// Returns the key part of a credential.
pub(super) fn digest(credential: &[u8]) -> Tag {
    static KEY: OnceLock<Key> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        Key::generate(HMAC_SHA256, &SystemRandom::new())
            // TLS and tokens need it as well: the process cannot work without.
            .expect("the operating system has random numbers")
    });
    sign(key, credential)
}
