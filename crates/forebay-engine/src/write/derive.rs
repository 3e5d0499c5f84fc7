//! Derived forms that are added to entries in memory.

use std::sync::Arc;

use forebay_core::KeyRef;

use crate::engine::Engine;
use crate::entry::Entry;
use crate::entry::derived::{DerivedForm, DerivedForms, FormRequests};
use crate::entry::select::Select;

/// Result of adding a derived form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormAdded {
    /// The entry in memory has the form.
    Added,
    /// Memory holds the body no more, or the form could not be made of its current head.
    Gone,
    /// With the form, the entry would be larger than memory stores.
    TooLarge,
}

impl Engine {
    /// Returns the entry in memory for a request, if it has the body of `requests`. Does not count
    /// as a use.
    #[must_use]
    pub fn entry_with_forms(
        &self,
        key: KeyRef<'_>,
        select: &dyn Select,
        requests: &FormRequests,
    ) -> Option<Arc<Entry>> {
        let entry = self.memory.peek_for(key, select)?;
        let is_same = |known: &DerivedForms| known.are_of(requests);
        entry.head.view().is_some_and(is_same).then_some(entry)
    }

    /// Adds a form to the entry in memory for a request, if it has the body of `requests`. `make`
    /// makes the form for the current head of the entry.
    pub fn add_form(
        &self,
        key: KeyRef<'_>,
        select: &dyn Select,
        requests: &FormRequests,
        index: usize,
        make: impl FnOnce(&Entry) -> Option<DerivedForm>,
    ) -> FormAdded {
        self.flights.locked(key, || {
            let Some(entry) = self.entry_with_forms(key, select, requests) else {
                return FormAdded::Gone;
            };
            let head = make(&entry).and_then(|form| entry.head.with_form(index, form));
            let Some(head) = head else { return FormAdded::Gone };
            let entry = Entry { head, ..entry.with_meta(entry.meta.clone()) };
            if entry.charge(0) > self.memory.object_max(entry.meta.presence) {
                return FormAdded::TooLarge;
            }
            if self.memory.store(key, select, Arc::new(entry)) {
                FormAdded::Added
            } else {
                FormAdded::TooLarge
            }
        })
    }
}
