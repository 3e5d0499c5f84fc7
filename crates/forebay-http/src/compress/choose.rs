//! Choice of the form of a stored response for a client.
//!
//! It notes nothing: a request for a missing form is noted by [`Chosen::request`].

use forebay_engine::{Body, DerivedForm, DerivedForms, Entry, Head};
use forebay_semantics::coding::negotiation::negotiate;
use forebay_semantics::coding::{Coding, Codings};
use http::HeaderMap;
use http::header::RANGE;

use crate::settings::CompressSettings;

/// Form of a stored response for a client. The default is the response as stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chosen<'e> {
    /// Coding that the client gets once its form is made.
    coding: Option<Coding>,
    form: Option<&'e DerivedForm>,
}

/// Chooses the form of an entry for a request with these fields. A request for a range gets the body
/// without a coding, because ranges refer to it.
pub(crate) fn choose<'e>(
    settings: Option<&CompressSettings>,
    headers: &HeaderMap,
    entry: &'e Entry,
) -> Chosen<'e> {
    let negotiated = |offered| negotiate(headers, offered).filter(|_| !headers.contains_key(RANGE));
    choose_as(settings, entry, negotiated)
}

/// Chooses the form of an entry for a request whose coding `negotiated` returns.
#[inline]
pub(crate) fn choose_as<'e>(
    settings: Option<&CompressSettings>,
    entry: &'e Entry,
    negotiated: impl FnOnce(Codings) -> Option<Coding>,
) -> Chosen<'e> {
    let Some(settings) = settings else { return Chosen::default() };
    let Some(forms) = entry.head.view::<DerivedForms>() else { return Chosen::default() };
    let Some(coding) = negotiated(settings.codings) else { return Chosen::default() };
    if let Some(form) = forms.get(coding.index()) {
        return Chosen { coding: Some(coding), form: Some(form) };
    }
    without_form(settings, entry, coding)
}

#[cold]
fn without_form<'e>(settings: &CompressSettings, entry: &Entry, coding: Coding) -> Chosen<'e> {
    // A streaming body, and one that is in a lower tier only, has no forms.
    let is_in_memory = entry.body.retained() > 0;
    if !is_in_memory || !entry.body.length().is_some_and(|length| settings.takes(length)) {
        return Chosen::default();
    }
    Chosen { coding: Some(coding), form: None }
}

impl<'e> Chosen<'e> {
    /// Returns the head of the response.
    pub(crate) fn head(&self, entry: &'e Entry) -> &'e Head {
        self.form.map_or(&entry.head, |form| &form.head)
    }

    /// Returns the body of the response.
    pub(crate) fn body(&self, entry: &'e Entry) -> &'e Body {
        self.form.map_or(&entry.body, |form| &form.body)
    }

    /// Returns `true` if the client may have the response in a coding. Its `ETag` in a 304 is weak
    /// then: a strong one would not validate the stored response of a client whose `ETag` is weak
    /// (RFC 9111 section 4.3.4).
    pub(crate) const fn has_weak_tag(&self) -> bool {
        self.coding.is_some()
    }

    /// Notes a hit whose form is missing. Returns the coding whose form the caller has to make now.
    #[inline]
    pub(crate) fn request(&self, entry: &Entry) -> Option<Coding> {
        let coding = self.coding.filter(|_| self.form.is_none())?;
        let forms = entry.head.view::<DerivedForms>()?;
        forms.requests().note(coding.index()).then_some(coding)
    }
}
