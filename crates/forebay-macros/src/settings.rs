//! The arguments of the attribute.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token, parenthesized};

/// Names of all settings, for error messages.
const KNOWN: &str = "cache, key, skip, ttl, negative_ttl, stale_while_revalidate, \
                     stale_if_error, tags, with, entries, name, handle";

/// The settings that the attribute names.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) cache: Option<Expr>,
    pub(crate) key: Option<Expr>,
    pub(crate) skip: Vec<Ident>,
    pub(crate) ttl: Option<TokenStream>,
    pub(crate) negative_ttl: Option<TokenStream>,
    pub(crate) stale_while_revalidate: Option<TokenStream>,
    pub(crate) stale_if_error: Option<TokenStream>,
    pub(crate) tags: Option<Expr>,
    pub(crate) with: Option<Expr>,
    pub(crate) entries: Option<Expr>,
    pub(crate) name: Option<Expr>,
    pub(crate) handle: Option<Ident>,
}

/// One setting as written.
struct Setting {
    name: Ident,
    value: Value,
}

enum Value {
    Expression(Expr),
    Names(Vec<Ident>),
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        if name == "skip" {
            let listed;
            parenthesized!(listed in input);
            let listed = Punctuated::<Ident, Token![,]>::parse_terminated(&listed)?;
            return Ok(Self { name, value: Value::Names(listed.into_iter().collect()) });
        }
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: Value::Expression(input.parse()?) })
    }
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut settings = Self::default();
        for setting in Punctuated::<Setting, Token![,]>::parse_terminated(input)? {
            settings.take(setting)?;
        }
        settings.check()?;
        Ok(settings)
    }
}

impl Settings {
    fn take(&mut self, Setting { name, value }: Setting) -> Result<()> {
        let value = match value {
            Value::Names(listed) => {
                self.skip.extend(listed);
                return Ok(());
            }
            Value::Expression(value) => value,
        };
        match name.to_string().as_str() {
            "cache" => once(&name, &mut self.cache, value),
            "key" => once(&name, &mut self.key, value),
            "tags" => once(&name, &mut self.tags, value),
            "with" => once(&name, &mut self.with, value),
            "entries" => once(&name, &mut self.entries, value),
            "name" => once(&name, &mut self.name, value),
            "handle" => once(&name, &mut self.handle, ident(&value)?),
            "ttl" => once(&name, &mut self.ttl, duration(value)?),
            "negative_ttl" => once(&name, &mut self.negative_ttl, duration(value)?),
            "stale_while_revalidate" => {
                once(&name, &mut self.stale_while_revalidate, duration(value)?)
            }
            "stale_if_error" => once(&name, &mut self.stale_if_error, duration(value)?),
            _ => {
                Err(Error::new(name.span(), format!("unknown setting `{name}`: known are {KNOWN}")))
            }
        }
    }

    /// Rejects settings of a generated cache beside `cache`.
    fn check(&self) -> Result<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let built = [
            ("entries", self.entries.is_some()),
            ("name", self.name.is_some()),
            ("handle", self.handle.is_some()),
            ("negative_ttl", self.negative_ttl.is_some()),
        ];
        match built.iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((name, _)) => Err(Error::new_spanned(
                cache,
                format!(
                    "`{name}` is for a generated cache, and `cache` names another one: remove one of them"
                ),
            )),
        }
    }
}

fn once<T>(name: &Ident, place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(name.span(), format!("`{name}` is set twice"))),
    }
}

fn ident(value: &Expr) -> Result<Ident> {
    match value {
        Expr::Path(path) => path.path.require_ident().cloned(),
        other => Err(Error::new_spanned(other, "expected the name of the function to generate")),
    }
}

/// Parses a duration: a string with a unit, or an expression.
fn duration(value: Expr) -> Result<TokenStream> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value else {
        if let Expr::Lit(bare) = &value {
            return Err(Error::new_spanned(bare, "a duration needs a unit, such as \"60s\""));
        }
        return Ok(quote!(#value));
    };
    let span = parsed(text)?;
    let (secs, nanos) = (span.as_secs(), span.subsec_nanos());
    Ok(quote!(::core::time::Duration::new(#secs, #nanos)))
}

fn parsed(text: &LitStr) -> Result<Duration> {
    let wrong =
        || Error::new(text.span(), "expected a whole number with a unit of ms, s, m, h or d");
    let whole = text.value();
    let digits = whole.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = whole[..digits].parse().map_err(|_| wrong())?;
    let millis = match &whole[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(millis) {
        None => Err(wrong()),
        Some(0) => Err(Error::new(text.span(), "a duration must be longer than zero")),
        Some(millis) => Ok(Duration::from_millis(millis)),
    }
}
