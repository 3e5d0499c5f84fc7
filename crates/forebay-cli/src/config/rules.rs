//! `[[site.rule]]` and `[[rule]]`: rules as typed, to rules of `forebay-rules`.
//!
//! | module | contents |
//! |---|---|
//! | `conditions` | `when` and `unless` |
//! | `settings` | settings of a rule, by name |
//! | `keys` | header fields and cookies in the key |
//! | `edits` | edits of header fields, values and placeholders |
//! | `transforms` | `[[site.transform]]`, the short form |
//! | `purges` | purges by requests of clients |
//! | `json` | cuts of JSON bodies |
//! | `members` | tables whose unknown names are errors |

mod conditions;
mod edits;
mod json;
mod keys;
mod members;
mod purges;
mod settings;
#[cfg(test)]
mod tests;
mod transforms;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use forebay_rules::check::{Topic, warnings};
use forebay_rules::validate::faults;
use forebay_rules::{CompileError, Kind, NamePattern, Rule, RuleSet, Setting, SiteFacts};

use super::file::{File, SiteFile};
use super::problem::{Place, Problems};
use super::reader;
use super::typed::{Raw, Typed};
use members::Members;
use settings::SettingReader;

/// Rules of a site with their positions in the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResolvedRules {
    pub(crate) set: Arc<RuleSet>,
    /// Position of each rule, in the order of the set.
    places: Vec<Place>,
}

/// Warning about a rule, with its position.
#[derive(Debug, Clone)]
pub(crate) struct RuleWarning {
    pub(crate) place: Place,
    pub(crate) topic: Topic,
    pub(crate) message: String,
}

/// Rule that ignores prohibitions of the origin.
#[derive(Debug, Clone)]
pub(crate) struct UnsafeRule {
    pub(crate) rule: String,
    pub(crate) words: String,
}

/// Rule with the positions of its parts.
struct TypedRule {
    rule: Rule,
    place: Place,
    settings: HashMap<Kind, Place>,
}

impl ResolvedRules {
    /// Returns each rule that ignores a prohibition, with the words.
    pub(crate) fn unsafe_words(&self) -> Vec<UnsafeRule> {
        let words = |rule: &Rule| match rule.setting(Kind::UnsafeIgnore) {
            Some(Setting::UnsafeIgnore(words)) => {
                let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
                Some(UnsafeRule { rule: rule.name.to_string(), words: words.join(",") })
            }
            _ => None,
        };
        self.set.rules().iter().filter_map(words).collect()
    }

    /// Returns the warnings about the rules, in file order.
    pub(crate) fn warnings(&self) -> Vec<RuleWarning> {
        let found = warnings(&self.set);
        let sentence = |warning: &forebay_rules::check::Warning| RuleWarning {
            place: self.places.get(warning.rule).copied().unwrap_or(Place::Whole),
            topic: warning.topic,
            message: format!(
                "rule \"{}\" {}",
                self.set.rules().get(warning.rule).map_or("", |rule| &rule.name),
                warning.message
            ),
        };
        found.iter().map(sentence).collect()
    }
}

/// Returns the options of a site that its rules depend on.
pub(super) fn facts(
    ignore_query: Option<&[String]>,
    sort_query: Option<bool>,
    ignore_scheme: Option<bool>,
) -> SiteFacts {
    let names = ignore_query.unwrap_or_default().iter();
    SiteFacts {
        ignore_query: names.filter_map(|name| NamePattern::parse(name).ok()).collect(),
        sort_query: sort_query.unwrap_or_default(),
        ignore_scheme: ignore_scheme.unwrap_or_default(),
    }
}

/// Reads and compiles the rules of a site: those of every site, its own, and its transformations.
/// Every error is reported.
pub(super) fn of_site(
    site: &SiteFile,
    file: &File,
    facts: SiteFacts,
    folder: &Path,
    problems: &mut Problems,
) -> Option<ResolvedRules> {
    let lists = [file.rules.as_ref(), site.rules.as_ref()];
    let transforms = site.transforms.as_ref();
    let mut typed = Vec::new();
    let mut is_whole = true;
    for list in lists.into_iter().flatten() {
        for table in tables(list, "[[site.rule]]", problems) {
            match rule(table, folder, problems) {
                Some(rule) => typed.push(rule),
                None => is_whole = false,
            }
        }
    }
    let transforms = transforms.map(|list| tables(list, "[[site.transform]]", problems));
    for (n, table) in transforms.into_iter().flatten().enumerate() {
        match transforms::rule(n + 1, table, folder, problems) {
            Some(rule) => typed.push(rule),
            None => is_whole = false,
        }
    }
    unique_names(&typed, problems);
    for one in &typed {
        for fault in faults(&one.rule) {
            let place = fault.kind.and_then(|kind| one.settings.get(&kind));
            let message = format!("rule \"{}\": {}", one.rule.name, fault.message);
            problems.report(*place.unwrap_or(&one.place), "", message);
        }
    }
    let places: Vec<Place> = typed.iter().map(|one| one.place).collect();
    let rules = typed.into_iter().map(|one| one.rule).collect();
    match RuleSet::new(rules, facts) {
        Ok(set) => is_whole.then(|| ResolvedRules { set: Arc::new(set), places }),
        Err(error) => {
            let rule = match error {
                CompileError::TooManySplits { rule } | CompileError::UnkeyedScheme { rule } => rule,
                _ => 0,
            };
            problems.report(
                places.get(rule).copied().unwrap_or(Place::Whole),
                "rule",
                error.to_string(),
            );
            None
        }
    }
}

/// Tables of a list of tables.
fn tables<'t>(list: &'t Typed, header: &str, problems: &mut Problems) -> Vec<&'t Typed> {
    let says = format!("must be a list of tables; write {header} above each one's fields");
    let Raw::List(items) = &list.raw else {
        problems.report(list.place, &list.path, says);
        return Vec::new();
    };
    let (tables, others): (Vec<_>, Vec<_>) =
        items.iter().partition(|item| matches!(item.raw, Raw::Table(_)));
    others.iter().for_each(|item| problems.report(item.place, &item.path, &*says));
    tables
}

fn unique_names(rules: &[TypedRule], problems: &mut Problems) {
    for (n, one) in rules.iter().enumerate() {
        if rules[..n].iter().any(|earlier| earlier.rule.name == one.rule.name) {
            let message = format!("\"{}\" is already the name of another rule", one.rule.name);
            problems.report(one.place, "rule.name", message);
        }
    }
}

fn rule(typed: &Typed, folder: &Path, problems: &mut Problems) -> Option<TypedRule> {
    let mut members = Members::of(typed, problems)?;
    let name = match members.take("name") {
        Some(name) => (reader::SITE_ID.read)(name, problems),
        None => {
            let message = "is required: a name for messages and metrics, such as \"images\"";
            problems.report(typed.place, &format!("{}.name", typed.path), message);
            None
        }
    };
    let when = members.take("when").map(|when| conditions::alternatives(when, problems));
    let unless = members.take("unless").map(|unless| conditions::alternatives(unless, problems));
    let mut reader = SettingReader { folder, problems, settings: Vec::new(), is_whole: true };
    for member in members.rest() {
        reader.read(member);
    }
    let SettingReader { settings, is_whole, .. } = reader;
    // Invalid parts were reported; the rest is checked further.
    let (name, when, unless) =
        (name?, when.unwrap_or(Some(Vec::new()))?, unless.unwrap_or(Some(Vec::new()))?);
    is_whole.then(|| TypedRule {
        place: typed.place,
        settings: settings.iter().map(|(setting, place)| (setting.kind(), *place)).collect(),
        rule: Rule {
            name: name.into(),
            when,
            unless: unless.into_iter().flatten().collect(),
            settings: settings.into_iter().map(|(setting, _)| setting).collect(),
        },
    })
}
