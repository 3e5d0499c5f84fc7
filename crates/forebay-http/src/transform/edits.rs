//! Edits that a transform may make.

use forebay_rules::edit::is_fixed;
use http::header::{SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::{Inputs, RequestView, TransformError, TransformResult};

/// Maximum length of a value in bytes.
const VALUE_MAX: usize = 8 << 10;

/// Edits of header fields. Framing, hop-by-hop fields, routing, forwarding claims and `Cookie` cannot
/// be edited; `Vary` can only be added to.
#[derive(Debug)]
pub struct FieldEdit<'a> {
    pub(super) headers: &'a mut HeaderMap,
    /// True before storing: a cookie would reach every client.
    pub(super) is_stored: bool,
}

impl FieldEdit<'_> {
    /// Returns the first value of a field, if it is text.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Sets a field to one value.
    ///
    /// # Errors
    /// If the field cannot be edited, or the value is invalid or longer than 8 KiB.
    pub fn set(&mut self, name: &str, value: &str) -> TransformResult {
        let name = self.editable(name)?;
        if name == VARY {
            return Err(TransformError::new("\"vary\" can only be added to"));
        }
        self.headers.insert(name, valid(value)?);
        Ok(())
    }

    /// Adds a value to a field.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn add(&mut self, name: &str, value: &str) -> TransformResult {
        let name = self.editable(name)?;
        self.headers.append(name, valid(value)?);
        Ok(())
    }

    /// Removes a field.
    ///
    /// # Errors
    /// If the field cannot be edited.
    pub fn remove(&mut self, name: &str) -> TransformResult {
        let name = self.editable(name)?;
        if name == VARY {
            return Err(TransformError::new("\"vary\" can only be added to"));
        }
        self.headers.remove(name);
        Ok(())
    }

    fn editable(&self, name: &str) -> Result<HeaderName, TransformError> {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed =
            parsed.map_err(|_| TransformError::new(format!("\"{name}\" is not a field name")))?;
        if is_fixed(parsed.as_str()) || self.is_stored && parsed == SET_COOKIE {
            return Err(TransformError::new(format!("\"{parsed}\" cannot be edited")));
        }
        Ok(parsed)
    }
}

fn valid(value: &str) -> Result<HeaderValue, TransformError> {
    match HeaderValue::from_str(value) {
        Ok(value) if value.len() <= VALUE_MAX => Ok(value),
        _ => Err(TransformError::new("a value is not valid in a field, or longer than 8 KiB")),
    }
}

/// Request of a client, and the edits of its fields.
#[derive(Debug)]
pub struct RequestEdit<'a> {
    pub(super) method: &'a Method,
    pub(super) request: RequestView<'a>,
    pub(super) fields: FieldEdit<'a>,
    pub(super) inputs: &'a Inputs,
}

impl<'a> RequestEdit<'a> {
    /// Returns the method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the request as the client sent it.
    #[must_use]
    pub const fn request(&self) -> &RequestView<'a> {
        &self.request
    }

    /// Sets one of the [`Inputs`], which are parts of the key.
    ///
    /// # Errors
    /// If the field is no input, or as [`FieldEdit::set`].
    pub fn set(&mut self, name: &str, value: &str) -> TransformResult {
        if !self.inputs.has_header(name) {
            let reason = "is not an input of the transform, so that the value is not in the key";
            return Err(TransformError::new(format!("\"{name}\" {reason}")));
        }
        self.fields.set(name, value)
    }

    /// Removes a field, as if the client had not sent it.
    ///
    /// # Errors
    /// As [`FieldEdit::remove`].
    pub fn remove(&mut self, name: &str) -> TransformResult {
        self.fields.remove(name)
    }
}

/// Edits of a response of the origin before it is stored.
#[derive(Debug)]
pub struct ResponseEdit<'a> {
    pub(super) status: StatusCode,
    pub(super) fields: FieldEdit<'a>,
    pub(super) is_stored: bool,
}

impl<'a> ResponseEdit<'a> {
    /// Returns the status of the response.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the edits of the fields.
    pub const fn fields(&mut self) -> &mut FieldEdit<'a> {
        &mut self.fields
    }

    /// Keeps the response out of storage.
    pub const fn do_not_store(&mut self) {
        self.is_stored = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_refuse_what_rules_may_not_edit() {
        let mut headers = HeaderMap::new();
        let mut fields = FieldEdit { headers: &mut headers, is_stored: true };
        for name in ["content-length", "Connection", "Cookie", "x-forwarded-for", "age", "a b"] {
            assert!(fields.set(name, "1").is_err(), "{name}");
            assert!(fields.add(name, "1").is_err() && fields.remove(name).is_err(), "{name}");
        }
        assert!(fields.set("set-cookie", "a=1").is_err());
        assert!(fields.set("vary", "x").is_err() && fields.add("vary", "x").is_ok());
        assert!(fields.remove("vary").is_err());
        assert!(fields.set("x-a", "1\r\nx-b: 2").is_err());
        assert!(fields.set("x-a", &"a".repeat(VALUE_MAX + 1)).is_err());
        assert!(fields.set("X-A", "1").is_ok() && fields.get("x-a") == Some("1"));
        let mut fields = FieldEdit { headers: &mut headers, is_stored: false };
        assert!(fields.set("set-cookie", "a=1").is_ok());
        assert_eq!(headers.len(), 3);
    }
}
