//! Choice of the requests to the origin: for a whole response, a missing part, or a validation.

use bytes::Bytes;
use forebay_core::Demand;
use forebay_engine::{
    Audience, Coalesce, Credentials, Entry, LoadError, Loaded, Lookup, LookupResult,
};
use forebay_semantics::partial::{ContentRange, Span, request_missing};
use forebay_semantics::validate;
use http::{HeaderMap, Method, StatusCode};

use super::{FetchMode, LoadState};
use crate::client::credentials;
use crate::origin::FetchRequest;
use crate::stored::head::Answer;
use crate::stored::partial::{self, Partial};

/// Maximum number of unconditional requests in one load. A single 304 to one may be a confusion of
/// the origin; a second is an error.
const ATTEMPTS_MAX: usize = 2;

/// Stored parts of a body, with their bytes in ascending order.
pub(super) struct StoredParts {
    pub(super) partial: Partial,
    pub(super) bytes: Bytes,
}

impl LoadState {
    pub(super) async fn load(
        &self,
        prior: Option<&Entry>,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        let is_for_one = self.fetch_mode == FetchMode::AsRequested && company == Audience::Single;
        match prior {
            // A private response is not the one that is stored.
            Some(_) if is_for_one && self.is_known_private() => {
                self.fetch_as_requested(prior).await
            }
            None if is_for_one => self.fetch_as_requested(None).await,
            Some(prior) => self.revalidate(prior, company).await,
            None => self.fetch_missing(company).await,
        }
    }

    fn is_known_private(&self) -> bool {
        let credentials = credentials(self.request.headers());
        self.engine.is_known_private(self.key.borrowed(), credentials)
    }

    /// Validates the stored response.
    async fn revalidate(&self, prior: &Entry, company: Audience) -> Result<Loaded, LoadError> {
        let stored = prior.meta.validator().and_then(|_| Answer::of(prior));
        let Some(validator) = stored.and_then(|stored| validate::validator(&stored.headers)) else {
            return match self.fetch_mode {
                FetchMode::Head => self.revalidate_by_head(prior, company).await,
                FetchMode::Whole | FetchMode::AsRequested => {
                    self.fetch_whole(Some(prior), company).await
                }
            };
        };
        let question = || {
            self.request.question(|fields| {
                validate::make_conditional(fields, &validator);
            })
        };
        let received = self.request.ask(question, company).await?;
        if received.response.status() != StatusCode::NOT_MODIFIED {
            return self.judge(received, Some(prior));
        }
        if let Some(unchanged) = self.unchanged(&received, prior) {
            return Ok(unchanged);
        }
        // RFC 9111 section 4.3.3: a 304 with another validator does not apply; the whole response
        // is requested.
        drop(received);
        self.fetch_whole(Some(prior), company).await
    }

    /// Fetches a response of which nothing or only parts are stored.
    async fn fetch_missing(&self, company: Audience) -> Result<Loaded, LoadError> {
        if let Some(loaded) = self.fetch_missing_part(company).await? {
            return Ok(loaded);
        }
        self.fetch_whole(None, company).await
    }

    /// RFC 9111 section 3.4: requests only the missing range if exactly one is missing. Parts that
    /// were purged before this load are not found.
    async fn fetch_missing_part(&self, company: Audience) -> Result<Option<Loaded>, LoadError> {
        let Some(stored) = self.stored_parts().await else { return Ok(None) };
        let ask = |fields: &mut HeaderMap| {
            request_missing(fields, &stored.partial.headers, &stored.partial.parts)
        };
        if !ask(&mut HeaderMap::new()) {
            return Ok(None);
        }
        let question = || {
            self.request.question(|fields| {
                ask(fields);
            })
        };
        let received = self.request.ask(question, company).await?;
        if received.response.status() != StatusCode::PARTIAL_CONTENT {
            return self.judge(received, None).map(Some);
        }
        self.complete_parts(received, &stored).await
    }

    async fn stored_parts(&self) -> Option<StoredParts> {
        let key = partial::key_of(self.key.borrowed());
        let select = &self.request;
        let (demand, credentials) = (&Demand::default(), Credentials::Anonymous);
        let ask = Lookup {
            key: key.borrowed(),
            demand,
            select,
            credentials,
            coalesce: Coalesce::Instance,
        };
        let entry = match self.engine.lookup(&ask) {
            LookupResult::Hit(obtained) => obtained.entry,
            LookupResult::Miss(wanting) => wanting.prior()?.clone(),
        };
        let stored = Partial::of(&entry)?.into_owned();
        // Several range requests would cost the origin more than the whole body.
        let mut all = stored.parts.clone();
        let (from, to) = all.missing()?;
        let complete = stored.parts.complete()?;
        let last = to.unwrap_or(complete.checked_sub(1)?);
        let gap = ContentRange { span: Span { first: from, last }, complete: Some(complete) };
        if stored.parts.spans().is_empty() || !all.insert(gap) || !all.is_whole() {
            return None;
        }
        let bytes = entry.body.reader().collect().await.ok()?;
        Some(StoredParts { partial: stored, bytes })
    }

    async fn fetch_whole(
        &self,
        prior: Option<&Entry>,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        for _ in 0..ATTEMPTS_MAX {
            let received = self.request.ask_unconditionally(company).await?;
            if received.response.status() != StatusCode::NOT_MODIFIED {
                return self.judge(received, prior);
            }
        }
        Err(LoadError::origin(
            "the origin answered 304 (not modified) twice to a request without conditions",
        ))
    }

    /// Requests the response under the client's range and conditions, because a private response is
    /// for this client only. Such conditions are evaluated by the origin (RFC 9110 section 13.2.1).
    async fn fetch_as_requested(&self, prior: Option<&Entry>) -> Result<Loaded, LoadError> {
        let client = self.request.headers();
        let question = || {
            self.request.question(|fields| {
                self.request.take_range(fields);
                validate::copy_conditions(fields, client);
            })
        };
        let received = self.request.ask(question, Audience::Single).await?;
        if received.response.status() != StatusCode::NOT_MODIFIED {
            let _ = self.details.judged_by_origin.set(());
            return self.judge(received, prior);
        }
        if validate::has_cache_conditions(client) {
            return self.judge_not_modified(received.response);
        }
        self.fetch_whole(prior, Audience::Single).await
    }

    /// Sends a HEAD about a stored response without a validator, for which a GET would transfer the
    /// whole body again.
    async fn revalidate_by_head(
        &self,
        prior: &Entry,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        let question = || FetchRequest { method: Method::HEAD, ..self.request.question(|_| {}) };
        let received = self.request.ask(question, company).await?;
        self.judge_head(received, prior).await
    }
}
