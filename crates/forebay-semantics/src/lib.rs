//! forebay-semantics
