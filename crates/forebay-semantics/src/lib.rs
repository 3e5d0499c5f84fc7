//! HTTP caching semantics as pure functions.
//!
//! | rule | RFC | file |
//! |---|---|---|
//! | Cache-Control directives of request and response | 9111 section 5.2, 5.4; 5861; 8246 | [`directives`] |
//! | targeted cache control fields | 9213 | [`policy`] |
//! | fields of other products' caches | none | [`product_fields`] |
//! | storability of a response, with the reason against it | 9111 sections 3, 3.5, 5.2.2.3 | [`mod@storable`] |
//! | reasons of a decision, with the field that decided and advice | all of these | [`advice`] |
//! | fields that may not be stored | 9111 sections 5.2.2.4, 5.2.2.7 | [`withheld`] |
//! | freshness lifetime and age | 9111 section 4.2; 5861 | [`mod@lifetime`] |
//! | requirements of a request | 9111 section 5.2.1 | [`mod@demand`] |
//! | request fields that select a variant | 9111 section 4.1 | [`vary`] |
//! | queries on which a response does not depend | draft-ietf-httpbis-no-vary-search-05 | [`search_variance`] |
//! | choice of a language or media type | 9110 section 12.5 | [`choice`] |
//! | conditional requests to the origin, 304 to clients | 9110 section 13; 9111 sections 3.2, 4.3 | [`validate`] |
//! | updates of a stored response by a later one | 9111 section 4.3 | [`freshen`] |
//! | ranges of a stored body | 9110 section 14 | [`mod@range`], [`multipart`] |
//! | content codings of the cache, `Accept-Encoding` | 9110 sections 8.4, 12.5.3 | [`coding`] |
//! | media type against the extension of the path | none | [`media_type`] |
//! | partial responses of the origin | 9110 section 14.4; 9111 sections 3.3, 3.4 | [`partial`] |
//! | invalidation by POST, PUT or DELETE | 9111 section 4.4 | [`unsafe_methods`] |
//! | cache groups | 9875 | [`mod@groups`] |
//! | hop-by-hop fields, `Via` | 9110 sections 7.6.1, 7.6.3 | [`hop`] |
//! | ids of distributed traces | W3C Trace Context | [`trace_context`] |
//! | request loops | 8586 | [`cdn_loop`] |
//! | trailers | 9110 section 6.5 | [`trailers`] |
//! | forwarding fields for the origin | 9110 section 7.6; 7239 | [`forwarding`] |
//! | client behind trusted proxies | 7239 | [`client_address`], [`networks`] |
//! | `Cache-Status` | 9211 | [`status`] |
//! | dates | 9110 section 5.6.7; 9111 section 4.2 | [`date`] |
//!
//! [`rules`] lists every rule of these RFCs with its implementation and its test.
//!
//! A malformed field is never an error: it is interpreted as the RFCs define, and where they leave
//! a choice, in the stricter way. A field that can mean both "store" and "do not store" means "do
//! not store".
//!
//! Deliberately absent: a clock (the current date is an argument), I/O, bodies, configuration, and
//! everything that depends on stored entries.

pub mod advice;
pub mod coding;
pub mod directives;
mod fields;
pub mod forwarding;
mod freshness;
mod invalidation;
pub mod media_type;
mod message;
mod ranges;
pub mod rules;
#[cfg(test)]
mod samples;
pub mod status;
pub mod storable;
mod validation;
mod variants;

pub use directives::policy::{self, Policy};
pub use directives::product_fields::{self, ProductField};
pub use directives::withheld::{self, Withheld};
pub use directives::{Directives, Scope};
pub use fields::raw::RawFields;
pub use fields::{CopyFields, FieldLines, FieldSink, date};
pub use forwarding::networks::{self, Networks, PeerAddress};
pub use forwarding::scheme::Scheme;
pub use forwarding::{cdn_loop, client_address, hop, trace_context, trailers};
pub use freshness::demand::{self, demand};
pub use freshness::lifetime::{self, SetBy, initial_age, lifetime};
pub use invalidation::groups;
pub use invalidation::unsafe_methods::{self, Target, also_invalidated, invalidates, is_safe};
pub use message::{Forced, Ignored, RequestRef, ResponseRef, Rules, SetCookieRemoval};
pub use ranges::range::{self, SingleRange, Wanted, range, ranges};
pub use ranges::{multipart, partial};
pub use status::{CacheStatus, Forward, Handling, forward_reason};
pub use storable::{
    Refusal, Storable, Unstorable, check_storable, check_storable_part, evaluate, storable,
};
pub use validation::{freshen, validate};
pub use variants::choice::{self, preferred_language, preferred_type};
pub use variants::search_variance::{self, SearchVariance};
pub use variants::vary::{self, Selects, selecting_value, selects};
