//! Tables whose unknown names are errors.

use super::super::problem::Problems;
use super::super::typed::{Member, Raw, Typed};

/// Members of a table that were not read yet.
pub(super) struct Members<'t> {
    left: Vec<&'t Member>,
}

impl<'t> Members<'t> {
    /// Returns the members of a table; any other value is reported.
    pub(super) fn of(typed: &'t Typed, problems: &mut Problems) -> Option<Self> {
        let Raw::Table(members) = &typed.raw else {
            let message = format!("must be a table in {{ }}, not {}", typed.raw.shape());
            problems.report(typed.place, &typed.path, message);
            return None;
        };
        Some(Self { left: members.iter().collect() })
    }

    /// Takes the value of a member.
    pub(super) fn take(&mut self, name: &str) -> Option<&'t Typed> {
        let at = self.left.iter().position(|member| member.name == name)?;
        Some(&self.left.remove(at).value)
    }

    /// Returns the members that were not taken.
    pub(super) fn rest(self) -> Vec<&'t Member> {
        self.left
    }

    /// Reports the members that were not taken.
    pub(super) fn finish(self, known: &[&'static str], problems: &mut Problems) -> Option<()> {
        self.left.iter().for_each(|member| unknown(member, known, problems));
        self.left.is_empty().then_some(())
    }
}

/// Reports a name that is not known, with the nearest one.
pub(super) fn unknown(member: &Member, known: &[&'static str], problems: &mut Problems) {
    let slips = |name: &&&str| strsim::damerau_levenshtein(name, &member.name);
    let near = known.iter().min_by_key(slips).filter(|name| slips(name) <= name.len().div_ceil(3));
    let message = match near {
        Some(near) => format!("unknown field; did you mean \"{near}\"?"),
        None => format!("unknown field; the fields are {}", known.join(", ")),
    };
    problems.report(member.place, &member.value.path, message);
}

/// Reads one value or a list of them. Every invalid one is reported.
pub(super) fn one_or_more<T>(
    typed: &Typed,
    problems: &mut Problems,
    mut read: impl FnMut(&Typed, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    match &typed.raw {
        Raw::List(items) if items.is_empty() => {
            problems.report(typed.place, &typed.path, "must not be empty");
            None
        }
        Raw::List(items) => {
            let read: Vec<Option<T>> = items.iter().map(|item| read(item, problems)).collect();
            read.into_iter().collect()
        }
        _ => read(typed, problems).map(|value| vec![value]),
    }
}

/// Reads a list, which may be empty.
pub(super) fn list<T>(
    typed: &Typed,
    problems: &mut Problems,
    read: impl FnMut(&Typed, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    match &typed.raw {
        Raw::List(items) if items.is_empty() => Some(Vec::new()),
        Raw::List(_) => one_or_more(typed, problems, read),
        other => {
            let message = format!("must be a list in [ ], not {}", other.shape());
            problems.report(typed.place, &typed.path, message);
            None
        }
    }
}
