//! URL of a Redis server. It may contain a password, so only its address is ever printed.

use std::fmt;

/// URL of a Redis server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl {
    url: String,
    address: String,
}

impl RedisUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// The rest of a sentence; it does not quote the URL.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let address = forebay_redis::address_of(text).map_err(|error| match error {
            forebay_redis::SettingsError::Url { why, .. } => {
                format!("is not a URL such as \"redis://127.0.0.1:6379\": {why}")
            }
            other => other.to_string(),
        })?;
        Ok(Self { url: text.to_owned(), address })
    }

    /// Complete URL with credentials.
    pub(crate) fn into_url(self) -> String {
        self.url
    }
}

/// Prints the address without credentials.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({})", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_printed_without_its_password() {
        let url = RedisUrl::parse("redis://me:hidden@host/3").unwrap();
        assert_eq!(url.to_string(), "redis://host:6379");
        assert!(!format!("{url:?}").contains("hidden"));
        assert_eq!(url.into_url(), "redis://me:hidden@host/3");
    }

    #[test]
    fn an_error_does_not_quote_the_url() {
        for wrong in ["", "hidden", "http://hidden@host", "redis://:hidden@host/x"] {
            let says = RedisUrl::parse(wrong).unwrap_err();
            assert!(says.contains("redis://127.0.0.1:6379") && !says.contains("hidden"), "{says}");
        }
    }
}
