//! Parser of scenarios.

mod after;
mod client;
mod fields;
mod gates;
mod origin;

use super::Fault;
use super::front::Setting;
use super::line::{self, Line};
use super::script::{ClientBlock, FrontBlock, OriginBlock, Script, Step};
use gates::Gates;

/// Maximum number of clients of one block.
const COPIES_MAX: usize = 10_000;

/// Parses a scenario; the error is the first fault.
pub(super) fn parse(text: &str) -> Result<Script, Fault> {
    if !text.starts_with("# ") {
        return Err(Fault::new(1, "the first line must be the title: `# What this shows`"));
    }
    let mut reader = Reader::default();
    for block in blocks(text)? {
        reader.block(block)?;
    }
    reader.script.gates = reader.gates.finish()?;
    if reader.script.clients.is_empty() {
        return Err(Fault::new(1, "there is no `client` block, so nothing would happen"));
    }
    Ok(reader.script)
}

/// Top-level line, and the lines between its braces, if any.
struct Block<'a> {
    head: Line<'a>,
    body: Option<Vec<Line<'a>>>,
}

fn blocks(text: &str) -> Result<Vec<Block<'_>>, Fault> {
    let mut blocks = Vec::new();
    let mut lines = line::lines(text);
    while let Some(head) = lines.next() {
        let Some(opening) = head.without_end("{") else {
            blocks.push(Block { head, body: None });
            continue;
        };
        let mut body = Vec::new();
        loop {
            let line = lines.next();
            let line = line.ok_or_else(|| head.fault("this block is never closed by a `}`"))?;
            if line.rest() == "}" {
                break;
            }
            body.push(line);
        }
        blocks.push(Block { head: opening, body: Some(body) });
    }
    Ok(blocks)
}

#[derive(Default)]
struct Reader {
    script: Script,
    gates: Gates,
}

impl Reader {
    fn block(&mut self, block: Block<'_>) -> Result<(), Fault> {
        let mut head = block.head;
        let kind = head.word("a block")?;
        if kind == "barrier" && block.body.is_none() {
            return self.gates.declare(head);
        }
        let unknown = || {
            let kinds = "`barrier NAME N`, `origin`, `forebay`, `client` or `after` and a `{`";
            head.fault(format!("expected {kinds}, came `{kind}`"))
        };
        let body = block.body.ok_or_else(unknown)?;
        match kind {
            "origin" => self.origin(head, body),
            "forebay" => self.front(head, body),
            "client" => self.client(head, body),
            "after" => self.after(head, body),
            _ => Err(unknown()),
        }
    }

    fn origin(&mut self, mut head: Line<'_>, body: Vec<Line<'_>>) -> Result<(), Fault> {
        let name = self.new_name(&mut head)?;
        head.end()?;
        let exchanges = origin::exchanges(body, &mut self.gates)?;
        self.script.origins.push(OriginBlock { name, exchanges });
        Ok(())
    }

    fn front(&mut self, mut head: Line<'_>, body: Vec<Line<'_>>) -> Result<(), Fault> {
        let line = head.number;
        let name = self.new_name(&mut head)?;
        let target = self.target(&mut head)?;
        head.end()?;
        let settings = body.into_iter().map(setting).collect::<Result<_, _>>()?;
        self.script.fronts.push(FrontBlock { name, line, target, settings });
        Ok(())
    }

    fn client(&mut self, mut head: Line<'_>, body: Vec<Line<'_>>) -> Result<(), Fault> {
        let line = head.number;
        let name = self.new_name(&mut head)?;
        let target = self.target(&mut head)?;
        let copies = if head.take("times") { head.number("a number of clients")? } else { 1 };
        head.end()?;
        if !(1..=COPIES_MAX).contains(&copies) {
            return Err(head.fault(format!("expected 1 to {COPIES_MAX} clients, came {copies}")));
        }
        let steps = client::steps(body, &mut self.gates)?;
        steps.iter().try_for_each(|(line, step)| self.script.check_subject(*line, step))?;
        self.script.clients.push(ClientBlock { name, line, target, copies, steps });
        Ok(())
    }

    fn after(&mut self, head: Line<'_>, body: Vec<Line<'_>>) -> Result<(), Fault> {
        head.end()?;
        for line in body {
            let counter = after::counter(line, &self.script)?;
            self.script.after.push(counter);
        }
        Ok(())
    }

    /// Takes the name of a block, which must be unique.
    fn new_name(&self, head: &mut Line<'_>) -> Result<String, Fault> {
        let name = head.word("a name")?;
        let clients = self.script.clients.iter().map(|client| &client.name);
        if self.script.is_server(name) || clients.into_iter().any(|taken| taken == name) {
            return Err(head.fault(format!("the name `{name}` is taken")));
        }
        Ok(name.to_owned())
    }

    /// Takes `-> NAME`, the name of a block above.
    fn target(&self, head: &mut Line<'_>) -> Result<String, Fault> {
        head.keyword("->")?;
        let name = head.word("an origin or a forebay")?;
        if !self.script.is_server(name) {
            return Err(unknown_name(head.number, "origin or forebay", name));
        }
        Ok(name.to_owned())
    }
}

impl Script {
    fn is_server(&self, name: &str) -> bool {
        self.has_origin(name) || self.has_front(name)
    }

    fn has_origin(&self, name: &str) -> bool {
        self.origins.iter().any(|origin| origin.name == name)
    }

    fn has_front(&self, name: &str) -> bool {
        self.fronts.iter().any(|front| front.name == name)
    }

    /// Fails if a step refers to an unknown origin or forebay.
    fn check_subject(&self, line: usize, step: &Step) -> Result<(), Fault> {
        match step {
            Step::WaitOrigin(name, _) | Step::Shut(name) if !self.has_origin(name) => {
                Err(unknown_name(line, "origin", name))
            }
            Step::WaitMetric(counter) if !self.has_front(&counter.subject) => {
                Err(unknown_name(line, "forebay", &counter.subject))
            }
            _ => Ok(()),
        }
    }
}

fn setting(line: Line<'_>) -> Result<Setting, Fault> {
    let (key, value) = line
        .rest()
        .split_once('=')
        .map(|(key, value)| (key.trim(), value.trim()))
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .ok_or_else(|| line.fault(format!("expected `key = value`, came `{}`", line.rest())))?;
    Ok(Setting { key: key.to_owned(), value: value.to_owned(), line: line.number })
}

fn unknown_name(line: usize, kind: &str, name: &str) -> Fault {
    Fault::new(line, format!("no {kind} above this line is called `{name}`"))
}
