//! Links in Markdown that lead to files of this repository must find them.

use super::{Finding, Text, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = tree.texts().iter().filter(|text| text.path.ends_with(".md"));
    pages.flat_map(|page| check_page(tree, page)).collect()
}

fn check_page(tree: &Tree, page: &Text) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in prose(&page.text) {
        for target in targets(&line) {
            let leads = path_of(&target).map(|path| resolve(&page.path, path));
            let is_broken = match leads {
                None => false,
                Some(None) => true,
                Some(Some(path)) => !path.is_empty() && !tree.holds(&path),
            };
            if is_broken {
                let says = format!("the link to `{target}` finds no file; mend or remove it");
                findings.push(Finding::new(&page.path, number, says));
            }
        }
    }
    findings
}

/// The lines outside fenced blocks, with inline code blanked out.
fn prose(text: &str) -> Vec<(String, usize)> {
    let mut is_fenced = false;
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            lines.push((line.split('`').step_by(2).collect::<Vec<_>>().join("`"), number));
        }
    }
    lines
}

/// Where the links of a line lead: `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let inline = line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        rest[..rest.find(')')?].split_whitespace().next()
    });
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let reference = reference.and_then(|(_, target)| target.split_whitespace().next());
    inline.chain(reference).map(str::to_owned).collect()
}

/// The path of a link that leads to a file, without the place in it.
fn path_of(target: &str) -> Option<&str> {
    let target = target.trim_start_matches('<').trim_end_matches('>');
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().unwrap_or_default();
    (!is_elsewhere && !path.is_empty()).then_some(path)
}

/// The path from the root; None when it leads out of the repository.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(page: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            (page, text),
            ("docs/stale.md", ""),
            ("docs/adr/0001-a.md", ""),
            ("LICENSE-MIT", ""),
        ]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_that_lead_somewhere_do_not_trip() {
        let text = "[a](docs/stale.md) [b](docs/) [c](./LICENSE-MIT#top \"the licence\")\n\
                    [d](https://example.org/x.md) [e](#below) [f](mailto:a@example.org)\n\
                    [g]: docs/stale.md\n";
        assert_eq!(broken("README.md", text), [0; 0]);
        let text = "[a](stale.md) [b](adr/0001-a.md) [c](../LICENSE-MIT) [d](..)";
        assert_eq!(broken("docs/index.md", text), [0; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_trip() {
        let text = "fine\n[a](docs/gone.md)\n[b](docs/stale.md) [c](stale.md)\n[d]: gone.md\n";
        assert_eq!(broken("README.md", text), [2, 3, 4]);
    }

    #[test]
    fn links_out_of_the_repository_trip() {
        assert_eq!(broken("docs/index.md", "[a](../../stale.md)"), [1]);
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(broken("README.md", "```\n[a](gone.md)\n```\n`[a](gone.md)` b"), [0; 0]);
    }
}
