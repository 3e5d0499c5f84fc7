//! forebay-http
