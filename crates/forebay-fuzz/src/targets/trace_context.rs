//! Target: `traceparent`.

use forebay_semantics::trace_context::TraceContext;

use crate::run::{Outcome, Target};

/// Fuzz target for `traceparent`.
pub const TARGET: Target = Target { check, outcomes_min: 4 };

fn check(input: &[u8]) -> Outcome {
    let context = TraceContext::parse(input);
    if let Some(context) = context {
        assert!(context.trace != 0 && context.span != 0, "ids of zeros are invalid");
        assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
    }
    let is_long = input.len() > 55;
    Outcome::of((context.map(|context| context.is_sampled), is_long, input.first() == Some(&b'0')))
}
