//! `docs/config.md`, rendered from the table of options.

use super::options::{Preset, Spec};
use super::table::Table;
use std::path::PathBuf;

const OPENING: &str = "\
# Configuration reference

`forebay serve --config FILE` reads one TOML file; `forebay check FILE` prints what it means, or
all that is wrong with it. Unknown fields are errors.

Durations and sizes are strings with units: `\"250ms\"`, `\"1h30m\"` (`d`, `h`, `m`, `s`, `ms`,
`us`, `ns`), `\"64MiB\"` (`B`, `KiB`, `MiB`, `GiB`, `TiB`, and the decimal `kB`, `MB`, `GB`, `TB`).

A flag of `serve` stands over the file: `--listen` over `listen`, `--admin` over `admin`,
`--memory` over `memory.size`, `--redis` over the servers of `[redis]`, `--origin` over the only
site's `origin`. `--origin URL` alone is a complete configuration: one site with the id `default`,
for every host.

This page is rendered from the table of options that the program itself reads by.
";

/// The whole page.
fn render() -> String {
    let mut page = OPENING.to_owned();
    for table in Table::ALL {
        let title = match table {
            Table::Top => "At the top of the file".to_owned(),
            other => format!("`{}`", other.header()),
        };
        page.push_str(&format!("\n## {title}\n\n{}\n", introduction(table)));
        page.push_str("\n| option | type | default | what it is | why this default |\n");
        page.push_str("|---|---|---|---|---|\n");
        table.options().for_each(|spec| page.push_str(&row(spec)));
    }
    page
}

fn introduction(table: Table) -> &'static str {
    match table {
        Table::Top => "These stand above the first header.",
        Table::Memory => "The memory tier.",
        Table::Disk => "The disk tier ([how it works](disk.md)). There is none without a path.",
        Table::Redis => {
            "The tier that several caches share: see [shared-tier](shared-tier.md). Exactly one of \
             `url`, `cluster` and `sentinel` names the servers. A `[site.redis]` below a site has \
             the same options, for that site alone; what it leaves open is as here. Where it names \
             a server, neither fallbacks nor what lets us in are taken over."
        }
        Table::RedisSentinel => {
            "Also `sentinel = { master = \"…\", nodes = [\"redis://…\"] }` in `[redis]`."
        }
        Table::RedisFallback => {
            "Also `fallback = [{ url = \"redis://…\" }]` in `[redis]`: up to eight servers, used \
             in this order while those before do not answer."
        }
        Table::Site => {
            "One table for each site; at least one. A request belongs to the site that names its \
             host and path prefix; no two sites may name the same of both."
        }
        Table::SiteLease => {
            "Below its `[[site]]`, where caches share a tier: who fetches, and how long the others \
             wait ([cluster](cluster.md))."
        }
        Table::SiteOrigin => {
            "Below its `[[site]]`, instead of `origin = \"…\"`, where the URL alone is not enough."
        }
    }
}

fn row(spec: &Spec) -> String {
    let bounds = spec
        .bounds
        .map(|(low, high)| format!(", {} to {}", low.trim_matches('"'), high.trim_matches('"')));
    let preset = match spec.preset {
        Preset::Value(text) => format!("`{text}`"),
        Preset::Derived(sentence) => sentence.to_owned(),
        Preset::Required => "required".to_owned(),
    };
    let kind = format!("{}{}", spec.kind, bounds.unwrap_or_default());
    let cells = [format!("`{}`", spec.name), kind, preset, spec.doc.into(), spec.reason.into()];
    // A bar would end its cell.
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

fn file() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "config.md"].iter().collect()
}

#[test]
fn the_reference_is_what_the_options_say() {
    let rendered = render();
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(file(), &rendered).unwrap();
    }
    let written = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/config.md differs from the options; rewrite it with: \
         FOREBAY_BLESS=1 cargo test -p forebay-cli reference"
    );
}

#[test]
fn every_option_has_its_row() {
    let rendered = render();
    for spec in super::options::ALL {
        assert_eq!(rendered.matches(&row(spec)).count(), 1, "{}", spec.path());
    }
}
