//! `#[forebay::cached]`: a function whose answers are cached. What it does, and how it is used, is
//! told where it is found: in the documentation of `forebay`.
//!
//! | file | holds |
//! |---|---|
//! | `settings` | what stands in the brackets |
//! | `signature` | what is asked of the function: its arguments, and what it returns |
//! | `expand` | the function that takes its place |
//!
//! Deliberately absent: anything that runs. What the function becomes is calls of the library.

mod expand;
mod settings;
mod signature;

use proc_macro::TokenStream;

/// A function whose answers are cached; see `forebay::cached`.
#[proc_macro_attribute]
pub fn cached(settings: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = expand::expand(settings.into(), function.into());
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
