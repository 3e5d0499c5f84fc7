//! Client of a request: its address and connection, its credentials, and the path that logs contain.
//!
//! This folder uses no other.

pub(crate) mod peer;

use forebay_engine::Credentials;
use forebay_semantics::FieldLines;
use http::header::{AUTHORIZATION, COOKIE};

/// Maximum length of a path in a warning, in bytes.
const LOGGED_PATH_MAX: usize = 2 << 10;

/// Returns the path of a request target, cut after [`LOGGED_PATH_MAX`] bytes.
pub(crate) fn logged_path(target: &str) -> &str {
    let path = target.split('?').next().unwrap_or_default();
    &path[..path.floor_char_boundary(LOGGED_PATH_MAX)]
}

/// Returns `Presented` if the request has a field that identifies a user.
#[inline]
pub(crate) fn credentials(headers: &impl FieldLines) -> Credentials {
    if headers.has(&AUTHORIZATION) || headers.has(&COOKIE) {
        Credentials::Presented
    } else {
        Credentials::Anonymous
    }
}
