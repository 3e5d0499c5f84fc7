//! Every option, declared once: table, name, type, default, bounds, description and reason.
//!
//! The file check, the resolved configuration and `docs/config.md` all use this table, so none of
//! them can know an option that the others do not.

use super::reader::Reader;
use super::table::Table;

/// Default of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    /// Fixed value, as it would be typed.
    Value(&'static str),
    /// Value derived from others; the sentence describes it.
    Derived(&'static str),
    /// No default: the option is required.
    Required,
}

/// Part of an option's declaration that does not depend on its type.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "kind, doc and reason are used only to render docs/config.md")
)]
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) table: Table,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) preset: Preset,
    /// Minimum and maximum, as they would be typed.
    pub(crate) bounds: Option<(&'static str, &'static str)>,
    pub(crate) doc: &'static str,
    pub(crate) reason: &'static str,
    /// Checks the default and the bounds.
    #[cfg(test)]
    pub(crate) check: fn(),
}

impl Spec {
    /// Path without indexes, such as `site.fetch_timeout`.
    pub(crate) fn path(&self) -> String {
        match self.table.path() {
            "" => self.name.to_owned(),
            table => format!("{table}.{}", self.name),
        }
    }
}

/// Option with its type.
#[derive(Debug)]
pub(crate) struct Field<T: 'static> {
    pub(crate) spec: Spec,
    pub(crate) reader: Reader<T>,
}

/// Declares options: `NAME: Type = Table "name", reader, preset, (bounds)?; "doc", "reason"`.
macro_rules! options {
    ($all:ident; $(
        $name:ident: $type:ty = $table:ident $key:literal, $reader:expr, $preset:expr
        $(, $low:literal to $high:literal)?;
        $doc:literal, $reason:literal;
    )*) => {
        $(pub(crate) static $name: super::Field<$type> = super::Field {
            spec: super::Spec {
                table: crate::config::table::Table::$table,
                name: $key,
                kind: $reader.kind,
                preset: $preset,
                bounds: options!(@bounds $($low $high)?),
                doc: $doc,
                reason: $reason,
                #[cfg(test)]
                check: || super::tests::check(&$name),
            },
            reader: $reader,
        };)*

        /// Options of this file, in the order of `docs/config.md`.
        pub(super) static $all: &[&super::Spec] = &[$(&$name.spec),*];
    };
    (@bounds) => { None };
    (@bounds $low:literal $high:literal) => { Some(($low, $high)) };
}

// Below the macro, which is in scope from here on.
mod origin;
mod server;
mod site;
mod tiers;

pub(crate) use origin::*;
pub(crate) use server::*;
pub(crate) use site::*;
pub(crate) use tiers::*;

/// Returns every option, in the order of `docs/config.md`.
pub(crate) fn all() -> impl Iterator<Item = &'static Spec> {
    let files = [SERVER_OPTIONS, TIERS_OPTIONS, SITE_OPTIONS, ORIGIN_OPTIONS];
    files.into_iter().flatten().copied()
}

impl Table {
    /// Names of all options and subtables of the table.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.options().map(|spec| spec.name).chain(self.tables().iter().copied())
    }

    /// Options of the table.
    pub(crate) fn options(self) -> impl Iterator<Item = &'static Spec> {
        all().filter(move |spec| spec.table == self)
    }
}

/// Options and tables of later versions, with what this version lacks.
pub(crate) const LATER: &[(&str, &str)] =
    &[("memcached", "has no memcached tier"), ("site.log", "has no log level per site")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::problem::Problems;
    use crate::config::typed::Typed;
    use std::cmp::Ordering;
    use std::collections::HashSet;
    use std::fmt::Debug;

    fn parsed<T: Debug>(field: &Field<T>, text: &str) -> T {
        let typed = Typed::from_default(field.spec.path(), text);
        let typed = typed.unwrap_or_else(|| panic!("{}: not TOML: {text}", field.spec.path()));
        let mut problems = Problems::new(None);
        (field.reader.read)(&typed, &mut problems).unwrap_or_else(|| panic!("{problems}"))
    }

    /// Asserts that the default and the bounds are valid, printed as declared, and in order.
    pub(super) fn check<T: Debug>(field: &Field<T>) {
        let path = field.spec.path();
        let preset = match field.spec.preset {
            Preset::Value(text) => {
                let value = parsed(field, text);
                let normal = text.replace("\"60s\"", "\"1m\"");
                assert_eq!((field.reader.show)(&value), normal, "{path}");
                Some(value)
            }
            _ => None,
        };
        let Some((low, high)) = field.spec.bounds else { return };
        let order = field.reader.order.unwrap_or_else(|| panic!("{path}: bounds without order"));
        let (low, high) = (parsed(field, low), parsed(field, high));
        assert_eq!(order(&low, &high), Ordering::Less, "{path}");
        if let Some(value) = preset {
            assert_ne!(order(&low, &value), Ordering::Greater, "{path}");
            assert_ne!(order(&value, &high), Ordering::Greater, "{path}");
        }
    }

    #[test]
    fn every_default_and_bound_is_valid() {
        all().for_each(|spec| (spec.check)());
    }

    #[test]
    fn every_option_has_a_description_and_a_unique_name() {
        let mut paths = HashSet::new();
        for spec in all() {
            let path = spec.path();
            assert!(spec.doc.ends_with('.') && spec.reason.ends_with('.'), "{path}");
            assert!(paths.insert(path.clone()), "{path} is declared twice");
        }
        for (path, _) in LATER {
            assert!(paths.insert((*path).to_owned()), "{path} is both here and for later");
        }
    }
}
