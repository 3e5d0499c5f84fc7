//! Storing of one response: its edits, and the options that rules set for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_rules::setting::{ByStatus, StripSetCookie, UnsafeWord};
use forebay_rules::{Kind, Outcome, Setting};
use forebay_semantics::{Forced, Ignored, Rules, SetCookieRemoval, Unstorable};
use http::{HeaderMap, StatusCode};

use super::{RequestRules, Values};
use crate::site::Site;
use crate::stored::head::Answer;

/// Statuses to which a plain `default_ttl` applies: those that allow a heuristic lifetime (RFC 9110
/// section 15.1).
const fn is_heuristic(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses to which a plain `negative_ttl` applies.
const fn is_negative(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 410 | 414 | 501)
}

/// Changes by rules that affect whether a response is stored.
#[derive(Debug, Default)]
pub(crate) struct RuleChanges {
    edit_failed: AtomicBool,
    cookie_removed: AtomicBool,
}

impl RuleChanges {
    /// Records that an edit failed: nothing is stored.
    pub(crate) fn fail(&self) {
        self.edit_failed.store(true, Ordering::Relaxed);
    }

    /// Records that `Set-Cookie` was removed.
    pub(crate) fn remove_cookie(&self) {
        self.cookie_removed.store(true, Ordering::Relaxed);
    }
}

impl RequestRules {
    /// Returns the rules that apply to a response.
    pub(crate) fn response_outcome<'s>(
        &self,
        site: &'s Site,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Outcome<'s> {
        site.settings.rule_set.response_outcome(&self.matched, status, headers)
    }

    /// Returns the options for storing a response.
    ///
    /// # Errors
    /// The reason against storing it, if a rule has one.
    pub(crate) fn storing(
        &self,
        site: &Site,
        answer: &Answer,
        changes: &RuleChanges,
    ) -> Result<Rules, Unstorable> {
        let rules = site.settings.rules;
        if site.settings.rule_set.is_empty() {
            return Ok(rules);
        }
        if self.edit_failed || changes.edit_failed.load(Ordering::Relaxed) {
            return Err(Unstorable::EditFailed);
        }
        let outcome = self.response_outcome(site, answer.status, &answer.headers);
        if outcome.last(Kind::Store).is_some() {
            return Err(Unstorable::Rule);
        }
        let mut forced = forced(&outcome, answer.status);
        if self.is_unsafe {
            (forced.ttl, forced.default_ttl) = (None, None);
        }
        if changes.cookie_removed.load(Ordering::Relaxed) {
            forced.set_cookie = SetCookieRemoval::Removed;
        }
        Ok(Rules { forced, ..rules })
    }

    /// Returns true if rules select the statuses that count as failures of the origin, and this is one
    /// of them; `None` if no rule does.
    pub(crate) fn is_failure(
        &self,
        site: &Site,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<bool> {
        if !site.settings.rule_set.uses(Kind::FailureStatus) {
            return None;
        }
        match self.response_outcome(site, status, headers).last(Kind::FailureStatus) {
            Some(Setting::FailureStatus(tests)) => {
                Some(tests.iter().any(|test| test.includes(status)))
            }
            _ => None,
        }
    }

    /// Returns the treatment of `Set-Cookie`.
    pub(crate) fn strip_set_cookie(
        &self,
        site: &Site,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<StripSetCookie> {
        match self.response_outcome(site, status, headers).last(Kind::StripSetCookie) {
            Some(Setting::StripSetCookie(strip)) => Some(*strip),
            _ => None,
        }
    }

    /// Applies the edits of a response of the origin. Returns false if one failed.
    pub(crate) fn edit_origin_response(
        &self,
        site: &Site,
        status: StatusCode,
        headers: &mut HeaderMap,
        values: &Values<'_>,
    ) -> bool {
        let outcome = self.response_outcome(site, status, headers);
        if !outcome.has_any(&[Kind::OriginResponse]) {
            return true;
        }
        let before = headers.clone();
        let values = Values { response: Some((status, &before)), ..*values };
        let mut applied = true;
        for edits in outcome.edits(Kind::OriginResponse) {
            let result = if status == StatusCode::NOT_MODIFIED {
                edits.apply_to_update(headers, &values)
            } else {
                edits.apply(headers, &values)
            };
            applied &= result.is_ok();
        }
        applied
    }
}

fn forced(outcome: &Outcome<'_>, status: StatusCode) -> Forced {
    let by_status = |kind, plain: fn(StatusCode) -> bool| match outcome.last(kind) {
        Some(Setting::Ttl(table) | Setting::DefaultTtl(table) | Setting::NegativeTtl(table)) => {
            table.of(status, plain)
        }
        _ => None,
    };
    let window = |kind| match outcome.last(kind) {
        Some(
            Setting::MinTtl(duration)
            | Setting::MaxTtl(duration)
            | Setting::StaleWhileRevalidate(duration)
            | Setting::StaleIfError(duration),
        ) => Some(*duration),
        _ => None,
    };
    let default: Option<Duration> = by_status(Kind::NegativeTtl, is_negative)
        .or_else(|| by_status(Kind::DefaultTtl, is_heuristic));
    Forced {
        ttl: by_status(Kind::Ttl, ByStatus::is_ttl_status),
        default_ttl: default,
        min_ttl: window(Kind::MinTtl),
        max_ttl: window(Kind::MaxTtl),
        stale_while_revalidate: window(Kind::StaleWhileRevalidate),
        stale_if_error: window(Kind::StaleIfError),
        set_cookie: SetCookieRemoval::None,
        ignored: ignored(outcome),
    }
}

fn ignored(outcome: &Outcome<'_>) -> Ignored {
    let words = outcome.all(Kind::UnsafeIgnore).flat_map(|setting| match setting {
        Setting::UnsafeIgnore(words) => words.as_slice(),
        _ => &[],
    });
    words.fold(Ignored::default(), |ignored, word| {
        ignored.with(match word {
            UnsafeWord::Private => Ignored::PRIVATE,
            UnsafeWord::NoStore => Ignored::NO_STORE,
            UnsafeWord::SetCookie => Ignored::SET_COOKIE,
            UnsafeWord::Authorization => Ignored::AUTHORIZATION,
            UnsafeWord::Cookie => Ignored::COOKIE,
        })
    })
}
