//! Heads of stored responses that may have derived forms, and the heads of the forms.

use forebay_engine::{Body, DerivedForm, DerivedForms, Entry, Head};
use forebay_semantics::ResponseRef;
use forebay_semantics::coding::Coding;
use forebay_semantics::coding::encoded::{add_vary, depends_on_coding, encode_fields, may_encode};
use http::HeaderMap;

use crate::settings::CompressSettings;
use crate::stored::head::Answer;

/// Adds `Vary: Accept-Encoding` to a response that clients may get in a coding.
pub(crate) fn mark(settings: Option<&CompressSettings>, headers: &mut HeaderMap) {
    if settings.is_some_and(|settings| depends_on_coding(headers, &settings.types)) {
        add_vary(headers);
    }
}

/// Creates the head of an entry. It may have derived forms if its response may be encoded; those of
/// `prior`, which has the same body, are kept.
pub(crate) fn head(
    settings: Option<&CompressSettings>,
    answer: &mut Answer,
    prior: Option<&Entry>,
) -> Head {
    let Some(settings) = settings else { return answer.to_head() };
    mark(Some(settings), &mut answer.headers);
    let response = ResponseRef { status: answer.status, headers: &answer.headers };
    if !may_encode(response, &settings.types) {
        return answer.to_head();
    }
    let known = prior.and_then(|prior| prior.head.view::<DerivedForms>());
    let forms = known.map_or_else(DerivedForms::default, |known| {
        known.with_heads(|index, form| {
            Some(form_head(answer, *Coding::ALL.get(index)?, form.body.length()?))
        })
    });
    answer.to_head().with_forms(forms)
}

/// Creates the form of an entry in a coding. `None` if the head of the entry is invalid.
pub(crate) fn form(entry: &Entry, coding: Coding, bytes: Vec<u8>) -> Option<DerivedForm> {
    let answer = Answer::of(entry)?;
    let head = form_head(&answer, coding, bytes.len() as u64);
    // The encoder's spare capacity would not be charged.
    let bytes = bytes.into_boxed_slice();
    Some(DerivedForm { head, body: Body::whole(bytes.into()) })
}

fn form_head(answer: &Answer, coding: Coding, length: u64) -> Head {
    let mut encoded = answer.clone();
    encode_fields(&mut encoded.headers, coding, Some(length));
    encoded.to_head()
}
