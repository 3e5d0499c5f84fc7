//! Content codings that this cache applies itself: negotiation with the client, and the fields of a
//! response that it encodes.
//!
//! This folder uses `fields`, `directives`, `message`, `validation` and `variants`; it never sees a
//! body or an encoder.

pub mod encoded;
pub mod media_types;
pub mod negotiation;

/// Content coding that the cache can apply (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Br,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings, in the order of their [index](Self::index).
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Br, Self::Gzip];

    /// Returns the name of the coding in `Accept-Encoding` and `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the position of the coding in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Codings that a site offers, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codings([Option<Coding>; Coding::ALL.len()]);

impl Codings {
    /// Creates the list. A repeated coding counts once, at its first position.
    #[must_use]
    pub fn new(preferred: impl IntoIterator<Item = Coding>) -> Self {
        let mut codings = Self([None; Coding::ALL.len()]);
        for coding in preferred {
            if codings.iter().any(|known| known == coding) {
                continue;
            }
            if let Some(free) = codings.0.iter_mut().find(|place| place.is_none()) {
                *free = Some(coding);
            }
        }
        codings
    }

    /// Returns the codings, the most preferred one first.
    pub fn iter(self) -> impl Iterator<Item = Coding> {
        self.0.into_iter().flatten()
    }
}
