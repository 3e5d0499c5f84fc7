//! Explanation of one request: the data that `GET /explain` returns.
//!
//! The service makes it; this file has the data alone.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Text that is mostly constant.
pub type Text = Cow<'static, str>;

/// Explanation of one request at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// URL of the request.
    pub url: String,
    /// Method of the request.
    pub method: String,
    /// Id of the site; `None` if no site matches.
    pub site: Option<String>,
    /// Key of the request; `None` if it is not looked up.
    pub key: Option<KeyReport>,
    /// Expected course of the request.
    pub would: Would,
    /// Entries that are stored under the key, in memory and in lower tiers.
    pub stored: Vec<StoredReport>,
    /// Reasons against storing the response.
    pub storable: StorableReport,
    /// State of the key and of the origin at this moment.
    pub now: NowReport,
    /// Last loads of the key, the newest first.
    pub decisions: Vec<DecisionReport>,
    /// Response of the origin to a request for this report.
    pub live: Option<LiveReport>,
}

/// Key of a request, and its derivation from the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyReport {
    /// Scheme in the key.
    pub scheme: String,
    /// Host in the key.
    pub host: String,
    /// Target in the key, which the origin gets.
    pub target: String,
    /// Differences between the URL and the key, such as dropped parameters.
    pub changes: Vec<String>,
    /// Hash of the key in hexadecimal digits.
    pub hash: String,
}

/// Expected course of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Would {
    /// Course: `served`, `served-while-renewed`, `waits`, `loads`, `forwarded`, `refused`, or
    /// `answered-by-rule`.
    pub outcome: Text,
    /// Code of the reason why the response is no fresh hit; `None` for a fresh hit.
    pub why: Option<Text>,
    /// Value of `Cache-Status`. Without `fwd-status`, `stored` and `ttl` if the origin is asked,
    /// because they depend on its response.
    pub cache_status: String,
    /// Status code of the response, if it does not depend on the origin.
    pub status: Option<u16>,
    /// Tier that the response comes from, if it is stored.
    pub tier: Option<Text>,
    /// Number of requests that wait for the same load, if the request waits.
    pub waiting: Option<usize>,
    /// Causes for which the request is no fresh hit, the deciding one first; empty for a fresh hit.
    pub causes: Vec<Finding>,
}

/// Reason with the field that decided, and advice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable code, such as `private`.
    pub code: Text,
    /// Field, option or state that decided, such as `Cache-Control: private`.
    pub because: Text,
    /// Section of the RFC, or the part of forebay that has the rule.
    pub rule: Text,
    /// Sentence that says what to do.
    pub advice: Text,
}

/// Stored entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredReport {
    /// Tier, such as `memory`.
    pub tier: Text,
    /// True if the request selects this entry.
    pub selected: bool,
    /// Selecting fields with their values, `None` for an absent field; empty without variants.
    pub variant: Vec<(String, Option<String>)>,
    /// Status code.
    pub status: u16,
    /// Length of the body in bytes, if it is known.
    pub bytes: Option<u64>,
    /// Age in milliseconds.
    pub age_ms: u64,
    /// Freshness lifetime in milliseconds.
    pub lifetime_ms: u64,
    /// Code of the setter of the lifetime, such as `max-age`.
    pub set_by: Text,
    /// Field or option that set the lifetime.
    pub set_by_line: String,
    /// Time until the end of the freshness in milliseconds; negative after it.
    pub fresh_left_ms: i64,
    /// Time for which the entry may still be served while it is renewed, in milliseconds.
    pub stale_while_revalidate_left_ms: u64,
    /// Time for which the entry may still be served if a load fails, in milliseconds.
    pub stale_if_error_left_ms: u64,
    /// True if the origin forbids serving the entry stale.
    pub must_revalidate: bool,
    /// Tags by which the entry can be purged.
    pub tags: Vec<String>,
    /// Validator, such as `ETag: "v1"`.
    pub validator: Option<String>,
    /// Effect of purges: `none`, `soft`, `unverified` or `hard`.
    pub purge: Text,
}

/// Reasons against storing the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorableReport {
    /// Source of the judgement: `stored` response, last `decision`, `live` response, or `request`
    /// if no response is known.
    pub judged_from: Text,
    /// All reasons against storing, the deciding one first; empty if the response may be stored.
    pub objections: Vec<Finding>,
}

/// State of the key and of the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NowReport {
    /// Pass marker of the key.
    pub pass_marker: Option<PassMarkerReport>,
    /// Pause of the loads of the key after failures.
    pub back_off: Option<BackOffReport>,
    /// Load of the key that is under way.
    pub load: Option<LoadReport>,
    /// Circuit breaker of the origin; `None` if the site has none.
    pub breaker: Option<BreakerReport>,
    /// States of the lower tiers.
    pub tiers: Vec<TierState>,
}

/// Pass marker of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassMarkerReport {
    /// Time until its end in milliseconds.
    pub left_ms: u64,
    /// Reason: `not-shareable` or `never-fresh`.
    pub because: Text,
}

/// Pause of the loads of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOffReport {
    /// Time until the next load in milliseconds.
    pub left_ms: u64,
    /// Error of the last load.
    pub error: String,
}

/// Load that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Number of requests that wait for it besides the one that started it.
    pub waiting: usize,
    /// Time since its start in milliseconds.
    pub running_ms: u64,
    /// Holder of the lease: `this-instance`, or `other-instance` if this one waits for it.
    pub lease: Text,
}

/// Circuit breaker of an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerReport {
    /// State: `closed`, `half-open` or `open`.
    pub state: Text,
    /// Time until the next trial request in milliseconds, at most.
    pub left_ms: u64,
}

/// State of a lower tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierState {
    /// Name of the tier.
    pub name: Text,
    /// State: `ok`, `probing` or `bypassed`.
    pub state: Text,
    /// Failure of the read for this report.
    pub failure: Option<String>,
}

/// Decision about one load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// Time since the decision in milliseconds.
    pub ago_ms: u64,
    /// Time from the start of the load in milliseconds.
    pub took_ms: u64,
    /// Code of the reason why memory did not answer.
    pub why: Text,
    /// Result: `stored`, `confirmed`, `passed`, `failed`, `unanswered`, or `too-large`.
    pub result: Text,
    /// Status code of the origin; `None` if it did not answer.
    pub status: Option<u16>,
    /// Field that decided, or the error.
    pub line: String,
    /// Codes of all reasons against storing the response.
    pub objections: Vec<Text>,
}

/// Response of the origin to a request for a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveReport {
    /// Status code; `None` if the origin did not answer.
    pub status: Option<u16>,
    /// Fields that control caching; of `Set-Cookie` only the name.
    pub fields: Vec<String>,
    /// Field or option that would set the lifetime.
    pub set_by_line: String,
    /// Lifetime in milliseconds.
    pub lifetime_ms: u64,
    /// Error, if the origin did not answer.
    pub error: Option<String>,
}

impl Explanation {
    /// Returns true if the request would be answered with a fresh stored response.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        self.would.outcome == "served" && self.would.why.is_none()
    }
}
