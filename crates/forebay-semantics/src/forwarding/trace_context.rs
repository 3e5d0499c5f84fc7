//! Trace context of a request: the field `traceparent` (W3C Trace Context, section 3.2).

use std::fmt;

/// Length in bytes of a value of version 00.
const LENGTH: usize = 55;

/// Version that is never valid.
const INVALID_VERSION: u8 = 0xff;

/// Flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// Ids of a trace and of a span in it. Neither is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace.
    pub trace: u128,
    /// Id of the span.
    pub span: u64,
    /// True if the trace is recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads a value of `traceparent`. A higher version may have further parts after those of
    /// version 00. Returns `None` if the value is malformed.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_at_checked(LENGTH)?;
        let mut parts = head.split(|byte| *byte == b'-');
        let mut part = |length: usize| {
            let digits = parts.next().filter(|part| part.len() == length)?;
            let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| is_hex(&b)))
        };
        let version = u8::from_str_radix(part(2)?, 16).ok()?;
        let trace = u128::from_str_radix(part(32)?, 16).ok()?;
        let span = u64::from_str_radix(part(16)?, 16).ok()?;
        let flags = u8::from_str_radix(part(2)?, 16).ok()?;
        let has_known_end = match version {
            0 => rest.is_empty(),
            INVALID_VERSION => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let is_valid = has_known_end && trace != 0 && span != 0;
        is_valid.then_some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }
}

/// Writes the value of `traceparent`, in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_value_is_read_and_written() {
        let context = TraceContext::parse(VALID.as_bytes()).expect("valid");
        assert_eq!(context.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((context.span, context.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(context.to_string(), VALID);
        let unsampled = VALID.replace("-01", "-02");
        assert!(!TraceContext::parse(unsampled.as_bytes()).expect("valid").is_sampled);
    }

    #[test]
    fn a_higher_version_may_have_further_parts() {
        for (value, is_valid) in [
            (VALID.replace("00-", "01-"), true),
            (VALID.replace("00-", "01-") + "-more", true),
            (VALID.replace("00-", "01-") + "more", false),
            (VALID.to_owned() + "-more", false),
            (VALID.replace("00-", "ff-"), false),
        ] {
            assert_eq!(TraceContext::parse(value.as_bytes()).is_some(), is_valid, "{value}");
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        let zero_trace = format!("00-{:032}-b7ad6b7169203331-01", 0);
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{:016}-01", 0);
        let upper = VALID.to_uppercase();
        let signed = VALID.replace("-01", "-+1");
        let shifted = "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01";
        for value in ["", "00", &VALID[..54], &zero_trace, &zero_span, &upper, &signed, shifted] {
            assert_eq!(TraceContext::parse(value.as_bytes()), None, "{value}");
        }
    }
}
