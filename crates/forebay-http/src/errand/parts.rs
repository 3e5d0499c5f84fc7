//! A request for a part of a body that is not stored whole.
//!
//! What is asked of the origin is a matter of size. The whole is fetched once, for everybody, and
//! parts are cut from it as they come: unless it is larger than what is kept, or the part lies at
//! its end, where the whole of it would have to come first. Then the origin is asked for the part,
//! and that is stored beside others of the same body. A tier below memory that has the whole is
//! asked first: it reads no more than the part.

use std::sync::Arc;

use forebay_core::{Presence, Why};
use forebay_engine::{Ask, Coalesce, Entry, Look, Obtained, Via, Wanting};
use forebay_semantics::range::{Begins, begins};
use http::header::{IF_RANGE, RANGE};
use http::{HeaderMap, Method};

use super::{Done, Errand, Sought, cache_label, failure_of};
use crate::deliver::{Asker, announced, deliver_part};
use crate::head::Answer;
use crate::load::{BelowOnly, PartLoad};
use crate::partial::{self, Partial};

/// A body of more than this is not fetched whole for the sake of a part. One that is as large as
/// this still comes within a second over most lines, and whoever wants a part mostly wants more.
const WHOLE_MAX: u64 = 16 << 20;

/// What those who look for a whole below memory share: not what others load meanwhile.
const BELOW: &[u8] = b"below";

/// What stored parts could do for a request.
pub(super) enum Partly {
    /// It is answered, by them or by one that was asked for.
    Done(Done),
    /// The whole is to be asked for.
    Whole(Sends),
}

/// Whether the origin sends parts of the body in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sends {
    /// As far as anybody knows.
    Parts,
    /// It was asked for one a while ago, and sent something else.
    WholeOnly,
}

impl Errand<'_> {
    /// Answers with stored parts, or with one that has to be asked for.
    pub(super) async fn answer_partly(&self, sought: Sought<'_>) -> Partly {
        let headers = sought.load.headers();
        if !headers.contains_key(RANGE) {
            return Partly::Whole(Sends::Parts);
        }
        let key = partial::key_of(sought.key.borrowed());
        let look =
            self.service.engine().look(&self.ask(key.borrowed(), sought.demand, sought.load));
        let known = match &look {
            Look::Served(obtained) => Partial::of(&obtained.entry),
            Look::Wanting(wanting) => wanting.prior().and_then(|prior| Partial::of(prior)),
        };
        if let Look::Served(obtained) = &look {
            if known.as_ref().is_some_and(|known| known.parts.spans().is_empty()) {
                return Partly::Whole(Sends::WholeOnly);
            }
            if let Some(done) = self.deliver_part(sought, obtained) {
                return Partly::Done(done);
            }
        }
        let complete = known.as_ref().and_then(|known| known.parts.complete());
        // What may not be kept is asked for as the client asks for it, one way or the other.
        let keeps_nothing = sought.demand.only_if_cached || sought.demand.no_store;
        if keeps_nothing || !self.is_asked_for_alone(headers, complete) {
            return Partly::Whole(Sends::Parts);
        }
        if let Some(done) = self.cut_below(sought).await {
            return Partly::Done(done);
        }
        let why = if known.is_some() { Why::Partial } else { self.why };
        self.ask_for_part(sought, why).await
    }

    /// The part, out of a whole that a lower tier has.
    async fn cut_below(&self, sought: Sought<'_>) -> Option<Done> {
        let engine = self.service.engine();
        engine.lower_tiers().next()?;
        let Look::Wanting(wanting) = self.look_whole(sought) else { return None };
        let wanting = wanting.about(sought.key.borrowed(), BELOW);
        let ask = self.ask(sought.key.borrowed(), sought.demand, sought.load);
        let obtained = engine.fetch(&ask, wanting, BelowOnly(sought.load.clone())).await.ok()?;
        let is_stored = matches!(obtained.via, Via::Tier(_) | Via::Followed);
        is_stored.then(|| self.deliver(sought, &obtained, &Method::GET))
    }

    /// Whether a range is asked of the origin without the rest.
    fn is_asked_for_alone(&self, headers: &HeaderMap, complete: Option<u64>) -> bool {
        match (complete, begins(headers)) {
            (_, None) => false,
            (Some(length), Some(_)) => length > self.whole_max(),
            (None, Some(Begins::At(first))) => first >= self.whole_max(),
            (None, Some(Begins::BeforeEnd(_))) => true,
        }
    }

    fn whole_max(&self) -> u64 {
        WHOLE_MAX.min(self.service.engine().memory().object_max(Presence::Present))
    }

    /// The whole; but where its head says that it is too large for that, the part that is wanted.
    pub(super) async fn whole_or_part(
        &self,
        sought: Sought<'_>,
        wanting: Wanting,
        sends: Sends,
    ) -> Done {
        let obtained = match self.obtain_whole(sought, wanting).await {
            Ok(obtained) => obtained,
            Err(failure) => return self.failed(&failure, sought.load.headers()),
        };
        if sends == Sends::WholeOnly || !self.is_too_large(sought.load.headers(), &obtained.entry) {
            return self.deliver(sought, &obtained, &Method::GET);
        }
        // Nobody reads it any more for this request: a body that is not kept ends here.
        drop(obtained);
        match self.ask_for_part(sought, self.why).await {
            Partly::Done(done) => done,
            Partly::Whole(_) => match self.look_whole(sought) {
                Look::Served(obtained) => self.deliver(sought, &obtained, &Method::GET),
                Look::Wanting(wanting) => self.fetch_whole(sought, wanting, &Method::GET).await,
            },
        }
    }

    fn look_whole(&self, Sought { key, demand, load }: Sought<'_>) -> Look {
        self.service.engine().look(&self.ask(key.borrowed(), demand, load))
    }

    /// What begins at the first byte is as good as the whole.
    fn is_too_large(&self, headers: &HeaderMap, entry: &Entry) -> bool {
        let begins_later = !matches!(begins(headers), None | Some(Begins::At(0)));
        let length = || announced(&*Answer::of(entry)?, entry);
        begins_later
            && !entry.body.is_whole()
            && length().is_some_and(|length| length > self.whole_max())
    }

    /// Those who ask for the same range share what comes. What was brought by somebody else in the
    /// meantime may not hold it: then this one asks alone.
    async fn ask_for_part(&self, sought: Sought<'_>, why: Why) -> Partly {
        let engine = self.service.engine();
        let key = partial::key_of(sought.key.borrowed());
        let question = question(sought.load.headers());
        // Parts are put together by each instance for itself.
        let here = self.site.settings.coalesce.within_instance();
        for coalesce in [here, Coalesce::Nowhere] {
            let ask = Ask { coalesce, ..self.ask(key.borrowed(), sought.demand, sought.load) };
            let wanting = match engine.look(&ask) {
                Look::Served(obtained) => engine.lacking(&ask, obtained),
                Look::Wanting(wanting) if wanting.is_served_first() => wanting.lacking(),
                Look::Wanting(wanting) => wanting,
            };
            let wanting = wanting.about(key.borrowed(), &question);
            let load = PartLoad(sought.load.clone());
            let obtained = match engine.fetch(&ask, wanting, load).await {
                Ok(obtained) => Obtained { why: Some(why), ..obtained },
                Err(error) => {
                    return Partly::Done(self.failed(&failure_of(error), sought.load.headers()));
                }
            };
            if obtained.entry.head.view::<Partial>().is_none() {
                return Partly::Done(self.deliver(sought, &obtained, &Method::GET));
            }
            if let Some(whole) = sought.load.learned().whole.lock().take() {
                let whole = Obtained { why: Some(why), ..whole };
                return Partly::Done(self.deliver(sought, &whole, &Method::GET));
            }
            if is_refusal(&obtained.entry) {
                return Partly::Whole(Sends::WholeOnly);
            }
            if let Some(done) = self.deliver_part(sought, &obtained) {
                return Partly::Done(done);
            }
        }
        Partly::Whole(Sends::WholeOnly)
    }

    fn deliver_part(&self, sought: Sought<'_>, obtained: &Obtained) -> Option<Done> {
        let asker = Asker { method: &Method::GET, headers: sought.load.headers() };
        let now = self.service.engine().clock().now();
        let response = deliver_part(asker, obtained, (sought.load.learned(), now))?;
        self.count(obtained);
        let why = Some(obtained.why.unwrap_or(self.why));
        Some(Done { response, cache: cache_label(obtained), why })
    }
}

/// Whether an entry says that there are no parts to be had.
fn is_refusal(entry: &Arc<Entry>) -> bool {
    Partial::of(entry).is_none_or(|known| known.parts.spans().is_empty())
}

/// What tells one range from another: those who ask for the same may share an answer.
fn question(headers: &HeaderMap) -> Vec<u8> {
    let mut question = Vec::new();
    for name in [RANGE, IF_RANGE] {
        for value in headers.get_all(name) {
            question.extend_from_slice(value.as_bytes());
        }
        // No value of a field holds a line break.
        question.push(b'\n');
    }
    question
}
