//! `forebay check FILE`: prints the resolved configuration, or every error in the file.

use super::listen_address::ListenAddress;
use super::problem::{Place, Problems};
use super::provenance::Row;
use super::reader::BALANCE;
use super::resolved::{
    Overrides, ResolvedConfig, ResolvedEndpoint, ResolvedOrigin, ResolvedRedis, ResolvedSite,
    resolve,
};
use super::rules::RuleWarning;
use super::units::{ShortDuration, ShortSize};
use super::warnings;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Exit code for a valid configuration.
const VALID: u8 = 0;
/// Exit code for a configuration with errors.
const INVALID: u8 = 1;

/// Checks a file and returns the exit code, 0 or 1.
///
/// The resolved configuration goes to `out`. Errors go to `err`, one per line, followed by their
/// number; so do warnings about rules, which with `strict` mean 1. A closed pipe ends the output and
/// does not change the exit code.
///
/// # Errors
/// If writing fails for another reason than a closed pipe.
pub(crate) fn check(
    path: &Path,
    strict: bool,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    let (code, written) = match resolve(Some(path), &Overrides::default()) {
        Ok((config, rows)) => {
            let warnings = rule_warnings(&config);
            let code = if strict && !warnings.is_empty() { INVALID } else { VALID };
            let written = summary(path, &config, out)
                .and_then(|()| table(&rows, out))
                .and_then(|()| print_warnings(&config, err))
                .and_then(|()| warned(path, &warnings, err));
            (code, written)
        }
        Err(problems) => (INVALID, mistakes(&problems, err)),
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(code),
    }
}

fn addresses(config: &ResolvedConfig) -> Vec<&ListenAddress> {
    config.listeners.iter().map(|listener| &listener.address).collect()
}

fn print_warnings(config: &ResolvedConfig, err: &mut impl Write) -> io::Result<()> {
    warnings::of(config).iter().try_for_each(|warning| writeln!(err, "warning: {warning}"))
}

fn mistakes(problems: &Problems, err: &mut impl Write) -> io::Result<()> {
    for line in problems.lines() {
        writeln!(err, "{line}")?;
    }
    writeln!(err, "{}", counted(problems.len(), "error"))
}

/// Warnings of all sites. Rules of every site are warned about once.
fn rule_warnings(config: &ResolvedConfig) -> Vec<RuleWarning> {
    let mut all: Vec<RuleWarning> = Vec::new();
    for warning in config.sites.iter().flat_map(|site| site.rules.warnings()) {
        let is_known = |known: &RuleWarning| {
            known.place == warning.place
                && known.topic == warning.topic
                && known.message == warning.message
        };
        if !all.iter().any(is_known) {
            all.push(warning);
        }
    }
    all
}

fn warned(path: &Path, warnings: &[RuleWarning], err: &mut impl Write) -> io::Result<()> {
    for RuleWarning { place, topic, message } in warnings {
        let at = match place {
            Place::File { line, column } => format!("{}:{line}:{column}", path.display()),
            _ => path.display().to_string(),
        };
        writeln!(err, "{at}: warning: {topic}: {message}")?;
    }
    if warnings.is_empty() {
        Ok(())
    } else {
        writeln!(err, "{}", counted(warnings.len(), "warning"))
    }
}

fn summary(path: &Path, config: &ResolvedConfig, out: &mut impl Write) -> io::Result<()> {
    let sites = counted(config.sites.len(), "site");
    writeln!(out, "{} is valid: {sites}.\n", path.display())?;
    let token = if config.admin_token.is_some() { "with a token" } else { "without a token" };
    writeln!(out, "Serves clients on {}.", joined(&addresses(config), " and "))?;
    writeln!(out, "Serves the admin listener on {}, {token}.", config.admin)?;
    let memory = &config.memory;
    writeln!(
        out,
        "Stores up to {} in memory, bodies up to {}, and up to {} of bodies in flight.",
        ShortSize(memory.size),
        ShortSize(memory.object_max),
        ShortSize(memory.in_flight_max)
    )?;
    if let Some(redis) = &config.redis {
        redis_summary(redis, out)?;
    }
    config.sites.iter().try_for_each(|site| site_summary(site, out))
}

fn redis_summary(redis: &ResolvedRedis, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "Shares bodies up to {} in Redis, namespace \"{}\", at {},\nwith a read timeout of {}.",
        ShortSize(redis.object_max),
        redis.namespace,
        redis.shown.join(", then "),
        ShortDuration(redis.nearest.read_timeout)
    )
}

fn site_summary(site: &ResolvedSite, out: &mut impl Write) -> io::Result<()> {
    let hosts = match site.hosts.as_slice() {
        [] => "every host".to_owned(),
        hosts => joined(hosts, ", "),
    };
    let with_prefix =
        site.prefix.as_ref().map(|prefix| format!(" with prefix {prefix}")).unwrap_or_default();
    let origin = &site.origin;
    let host = match &origin.host {
        Some(host) => format!("Host {host}"),
        None => "the client's Host".to_owned(),
    };
    let lifetime = match site.default_ttl.is_zero() {
        true => "as long as RFC 9111 allows".to_owned(),
        false => format!("for {}", ShortDuration(site.default_ttl)),
    };
    writeln!(out, "\nSite \"{}\" answers for {hosts}{with_prefix}.", site.id)?;
    writeln!(
        out,
        "It fetches from {} with {host}, waits up to {} for the head of a response,",
        fetched_from(origin),
        ShortDuration(site.fetch_timeout)
    )?;
    if let Some(health) = &origin.health {
        let (path, every) = (&health.path, ShortDuration(health.every));
        writeln!(out, "checks each server by GET {path} every {every},")?;
    }
    if let Some(budget) = origin.budget {
        writeln!(out, "with at most {budget} of all instances,")?;
    }
    writeln!(out, "and reuses responses without an explicit lifetime {lifetime}.")?;
    writeln!(
        out,
        "Stale entries are served, unless the response forbids it, after {} of waiting, and for up\n\
         to {} while the origin is unreachable.",
        ShortDuration(site.soft_timeout),
        ShortDuration(site.stale_on_disconnect_max)
    )?;
    match &site.redis {
        Some(redis) => redis_summary(redis, out),
        None => Ok(()),
    }
}

/// Servers of an origin, with their weights and the choice among them.
fn fetched_from(origin: &ResolvedOrigin) -> String {
    let shown = |endpoint: &ResolvedEndpoint| match endpoint.weight {
        1 => endpoint.url.to_string(),
        weight => format!("{} (weight {weight})", endpoint.url),
    };
    let shown = joined(&origin.endpoints.iter().map(shown).collect::<Vec<_>>(), ", ");
    match origin.endpoints.len() {
        1 => shown,
        count => {
            let balance = (BALANCE.show)(&origin.balance);
            format!("{count} servers ({shown}; balance {balance})")
        }
    }
}

/// Table of every option with its value and source, in three aligned columns.
fn table(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let width = |cell: fn(&Row) -> usize| rows.iter().map(cell).max().unwrap_or(0);
    let path_width = width(|row| row.path.chars().count());
    // A single long value must not move the last column of all rows off the screen.
    let value_width = width(|row| row.value.chars().count()).min(40);
    writeln!(out, "\n{:path_width$}  {:value_width$}  source", "option", "value")?;
    for Row { path, value, decided } in rows {
        writeln!(out, "{path:path_width$}  {value:value_width$}  {decided}")?;
    }
    Ok(())
}

fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn joined<T: Display>(items: &[T], between: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::{self, Spec};
    use crate::config::table::Table;

    /// Checks a file with this text. Returns exit code, stdout, and stderr without the folder.
    fn run(text: &str) -> (u8, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forebay.toml");
        std::fs::write(&path, text).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = check(&path, false, &mut out, &mut err).unwrap();
        let folder = format!("{}/", folder.path().display());
        let readable = |bytes| String::from_utf8(bytes).unwrap().replace(&folder, "");
        (code, readable(out), readable(err))
    }

    #[test]
    fn a_valid_file_is_printed_as_sentences_and_as_a_table() {
        let (code, out, err) = run("listen = \"127.0.0.1:80\"\n[[site]]\nid = \"shop\"\n\
            hosts = [\"a.example\", \"*.a.example\"]\nprefix = \"/p\"\n\
            origin = \"http://o:3000\"\ndefault_ttl = \"90s\"\n");
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with("forebay.toml is valid: 1 site.\n"), "{out}");
        assert!(out.contains("Serves clients on 127.0.0.1:80.\n"));
        assert!(out.contains("admin listener on 127.0.0.1:8081, without a token."));
        assert!(out.contains("up to 256MiB in memory, bodies up to 16MiB, and up to 64MiB"));
        assert!(out.contains("Site \"shop\" answers for a.example, *.a.example with prefix /p."));
        assert!(out.contains("It fetches from http://o:3000 with the client's Host"));
        assert!(out.contains("without an explicit lifetime for 90s."));
        let row = |path: &str| {
            let line = out.lines().find(|line| line.starts_with(&format!("{path} ")));
            line.unwrap_or_else(|| panic!("no row {path} in\n{out}"))
        };
        assert!(row("listen").contains("[\"127.0.0.1:80\"]") && row("listen").ends_with("line 1"));
        assert!(row("admin").ends_with("default"));
        assert!(row("site[0].default_ttl").ends_with("line 7"));
        assert!(row("site[0].origin.keep_alive").ends_with("default"));
        assert!(row("redis").contains("none") && row("redis").ends_with("default"));
        // Each option has its row, except `urls`, which the plain `origin` replaces, and those of
        // an unused tier.
        let is_used = |spec: &Spec| {
            spec.name != "urls"
                && !matches!(spec.table, Table::Redis | Table::RedisSentinel)
                && !matches!(spec.table, Table::RedisFallback | Table::Listener)
                && !matches!(spec.table, Table::Tls | Table::TlsCertificate | Table::SiteFallback)
                && !matches!(spec.table, Table::TlsAcme | Table::TlsAcmeAccount)
                && !matches!(spec.table, Table::SiteRateLimit | Table::OriginHealth)
                && spec.table != Table::OriginBudget
        };
        for spec in options::all().filter(|spec| is_used(spec)) {
            row(&spec.path().replacen("site.", "site[0].", 1));
        }
    }

    #[test]
    fn several_servers_are_printed_with_their_balance_and_checks() {
        let (code, out, err) = run("[[site]]\nid = \"a\"\n[site.origin]\n\
            urls = [\"http://o\", { url = \"https://p\", weight = 2 }]\n\
            balance = \"hash\"\nhealth = { path = \"/up\" }\n");
        assert_eq!((code, err.as_str()), (0, ""));
        let sentence = "It fetches from 2 servers (http://o, https://p (weight 2); balance \"hash\") \
            with the client's Host, waits up to 30s for the head of a response,\nchecks each server by \
            GET /up every 5s,\n";
        assert!(out.contains(sentence), "{out}");
        for row in [
            "site[0].origin.urls              [\"http://o\", { url = \"https://p\", weight = 2 }]",
            "site[0].origin.server_name       o, p",
            "site[0].origin.health.statuses   [\"200-399\"]",
        ] {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(out.lines().any(|line| words(line).starts_with(&words(row))), "{row}\n{out}");
        }
    }

    #[test]
    fn a_shared_tier_is_printed_without_its_secrets() {
        let (code, out, err) = run("[redis]\nurl = \"redis://me:hidden@near/3\"\n\
            [[redis.fallback]]\nurl = \"redis://:hidden@far\"\n\
            [[site]]\nid = \"a\"\norigin = \"http://o\"\n");
        assert_eq!((code, err.as_str()), (0, ""));
        let sentence = "Shares bodies up to 1MiB in Redis, namespace \"forebay\", at \
            redis://near:6379, then redis://far:6379,\nwith a read timeout of 50ms.\n";
        assert!(out.contains(sentence), "{out}");
        assert!(!out.contains("hidden"), "{out}");
        let is_redis = |spec: &Spec| matches!(spec.table, Table::Redis | Table::RedisFallback);
        for spec in options::all().filter(|spec| is_redis(spec)) {
            let path = spec.path().replacen("fallback.", "fallback[0].", 1);
            let is_there = out.lines().any(|line| line.starts_with(&format!("{path} ")));
            assert!(is_there, "no row {path} in\n{out}");
        }
    }

    #[test]
    fn all_errors_are_printed_in_file_order_with_their_number() {
        let (code, out, err) = run("threads = \"4\"\nlgo = \"info\"\n\n[memory]\nsize = 64\n\n\
            [[site]]\nid = \"Shop\"\norigin = \"ftp://o\"\n    fetch_timout = \"3s\"\n");
        assert_eq!((code, out.as_str()), (1, ""));
        let expected = [
            "forebay.toml:1:11: threads: must be an integer, not a string",
            "forebay.toml:2:1: lgo: unknown field; did you mean \"log\"?",
            "forebay.toml:5:8: memory.size: 64 needs a unit, such as \"64MiB\"",
            "forebay.toml:8:6: site[0].id: \"Shop\" must be 1 to 64 of a-z, 0-9 and \"-\"",
            "forebay.toml:9:10: site[0].origin: \"ftp://o\" must begin with http://, https:// or \
             unix:/",
            "forebay.toml:10:5: site[0].fetch_timout: unknown field; did you mean \
             \"fetch_timeout\"?",
            "6 errors",
        ];
        assert_eq!(err.lines().collect::<Vec<_>>(), expected);
    }

    /// Writer whose reader has gone away.
    struct ClosedPipe;

    impl Write for ClosedPipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_does_not_change_the_exit_code() {
        let folder = tempfile::tempdir().unwrap();
        for (text, code) in [("[[site]]\nid = \"a\"\norigin = \"http://o\"\n", 0), ("", 1)] {
            let path = folder.path().join("forebay.toml");
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                check(&path, false, &mut ClosedPipe, &mut ClosedPipe).unwrap(),
                code,
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_one_error() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = check(Path::new("no/such/forebay.toml"), false, &mut out, &mut err).unwrap();
        let err = String::from_utf8(err).unwrap();
        assert_eq!((code, out.len()), (1, 0));
        assert!(err.starts_with("no/such/forebay.toml: cannot be read: "), "{err}");
        assert!(err.ends_with("\n1 error\n"), "{err}");
    }
}
