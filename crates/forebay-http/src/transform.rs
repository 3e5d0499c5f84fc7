//! Transforms: policy of a site in Rust, for what declared rules cannot say.
//!
//! A [`Transform`] runs after the rules of each phase. Its [`Inputs`] become parts of the key, and
//! the phases that shape stored responses see the key alone, so that equal keys give equal stored
//! responses. The edit types refuse what rules may not edit either.
//!
//! ```
//! use forebay_http::transform::{FieldEdit, Inputs, KeyedView, Transform, TransformResult};
//!
//! /// Sends the tenant of the request to the origin in a field of its own.
//! struct Tenant;
//!
//! impl Transform for Tenant {
//!     fn name(&self) -> &'static str {
//!         "tenant"
//!     }
//!
//!     fn inputs(&self) -> Inputs {
//!         Inputs::none().header("x-app")
//!     }
//!
//!     fn origin_request(
//!         &self,
//!         request: &KeyedView<'_>,
//!         fields: &mut FieldEdit<'_>,
//!     ) -> TransformResult {
//!         let app = request.header("x-app").unwrap_or("none");
//!         fields.set("x-tenant", app.split('.').next().unwrap_or(app))
//!     }
//! }
//! ```

mod edits;
mod run;
mod views;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_rules::edit::is_fixed;
use forebay_rules::{CompileError, Edits, KeyParts, Keyed, Rule, RuleSet, Setting};
use http::{HeaderName, Response};

use crate::warnings::WarningLimits;

pub use edits::{FieldEdit, RequestEdit, ResponseEdit};
pub(crate) use run::{Asked, TransformFailed, safe};
pub use views::{KeyedView, RequestView};

/// Maximum number of transforms of a site.
const TRANSFORMS_MAX: usize = 16;

/// Policy of a site in Rust. Every method has a default that does nothing. A method must not block:
/// it runs on the threads that serve all requests.
///
/// A panic or an error before the fetch gives the client 500, a later one 502, and nothing is stored.
pub trait Transform: Send + Sync + 'static {
    /// Returns the name of the transform, unique in its site: the rule label of its metrics.
    fn name(&self) -> &'static str;

    /// Returns the request fields and cookies that the transform reads in the phases of the origin.
    /// They become parts of the key, and clients see them in `Vary`.
    fn inputs(&self) -> Inputs {
        Inputs::none()
    }

    /// Edits the request of the client before lookup and fetch, answers it, or bypasses the cache.
    fn client_request(&self, _: &mut RequestEdit<'_>) -> Next {
        Next::Continue
    }

    /// Sets options of the lookup.
    fn cache_request(&self, _: &RequestView<'_>, _: &mut LookupOptions) {}

    /// Edits a request to the origin.
    ///
    /// # Errors
    /// If the request cannot be edited. It is then not sent.
    fn origin_request(&self, _: &KeyedView<'_>, _: &mut FieldEdit<'_>) -> TransformResult {
        Ok(())
    }

    /// Edits a response of the origin before it is stored.
    ///
    /// # Errors
    /// If the response cannot be edited. The client then gets 502.
    fn origin_response(&self, _: &KeyedView<'_>, _: &mut ResponseEdit<'_>) -> TransformResult {
        Ok(())
    }

    /// Edits a response that is served from storage.
    fn cache_response(&self, _: &RequestView<'_>, _: &mut FieldEdit<'_>) {}

    /// Edits a response to a client.
    fn client_response(&self, _: &RequestView<'_>, _: &mut FieldEdit<'_>) {}
}

/// Next step of a request after [`Transform::client_request`].
#[derive(Debug)]
pub enum Next {
    /// The request goes on.
    Continue,
    /// The cache is bypassed: no lookup, no storing, no coalescing.
    Bypass,
    /// The client gets this response, with `Cache-Control: no-store`. Later transforms are not asked.
    Respond(Response<Bytes>),
}

/// Request fields and cookies that a transform reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    headers: Vec<Box<str>>,
    cookies: Vec<Box<str>>,
}

impl Inputs {
    /// Returns no inputs.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a request field.
    #[must_use]
    pub fn header(mut self, name: &str) -> Self {
        self.headers.push(name.to_ascii_lowercase().into());
        self
    }

    /// Adds a cookie.
    #[must_use]
    pub fn cookie(mut self, name: &str) -> Self {
        self.cookies.push(name.into());
        self
    }

    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|its| its.eq_ignore_ascii_case(name))
    }

    pub(crate) fn has_cookie(&self, name: &str) -> bool {
        self.cookies.iter().any(|its| **its == *name)
    }
}

/// Options of a lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupOptions {
    /// Ignores `no-cache`, `max-age` and `min-fresh` of the request, if `true`.
    pub ignores_client_cache_control: bool,
    /// Time after which a stale response is served while the fetch goes on; `None` keeps that of the
    /// site and its rules.
    pub soft_timeout: Option<Duration>,
}

/// Result of an edit.
pub type TransformResult = Result<(), TransformError>;

/// Reason why an edit is refused, or why a transform cannot do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransformError(Box<str>);

impl TransformError {
    /// Creates an error from a sentence for the log.
    #[must_use]
    pub fn new(sentence: impl Into<Box<str>>) -> Self {
        Self(sentence.into())
    }
}

/// Reason why transforms cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformsError {
    /// There are too many transforms.
    #[error("a site has at most {TRANSFORMS_MAX} transforms")]
    TooMany,
    /// Two transforms have one name, or a name is empty.
    #[error("the name \"{0}\" of a transform is empty or not unique")]
    Name(&'static str),
    /// A field cannot be an input: framing and credentials cannot be parts of the key.
    #[error("\"{1}\" cannot be an input of the transform \"{0}\"")]
    Input(&'static str, Box<str>),
    /// The rules of the site do not compile with the transforms.
    #[error(transparent)]
    Rules(#[from] CompileError),
}

/// Transforms of a site, in the order in which they run.
#[derive(Clone, Default)]
pub struct Transforms(Vec<Active>);

/// Transform with its inputs.
#[derive(Clone)]
struct Active {
    transform: Arc<dyn Transform>,
    inputs: Inputs,
    /// Limiter of the warnings about its failures.
    warnings: Arc<WarningLimits>,
}

impl Transforms {
    /// Checks transforms, and adds a rule for each of them to the rules of a site: with its inputs as
    /// parts of the key.
    pub(crate) fn new(
        transforms: Vec<Arc<dyn Transform>>,
        rules: &RuleSet,
    ) -> Result<(Self, RuleSet), TransformsError> {
        if transforms.len() > TRANSFORMS_MAX {
            return Err(TransformsError::TooMany);
        }
        let (mut active, mut all): (Vec<Active>, _) = (Vec::new(), rules.rules().to_vec());
        for transform in transforms {
            let (name, inputs) = (transform.name(), transform.inputs());
            if name.is_empty() || active.iter().any(|other| other.transform.name() == name) {
                return Err(TransformsError::Name(name));
            }
            if let Some(input) = inputs.headers.iter().find(|name| !is_input(name)) {
                return Err(TransformsError::Input(name, input.clone()));
            }
            all.push(rule_of(name, &inputs));
            active.push(Active { transform, inputs, warnings: Arc::default() });
        }
        Ok((Self(active), RuleSet::new(all, rules.facts().clone())?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn is_input(name: &str) -> bool {
    let is_credential = matches!(name, "authorization" | "set-cookie");
    !is_fixed(name) && !is_credential && HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// Begin of the names of rules that stand for transforms. No other rule can have such a name.
const RULE: &str = "transform ";

/// Returns true if a rule stands for a transform.
pub(crate) fn is_rule(name: &str) -> bool {
    name.starts_with(RULE)
}

/// Returns the rule with the inputs of a transform. Its empty edits keep requests on the path of rules.
fn rule_of(name: &str, inputs: &Inputs) -> Rule {
    let keyed = |names: &[Box<str>]| {
        names.iter().map(|name| Keyed { name: name.clone(), values: Vec::new() }).collect()
    };
    let mut settings = vec![Setting::ClientResponse(Edits::default())];
    if *inputs != Inputs::default() {
        settings.push(Setting::Key(KeyParts {
            headers: keyed(&inputs.headers),
            cookies: keyed(&inputs.cookies),
            ..KeyParts::default()
        }));
    }
    let name = format!("{RULE}{name}").into();
    Rule { name, when: Vec::new(), unless: Vec::new(), settings }
}

impl PartialEq for Transforms {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Active, &Active)| {
            Arc::ptr_eq(&one.transform, &other.transform) && one.inputs == other.inputs
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(is_same)
    }
}

impl Eq for Transforms {}

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|active| active.transform.name())).finish()
    }
}
