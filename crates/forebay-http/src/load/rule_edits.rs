//! Edits of origin responses by rules.

use forebay_engine::LoadError;
use forebay_rules::setting::StripSetCookie;
use forebay_semantics::Unstorable;
use http::header::SET_COOKIE;
use http::{HeaderMap, Response, StatusCode};

use super::ClientRequest;
use crate::stored::head::Answer;

/// Cause of the error of a request whose transform failed.
const TRANSFORM_FAILED: &str = "a transform of the site failed; its warning in the log names it";

impl ClientRequest {
    /// Applies rules to a response of the origin: edits, and the removal of cookies that no client
    /// gets.
    pub(crate) fn edit_response<B>(&self, response: &mut Response<B>) {
        if self.site.settings.rule_set.is_empty() {
            return;
        }
        let status = response.status();
        self.rules.count_response(&self.site, status, response.headers());
        let refusal =
            self.rules.keyed_refusal(&self.site, self.headers(), status, response.headers());
        if let Some(why) = refusal {
            self.changes.refuse(why);
        }
        let headers = response.headers_mut();
        let is_removed = match self.rules.strip_set_cookie(&self.site, status, headers) {
            Some(StripSetCookie::Always) => true,
            // The cookie would replace one that the origin did not see.
            Some(StripSetCookie::Stored) => self.rules.dropped_cookies(),
            None => false,
        };
        if is_removed && headers.remove(SET_COOKIE).is_some() {
            self.changes.remove_cookie();
        }
        self.edit_fields(status, headers);
    }

    /// Applies the edits of rules to a response of the origin.
    pub(crate) fn edit_fields(&self, status: StatusCode, headers: &mut HeaderMap) {
        if self.site.settings.rule_set.is_empty() {
            return;
        }
        if !self.rules.edit_origin_response(&self.site, status, headers, &self.values()) {
            self.changes.fail();
        }
        let (rules, values) = (&self.rules, self.values());
        match rules.transform_origin_response(&self.site, self.headers(), status, headers, &values)
        {
            Ok(true) => {}
            Ok(false) => self.changes.refuse(Unstorable::Rule),
            Err(_) => self.changes.fail_transform(),
        }
        let received = self.clock.wall();
        self.rules.translate_product_fields(&self.site, status, headers, received);
    }

    /// Checks that the transforms of a request to the origin worked, before it is sent.
    pub(crate) fn check_request_transforms(&self) -> Result<(), LoadError> {
        match self.changes.has_failed_transform() {
            true => Err(LoadError::Panicked(TRANSFORM_FAILED.into())),
            false => Ok(()),
        }
    }

    /// Checks that the transforms of a response of the origin worked.
    pub(crate) fn check_response_transforms(&self) -> Result<(), LoadError> {
        match self.changes.has_failed_transform() {
            true => Err(LoadError::origin(TRANSFORM_FAILED)),
            false => Ok(()),
        }
    }

    /// Takes `Set-Cookie` out of a response, if a rule keeps it out of storage, and returns it for the
    /// client that caused the fetch.
    pub(crate) fn take_cookies(&self, answer: &mut Answer) -> HeaderMap {
        let mut own = HeaderMap::new();
        let strip = self.rules.strip_set_cookie(&self.site, answer.status, &answer.headers);
        if strip != Some(StripSetCookie::Stored) || !answer.headers.contains_key(SET_COOKIE) {
            return own;
        }
        for value in answer.headers.get_all(SET_COOKIE) {
            own.append(SET_COOKIE, value.clone());
        }
        answer.headers.remove(SET_COOKIE);
        self.changes.remove_cookie();
        own
    }
}
