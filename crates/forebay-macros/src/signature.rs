//! What is asked of the function: its arguments, and what it returns.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Error, FnArg, GenericArgument, Ident, ItemFn, Pat, PatType, PathArguments, PathSegment, Result,
    ReturnType, Type,
};

/// One argument.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    /// What it refers to, if it is a reference: then the load has one of its own.
    pub(crate) referred: Option<Type>,
}

/// What the function returns, taken apart.
pub(crate) struct Returned {
    /// As it was written.
    pub(crate) written: TokenStream,
    /// What the cache holds.
    pub(crate) value: TokenStream,
    /// Whether it may fail.
    pub(crate) fails: bool,
    /// Whether there may be nothing.
    pub(crate) optional: bool,
    /// Whether it is shared already.
    pub(crate) shared: bool,
}

/// The arguments of a function that can be cached.
pub(crate) fn arguments(function: &ItemFn) -> Result<Vec<Argument>> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let says = "only an `async fn` can be cached: others have nothing to wait for";
        return Err(Error::new_spanned(signature.fn_token, says));
    }
    signature.inputs.iter().map(argument).collect()
}

fn argument(input: &FnArg) -> Result<Argument> {
    let FnArg::Typed(PatType { pat, ty, .. }) = input else {
        let says = "a method belongs to a value that the load cannot own: cache a function that \
                    is given what it needs";
        return Err(Error::new_spanned(input, says));
    };
    let Pat::Ident(pat) = &**pat else {
        return Err(Error::new_spanned(pat, "an argument of a cached function has a name"));
    };
    let referred = match &**ty {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let says = "a load goes on without its caller, and cannot change what is the caller's";
            return Err(Error::new_spanned(reference, says));
        }
        Type::Reference(reference) => Some((*reference.elem).clone()),
        _ => None,
    };
    Ok(Argument { name: pat.ident.clone(), referred })
}

impl Argument {
    /// Lets the load have what it needs: a copy of what is only lent to the call.
    pub(crate) fn owned(&self) -> Option<TokenStream> {
        let (name, owned) = (&self.name, self.own_name());
        self.referred
            .as_ref()
            .map(|_| quote!(let #owned = ::std::borrow::ToOwned::to_owned(#name);))
    }

    /// Gives the body what it was written for.
    pub(crate) fn lent(&self) -> Option<TokenStream> {
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
    pub(crate) fn of(function: &ItemFn) -> Result<Self> {
        let ReturnType::Type(_, written) = &function.sig.output else {
            let says = "it returns nothing, so there is nothing to cache";
            return Err(Error::new_spanned(&function.sig.ident, says));
        };
        let mut value = &**written;
        let fails = strip(&mut value, "Result");
        let optional = strip(&mut value, "Option");
        let shared = strip(&mut value, "Arc");
        Ok(Self { written: quote!(#written), value: quote!(#value), fails, optional, shared })
    }
}

/// Takes off one layer of this name, if there is one.
fn strip(outer: &mut &Type, name: &str) -> bool {
    let Type::Path(path) = *outer else { return false };
    let Some(PathSegment { ident, arguments: PathArguments::AngleBracketed(arguments) }) =
        path.path.segments.last()
    else {
        return false;
    };
    let Some(GenericArgument::Type(inner)) = arguments.args.first() else { return false };
    let is_it = ident == name;
    if is_it {
        *outer = inner;
    }
    is_it
}
