//! Text with placeholders for values of the exchange.

use std::fmt;

use http::header::HeaderName;

/// Maximum length of an expanded value in bytes.
pub const VALUE_MAX: usize = 8 << 10;

/// Value of an edited field, or target of a redirect: text with placeholders in braces, such as
/// `{host}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Placeholder(Placeholder),
}

/// Placeholder: name of a value of the request or response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placeholder {
    /// Scheme of the request.
    Scheme,
    /// Host and port of the request, or the host that a rule sets.
    Host,
    /// Path that the origin gets; in a redirect or a response of a rule, that of the request.
    Path,
    /// First value, undecoded, of a parameter in the query that belongs to [`Placeholder::Path`].
    Query(Box<str>),
    /// First value of a request field.
    Header(HeaderName),
    /// First value of a request cookie.
    Cookie(Box<str>),
    /// Address of the client.
    Client,
    /// Class of the client's device, by `User-Agent`.
    Device,
    /// Status of the response.
    Status,
    /// First value of a response field.
    Response(HeaderName),
    /// Id of the site.
    Id,
}

/// Values of placeholders.
pub trait Placeholders {
    /// Appends the value of a placeholder; appends nothing if it has none.
    fn append(&self, placeholder: &Placeholder, to: &mut Vec<u8>);
}

/// Edit that was skipped, because its value was invalid or longer than [`VALUE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of an edited field is invalid or longer than 8 KiB")]
pub struct EditFailed;

impl Template {
    /// Parses text with placeholders in braces. A brace itself is written twice.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                plain.push_str(&rest[..1]);
                rest = &rest[2..];
                continue;
            }
            let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let Some((name, after)) = inside else {
                return Err("has a brace without its other half; write it twice".into());
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
            }
            pieces.push(Piece::Placeholder(Placeholder::parse(name)?));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into()));
        }
        Ok(Self { text: text.into(), pieces })
    }

    /// Returns the text of the template as it was parsed, with its placeholders in braces.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the placeholders in the text.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// Returns the text if it has no placeholder, with doubled braces as single ones.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text with the values of its placeholders.
    ///
    /// # Errors
    /// If the result is longer than [`VALUE_MAX`].
    pub fn expand(&self, values: &impl Placeholders) -> Result<Vec<u8>, EditFailed> {
        let mut expanded = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => expanded.extend_from_slice(text.as_bytes()),
                Piece::Placeholder(placeholder) => values.append(placeholder, &mut expanded),
            }
            if expanded.len() > VALUE_MAX {
                return Err(EditFailed);
            }
        }
        Ok(expanded)
    }
}

impl Placeholder {
    fn parse(name: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let name = HeaderName::from_bytes(name.as_bytes());
            name.map_err(|_| "names no header field in a placeholder".to_owned())
        };
        Ok(match name.split_once('.') {
            None => match name {
                "scheme" => Self::Scheme,
                "host" => Self::Host,
                "path" => Self::Path,
                "client" => Self::Client,
                "device" => Self::Device,
                "status" => Self::Status,
                "id" => Self::Id,
                _ => return Err(unknown(name)),
            },
            Some(("query", name)) if !name.is_empty() => Self::Query(name.into()),
            Some(("cookie", name)) if !name.is_empty() => Self::Cookie(name.into()),
            Some(("header", name)) => Self::Header(field(name)?),
            Some(("response", name)) => Self::Response(field(name)?),
            Some(_) => return Err(unknown(name)),
        })
    }

    /// Returns true if equal keys have equal values of the placeholder, so that the value may be
    /// stored.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        match self {
            Self::Scheme | Self::Host | Self::Path | Self::Query(_) | Self::Id => true,
            // Of the response that is edited itself.
            Self::Status | Self::Response(_) => true,
            Self::Header(_) | Self::Cookie(_) | Self::Client | Self::Device => false,
        }
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("{scheme}"),
            Self::Host => f.write_str("{host}"),
            Self::Path => f.write_str("{path}"),
            Self::Query(name) => write!(f, "{{query.{name}}}"),
            Self::Header(name) => write!(f, "{{header.{name}}}"),
            Self::Cookie(name) => write!(f, "{{cookie.{name}}}"),
            Self::Client => f.write_str("{client}"),
            Self::Device => f.write_str("{device}"),
            Self::Status => f.write_str("{status}"),
            Self::Response(name) => write!(f, "{{response.{name}}}"),
            Self::Id => f.write_str("{id}"),
        }
    }
}

fn unknown(name: &str) -> String {
    format!(
        "has the unknown placeholder {{{name}}}; there are {{scheme}}, {{host}}, {{path}}, \
         {{query.N}}, {{header.N}}, {{cookie.N}}, {{client}}, {{device}}, {{status}}, {{response.N}} \
         and {{id}}"
    )
}
