//! What a load learns of stored variants other than the one that it was for.

use std::sync::Arc;

use forebay_core::{KeyRef, Meta};

use crate::Engine;
use crate::entry::{Entry, Head};

impl Engine {
    /// Puts newer meta and another head in the place of those of a variant in memory, whose body
    /// stays. `false` if something else stands there by now, or if other fields would select it.
    ///
    /// When it departed, and so what purges reach it, stays as it was: nobody has loaded it anew.
    pub fn freshen(
        &self,
        key: KeyRef<'_>,
        stored: &Arc<Entry>,
        (mut meta, head): (Meta, Head),
    ) -> bool {
        if meta.vary() != stored.meta.vary() {
            return false;
        }
        (meta.departed, meta.position) = (stored.meta.departed, stored.meta.position);
        meta.set_load_cost(stored.meta.load_cost());
        let fresh = Arc::new(Entry { head, ..stored.with_meta(meta) });
        self.flights.excluding(key, || self.memory.replace_variant(key, stored, &fresh))
    }
}
