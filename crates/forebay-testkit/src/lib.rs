//! forebay-testkit
