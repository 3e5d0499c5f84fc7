//! Key parts: header fields and cookies of a request that are a part of the key.
//!
//! The origin gets exactly the values that are in the key: a value that the rule does not list is
//! removed from the request, and language, media type and device are replaced by the chosen one.

use forebay_semantics::{FieldLines, hop, preferred_language, preferred_type};
use http::header::{
    ACCEPT, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue,
};

use crate::apply::retain_cookies;
use crate::outcome::Outcome;
use crate::request::{cookies, device};
use crate::setting::{Kind, Setting, UserCredential};

/// Maximum length in bytes of all values of one field or cookie in the key. A request with a longer one
/// bypasses the cache.
pub const VALUE_MAX: usize = 256;

/// Request field with the class of the device, for the origin.
pub const X_DEVICE: &str = "x-device";

/// Parts of a request that a rule adds to the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyParts {
    /// Header fields, named in lower case.
    pub headers: Vec<Keyed>,
    /// Cookies.
    pub cookies: Vec<Keyed>,
    /// Adds the class of the device, which the origin gets as `X-Device`.
    pub device: bool,
    /// Languages from which one is chosen by `Accept-Language`. Empty adds nothing.
    pub language: Vec<Box<str>>,
    /// Media types from which one is chosen by `Accept`. Empty adds nothing.
    pub accept: Vec<Box<str>>,
}

/// Header field or cookie in the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// Name of the field in lower case, or of the cookie.
    pub name: Box<str>,
    /// Values that are kept; others count as absent. Empty keeps all values.
    pub values: Vec<Box<str>>,
}

/// Key parts of all rules that apply to a request.
#[derive(Clone, Debug)]
pub struct KeyedFields<'r> {
    headers: Vec<&'r Keyed>,
    cookies: Vec<&'r Keyed>,
    device: bool,
    language: &'r [Box<str>],
    accept: &'r [Box<str>],
    user: Option<&'r UserCredential>,
}

/// Request whose keyed field or cookie is longer than [`VALUE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header field or cookie in the key is longer than {VALUE_MAX} bytes")]
pub struct TooLong;

impl<'r> KeyedFields<'r> {
    /// Collects the key parts of the rules that apply. `None` if no rule has any.
    #[must_use]
    pub fn of(outcome: &Outcome<'r>) -> Option<Self> {
        let mut all: Option<Self> = None;
        let none = || Self {
            headers: Vec::new(),
            cookies: Vec::new(),
            device: false,
            language: &[],
            accept: &[],
            user: None,
        };
        if let Some(Setting::PerUser(credential)) = outcome.last(Kind::PerUser) {
            all.get_or_insert_with(none).user = Some(credential);
        }
        for setting in outcome.all(Kind::Key) {
            let Setting::Key(parts) = setting else { continue };
            let all = all.get_or_insert_with(none);
            all.headers.extend(&parts.headers);
            all.cookies.extend(&parts.cookies);
            all.device |= parts.device;
            if !parts.language.is_empty() {
                all.language = &parts.language;
            }
            if !parts.accept.is_empty() {
                all.accept = &parts.accept;
            }
        }
        all
    }

    /// Returns true if a cookie is a part of the key, or identifies the user.
    #[must_use]
    pub fn has_cookie(&self, name: &str) -> bool {
        let is_user = matches!(self.user, Some(UserCredential::Cookie(its)) if **its == *name);
        is_user || self.cookies.iter().any(|keyed| *keyed.name == *name)
    }

    /// Returns the credential that identifies the user: each value behind a byte that no value
    /// contains. `None` if no rule has `per_user`, or the request has no credential.
    #[must_use]
    pub fn user(&self, headers: &impl FieldLines) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut add = |value: &[u8]| {
            bytes.push(1);
            bytes.extend_from_slice(value);
        };
        match self.user? {
            UserCredential::Authorization => headers.lines(&AUTHORIZATION).for_each(&mut add),
            UserCredential::Cookie(name) => {
                let its = cookies(headers).filter(|(its, _)| **its == **name);
                its.for_each(|(_, value)| add(value));
            }
        }
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    /// Returns true if the user of the request is in the key, and with them all its credentials: no
    /// other user can get its response.
    #[must_use]
    pub fn covers_credentials(&self, headers: &HeaderMap) -> bool {
        let is_keyed = self.user == Some(&UserCredential::Authorization);
        self.user(headers).is_some()
            && (is_keyed || !headers.contains_key(AUTHORIZATION))
            && self.covers_cookies(headers)
    }

    /// Returns true if a request has no cookie that is not a part of the key.
    #[must_use]
    pub fn covers_cookies(&self, headers: &HeaderMap) -> bool {
        // A name that is not text would be left out by `cookies`.
        let lines = headers.get_all(COOKIE).iter();
        lines.into_iter().all(|line| line.to_str().is_ok())
            && cookies(headers).all(|(name, _)| self.has_cookie(name))
    }

    /// Replaces the fields of a request by those in the key, and removes values that are not listed.
    /// Fields that `Connection` names are removed first: the origin does not get them.
    ///
    /// # Errors
    /// If a value is too long for the key.
    pub fn normalise(&self, headers: &mut HeaderMap) -> Result<(), TooLong> {
        hop::strip_hop_by_hop(headers);
        for (n, keyed) in self.headers.iter().enumerate() {
            if !is_first(&self.headers, n) {
                continue;
            }
            let mut lines = headers.get_all(&*keyed.name).iter().map(HeaderValue::as_bytes);
            let is_kept = match (lines.next(), lines.next()) {
                (None, _) => true,
                (Some(line), None) => keeps(&self.headers, &keyed.name, line),
                // Several lines are no listed value.
                (Some(_), Some(_)) => keeps_all(&self.headers, &keyed.name),
            };
            if !is_kept {
                headers.remove(&*keyed.name);
            }
        }
        retain_cookies(headers, |name, value| {
            self.cookies.iter().all(|keyed| *keyed.name != *name)
                || keeps(&self.cookies, name, value)
        });
        if self.device {
            let class = HeaderValue::from_static(device(headers).as_str());
            headers.insert(X_DEVICE, class);
        }
        if !self.language.is_empty() {
            let chosen = preferred_language(headers, self.language);
            replace(headers, ACCEPT_LANGUAGE, chosen);
        }
        if !self.accept.is_empty() {
            let chosen = preferred_type(headers, self.accept);
            replace(headers, ACCEPT, chosen);
        }
        self.check_lengths(headers)
    }

    fn check_lengths(&self, headers: &HeaderMap) -> Result<(), TooLong> {
        let is_long = |lengths: &mut dyn Iterator<Item = usize>| lengths.sum::<usize>() > VALUE_MAX;
        for keyed in &self.headers {
            if is_long(&mut headers.get_all(&*keyed.name).iter().map(HeaderValue::len)) {
                return Err(TooLong);
            }
        }
        for keyed in &self.cookies {
            let its = cookies(headers).filter(|(name, _)| *keyed.name == **name);
            if is_long(&mut its.map(|(_, value)| value.len())) {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    /// Calls `part` with each key part of a normalised request: a letter, the name, a NUL, and each
    /// value behind a byte that no value contains. An absent field differs from an empty one.
    pub fn parts(&self, headers: &impl FieldLines, mut part: impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        let begin = |bytes: &mut Vec<u8>, letter: u8, name: &str| {
            bytes.clear();
            bytes.push(letter);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
        };
        for name in self.field_names() {
            begin(&mut bytes, b'h', name);
            for value in headers.lines_named(name) {
                bytes.push(1);
                bytes.extend_from_slice(value);
            }
            part(&bytes);
        }
        for (n, keyed) in self.cookies.iter().enumerate() {
            if !is_first(&self.cookies, n) {
                continue;
            }
            begin(&mut bytes, b'c', &keyed.name);
            for (_, value) in cookies(headers).filter(|(name, _)| *keyed.name == **name) {
                bytes.push(1);
                bytes.extend_from_slice(value);
            }
            part(&bytes);
        }
    }

    /// Returns the names of the fields that the key contains in a normalised request.
    fn field_names(&self) -> impl Iterator<Item = &str> {
        let named = self.headers.iter().enumerate().filter(|(n, _)| is_first(&self.headers, *n));
        let chosen = [
            (self.device, X_DEVICE),
            (!self.language.is_empty(), "accept-language"),
            (!self.accept.is_empty(), "accept"),
        ];
        let chosen = chosen.into_iter().filter(|(is_used, _)| *is_used).map(|(_, name)| name);
        named.map(|(_, keyed)| &*keyed.name).chain(chosen)
    }

    /// Returns the names of the client's fields that select a response, for `Vary`.
    pub fn vary(&self) -> impl Iterator<Item = &str> {
        let by_cookie = matches!(self.user, Some(UserCredential::Cookie(_)));
        let has_cookies = by_cookie || !self.cookies.is_empty();
        let by_authorization = self.user == Some(&UserCredential::Authorization);
        let fields = self
            .field_names()
            .map(|name| if self.device && name == X_DEVICE { "user-agent" } else { name });
        fields
            .chain(has_cookies.then_some("cookie"))
            .chain(by_authorization.then_some("authorization"))
    }

    /// Returns true if the class of the device is a part of the key.
    #[must_use]
    pub const fn has_device(&self) -> bool {
        self.device
    }
}

fn replace(headers: &mut HeaderMap, name: HeaderName, chosen: Option<&str>) {
    match chosen.and_then(|chosen| HeaderValue::from_str(chosen).ok()) {
        Some(value) => {
            headers.insert(name, value);
        }
        None => {
            headers.remove(name);
        }
    }
}

/// Returns true if no earlier entry has the name.
fn is_first(all: &[&Keyed], n: usize) -> bool {
    all[..n].iter().all(|earlier| earlier.name != all[n].name)
}

/// Returns true if an entry with the name keeps the value.
fn keeps(all: &[&Keyed], name: &str, value: &[u8]) -> bool {
    all.iter().filter(|keyed| *keyed.name == *name).any(|keyed| {
        keyed.values.is_empty() || keyed.values.iter().any(|listed| listed.as_bytes() == value)
    })
}

/// Returns true if an entry with the name keeps all values.
fn keeps_all(all: &[&Keyed], name: &str) -> bool {
    all.iter().any(|keyed| *keyed.name == *name && keyed.values.is_empty())
}
