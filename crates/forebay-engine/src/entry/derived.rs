//! Derived forms of an entry: its body in other encodings, each with a head of its own.
//!
//! They are the view of the entry's head, are charged to the entry, and leave memory with it. Lower
//! tiers store the original body only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use forebay_core::heap;

use super::Head;
use super::body::Body;

/// Maximum number of forms of one entry.
pub const FORMS_MAX: usize = 3;

/// Requests after which a form is made: a form that is used once is not worth its computation.
const WORTHWHILE: u8 = 2;

/// State of a form that is requested no more: it is made, in work, or not worth its memory.
const DECIDED: u8 = u8::MAX;

/// One body of an entry in another encoding, with the head that describes it.
#[derive(Clone, Debug)]
pub struct DerivedForm {
    /// Head of the form.
    pub head: Head,
    /// Complete body of the form.
    pub body: Body,
}

/// Requests for the derived forms of one body. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct FormRequests(Arc<[AtomicU8; FORMS_MAX]>);

impl FormRequests {
    /// Notes a request for a form that is not made. Returns `true` if it should be made now; then
    /// the caller has to make it, or to call [`postpone`](Self::postpone). Later calls return
    /// `false` until then.
    #[must_use]
    pub fn note(&self, index: usize) -> bool {
        let next = |count: u8| match count {
            DECIDED => None,
            count if count + 1 >= WORTHWHILE => Some(DECIDED),
            count => Some(count + 1),
        };
        let Some(requests) = self.0.get(index) else { return false };
        let before = requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.is_ok_and(|count| count + 1 >= WORTHWHILE)
    }

    /// Lets the next request for a form make it.
    pub fn postpone(&self, index: usize) {
        if let Some(requests) = self.0.get(index) {
            requests.store(WORTHWHILE - 1, Ordering::Relaxed);
        }
    }

    /// Returns `true` if both belong to one body.
    fn is_of_same_body(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Derived forms of one entry, as the view of its head. The entries that share a body share the
/// counts of its requests.
#[derive(Debug, Default)]
pub struct DerivedForms {
    requests: FormRequests,
    forms: [Option<Arc<DerivedForm>>; FORMS_MAX],
}

impl DerivedForms {
    /// Returns a form. `None` if it is not made.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&DerivedForm> {
        self.forms.get(index)?.as_deref()
    }

    /// Returns the requests for the forms of the body.
    #[must_use]
    pub const fn requests(&self) -> &FormRequests {
        &self.requests
    }

    /// Returns `true` if these are forms of the body of `requests`.
    pub(crate) fn are_of(&self, requests: &FormRequests) -> bool {
        self.requests.is_of_same_body(requests)
    }

    /// Returns these forms with one more.
    fn with(&self, index: usize, form: DerivedForm) -> Self {
        let mut forms = self.forms.clone();
        if let Some(place) = forms.get_mut(index) {
            *place = Some(Arc::new(form));
        }
        Self { requests: self.requests.clone(), forms }
    }

    /// Returns the forms for a new head of the same body. `head_of` makes the head of a form; a form
    /// without one is dropped.
    #[must_use]
    pub fn with_heads(&self, head_of: impl Fn(usize, &DerivedForm) -> Option<Head>) -> Self {
        let mut index = 0;
        let forms = self.forms.each_ref().map(|form| {
            index += 1;
            let form = form.as_deref()?;
            let head = head_of(index - 1, form)?;
            Some(Arc::new(DerivedForm { head, body: form.body.clone() }))
        });
        Self { requests: self.requests.clone(), forms }
    }

    /// Bodies of all forms.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &Body> {
        self.forms.iter().flatten().map(|form| &form.body)
    }

    /// Size in memory, in bytes.
    fn size(&self) -> usize {
        let own = heap::shared(size_of::<Self>()) + heap::shared(FORMS_MAX);
        let form = |form: &Arc<DerivedForm>| {
            heap::shared(size_of::<DerivedForm>()) + form.head.size() + form.body.kept()
        };
        own + self.forms.iter().flatten().map(form).sum::<usize>()
    }
}

impl Head {
    /// Adds derived forms as the view of the head.
    #[must_use]
    pub fn with_forms(self, forms: DerivedForms) -> Self {
        let size = forms.size();
        self.with_view(Arc::new(forms), size)
    }

    /// Returns this head with one more derived form. `None` if it has no forms as its view.
    pub(crate) fn with_form(&self, index: usize, form: DerivedForm) -> Option<Self> {
        let forms = self.view::<DerivedForms>()?.with(index, form);
        Some(self.clone().with_forms(forms))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn form(length: usize) -> DerivedForm {
        let head = Head::of_slice(b"head");
        DerivedForm { head, body: Body::whole(Bytes::from(vec![1; length])) }
    }

    #[test]
    fn the_second_request_makes_a_form_once() {
        let forms = DerivedForms::default();
        let requests = forms.requests();
        let asked = [0, 0, 0, 1, 1].map(|index| requests.note(index));
        assert_eq!(asked, [false, true, false, false, true]);
        requests.postpone(0);
        assert_eq!([requests.note(0), requests.note(0)], [true, false]);
        assert!(!requests.note(FORMS_MAX), "there is no such form");
    }

    #[test]
    fn forms_are_charged_to_the_head_and_share_their_requests() {
        let none = Head::of_slice(b"head").with_forms(DerivedForms::default());
        let one = none.with_form(2, form(100_000)).expect("a head with forms");
        assert!(one.size() > none.size() + 100_000);
        assert!(one.size() < none.size() + 120_000);
        let (before, after): (&DerivedForms, &DerivedForms) =
            (none.view().expect("forms"), one.view().expect("forms"));
        assert!(after.are_of(before.requests()) && before.get(2).is_none());
        assert_eq!(after.get(2).and_then(|form| form.body.length()), Some(100_000));
        assert!(!before.are_of(DerivedForms::default().requests()));
        assert!(Head::of_slice(b"head").with_form(0, form(1)).is_none());
        let renewed = after.with_heads(|index, _| (index == 2).then(|| Head::of_slice(b"new")));
        assert_eq!(renewed.get(2).and_then(|form| form.head.slice()), Some(&b"new"[..]));
        assert!(renewed.are_of(after.requests()));
        assert!(after.with_heads(|_, _| None).get(2).is_none());
    }
}
