//! Reads the fenced blocks of a Markdown page.

use anyhow::{Error, Result, anyhow, bail, ensure};

/// A command and its output according to the page.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) line: usize,
    pub(super) command: String,
    /// Empty if the output is not compared.
    pub(super) expected: Vec<String>,
}

/// A block that is checked.
#[derive(Debug)]
pub(super) enum Block {
    /// `sh`, or `sh exit=N`: each command is run and ends with that status.
    Run { calls: Vec<Call>, exit: i32 },
    /// `sh background`: one command that is ready at some time and then stays.
    Stay(Call),
    /// `toml` whose first line is `# forebay.toml`: a configuration.
    Configuration { line: usize, text: String },
}

/// The blocks to check, in the order of the page.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut found = Vec::new();
    for fence in fences(text)? {
        found.extend(fence.meaning()?);
    }
    Ok(found)
}

struct Fence {
    line: usize,
    tag: String,
    body: Vec<String>,
}

fn fences(text: &str) -> Result<Vec<Fence>> {
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((opening, line)) = lines.next() {
        let inner = opening.trim_start();
        let ticks = inner.len() - inner.trim_start_matches('`').len();
        // Inline code may begin a line too, but it closes in the same line.
        if ticks < 3 || inner[ticks..].contains('`') {
            continue;
        }
        let indent = opening.len() - inner.len();
        let tag = inner[ticks..].trim().to_owned();
        let mut fence = Fence { line, tag, body: Vec::new() };
        loop {
            let Some((next, _)) = lines.next() else {
                bail!("line {line}: this block is never closed");
            };
            let trimmed = next.trim();
            if trimmed.len() >= ticks && trimmed.chars().all(|c| c == '`') {
                break;
            }
            let spaces = next.len() - next.trim_start_matches(' ').len();
            fence.body.push(next[spaces.min(indent)..].to_owned());
        }
        found.push(fence);
    }
    Ok(found)
}

impl Fence {
    fn meaning(self) -> Result<Option<Block>> {
        let (kind, rest) = self.tag.split_once(' ').unwrap_or((&self.tag, ""));
        match (kind, rest.trim()) {
            ("sh", "") => self.run(0).map(Some),
            ("sh", "background") => self.stay().map(Some),
            ("sh", rest) if rest.starts_with("exit=") => self.failing(&rest[5..]).map(Some),
            ("sh", rest) if rest.starts_with("no-run") => self.unrun(&rest[6..]).map(|()| None),
            ("toml", _) if self.body.first().is_some_and(|one| one.trim() == "# forebay.toml") => {
                let text = self.body.iter().map(|line| format!("{line}\n")).collect();
                Ok(Some(Block::Configuration { line: self.line, text }))
            }
            ("sh", _) => {
                Err(self
                    .problem("expected `sh`, `sh exit=N`, `sh background` or `sh no-run REASON`"))
            }
            ("bash" | "shell" | "console" | "zsh", _) => {
                Err(self.problem("tag commands `sh`, so that they are run"))
            }
            _ => Ok(None),
        }
    }

    fn run(&self, exit: i32) -> Result<Block> {
        let calls = self.calls()?;
        let line = self.line;
        ensure!(!calls.is_empty(), "line {line}: no line begins with `$ `");
        Ok(Block::Run { calls, exit })
    }

    fn failing(&self, exit: &str) -> Result<Block> {
        let exit = exit.parse().map_err(|_| self.problem("`exit=` needs a number"))?;
        self.run(exit)
    }

    fn stay(&self) -> Result<Block> {
        let mut calls = self.calls()?;
        match (calls.pop(), calls.is_empty()) {
            (Some(call), true) => Ok(Block::Stay(call)),
            _ => Err(self.problem("a background block has exactly one command")),
        }
    }

    fn unrun(&self, reason: &str) -> Result<()> {
        let reason = reason.trim_start_matches(':').trim();
        ensure!(!reason.is_empty(), "line {}: `no-run` needs a reason", self.line);
        Ok(())
    }

    fn calls(&self) -> Result<Vec<Call>> {
        let mut calls: Vec<Call> = Vec::new();
        let mut is_continued = false;
        for (text, line) in self.body.iter().zip(self.line + 1..) {
            match (calls.last_mut(), text.strip_prefix("$ ")) {
                (Some(call), _) if is_continued => {
                    call.command.push('\n');
                    call.command.push_str(text);
                }
                (_, Some(command)) => {
                    calls.push(Call { line, command: command.to_owned(), expected: Vec::new() });
                }
                (Some(call), None) => {
                    call.expected.push(text.clone());
                    continue;
                }
                (None, None) if text.trim().is_empty() => {}
                (None, None) => {
                    bail!("line {line}: a `sh` block begins with a line `$ command`");
                }
            }
            is_continued = text.ends_with('\\');
        }
        for call in &mut calls {
            while call.expected.last().is_some_and(|line| line.trim().is_empty()) {
                call.expected.pop();
            }
        }
        Ok(calls)
    }

    fn problem(&self, says: &str) -> Error {
        anyhow!("line {}: {says}", self.line)
    }
}
