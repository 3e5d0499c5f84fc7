//! Blocks of a scenario.

use anyhow::{Context as _, ensure};

use super::Fault;
use super::front::Setting;
use super::gates::Gates;
use super::line::{Line, lines};
use super::origin::{Exchange, exchanges};

/// Maximum number of clients of one block.
const COPIES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) origins: Vec<(&'static str, Vec<Exchange>)>,
    pub(super) fronts: Vec<FrontBlock>,
    pub(super) clients: Vec<ClientBlock>,
    pub(super) after: Vec<Line>,
    pub(super) gates: Gates,
}

#[derive(Debug)]
pub(super) struct FrontBlock {
    pub(super) name: &'static str,
    pub(super) line: usize,
    pub(super) target: &'static str,
    pub(super) settings: Vec<Setting>,
}

#[derive(Debug)]
pub(super) struct ClientBlock {
    pub(super) name: &'static str,
    pub(super) line: usize,
    pub(super) target: &'static str,
    pub(super) copies: usize,
    pub(super) steps: Vec<Line>,
}

/// Parses a scenario; the error is the first fault.
pub(super) fn parse(text: &'static str) -> Result<Script, Fault> {
    if !text.starts_with("# ") {
        return Err(Fault::new(1, "the first line must be the title: `# What this shows`"));
    }
    let mut script = Script::default();
    let mut lines = lines(text);
    while let Some(mut head) = lines.next() {
        let number = head.number;
        let at_head = |error: anyhow::Error| Fault::new(number, format!("{error:#}"));
        let Some(opening) = head.rest.strip_suffix('{') else {
            let declared = head.keyword("barrier").and_then(|()| script.gates.declare(head));
            declared.map_err(at_head)?;
            continue;
        };
        let body: Vec<Line> = lines.by_ref().take_while(|line| line.rest != "}").collect();
        head.rest = opening.trim_end();
        script.block(head, body)?;
    }
    if script.clients.is_empty() {
        return Err(Fault::new(1, "there is no `client` block, so nothing would happen"));
    }
    Ok(script)
}

impl Script {
    fn block(&mut self, mut head: Line, body: Vec<Line>) -> Result<(), Fault> {
        let line = head.number;
        let at = |line: usize| move |error: anyhow::Error| Fault::new(line, format!("{error:#}"));
        let kind = head.word("a block").map_err(at(line))?;
        if kind == "after" {
            self.after = body;
            return head.end().map_err(at(line));
        }
        let name = head.word("a name").map_err(at(line))?;
        match kind {
            "origin" => self.origins.push((name, exchanges(body, &self.gates)?)),
            "forebay" => {
                let target = target(&mut head).map_err(at(line))?;
                let read = |line: Line| setting(line).map_err(at(line.number));
                let settings = body.into_iter().map(read).collect::<Result<_, _>>()?;
                self.fronts.push(FrontBlock { name, line, target, settings });
            }
            "client" => {
                let target = target(&mut head).map_err(at(line))?;
                let copies = copies(&mut head).map_err(at(line))?;
                self.clients.push(ClientBlock { name, line, target, copies, steps: body });
            }
            _ => return Err(Fault::new(line, format!("`{kind}` is no block"))),
        }
        head.end().map_err(at(line))
    }
}

/// Takes `-> NAME`.
fn target(head: &mut Line) -> anyhow::Result<&'static str> {
    head.keyword("->")?;
    head.word("an origin or a forebay")
}

fn copies(head: &mut Line) -> anyhow::Result<usize> {
    let copies = if head.take("times") { head.number("a number of clients")? } else { 1 };
    ensure!((1..=COPIES_MAX).contains(&copies), "expected 1 to {COPIES_MAX} clients");
    Ok(copies)
}

fn setting(line: Line) -> anyhow::Result<Setting> {
    let parts = line.rest.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
    let parts = parts.filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) =
        parts.with_context(|| format!("expected `key = value`, came `{}`", line.rest))?;
    Ok(Setting { key: key.to_owned(), value: value.to_owned(), line: line.number })
}
