//! The arguments and the return type of the function.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Error, FnArg, GenericArgument, Ident, ItemFn, Pat, PatType, PathArguments, PathSegment, Result,
    ReturnType, Type,
};

/// One argument of the function.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    /// The type behind a reference; the load gets a clone of the referenced value.
    pub(crate) referred: Option<Type>,
}

/// The return type of the function, in parts.
pub(crate) struct Returned {
    /// The type as written.
    pub(crate) written: TokenStream,
    /// The type of the cached values.
    pub(crate) value: TokenStream,
    /// `true` for a `Result`.
    pub(crate) fails: bool,
    /// `true` for an `Option`.
    pub(crate) optional: bool,
    /// `true` for an `Arc`.
    pub(crate) shared: bool,
}

/// Returns the arguments of the function.
///
/// # Errors
/// The function is not async, is a method, or has an argument that a load cannot own.
pub(crate) fn arguments(function: &ItemFn) -> Result<Vec<Argument>> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let message = "only an `async fn` can be cached";
        return Err(Error::new_spanned(signature.fn_token, message));
    }
    signature.inputs.iter().map(argument).collect()
}

fn argument(input: &FnArg) -> Result<Argument> {
    let FnArg::Typed(PatType { pat, ty, .. }) = input else {
        let message = "a method cannot be cached, because the load cannot own `self`: cache a \
                       function that gets what it needs as arguments";
        return Err(Error::new_spanned(input, message));
    };
    let Pat::Ident(pat) = &**pat else {
        return Err(Error::new_spanned(
            pat,
            "an argument of a cached function must be a name, not a pattern",
        ));
    };
    let referred = match &**ty {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let message = "an argument cannot be mutable by reference, because the load outlives \
                           its caller";
            return Err(Error::new_spanned(reference, message));
        }
        Type::Reference(reference) => Some((*reference.elem).clone()),
        _ => None,
    };
    Ok(Argument { name: pat.ident.clone(), referred })
}

impl Argument {
    /// Returns the statement that clones a referenced argument for the load.
    pub(crate) fn owned(&self) -> Option<TokenStream> {
        let (name, owned) = (&self.name, self.own_name());
        self.referred
            .as_ref()
            .map(|_| quote!(let #owned = ::std::borrow::ToOwned::to_owned(#name);))
    }

    /// Returns the statement that gives the body a reference to the clone.
    pub(crate) fn borrowed(&self) -> Option<TokenStream> {
        let (name, owned) = (&self.name, self.own_name());
        self.referred.as_ref().map(|referred| {
            quote!(let #name: &#referred = ::std::borrow::Borrow::borrow(&#owned); let _ = #name;)
        })
    }

    fn own_name(&self) -> Ident {
        format_ident!("__forebay_{}", self.name)
    }
}

impl Returned {
    /// Returns the return type of the function.
    ///
    /// # Errors
    /// The function returns nothing.
    pub(crate) fn of(function: &ItemFn) -> Result<Self> {
        let ReturnType::Type(_, written) = &function.sig.output else {
            let message = "the function returns nothing, so there is nothing to cache";
            return Err(Error::new_spanned(&function.sig.ident, message));
        };
        let mut value = &**written;
        let fails = strip(&mut value, "Result");
        let optional = strip(&mut value, "Option");
        let shared = strip(&mut value, "Arc");
        Ok(Self { written: quote!(#written), value: quote!(#value), fails, optional, shared })
    }
}

/// Removes one outer type of this name, such as `Option`, and returns `true` if there was one.
fn strip(outer: &mut &Type, name: &str) -> bool {
    let Type::Path(path) = *outer else { return false };
    let Some(PathSegment { ident, arguments: PathArguments::AngleBracketed(arguments) }) =
        path.path.segments.last()
    else {
        return false;
    };
    let Some(GenericArgument::Type(inner)) = arguments.args.first() else { return false };
    let matches = ident == name;
    if matches {
        *outer = inner;
    }
    matches
}
