//! Parts of a request that a transform sees.

use std::net::IpAddr;

use forebay_rules::Target;
use forebay_rules::request::cookies;
use http::HeaderMap;

use super::Inputs;

/// Request of a client, with everything that the client sent.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    pub(super) scheme: &'a str,
    pub(super) host: &'a str,
    pub(super) target: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) client: Option<IpAddr>,
}

impl<'a> RequestView<'a> {
    /// Returns the scheme: `http` or `https`.
    #[must_use]
    pub const fn scheme(&self) -> &'a str {
        self.scheme
    }

    /// Returns the host, with the port if it is not that of the scheme.
    #[must_use]
    pub const fn host(&self) -> &'a str {
        self.host
    }

    /// Returns the path, without the prefix of the site, after the rules.
    #[must_use]
    pub fn path(&self) -> &'a str {
        Target::new(self.target).path
    }

    /// Returns the first value of a parameter, as it is encoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        Target::new(self.target).parameters().find(|(its, _)| *its == name).map(|(_, value)| value)
    }

    /// Returns the first value of a field, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the value of a cookie, if it is text.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&'a str> {
        let value = cookies(self.headers).find(|(its, _)| *its == name).map(|(_, value)| value)?;
        std::str::from_utf8(value).ok()
    }

    /// Returns the address of the client; `None` for a Unix socket.
    #[must_use]
    pub const fn client(&self) -> Option<IpAddr> {
        self.client
    }
}

/// Parts of a request that are in the key: the target, and the [`Inputs`] of the transform.
#[derive(Clone, Copy, Debug)]
pub struct KeyedView<'a> {
    pub(super) request: RequestView<'a>,
    pub(super) inputs: &'a Inputs,
}

impl<'a> KeyedView<'a> {
    /// Returns the host, with the port if it is not that of the scheme.
    #[must_use]
    pub const fn host(&self) -> &'a str {
        self.request.host
    }

    /// Returns the path, without the prefix of the site, after the rules.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.request.path()
    }

    /// Returns the first value of a parameter, as it is encoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.request.parameter(name)
    }

    /// Returns the first value of a field, if it is an input and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.request.header(name).filter(|_| self.inputs.has_header(name))
    }

    /// Returns the value of a cookie, if it is an input and text.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&'a str> {
        self.request.cookie(name).filter(|_| self.inputs.has_cookie(name))
    }
}
