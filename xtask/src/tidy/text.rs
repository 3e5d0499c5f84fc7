//! What no line of any file may hold: white space at its end, paths of somebody's machine.

use super::{Finding, Text};

pub(super) fn check(text: &Text) -> Vec<Finding> {
    let lines = text.text.lines().zip(1..);
    lines
        .flat_map(|(line, number)| {
            let complaints = [trailing(line), machine_path(line)];
            complaints.into_iter().flatten().map(move |says| (number, says))
        })
        .map(|(number, says)| Finding::new(&text.path, number, says))
        .collect()
}

fn trailing(line: &str) -> Option<String> {
    let ends = line.ends_with(|c: char| c.is_whitespace());
    ends.then(|| "white space at the end of the line; remove it".to_owned())
}

/// The folders that paths of a machine begin with. Written without slashes, so that this file
/// does not hold such a path itself.
const ANY_BELOW: &[&str] = &["home", "root"];
const LETTER_BELOW: &[&str] = &["work", "tmp"];

fn machine_path(line: &str) -> Option<String> {
    let any = ANY_BELOW.iter().find(|folder| holds(line, folder, |_| true));
    let letter = |after: Option<char>| after.is_some_and(char::is_alphabetic);
    let found = any.or_else(|| LETTER_BELOW.iter().find(|folder| holds(line, folder, letter)));
    found.map(|folder| format!("a path below `{folder}` of some machine; make it relative"))
}

/// Whether a path from the root leads into `folder`, and what follows is as it should be.
fn holds(line: &str, folder: &str, follows: impl Fn(Option<char>) -> bool) -> bool {
    let pattern = format!("/{folder}/");
    line.match_indices(&pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        // Preceded by a name, it is the middle of a relative path or of an address.
        let is_from_root = !before.is_some_and(|c| c.is_alphanumeric() || "/._-}>".contains(c));
        is_from_root && follows(line[at + pattern.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<usize> {
        let text = Text { path: "a.md".to_owned(), text: text.to_owned() };
        check(&text).into_iter().map(|finding| finding.line).collect()
    }

    fn path(folder: &str, rest: &str) -> String {
        format!("see /{folder}/{rest}")
    }

    #[test]
    fn white_space_at_the_end_trips() {
        assert_eq!(findings("a\nb \n\n\tc\nd\t\n"), [2, 5]);
    }

    #[test]
    fn paths_of_a_machine_trip() {
        for line in [path("home", "a"), path("root", ""), path("work", "a"), path("tmp", "a")] {
            assert_eq!(findings(&line), [1], "{line}");
        }
    }

    #[test]
    fn other_paths_do_not() {
        for line in [
            path("tmp", ""),
            path("tmp", "$NAME"),
            path("var", "cache/forebay"),
            format!("shop.example{}", &path("home", "a")[4..]),
            format!("docs{}", &path("work", "a")[4..]),
        ] {
            assert_eq!(findings(&line), [0; 0], "{line}");
        }
    }
}
