//! Compresses the files of the dashboard, and finds the commit of the source, for `--version` and
//! the metric `forebay_build_info`.
//!
//! The commit is, in this order: the environment variable `FOREBAY_COMMIT`, that in the file that
//! cargo adds to a packaged crate, that of git. Without any of them, it is `unknown`.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::write::GzEncoder;
use flate2::{Compression, Crc};

/// Length of an abbreviated commit.
const LENGTH: usize = 12;

/// Folder of the files of the dashboard.
const PAGE: &str = "src/admin/page";

/// Endings of file names, with their media types. Files with other endings are not embedded.
const KINDS: [(&str, &str); 3] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
];

/// Name of the page. In its text, `{folder}` is the folder of the other files.
const INDEX: &str = "index.html";

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    name_commit(&folder);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    embed_page(&folder.join(PAGE), &out)
}

/// Writes the files of the dashboard, compressed and as they are, and `page.rs` with a table of them.
fn embed_page(from: &Path, out: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", from.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if kind_of(&name).is_some() {
            names.push(name);
        }
    }
    names.sort();
    let mut digest = Crc::new();
    for name in &names {
        digest.update(&fs::read(from.join(name))?);
    }
    let digest = format!("{:08x}", digest.sum());
    let mut table = format!("const DIGEST: &str = \"{digest}\";\nstatic FILES: &[PageFile] = &[\n");
    for name in names.iter().filter(|name| *name != INDEX) {
        let file = embed(out, name, fs::read(from.join(name))?)?;
        let _ = writeln!(table, "{file},");
    }
    let page = fs::read_to_string(from.join(INDEX))?;
    let page = page.replace("{folder}", &format!("assets/{digest}"));
    let page = embed(out, INDEX, page.into_bytes())?;
    let _ = writeln!(table, "];\nstatic PAGE: PageFile = {page};");
    fs::write(out.join("page.rs"), table)
}

/// Writes a file compressed and as it is, and returns the expression of its row.
fn embed(out: &Path, name: &str, raw: Vec<u8>) -> io::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&raw)?;
    fs::write(out.join(format!("{name}.gz")), encoder.finish()?)?;
    fs::write(out.join(name), raw)?;
    let bytes = |name: &str| format!("include_bytes!({:?})", out.join(name));
    let (raw, gzip) = (bytes(name), bytes(&format!("{name}.gz")));
    let kind = kind_of(name).unwrap_or_default();
    Ok(format!("PageFile {{ name: {name:?}, kind: {kind:?}, raw: {raw}, gzip: {gzip} }}"))
}

fn kind_of(name: &str) -> Option<&'static str> {
    let ending = name.rsplit_once('.')?.1;
    KINDS.into_iter().find(|(known, _)| *known == ending).map(|(_, kind)| kind)
}

fn name_commit(folder: &Path) {
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    let named = std::env::var("FOREBAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(|| of_package(folder)).or_else(|| of_git(folder));
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    // `cargo run` hands this variable to the program too, which warns of variables that begin with
    // `FOREBAY_` and set no option.
    println!("cargo::rustc-env=SOURCE_COMMIT={}", commit.get(..LENGTH).unwrap_or(&commit));
}

/// Commit in the file that `cargo package` writes: `{"git": {"sha1": "…"}}`.
fn of_package(folder: &Path) -> Option<String> {
    let file = folder.join(".cargo_vcs_info.json");
    let text = fs::read_to_string(&file).ok()?;
    // Cargo would compile this crate again in every build if the file did not exist.
    println!("cargo::rerun-if-changed={}", file.display());
    let commit = text.split_once("\"sha1\"")?.1.split('"').nth(1)?;
    Some(commit.to_owned())
}

fn of_git(folder: &Path) -> Option<String> {
    let commit = git(folder, &["rev-parse", "HEAD"])?;
    // The log of HEAD changes with each commit and checkout.
    for name in ["HEAD", "logs/HEAD"] {
        let path = folder.join(git(folder, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Some(commit)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
