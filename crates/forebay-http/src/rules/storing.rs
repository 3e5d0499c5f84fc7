//! Storing of one response: its edits, and the options that rules set for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::WallTime;
use forebay_rules::setting::{ByStatus, StripSetCookie, UnsafeWord};
use forebay_rules::{KeyedFields, Kind, Outcome, Rule, Setting};
use forebay_semantics::{
    Forced, Ignored, ProductField, Rules, SetCookieRemoval, Unstorable, product_fields,
};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, StatusCode};

use super::{KeyedCredentials, RequestRules, RoutedRequest, Values};
use crate::metrics::rules::RuleError;
use crate::site::Site;
use crate::site::tags::TagSources;
use crate::stored::head::Answer;
use crate::transform::TransformFailed;

/// Statuses to which a plain `default_ttl` applies: those that allow a heuristic lifetime (RFC 9110
/// section 15.1).
const fn is_heuristic(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Maximum lifetime of a response that is stored for one user, unless a rule sets it.
const PER_USER_TTL_MAX: Duration = Duration::from_secs(300);

/// Statuses to which a plain `negative_ttl` applies.
const fn is_negative(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 410 | 414 | 501)
}

/// Changes by rules that affect whether a response is stored.
#[derive(Debug, Default)]
pub(crate) struct RuleChanges {
    /// Reason against storing the response.
    refused: OnceLock<Unstorable>,
    cookie_removed: AtomicBool,
    transform_failed: AtomicBool,
}

impl RuleChanges {
    /// Records that an edit failed: nothing is stored.
    pub(crate) fn fail(&self) {
        self.refuse(Unstorable::EditFailed);
    }

    /// Records a reason against storing the response. The first one is kept.
    pub(crate) fn refuse(&self, why: Unstorable) {
        let _ = self.refused.set(why);
    }

    /// Records that a transform failed: the client gets an error response.
    pub(crate) fn fail_transform(&self) {
        self.transform_failed.store(true, Ordering::Relaxed);
    }

    /// Returns true if a transform failed.
    pub(crate) fn has_failed_transform(&self) -> bool {
        self.transform_failed.load(Ordering::Relaxed)
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

    /// Returns true if a rule or transform may shape or prevent the entry of a GET of this URL, or
    /// may have shaped the response to this request. `get` is the request as a GET.
    pub(crate) fn may_shape_entry(&self, site: &Site, get: &RoutedRequest<'_, HeaderMap>) -> bool {
        let set = &site.settings.rule_set;
        !site.settings.transforms.is_empty()
            || set.may_shape(&self.matched)
            || set.may_shape(&Self::new(site, get).matched)
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
        if self.edit_failed {
            return Err(Unstorable::EditFailed);
        }
        if let Some(why) = changes.refused.get() {
            return Err(*why);
        }
        let outcome = self.response_outcome(site, answer.status, &answer.headers);
        if outcome.last(Kind::Store).is_some() {
            return Err(Unstorable::Rule);
        }
        let mut forced = forced(&outcome, answer.status);
        if self.is_unsafe {
            let is_read = outcome.rule_of(Kind::Ttl).is_some_and(Rule::is_of_queries);
            forced.ttl = forced.ttl.filter(|_| is_read);
            forced.default_ttl = None;
        }
        if changes.cookie_removed.load(Ordering::Relaxed) {
            forced.set_cookie = SetCookieRemoval::Removed;
        }
        if self.keyed != KeyedCredentials::Some {
            forced.ignored = forced.ignored.with(Ignored::COOKIE);
        }
        if self.keyed == KeyedCredentials::User {
            limit_to_user(&outcome, &mut forced);
        }
        Ok(Rules { forced, ..rules })
    }

    /// Returns true if a rule about GraphQL queries gives the response a lifetime.
    pub(crate) fn gives_query_lifetime(
        &self,
        site: &Site,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> bool {
        if !self.is_query {
            return false;
        }
        let outcome = self.response_outcome(site, status, headers);
        outcome.rule_of(Kind::Ttl).is_some_and(Rule::is_of_queries)
            && forced(&outcome, status).ttl.is_some_and(|ttl| !ttl.is_zero())
    }

    /// Returns the reason of key parts and echoes against storing a response, before cookies are taken
    /// out of it.
    pub(crate) fn keyed_refusal(
        &self,
        site: &Site,
        asked: &HeaderMap,
        status: StatusCode,
        answered: &HeaderMap,
    ) -> Option<Unstorable> {
        let set = &site.settings.rule_set;
        if let Some(keyed) = self.keyed_fields(site)
            && answered.get_all(SET_COOKIE).iter().any(|line| sets_one_of(&keyed, line.as_bytes()))
        {
            return Some(Unstorable::KeyedCookie);
        }
        if !set.uses(Kind::RequireEcho) {
            return None;
        }
        let outcome = self.response_outcome(site, status, answered);
        let mut names = outcome.all(Kind::RequireEcho).flat_map(|setting| match setting {
            Setting::RequireEcho(names) => names.as_slice(),
            _ => &[],
        });
        let differs = |name: &HeaderName| {
            // A 304 may omit fields of the stored response.
            let is_omitted = status == StatusCode::NOT_MODIFIED && !answered.contains_key(name);
            !is_omitted && !asked.get_all(name).iter().eq(answered.get_all(name))
        };
        names.any(differs).then_some(Unstorable::NoEcho)
    }

    /// Returns true if a rule may cut the JSON body of the response, so that it is requested whole and
    /// without a coding.
    pub(crate) fn may_cut_json(&self, site: &Site) -> bool {
        let set = &site.settings.rule_set;
        set.uses(Kind::Json)
            && (self.outcome(site).has_any(&[Kind::Json])
                || set.may_apply(&self.matched, &[Kind::Json]))
    }

    /// Translates fields of other products that rules name, and removes them.
    pub(crate) fn translate_product_fields(
        &self,
        site: &Site,
        status: StatusCode,
        headers: &mut HeaderMap,
        received: WallTime,
    ) {
        if !site.settings.rule_set.uses(Kind::TargetedFields) {
            return;
        }
        let outcome = self.response_outcome(site, status, headers);
        let fields: Vec<ProductField> = outcome
            .all(Kind::TargetedFields)
            .flat_map(|setting| match setting {
                Setting::TargetedFields(fields) => fields.as_slice(),
                _ => &[],
            })
            .copied()
            .collect();
        if !fields.is_empty() {
            product_fields::translate(headers, &fields, received);
        }
    }

    /// Returns the response fields with tags, and the tags that rules add.
    pub(crate) fn tag_sources<'s>(&self, site: &'s Site, answer: &Answer) -> TagSources<'s> {
        let set = &site.settings.rule_set;
        let mut sources = TagSources::default();
        if !set.uses(Kind::TagFields) && !set.uses(Kind::Tags) {
            return sources;
        }
        let outcome = self.response_outcome(site, answer.status, &answer.headers);
        for setting in outcome.all(Kind::TagFields).chain(outcome.all(Kind::Tags)) {
            match setting {
                Setting::TagFields(names) => {
                    sources.fields.extend(names.iter().map(HeaderName::as_str));
                }
                Setting::Tags(tags) => sources.tags.extend(tags.iter().map(|tag| &**tag)),
                _ => {}
            }
        }
        sources
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

    /// Counts the rules with conditions on the response that match a response of the origin.
    pub(crate) fn count_response(&self, site: &Site, status: StatusCode, headers: &HeaderMap) {
        let set = &site.settings.rule_set;
        if self.is_counted {
            let outcome = self.response_outcome(site, status, headers);
            let rules = outcome.rules().filter(|rule| set.is_of_response(*rule));
            site.rule_counters.count_matches(rules);
        }
    }

    /// Counts the prohibitions that rules ignore and without which the response would not be stored.
    /// `is_stored` returns true if it would be stored with these options.
    pub(crate) fn count_unsafe(
        &self,
        site: &Site,
        answer: &Answer,
        options: &Rules,
        is_stored: impl Fn(&Rules) -> bool,
    ) {
        let outcome = self.response_outcome(site, answer.status, &answer.headers);
        for rule in outcome.numbers(Kind::UnsafeIgnore).filter(|_| self.is_counted) {
            let setting = site.settings.rule_set.rules()[rule].setting(Kind::UnsafeIgnore);
            let Some(Setting::UnsafeIgnore(words)) = setting else { continue };
            for word in words {
                let mut strict = *options;
                strict.forced.ignored = strict.forced.ignored.without(prohibition(*word));
                if !is_stored(&strict) {
                    site.rule_counters.count_unsafe(rule, *word);
                }
            }
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
        for (rule, edits) in outcome.edits(Kind::OriginResponse) {
            let result = if status == StatusCode::NOT_MODIFIED {
                edits.apply_to_update(headers, &values)
            } else {
                edits.apply(headers, &values)
            };
            if result.is_err() {
                applied = false;
                self.count_error(site, rule, RuleError::Value);
            }
        }
        applied
    }

    /// Runs the transforms of a response of the origin. `seen` has the fields of the client's request.
    pub(crate) fn transform_origin_response(
        &self,
        site: &Site,
        seen: &HeaderMap,
        status: StatusCode,
        headers: &mut HeaderMap,
        values: &Values<'_>,
    ) -> Result<bool, TransformFailed> {
        let transforms = &site.settings.transforms;
        if transforms.is_empty() {
            return Ok(true);
        }
        let run = transforms.origin_response(values.asked(), seen, status, headers);
        run.inspect_err(|failed| self.count_failed_transform(site, *failed))
    }
}

/// Returns true if a value of `Set-Cookie` sets a cookie in the key.
fn sets_one_of(keyed: &KeyedFields<'_>, line: &[u8]) -> bool {
    let name = line.split(|byte| matches!(byte, b'=' | b';')).next().unwrap_or_default();
    str::from_utf8(name.trim_ascii()).is_ok_and(|name| keyed.has_cookie(name))
}

/// Lets a response be stored for one user: its prohibitions are about others.
fn limit_to_user(outcome: &Outcome<'_>, forced: &mut Forced) {
    let max = match outcome.last(Kind::PerUserTtlMax) {
        Some(Setting::PerUserTtlMax(max)) => *max,
        _ => PER_USER_TTL_MAX,
    };
    forced.ignored = forced.ignored.with(Ignored::PRIVATE).with(Ignored::AUTHORIZATION);
    forced.max_ttl = Some(forced.max_ttl.map_or(max, |other| other.min(max)));
    forced.stale_while_revalidate = Some(Duration::ZERO);
    forced.stale_if_error = Some(Duration::ZERO);
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
    words.fold(Ignored::default(), |ignored, word| ignored.with(prohibition(*word)))
}

/// Returns the prohibition that a word ignores.
const fn prohibition(word: UnsafeWord) -> Ignored {
    match word {
        UnsafeWord::Private => Ignored::PRIVATE,
        UnsafeWord::NoStore => Ignored::NO_STORE,
        UnsafeWord::SetCookie => Ignored::SET_COOKIE,
        UnsafeWord::Authorization => Ignored::AUTHORIZATION,
        UnsafeWord::Cookie => Ignored::COOKIE,
    }
}
