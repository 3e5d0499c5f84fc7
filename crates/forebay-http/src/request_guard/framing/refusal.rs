//! Why a connection is refused, as one closed list.

use std::error::Error;
use std::{fmt, io};

/// A refusal and its place in the piece that was fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Offset of the first byte that cannot be accepted.
    pub at: usize,
    /// The rule that it breaks.
    pub why: Refusal,
    /// How many messages stand before the offending one on this connection.
    pub before: u64,
    /// Where the offending message begins in this piece: at 0 if a part of its head came earlier,
    /// nowhere if all of its head did.
    pub start: Option<usize>,
}

/// The rule that a client broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not `method SP target SP HTTP/1.x`, or too many empty lines before it (RFC 9112, 2.2 and 3).
    RequestLine,
    /// A line feed without its carriage return or the reverse (RFC 9112, 2.2).
    LineEnding,
    /// A NUL in a head, a chunk line or a trailer (RFC 9110, 5.5).
    Nul,
    /// White space at the start of a field line (RFC 9112, 2.2 and 5.2).
    Fold,
    /// An empty field name, or a byte in one that is no token, such as a space (RFC 9112, 5.1).
    FieldName,
    /// A control byte in a field value, other than a tab and those above (RFC 9110, 5.5).
    FieldValue,
    /// Not exactly one `Host` in HTTP/1.1, several in HTTP/1.0, or no authority (RFC 9112, 3.2).
    Host,
    /// `Content-Length` twice, as a list, not plain digits, or beyond 2^63 (RFC 9112, 6.3).
    ContentLength,
    /// `Transfer-Encoding` other than one `chunked`, or in HTTP/1.0 (RFC 9112, 6.1).
    TransferEncoding,
    /// `Content-Length` and `Transfer-Encoding` in one head (RFC 9112, 6.1 and 6.3).
    BothFramings,
    /// A chunk that does not follow the grammar (RFC 9112, 7.1).
    Chunk,
    /// `Content-Length`, `Transfer-Encoding` or `Host` as a trailer (RFC 9110, 6.5.1).
    Trailer,
    /// More chunk extensions and trailers than a body may have.
    BodyOverhead,
    /// A head of more bytes than allowed.
    HeadTooLarge,
    /// More fields in a head, or as trailers, than allowed.
    TooManyFields,
    /// A target of more bytes than allowed.
    TargetTooLong,
    /// A body of more bytes than allowed.
    BodyTooLarge,
}

impl Refusal {
    /// Every refusal, in the order of their counters.
    pub const ALL: [Self; 17] = [
        Self::RequestLine,
        Self::LineEnding,
        Self::Nul,
        Self::Fold,
        Self::FieldName,
        Self::FieldValue,
        Self::Host,
        Self::ContentLength,
        Self::TransferEncoding,
        Self::BothFramings,
        Self::Chunk,
        Self::Trailer,
        Self::BodyOverhead,
        Self::HeadTooLarge,
        Self::TooManyFields,
        Self::TargetTooLong,
        Self::BodyTooLarge,
    ];

    /// A short name for metric labels and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::RequestLine => "request-line",
            Self::LineEnding => "line-ending",
            Self::Nul => "nul",
            Self::Fold => "fold",
            Self::FieldName => "field-name",
            Self::FieldValue => "field-value",
            Self::Host => "host",
            Self::ContentLength => "content-length",
            Self::TransferEncoding => "transfer-encoding",
            Self::BothFramings => "both-framings",
            Self::Chunk => "chunk",
            Self::Trailer => "trailer",
            Self::BodyOverhead => "body-overhead",
            Self::HeadTooLarge => "head-too-large",
            Self::TooManyFields => "too-many-fields",
            Self::TargetTooLong => "target-too-long",
            Self::BodyTooLarge => "body-too-large",
        }
    }

    /// The refusal behind an error that hyper reports, if there is one.
    pub fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        cause_in_chain(error)
    }

    /// What a byte at a wrong place is blamed for: framing bytes have refusals of their own.
    pub(super) fn of_byte(byte: u8, otherwise: Self) -> Self {
        match byte {
            b'\n' => Self::LineEnding,
            0 => Self::Nul,
            _ => otherwise,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid HTTP/1 message from the client: {}", self.label())
    }
}

impl Error for Refusal {}

/// Longest chain of sources that is followed: a body error that went through hyper's server and
/// then its client is nested about four deep.
const SOURCES_MAX: usize = 8;

/// Finds the `T` that an I/O error in the chain of sources was made from.
pub(in crate::request_guard) fn cause_in_chain<T>(error: &(dyn Error + 'static)) -> Option<T>
where
    T: Error + Copy + 'static,
{
    let chain = std::iter::successors(Some(error), |&error| error.source()).take(SOURCES_MAX);
    chain
        .filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref())
        .find_map(|cause| cause.downcast_ref::<T>().copied())
}
