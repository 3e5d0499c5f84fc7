//! Rivals: how each is installed, started, configured and described.
//!
//! Libraries of other languages run as child processes that read commands; so do the Rust libraries
//! and forebay itself ([`own`]), so that all of them are measured alike.
//!
//! | file | contents |
//! |---|---|
//! | `catalog.rs` | names, reasons for the settings, documentation |
//! | `install.rs` | installation by npm and Go, with pinned versions |
//! | `peer.rs` | a child process and its commands |
//! | `own.rs` | the Rust libraries as such a child process |

pub(crate) mod catalog;
pub(crate) mod install;
pub(crate) mod own;
pub(crate) mod peer;

use std::fmt;

use serde_json::{Value, json};

/// A rival in a report.
#[derive(Clone)]
pub(crate) struct Rival {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) settings: String,
    /// Reason for the settings.
    pub(crate) why: &'static str,
    pub(crate) documentation: &'static str,
    /// Reason why it was not measured.
    pub(crate) missing: Option<String>,
}

impl Rival {
    /// A rival that was not measured.
    pub(crate) fn missing(name: &str, reason: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            version: String::new(),
            settings: String::new(),
            why: "",
            documentation: "",
            missing: Some(reason.into()),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "version": self.version,
            "settings": self.settings,
            "why": self.why,
            "documentation": self.documentation,
            "missing": self.missing,
        })
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.missing {
            Some(reason) => write!(f, "{}: not measured: {reason}", self.name),
            None => write!(
                f,
                "{} {}\n  settings: {}\n  why: {} ({})",
                self.name, self.version, self.settings, self.why, self.documentation
            ),
        }
    }
}
