//! The function that takes the place of the one that was written.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Expr, ExprLit, GenericParam, ItemFn, Lit, Result};

use crate::settings::Settings;
use crate::signature::{Argument, Returned, arguments};

/// How many values a cache holds that is built here, unless told otherwise.
const ENTRIES: u64 = 10_000;

/// The function with a cache before it.
///
/// What runs on a hit stands outside of the load: the key is made, and the cache is asked. The
/// body is a part of the load, and owns what it needs.
pub(crate) fn expand(settings: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let settings: Settings = syn::parse2(settings)?;
    let function: ItemFn = syn::parse2(function)?;
    let arguments = arguments(&function)?;
    let returned = Returned::of(&function)?;
    check_parameters(&settings, &function)?;
    let key = key(&settings, &function, &arguments)?;
    let (cache, handle) = cache(&settings, &function, &returned);
    let asked = asked(&settings);
    let answer = answer(&returned);
    let owned = arguments.iter().filter_map(Argument::owned);
    let lent = arguments.iter().filter_map(Argument::lent);
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
                #(#lent)*
                let __forebay_loaded: #written = async move #body.await;
                #answer
            };
            let __forebay_found =
                #asked.get_or_load_with(__forebay_key, __forebay_load).await?;
            #unwrapped
        }
    })
}

/// Lifetimes do not matter: what is lent is copied.
fn check_parameters(settings: &Settings, function: &ItemFn) -> Result<()> {
    let generics = &function.sig.generics;
    let differs = |parameter: &GenericParam| !matches!(parameter, GenericParam::Lifetime(_));
    if !generics.params.iter().any(differs) {
        return Ok(());
    }
    let says = match (&settings.cache, &settings.key) {
        (None, _) => {
            "one cache holds values of one type: name the `cache` of a function with parameters \
             of its own"
        }
        (Some(_), None) => {
            "arguments do not tell apart what types and numbers it is called for: name a `key` \
             that does"
        }
        (Some(_), Some(_)) => return Ok(()),
    };
    Err(Error::new_spanned(generics, says))
}

/// What stands for one call: what was set, or the function's name with its arguments.
fn key(settings: &Settings, function: &ItemFn, arguments: &[Argument]) -> Result<TokenStream> {
    for skipped in &settings.skip {
        if !arguments.iter().any(|argument| argument.name == *skipped) {
            let says = format!("there is no argument `{skipped}` to skip");
            return Err(Error::new(skipped.span(), says));
        }
    }
    match &settings.key {
        Some(key) if !settings.skip.is_empty() => {
            Err(Error::new_spanned(key, "`key` names what it is made of: leave out `skip`"))
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

/// The cache that was named, or one that is built at the first call; and a function that hands it
/// out, if that was asked for.
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
    let handed_out = quote! {
        {
            static __FOREBAY_CACHE: ::std::sync::LazyLock<::forebay::Cache<#value>> =
                ::std::sync::LazyLock::new(|| #built);
            &*__FOREBAY_CACHE
        }
    };
    match &settings.handle {
        None => (handed_out, TokenStream::new()),
        Some(handle) => {
            let says = format!(" The cache of [`{}`].", function.sig.ident);
            let function = quote! {
                #[doc = #says]
                #visibility fn #handle() -> &'static ::forebay::Cache<#value> #handed_out
            };
            (quote!(#handle()), function)
        }
    }
}

fn built(settings: &Settings, function: &ItemFn) -> TokenStream {
    let own_name = function.sig.ident.to_string();
    let name = settings.name.as_ref().map_or_else(|| quote!(#own_name), |name| quote!(#name));
    let entries = &settings.entries;
    let entries = entries.as_ref().map_or_else(|| quote!(#ENTRIES), |entries| quote!(#entries));
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
            .unwrap_or_else(|refusal| ::core::panic!("`{}`: {refusal}", #own_name))
    }
}

/// The cache, for a call that wants something differently if any was set. Of a cache that is built
/// here, lifetimes are its own already.
fn asked(settings: &Settings) -> TokenStream {
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

/// What the body returned, as an answer.
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

    fn refusal(settings: &str, function: &str) -> String {
        let settings = settings.parse().expect("tokens");
        let function = function.parse().expect("tokens");
        expand(settings, function).expect_err("it cannot work").to_string()
    }

    #[test]
    fn what_cannot_work_is_refused_where_it_stands() {
        let plain = "async fn find(id: u64) -> u64 { id }";
        let rows = [
            ("", "fn find(id: u64) -> u64 { id }", "only an `async fn`"),
            ("", "async fn find(&self, id: u64) -> u64 { id }", "a method belongs"),
            ("", "async fn find((a, b): (u64, u64)) -> u64 { a + b }", "has a name"),
            ("", "async fn find(all: &mut Vec<u64>) -> u64 { 1 }", "cannot change"),
            ("", "async fn find(id: u64) { }", "returns nothing"),
            ("", "async fn find<T: Row>(id: u64) -> T { T::of(id) }", "values of one type"),
            ("", "async fn find<const N: u8>(id: u64) -> u64 { id }", "values of one type"),
            ("cache = all()", "async fn find<T: Row>(id: u64) -> u64 { id }", "name a `key`"),
            ("skip(db)", plain, "no argument `db`"),
            ("skip(id), key = \"a\"", plain, "leave out `skip`"),
            ("tll = \"60s\"", plain, "`tll` is not one of cache, key"),
            ("ttl = \"60s\", ttl = \"61s\"", plain, "set twice"),
            ("ttl = 60", plain, "has a unit"),
            ("ttl = \"60\"", plain, "a whole number with"),
            ("ttl = \"1.5s\"", plain, "a whole number with"),
            ("ttl = \"0s\"", plain, "nothing could be kept"),
            ("ttl = \"99999999999999999999s\"", plain, "a whole number with"),
            ("cache = users(), entries = 9", plain, "`entries` is for a cache that is built"),
            ("cache = users(), negative_ttl = \"1s\"", plain, "`negative_ttl` is for"),
            ("handle = 7", plain, "the name of a function"),
        ];
        for (settings, function, expected) in rows {
            let says = refusal(settings, function);
            assert!(says.contains(expected), "{settings} {function}: {says}");
        }
    }

    #[test]
    fn units_are_those_of_every_setting() {
        let function = "async fn find(id: u64) -> u64 { id }";
        for (written, secs, nanos) in
            [("250ms", 0, 250_000_000), ("60s", 60, 0), ("5m", 300, 0), ("1h", 3_600, 0)]
        {
            let settings = format!("ttl = \"{written}\"").parse().expect("tokens");
            let made = expand(settings, function.parse().expect("tokens")).expect("it works");
            let made = made.to_string().replace(' ', "");
            assert!(made.contains(&format!("Duration::new({secs}u64,{nanos}u32)")), "{made}");
        }
    }

    #[test]
    fn parameters_that_the_key_cannot_mistake_are_taken() {
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
