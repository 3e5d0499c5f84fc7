//! Token of the admin listener, which a reload replaces.

use std::sync::Arc;

use parking_lot::RwLock;

/// Bearer token that requests must carry; `None` if none is required.
pub(crate) struct Token(RwLock<Option<String>>);

impl Token {
    pub(crate) fn new(token: Option<String>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(token)))
    }

    /// Replaces the token. Returns `false` and changes nothing if a token is required now and
    /// `token` is `None`: the listener may be on an address that other hosts reach.
    pub(crate) fn replace(&self, token: Option<&str>) -> bool {
        let mut current = self.0.write();
        if token.is_none() {
            return current.is_none();
        }
        *current = token.map(str::to_owned);
        true
    }

    pub(crate) fn current(&self) -> Option<String> {
        self.0.read().clone()
    }
}
