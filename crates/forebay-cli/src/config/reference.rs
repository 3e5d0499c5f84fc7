//! `docs/config.md`, rendered from the option table.

use super::options::{Preset, Spec};
use super::table::Table;
use std::path::PathBuf;

const OPENING: &str = "\
# Configuration reference

`forebay serve --config FILE` reads one TOML file. `forebay check FILE` prints the resolved
configuration, or every error in the file. Unknown fields are errors.

Durations and sizes are strings with units: `\"250ms\"`, `\"1h30m\"` (`d`, `h`, `m`, `s`, `ms`,
`us`, `ns`), `\"64MiB\"` (`B`, `KiB`, `MiB`, `GiB`, `TiB`, and the decimal `kB`, `MB`, `GB`, `TB`).

Flags override environment variables, which override the file: `--listen` overrides `listen`,
`--admin` overrides `admin`, `--memory` overrides `memory.size`, `--disk` overrides `disk.path`,
`--disk-size` overrides `disk.size`, `--log-format` overrides `log_format`, `--access-log` overrides
`access_log`, `--redis` replaces the servers of `[redis]`, and `--origin`
replaces the `origin` of the only site. `--origin URL` alone is a complete configuration: one site
with the id `default`, for every host. The environment variables of these flags and of `--config` are
`FOREBAY_CONFIG`, `FOREBAY_LISTEN`, `FOREBAY_ADMIN`, `FOREBAY_ORIGIN`, `FOREBAY_MEMORY`,
`FOREBAY_REDIS`, `FOREBAY_DISK`, `FOREBAY_DISK_SIZE`, `FOREBAY_LOG_FORMAT` and `FOREBAY_ACCESS_LOG`.

A reload applies some options at once, and others need a restart:
[table](operating.md#configuration-reload).

`[[site.rule]]` and `[[rule]]` are policy for some requests: [rules](rules.md).

This page is generated from the option table in the source code.
";

/// Renders the whole page.
fn render() -> String {
    let mut page = OPENING.to_owned();
    for table in Table::ALL {
        let title = match table {
            Table::Top => "Top level".to_owned(),
            other => format!("`{}`", other.header()),
        };
        page.push_str(&format!("\n## {title}\n\n{}\n", introduction(table)));
        page.push_str("\n| option | type | default | description | reason for the default |\n");
        page.push_str("|---|---|---|---|---|\n");
        table.options().for_each(|spec| page.push_str(&row(spec)));
    }
    page
}

fn introduction(table: Table) -> &'static str {
    match table {
        Table::Top => "These options come before the first table header.",
        Table::Listener => {
            "Listening sockets with options that `listen` lacks, one table for each. If there is one, \
             the default of `listen` does not apply."
        }
        Table::Tls => "Certificates, and the options of all listeners with TLS ([tls.md](tls.md)).",
        Table::TlsCertificate => {
            "Also written `certificates = [{ certificate = \"a.pem\", key = \"a.key\" }]` in `[tls]`: \
             further certificates, selected by their DNS names."
        }
        Table::TlsAcme => {
            "Automatic certificates by ACME (RFC 8555, [tls.md](tls.md#automatic-certificates)), also \
             with `--domain` and `--agree-to-terms`."
        }
        Table::TlsAcmeAccount => {
            "Also written `external_account = { id = \"…\", hmac_key_file = \"…\" }` in `[tls.acme]`: \
             the account that some authorities require (RFC 8555 section 7.3.4)."
        }
        Table::Memory => "Memory tier.",
        Table::Disk => "Disk tier ([disk.md](disk.md)). Without `path` there is none.",
        Table::Redis => {
            "Tier that several instances share ([shared-tier.md](shared-tier.md)). Exactly one of \
             `url`, `cluster` and `sentinel` names the servers. A `[site.redis]` table below a site \
             has the same options, for that site alone; options that it does not set are inherited. \
             If it names a server, fallbacks and credentials are not inherited."
        }
        Table::RedisSentinel => {
            "Also written `sentinel = { master = \"…\", nodes = [\"redis://…\"] }` in `[redis]`."
        }
        Table::RedisFallback => {
            "Also written `fallback = [{ url = \"redis://…\" }]` in `[redis]`: up to eight servers, \
             used in this order while those before them do not answer."
        }
        Table::Site => {
            "One table for each site; at least one. A request belongs to the site whose host and \
             path prefix match; no two sites may have equal host and prefix."
        }
        Table::SiteLease => {
            "Below its `[[site]]`, for instances that share a tier: which instance fetches, and \
             how long the others wait ([cluster.md](cluster.md))."
        }
        Table::SiteRateLimit => {
            "Below its `[[site]]`: maximum rate of requests of one client \
             ([security.md](security.md#rate-limits))."
        }
        Table::Access => "The access log; `access_log` selects its format.",
        Table::Trace => {
            "Distributed traces ([operating.md](operating.md#traces)). Without `endpoint` nothing is traced."
        }
        Table::SiteOrigin => {
            "Below its `[[site]]`, as an alternative to `origin = \"…\"` ([origins.md](origins.md))."
        }
        Table::OriginHealth | Table::OriginEject | Table::OriginRetry | Table::OriginBudget => {
            of_servers(table)
        }
        Table::SiteBreaker => {
            "Below its `[[site]]`: the circuit breaker of its origin \
             ([origins.md](origins.md#an-origin-that-fails-or-hangs))."
        }
        Table::SiteCompress => {
            "Below its `[[site]]`: compression of responses ([compression.md](compression.md)). \
             Without it, clients get the coding of the origin."
        }
        Table::SiteFallback => {
            "Below its `[[site]]`: the response while the origin is unavailable \
             ([origins.md](origins.md#fallback-response)). Without it, clients get an error page."
        }
    }
}

/// Introduction of a subtable of `[site.origin]`.
fn of_servers(table: Table) -> &'static str {
    match table {
        Table::OriginHealth => {
            "Also written `health = { path = \"/healthz\" }` in `[site.origin]`: active health checks of \
             each server ([origins.md](origins.md#servers-that-fail)). Without this table there are none."
        }
        Table::OriginEject => {
            "Also written `eject = { failures = 5 }` in `[site.origin]`: exclusion of servers whose \
             requests fail ([origins.md](origins.md#servers-that-fail)). A single server is never \
             ejected."
        }
        Table::OriginBudget => {
            "Also written `budget = { in_flight = 64, rate = \"200/s\" }` in `[site.origin]`: bound of \
             the requests of all instances ([origins.md](origins.md#a-budget-for-all-instances)). \
             At least one of both is required."
        }
        _ => {
            "Also written `retry = { attempts = 1 }` in `[site.origin]`: requests that are sent again \
             ([origins.md](origins.md#retries))."
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
    // An unescaped bar would end the table cell.
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

fn file() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "config.md"].iter().collect()
}

#[test]
fn the_reference_matches_the_options() {
    let rendered = render();
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(file(), &rendered).unwrap();
    }
    let written = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/config.md differs from the options; regenerate it with: \
         FOREBAY_BLESS=1 cargo test -p forebay-cli reference"
    );
}

#[test]
fn every_option_has_one_row() {
    let rows = render().lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, super::options::all().count());
}
