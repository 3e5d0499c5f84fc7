//! HTTP caching semantics as pure functions.
//!
//! | rule | RFC | file |
//! |---|---|---|
//! | Cache-Control directives of request and response | 9111 section 5.2, 5.4; 5861; 8246 | [`directives`] |
//! | targeted cache control fields | 9213 | [`policy`] |
//! | storability of a response, with the reason against it | 9111 sections 3, 3.5, 5.2.2.3 | [`mod@storable`] |
//! | fields that may not be stored | 9111 sections 5.2.2.4, 5.2.2.7 | [`withheld`] |
//! | freshness lifetime and age | 9111 section 4.2; 5861 | [`mod@lifetime`] |
//! | requirements of a request | 9111 section 5.2.1 | [`mod@demand`] |
//! | request fields that select a variant | 9111 section 4.1 | [`vary`] |
//! | conditional requests to the origin, 304 to clients | 9110 section 13; 9111 sections 3.2, 4.3 | [`validate`] |
//! | updates of a stored response by a later one | 9111 section 4.3 | [`freshen`] |
//! | ranges of a stored body | 9110 section 14 | [`mod@range`], [`multipart`] |
//! | partial responses of the origin | 9110 section 14.4; 9111 sections 3.3, 3.4 | [`partial`] |
//! | invalidation by POST, PUT or DELETE | 9111 section 4.4 | [`unsafe_methods`] |
//! | cache groups | 9875 | [`mod@groups`] |
//! | hop-by-hop fields, `Via` | 9110 sections 7.6.1, 7.6.3 | [`hop`] |
//! | request loops | 8586 | [`cdn_loop`] |
//! | trailers | 9110 section 6.5 | [`trailers`] |
//! | forwarding fields for the origin | 9110 section 7.6; 7239 | [`forwarding`] |
//! | client behind trusted proxies | 7239 | [`client_address`], [`networks`] |
//! | `Cache-Status` | 9211 | [`status`] |
//! | dates | 9110 section 5.6.7; 9111 section 4.2 | [`date`] |
//!
//! [`rules`] lists every rule of these RFCs with its implementation and its test.
//!
//! No function fails: malformed fields are interpreted as the RFCs define, and where they leave a
//! choice, in the stricter way. A field that can mean both "store" and "do not store" means "do not
//! store".
//!
//! Deliberately absent: a clock (the current date is an argument), I/O, bodies, configuration, and
//! everything that depends on stored entries.

pub mod cdn_loop;
pub mod client_address;
pub mod date;
pub mod demand;
pub mod directives;
mod fields;
pub mod forwarding;
pub mod freshen;
pub mod groups;
pub mod hop;
pub mod lifetime;
pub mod multipart;
pub mod networks;
pub mod partial;
pub mod policy;
mod preferences;
pub mod range;
pub mod rules;
#[cfg(test)]
mod samples;
mod scheme;
mod spacing;
pub mod status;
pub mod storable;
pub mod trailers;
pub mod unsafe_methods;
pub mod validate;
pub mod vary;
pub mod withheld;

pub use demand::demand;
pub use directives::{Directives, Scope};
pub use fields::FieldLines;
pub use lifetime::{initial_age, lifetime};
pub use networks::{Networks, PeerAddress};
pub use policy::Policy;
pub use range::{SingleRange, Wanted, range, ranges};
pub use scheme::Scheme;
pub use status::{CacheStatus, Forward, Handling, forward_reason};
pub use storable::{
    RequestRef, ResponseRef, Rules, Storable, Unstorable, check_storable, check_storable_part,
    storable,
};
pub use unsafe_methods::{Target, also_invalidated, invalidates, is_safe};
pub use vary::{Selects, selecting_value, selects};
pub use withheld::Withheld;
