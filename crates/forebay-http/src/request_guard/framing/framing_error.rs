//! Framing errors: the closed list of rules and limits for which a message is rejected.

use std::error::Error;
use std::{fmt, io};

/// Framing error, and its position in the piece of bytes that was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// Offset of the first invalid byte in the piece.
    pub at: usize,
    /// Rule or limit that the byte violates.
    pub why: FramingError,
    /// Number of messages before the invalid one on this connection.
    pub before: u64,
    /// Offset in the piece at which the invalid message starts: 0 if part of its head was in an
    /// earlier piece, `None` if its whole head was.
    pub start: Option<usize>,
}

/// Framing rule or size limit that a client's message violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// The request line is not `method SP target SP HTTP/1.x`, or too many empty lines precede it
    /// (RFC 9112, 2.2 and 3).
    RequestLine,
    /// A line feed without a carriage return, or a carriage return without a line feed (RFC 9112,
    /// 2.2).
    LineEnding,
    /// A NUL in a head, a chunk line or a trailer (RFC 9110, 5.5).
    Nul,
    /// White space at the start of a field line (RFC 9112, 2.2 and 5.2).
    Fold,
    /// An empty field name, or a byte in one that is no token, such as a space (RFC 9112, 5.1).
    FieldName,
    /// A control byte other than a tab, CR, LF or NUL in a field value (RFC 9110, 5.5).
    FieldValue,
    /// Not exactly one `Host` in HTTP/1.1, several in HTTP/1.0, or an invalid authority (RFC 9112,
    /// 3.2).
    Host,
    /// `Content-Length` that is repeated, a list, not decimal digits, or above 2^63 - 1 (RFC 9112,
    /// 6.3).
    ContentLength,
    /// `Transfer-Encoding` other than one `chunked`, or in HTTP/1.0 (RFC 9112, 6.1).
    TransferEncoding,
    /// `Content-Length` and `Transfer-Encoding` in one head (RFC 9112, 6.1 and 6.3).
    BothFramings,
    /// A chunk that violates the grammar (RFC 9112, 7.1).
    Chunk,
    /// `Content-Length`, `Transfer-Encoding` or `Host` as a trailer (RFC 9110, 6.5.1).
    Trailer,
    /// More bytes of chunk extensions and trailers than
    /// [`BODY_OVERHEAD_MAX`](super::BODY_OVERHEAD_MAX).
    BodyOverhead,
    /// A head of more than [`HEAD_MAX`](super::HEAD_MAX) bytes.
    HeadTooLarge,
    /// More than [`FIELDS_MAX`](crate::request_guard::FIELDS_MAX) fields in a head or in trailers.
    TooManyFields,
    /// A request target of more than [`TARGET_MAX`](crate::request_guard::TARGET_MAX) bytes.
    TargetTooLong,
    /// A request body of more than [`BODY_MAX`](crate::request_guard::BODY_MAX) bytes.
    BodyTooLarge,
}

impl FramingError {
    /// All framing errors, in the order of their counters.
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

    /// Returns the label of the framing error for metrics and logs.
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

    /// Returns the framing error in the source chain of an error reported by hyper, if there is
    /// one.
    pub(crate) fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        cause_in_chain(error)
    }

    /// Returns the error for an unexpected byte: line feeds and NULs have errors of their own,
    /// every other byte is `otherwise`.
    pub(super) fn of_byte(byte: u8, otherwise: Self) -> Self {
        match byte {
            b'\n' => Self::LineEnding,
            0 => Self::Nul,
            _ => otherwise,
        }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the client's message violates the framing rule or limit `{}`", self.label())
    }
}

impl Error for FramingError {}

/// Maximum number of sources that are followed: a body error that passed through hyper's server and
/// client is nested about four deep.
const SOURCES_MAX: usize = 8;

/// Returns the `T` wrapped by an I/O error in the source chain, if there is one.
pub(in crate::request_guard) fn cause_in_chain<T>(error: &(dyn Error + 'static)) -> Option<T>
where
    T: Error + Copy + 'static,
{
    let chain = std::iter::successors(Some(error), |&error| error.source()).take(SOURCES_MAX);
    chain
        .filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref())
        .find_map(|cause| cause.downcast_ref::<T>().copied())
}
