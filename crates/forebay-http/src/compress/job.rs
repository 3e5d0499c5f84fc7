//! One derived form, from the request for it to the entry that has it.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Vary};
use forebay_engine::{Body, DerivedForms, Engine, Entry, FormAdded, FormRequests, Select};
use forebay_semantics::coding::Coding;

use super::{encoder, stored};
use crate::metrics::CompressionCounts;

/// Maximum length of a form, in percent of the body: a form that saves less is not worth its memory.
const PERCENT_MAX: u64 = 90;

/// Derived form to be made. It holds no body, so that a queued job keeps nothing in memory.
pub(crate) struct FormJob {
    engine: Arc<Engine>,
    key: Key,
    selection: Selection,
    requests: FormRequests,
    coding: Coding,
    counts: CompressionCounts,
}

/// Selecting fields of the request that wanted the form.
struct Selection {
    fields: Vec<SelectingField>,
    variants_max: usize,
}

struct SelectingField {
    name: Box<str>,
    /// `None` if the request does not have the field.
    value: Option<Vec<u8>>,
}

impl Select for Selection {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let field = self.fields.iter().find(|field| &*field.name == name)?;
        Some(Cow::Borrowed(field.value.as_deref()?))
    }

    fn variants_max(&self) -> usize {
        self.variants_max
    }
}

impl FormJob {
    /// Creates the job for the entry of a request. `None` if the entry has no forms.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        key: KeyRef<'_>,
        select: &dyn Select,
        entry: &Entry,
        coding: Coding,
        counts: CompressionCounts,
    ) -> Option<Self> {
        let requests = entry.head.view::<DerivedForms>()?.requests().clone();
        let names = entry.meta.vary().into_iter().flat_map(Vary::names);
        let value = |name: &str| select.field(name).map(Cow::into_owned);
        let field = |name: &str| SelectingField { name: name.into(), value: value(name) };
        let fields = names.map(field).collect();
        let selection = Selection { fields, variants_max: select.variants_max() };
        let (engine, key) = (engine.clone(), key.to_key());
        Some(Self { engine, key, selection, requests, coding, counts })
    }

    /// Gives up, because too many jobs wait. The next request for the form tries again.
    pub(crate) fn refuse(self) {
        self.counts.busy();
        self.requests.postpone(self.coding.index());
    }

    /// Returns the counters of the job.
    pub(crate) const fn counts(&self) -> &CompressionCounts {
        &self.counts
    }

    /// Makes the form, and adds it to the entry, if memory still holds its body.
    pub(crate) fn run(self) {
        let Self { engine, key, selection, requests, coding, counts } = self;
        let key = key.borrowed();
        let Some(entry) = engine.entry_with_forms(key, &selection, &requests) else { return };
        let Some(length) = entry.body.length() else { return };
        let begun = engine.clock().exact();
        let limit = length / 100 * PERCENT_MAX + length % 100 * PERCENT_MAX / 100;
        let made = encoder::encode(coding, length, pieces(&entry.body), limit);
        // Not held while the form is added: the body of an evicted entry is charged to its holders.
        drop(entry);
        let bytes = match made {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return counts.larger(),
            Err(error) => {
                counts.failed();
                tracing::warn!(
                    coding = coding.name(),
                    length,
                    cause = %error,
                    "compression of a stored response failed: clients get it without this coding"
                );
                return;
            }
        };
        let (took, after) = (engine.clock().exact().saturating_sub(begun), bytes.len() as u64);
        let add = |entry: &Entry| stored::form(entry, coding, bytes);
        match engine.add_form(key, &selection, &requests, coding.index(), add) {
            FormAdded::Added => counts.made(took, length, after),
            FormAdded::TooLarge => counts.larger(),
            FormAdded::Gone => {
                counts.made(took, length, after);
                requests.postpone(coding.index());
            }
        }
    }
}

/// Pieces of a body in memory.
fn pieces(body: &Body) -> impl Iterator<Item = io::Result<Bytes>> {
    let mut reader = body.reader();
    std::iter::from_fn(move || match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(piece) => piece.map(|piece| piece.map_err(io::Error::other)),
        Poll::Pending => Some(Err(io::Error::other("the body is not in memory"))),
    })
}
