//! Generation of the cached function, which replaces the original.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Expr, ExprLit, GenericParam, ItemFn, Lit, Result};

use crate::settings::Settings;
use crate::signature::{Argument, Returned, arguments};

/// Default number of values in a generated cache: it bounds the memory of a function without a
/// setting.
const DEFAULT_ENTRIES: u64 = 10_000;

/// Returns the cached function.
///
/// On a hit only the key and the lookup run. The body becomes the load, which owns its arguments.
///
/// # Errors
/// The attribute's arguments are invalid, or the function cannot be cached.
pub(crate) fn expand(settings: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let settings: Settings = syn::parse2(settings)?;
    let function: ItemFn = syn::parse2(function)?;
    let arguments = arguments(&function)?;
    let returned = Returned::of(&function)?;
    check_parameters(&settings, &function)?;
    let key = key(&settings, &function, &arguments)?;
    let (cache, handle) = cache(&settings, &function, &returned);
    let cache_view = cache_view(&settings);
    let answer = answer(&returned);
    let owned = arguments.iter().filter_map(Argument::owned);
    let borrowed = arguments.iter().filter_map(Argument::borrowed);
    let (attributes, visibility) = (&function.attrs, &function.vis);
    let (body, written, value) = (&function.block, &returned.written, &returned.value);
    let mut signature = function.sig.clone();
    let found = quote!(::std::sync::Arc<#value>);
    let found = if returned.optional { quote!(::core::option::Option<#found>) } else { found };
    signature.output = syn::parse_quote!(
        -> ::core::result::Result<#found, ::forebay::Error>
    );
    let unwrapped = if returned.optional {
        quote!(::core::result::Result::Ok(__forebay_found))
    } else {
        quote!(__forebay_found.ok_or(::forebay::Error::Absent))
    };
    Ok(quote! {
        #handle
        #(#attributes)*
        #visibility #signature {
            let __forebay_key = #key;
            let __forebay_cache = &#cache;
            #(#owned)*
            let __forebay_load = move |_: ::forebay::Prior<#value>| async move {
                #(#borrowed)*
                let __forebay_loaded: #written = async move #body.await;
                #answer
            };
            let __forebay_found =
                #cache_view.get_or_load_with(__forebay_key, __forebay_load).await?;
            #unwrapped
        }
    })
}

/// Rejects generic parameters that the cache or the key does not distinguish. Lifetimes are
/// accepted, because references are cloned.
fn check_parameters(settings: &Settings, function: &ItemFn) -> Result<()> {
    let generics = &function.sig.generics;
    let differs = |parameter: &GenericParam| !matches!(parameter, GenericParam::Lifetime(_));
    if !generics.params.iter().any(differs) {
        return Ok(());
    }
    let message = match (&settings.cache, &settings.key) {
        (None, _) => {
            "a generic function cannot have a cache of its own, which holds values of one type: \
             set `cache`"
        }
        (Some(_), None) => {
            "the default key does not contain generic parameters: set a `key` that does"
        }
        (Some(_), Some(_)) => return Ok(()),
    };
    Err(Error::new_spanned(generics, message))
}

/// Returns the key of a call: the `key` setting, or the function's name with its arguments.
fn key(settings: &Settings, function: &ItemFn, arguments: &[Argument]) -> Result<TokenStream> {
    for skipped in &settings.skip {
        if !arguments.iter().any(|argument| argument.name == *skipped) {
            let message = format!("there is no argument `{skipped}` to skip");
            return Err(Error::new(skipped.span(), message));
        }
    }
    match &settings.key {
        Some(key) if !settings.skip.is_empty() => {
            Err(Error::new_spanned(key, "`skip` has no effect on a `key`: remove `skip`"))
        }
        Some(key @ Expr::Lit(ExprLit { lit: Lit::Str(_), .. })) => Ok(quote!(::std::format!(#key))),
        Some(key) => Ok(quote!(#key)),
        None => {
            let name = function.sig.ident.to_string();
            let kept = arguments.iter().map(|argument| &argument.name);
            let kept = kept.filter(|name| !settings.skip.contains(name));
            Ok(quote!(::forebay::key_of(#name, &[#(&#kept),*])))
        }
    }
}

/// Returns the expression of the cache, set by `cache` or built at the first call, and the function
/// of the `handle` setting.
fn cache(
    settings: &Settings,
    function: &ItemFn,
    returned: &Returned,
) -> (TokenStream, TokenStream) {
    if let Some(cache) = &settings.cache {
        return (quote!(#cache), TokenStream::new());
    }
    let (value, visibility) = (&returned.value, &function.vis);
    let built = built(settings, function);
    let generated = quote! {
        {
            static __FOREBAY_CACHE: ::std::sync::LazyLock<::forebay::Cache<#value>> =
                ::std::sync::LazyLock::new(|| #built);
            &*__FOREBAY_CACHE
        }
    };
    match &settings.handle {
        None => (generated, TokenStream::new()),
        Some(handle) => {
            let doc = format!(" Returns the cache of [`{}`].", function.sig.ident);
            let function = quote! {
                #[doc = #doc]
                #visibility fn #handle() -> &'static ::forebay::Cache<#value> #generated
            };
            (quote!(#handle()), function)
        }
    }
}

/// Returns the expression that builds the function's own cache.
fn built(settings: &Settings, function: &ItemFn) -> TokenStream {
    let own_name = function.sig.ident.to_string();
    let name = settings.name.as_ref().map_or_else(|| quote!(#own_name), |name| quote!(#name));
    let entries = &settings.entries;
    let entries =
        entries.as_ref().map_or_else(|| quote!(#DEFAULT_ENTRIES), |entries| quote!(#entries));
    let chosen = [
        ("ttl", &settings.ttl),
        ("negative_ttl", &settings.negative_ttl),
        ("stale_while_revalidate", &settings.stale_while_revalidate),
        ("stale_if_error", &settings.stale_if_error),
    ];
    let chosen = chosen.into_iter().filter_map(|(name, value)| {
        let (name, value) = (format_ident!("{name}"), value.as_ref()?);
        Some(quote!(.#name(#value)))
    });
    quote! {
        ::forebay::Cache::builder(#name)
            .memory(::forebay::Memory::entries(#entries))
            #(#chosen)*
            .build()
            .unwrap_or_else(|error| ::core::panic!("invalid settings of the cache of `{}`: {error}", #own_name))
    }
}

/// Returns the cache, with the options of the settings. A generated cache has its lifetimes from
/// the builder and needs no options for them.
fn cache_view(settings: &Settings) -> TokenStream {
    let chosen = [
        ("ttl", &settings.ttl),
        ("stale_while_revalidate", &settings.stale_while_revalidate),
        ("stale_if_error", &settings.stale_if_error),
    ];
    let chosen = chosen.into_iter().filter(|_| settings.cache.is_some());
    let chosen: Vec<TokenStream> = chosen
        .filter_map(|(name, value)| {
            let (name, value) = (format_ident!("{name}"), value.as_ref()?);
            Some(quote!(.#name(#value)))
        })
        .chain(settings.tags.as_ref().map(|tags| quote!(.tags(#tags))))
        .collect();
    match &settings.with {
        None if chosen.is_empty() => quote!(__forebay_cache),
        None => quote!(__forebay_cache.with(::forebay::Options::new() #(#chosen)*)),
        Some(with) => quote!(__forebay_cache.with((#with) #(#chosen)*)),
    }
}

/// Returns the conversion of the body's result to an `Answer`.
fn answer(returned: &Returned) -> TokenStream {
    let value = match (returned.optional, returned.shared) {
        (false, false) => quote!(::forebay::Answer::value(__forebay_value)),
        (false, true) => quote!(::forebay::Answer::shared(__forebay_value)),
        (true, false) => {
            quote!(__forebay_value.map_or_else(::forebay::Answer::absent, ::forebay::Answer::value))
        }
        (true, true) => quote!(
            __forebay_value.map_or_else(::forebay::Answer::absent, ::forebay::Answer::shared)
        ),
    };
    if returned.fails {
        quote!(__forebay_loaded.map(|__forebay_value| #value))
    } else {
        quote! {
            let __forebay_value = __forebay_loaded;
            ::core::result::Result::<_, ::forebay::Error>::Ok(#value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_error(settings: &str, function: &str) -> String {
        let settings = settings.parse().expect("tokens");
        let function = function.parse().expect("tokens");
        expand(settings, function).expect_err("invalid input").to_string()
    }

    #[test]
    fn invalid_settings_and_functions_are_compile_errors() {
        let plain = "async fn find(id: u64) -> u64 { id }";
        let rows = [
            ("", "fn find(id: u64) -> u64 { id }", "only an `async fn`"),
            ("", "async fn find(&self, id: u64) -> u64 { id }", "a method cannot"),
            ("", "async fn find((a, b): (u64, u64)) -> u64 { a + b }", "must be a name"),
            ("", "async fn find(all: &mut Vec<u64>) -> u64 { 1 }", "cannot be mutable"),
            ("", "async fn find(id: u64) { }", "returns nothing"),
            ("", "async fn find<T: Row>(id: u64) -> T { T::of(id) }", "a generic function"),
            ("", "async fn find<const N: u8>(id: u64) -> u64 { id }", "a generic function"),
            ("cache = all()", "async fn find<T: Row>(id: u64) -> u64 { id }", "set a `key`"),
            ("skip(db)", plain, "no argument `db`"),
            ("skip(id), key = \"a\"", plain, "remove `skip`"),
            ("tll = \"60s\"", plain, "unknown setting `tll`: known are cache, key"),
            ("ttl = \"60s\", ttl = \"61s\"", plain, "set twice"),
            ("ttl = 60", plain, "needs a unit"),
            ("ttl = \"60\"", plain, "expected a whole number"),
            ("ttl = \"1.5s\"", plain, "expected a whole number"),
            ("ttl = \"0s\"", plain, "longer than zero"),
            ("ttl = \"99999999999999999999s\"", plain, "expected a whole number"),
            ("cache = users(), entries = 9", plain, "`entries` is for a generated cache"),
            ("cache = users(), negative_ttl = \"1s\"", plain, "`negative_ttl` is for"),
            ("handle = 7", plain, "the name of the function"),
        ];
        for (settings, function, expected) in rows {
            let message = expand_error(settings, function);
            assert!(message.contains(expected), "{settings} {function}: {message}");
        }
    }

    #[test]
    fn durations_accept_all_units() {
        let function = "async fn find(id: u64) -> u64 { id }";
        for (written, secs, nanos) in
            [("250ms", 0, 250_000_000), ("60s", 60, 0), ("5m", 300, 0), ("1h", 3_600, 0)]
        {
            let settings = format!("ttl = \"{written}\"").parse().expect("tokens");
            let made = expand(settings, function.parse().expect("tokens")).expect("valid input");
            let made = made.to_string().replace(' ', "");
            assert!(made.contains(&format!("Duration::new({secs}u64,{nanos}u32)")), "{made}");
        }
    }

    #[test]
    fn lifetimes_and_parameters_in_the_key_are_accepted() {
        let rows = [
            ("", "async fn find<'a>(name: &'a str) -> u64 { 1 }"),
            ("cache = all(), key = \"find:{N}\"", "async fn find<const N: u8>() -> u64 { 1 }"),
        ];
        for (settings, function) in rows {
            let made = expand(settings.parse().expect("tokens"), function.parse().expect("tokens"));
            assert!(made.is_ok(), "{function}");
        }
    }
}
