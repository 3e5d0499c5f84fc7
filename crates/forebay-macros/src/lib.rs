//! The attribute `#[forebay::cached]`, which caches the results of an `async fn`. The crate
//! `forebay` re-exports and documents it.
//!
//! | module | content |
//! |---|---|
//! | `settings` | parser of the attribute's arguments |
//! | `signature` | checks of the function's arguments and its return type |
//! | `expand` | generation of the function that replaces the original |
//!
//! The generated code only calls the public API of `forebay`; this crate has no runtime part.

mod expand;
mod settings;
mod signature;

use proc_macro::TokenStream;

/// Caches the results of an `async fn`; see `forebay::cached`.
#[proc_macro_attribute]
pub fn cached(settings: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = expand::expand(settings.into(), function.into());
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
