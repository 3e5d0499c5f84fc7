//! What HTTP says about caching, as pure functions.
//!
//! | rule | RFC | file |
//! |---|---|---|
//! | what the two ends said | 9111 section 5.2, 5.4; 5861; 8246 | [`directives`] |
//! | which fields of an answer rule its caching | 9213 | [`policy`] |
//! | may this answer be stored, and if not why | 9111 sections 3, 3.5, 5.2.2.3 | [`mod@storable`] |
//! | which of its fields are for one client | 9111 sections 5.2.2.4, 5.2.2.7 | [`withheld`] |
//! | how long it is fresh, how old it is | 9111 section 4.2; 5861 | [`mod@lifetime`] |
//! | what a request requires of an answer | 9111 section 5.2.1 | [`mod@demand`] |
//! | which request fields select a variant | 9111 section 4.1 | [`vary`] |
//! | asking the origin again, saying 304 | 9110 section 13; 9111 sections 3.2, 4.3 | [`validate`] |
//! | what an answer does to what is stored | 9111 section 4.3 | [`freshen`] |
//! | parts of a stored body | 9110 section 14 | [`mod@range`], [`multipart`] |
//! | parts that came | 9110 section 14.4; 9111 sections 3.3, 3.4 | [`partial`] |
//! | what a POST, PUT or DELETE makes invalid | 9111 section 4.4 | [`unsafe_methods`] |
//! | groups that change together | 9875 | [`mod@groups`] |
//! | what is for one connection only, `Via` | 9110 sections 7.6.1, 7.6.3 | [`hop`] |
//! | what may stand behind the body | 9110 section 6.5 | [`trailers`] |
//! | who the client is, said to the origin | 9110 section 7.6; 7239 | [`forwarding`] |
//! | saying what the cache did | 9211 | [`status`] |
//! | dates | 9110 section 5.6.7; 9111 section 4.2 | [`date`] |
//!
//! [`rules`] is the list of all the sentences, with what is done about each and its test.
//!
//! Nothing here fails: a malformed field has a meaning that the RFCs give it, and where they
//! leave a choice the stricter reading is taken. Where a field can be read as "keep this" or as
//! "do not", it means "do not".
//!
//! Deliberately absent: a clock (dates are compared with one that is handed in), I/O, bodies,
//! configuration, and everything that needs to know what is stored elsewhere.

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
pub mod partial;
pub mod policy;
mod preferences;
pub mod range;
pub mod rules;
#[cfg(test)]
mod samples;
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
pub use lifetime::{initial_age, lifetime};
pub use policy::Policy;
pub use range::{Ranged, Wanted, range, ranges};
pub use status::{CacheStatus, Fate, Forward, forward_reason};
pub use storable::{Answered, Asked, Kept, Rules, Unstorable, keep, keep_part, storable};
pub use unsafe_methods::{Target, also_invalidated, invalidates, is_safe};
pub use vary::{Selects, selecting_value, selects};
pub use withheld::Withheld;
