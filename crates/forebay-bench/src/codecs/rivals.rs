//! Rails' stores and Node.js on the same value.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Measured;
use super::values::Article;
use crate::environment::root;
use crate::rivals::{Rival, install};

/// Measures all rivals; those that do not run are described with the reason.
pub(super) fn measure(value: &Vec<Article>, span: Duration) -> Result<(Vec<Measured>, Vec<Rival>)> {
    let mut file = tempfile::NamedTempFile::new()?;
    serde_json::to_writer(&mut file, value)?;
    file.flush()?;
    let rails = rails(file.path(), span);
    let node = node(file.path(), span);
    let (mut all, mut described) = (Vec::new(), Vec::new());
    for (name, settings, why, documentation, outcome) in [
        (
            "Rails",
            "Marshal, MessagePack and JSON, with zlib at its default level; MemoryStore",
            "the serializers of the article; zlib is what Rails compresses with by default",
            "https://guides.rubyonrails.org/caching_with_rails.html",
            rails,
        ),
        (
            "Node.js",
            "JSON, with gzip and brotli of node:zlib at their default levels",
            "JSON and gzip or brotli are what caches in Node.js store in Redis",
            "https://nodejs.org/api/zlib.html",
            node,
        ),
    ] {
        match outcome {
            Ok((rows, version)) => {
                all.extend(rows);
                let settings = settings.to_owned();
                let (name, missing) = (name.to_owned(), None);
                described.push(Rival { name, version, settings, why, documentation, missing });
            }
            Err(error) => described.push(Rival::missing(name, format!("{error:#}"))),
        }
    }
    let reason = "Debian has no package of these gems, and RubyGems is not used";
    described.push(Rival::missing("Rails with zstd, snappy or lz4_flex", reason));
    Ok((all, described))
}

fn rails(file: &Path, span: Duration) -> Result<(Vec<Measured>, String)> {
    install::debian("ruby", &["ruby-activesupport", "ruby-msgpack"])?;
    let mut ruby = Command::new("ruby");
    ruby.arg(root().join("crates/forebay-bench/rivals/rails/rival.rb"));
    rows("Rails", &mut ruby, file, span)
}

fn node(file: &Path, span: Duration) -> Result<(Vec<Measured>, String)> {
    let mut node = Command::new("node");
    node.arg(root().join("crates/forebay-bench/rivals/node/codecs.mjs"));
    rows("Node.js", &mut node, file, span)
}

/// Runs a program that prints a row on each line, and its version on the last one.
fn rows(
    owner: &'static str,
    command: &mut Command,
    file: &Path,
    span: Duration,
) -> Result<(Vec<Measured>, String)> {
    let output = command.arg(file).arg(span.as_secs_f64().to_string()).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    let last = error.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{owner} failed: {last}");
    let (mut all, mut version) = (Vec::new(), String::new());
    for line in String::from_utf8(output.stdout)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        if let Some(text) = row["version"].as_str() {
            text.clone_into(&mut version);
            continue;
        }
        let text = |name: &str| row[name].as_str().map(str::to_owned).context("no name");
        let number = |name: &str| row[name].as_f64().with_context(|| format!("no {name}"));
        all.push(Measured {
            owner,
            format: text("serializer")?,
            compression: text("compressor")?,
            bytes: number("bytes")?,
            write: number("write")?,
            read: number("read")?,
        });
    }
    Ok((all, version))
}
