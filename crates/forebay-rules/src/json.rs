//! Cuts of JSON bodies: spans of bytes are left out, and all others stay as they are.

mod cut;
pub(crate) mod scanner;

pub use cut::cut;

/// Maximum number of pointers in one list.
pub const POINTERS_MAX: usize = 64;

/// Parts of a JSON body that a rule removes or keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonCut {
    /// Values that are removed, with their names.
    pub remove: Vec<Pointer>,
    /// Values that are kept; all others are removed. Empty keeps all.
    pub keep: Vec<Pointer>,
    /// Maximum length of the body in bytes.
    pub max: usize,
    /// Treatment of a body that is longer, or no JSON.
    pub on_error: OnError,
}

/// Treatment of a body that cannot be cut. It is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The client gets 502.
    Fail,
    /// The client gets the body unchanged.
    Pass,
}

/// JSON Pointer (RFC 6901), in which `*` is every member or element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(Box<[Step]>);

/// One step of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Member with this name, or element with this number.
    Name(Box<str>),
    /// Every member or element.
    Any,
}

impl Pointer {
    /// Parses a pointer, such as `/items/*/price`.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(steps) = text.strip_prefix('/') else {
            return Err("must begin with \"/\", such as \"/items/*/price\"".into());
        };
        let step = |step: &str| match step {
            "*" => Step::Any,
            name => Step::Name(name.replace("~1", "/").replace("~0", "~").into()),
        };
        Ok(Self(steps.split('/').map(step).collect()))
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            Step::Any => f.write_str("/*"),
            Step::Name(name) => write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")),
        })
    }
}

impl Step {
    fn is(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => **own == *name,
            Self::Any => true,
        }
    }
}

/// Body that is no JSON text (RFC 8259), or nested deeper than 128 levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is no JSON text, or is nested deeper than {} levels", scanner::DEPTH_MAX)]
pub struct Malformed;
