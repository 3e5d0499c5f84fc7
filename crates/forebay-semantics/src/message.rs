//! Request and response of an exchange, borrowed, and the options of a site for storing responses.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};

/// Options of a site for storing responses, where the RFCs leave a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Freshness lifetime of a response without an explicit one, if its status allows a heuristic
    /// lifetime. Zero selects the heuristic of `Last-Modified`.
    pub default_ttl: Duration,
    /// Freshness lifetime of a response with status 404, 405, 410, 414 or 501 without an explicit
    /// one. Zero selects `default_ttl`.
    pub negative_ttl: Duration,
    /// Stores responses with `Set-Cookie`, including the cookie.
    pub store_set_cookie: bool,
    /// Selects a response with `Content-Encoding` for requests with any `Accept-Encoding`, unless
    /// its `Vary` names that field.
    pub share_codings: bool,
    /// Gives a response to a request with `Cookie` a heuristic lifetime if it has neither explicit
    /// freshness nor `public`.
    pub heuristics_with_cookie: bool,
}

/// Request of an exchange, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct RequestRef<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Header fields of the request.
    pub headers: &'a HeaderMap,
}

/// Final response of an exchange, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRef<'a> {
    /// Status code of the response.
    pub status: StatusCode,
    /// Header fields of the response.
    pub headers: &'a HeaderMap,
}
