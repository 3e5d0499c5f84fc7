//! Command line arguments. Every flag of `serve` has an environment variable, `FOREBAY_<FLAG>`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args as Group, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::admin_client::AdminArgs;
use crate::config::nearest;
use crate::config::resolved::Overrides;
use crate::live::LineFormat;
use crate::plan::PlanArgs;

/// Version and commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SOURCE_COMMIT"), ")");

/// Examples at the end of `forebay --help`.
const EXAMPLES: &str = "\
Try it:   forebay serve --demo
Use it:   forebay serve --origin http://127.0.0.1:3000

`forebay COMMAND --help` describes a command and its options.";

/// Shared HTTP cache with request coalescing: many clients, one request to the origin.
#[derive(Debug, Parser)]
#[command(name = "forebay", version = VERSION, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the cache.
    ///
    /// `forebay serve --demo` needs no other option: it starts a sample origin and a cache in front
    /// of it. `forebay serve --origin URL` puts the cache in front of your own origin. --config
    /// FILE reads a configuration file; `forebay check FILE` validates it.
    ///
    /// Flags override environment variables, which override the file.
    Serve(ServeArgs),
    /// Check a configuration file: print the resolved configuration, or every error in the file.
    Check(CheckArgs),
    /// Run the sample origin: an HTTP server whose URLs select its responses; it counts requests.
    Origin(OriginArgs),
    /// Invalidate entries in a running cache.
    Purge(PurgeArgs),
    /// Explain what a running cache would do with a request now, and why.
    Explain(ExplainUrlArgs),
    /// Print the responses of a running cache as they end.
    Tail(TailArgs),
    /// Print the most frequent URLs and clients of a running cache.
    Top(TopArgs),
    /// Estimate hit ratios for sizes of memory and lifetimes from access logs.
    Plan(PlanArgs),
    /// Fetch a list of URLs through a running cache, so that clients find them stored.
    Warm(WarmArgs),
    /// Ask a running cache whether it is ready: exit code 0 if it is, otherwise 1.
    Probe(ProbeArgs),
    /// Print the completions of a shell.
    Completions {
        /// Name of the shell.
        shell: Shell,
    },
    /// Write the manual pages to a folder.
    #[command(hide = true)]
    Manual {
        /// Folder, which must exist.
        folder: PathBuf,
    },
}

/// Flags of `serve`. Each one overrides the file. The help hides the values of environment
/// variables, because `FOREBAY_REDIS` may contain a password.
#[derive(Debug, Group)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Listen address for clients; separate several with commas [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR", env = "FOREBAY_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Listen address for health, metrics, purges and the dashboard [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDR", env = "FOREBAY_ADMIN", hide_env_values = true)]
    admin: Option<String>,
    /// URL of the origin server, such as http://127.0.0.1:3000.
    #[arg(long, value_name = "URL", env = "FOREBAY_ORIGIN", hide_env_values = true)]
    origin: Option<String>,
    /// Size of the memory tier, such as 512MiB [default: 256MiB].
    #[arg(long, value_name = "SIZE", env = "FOREBAY_MEMORY", hide_env_values = true)]
    memory: Option<String>,
    /// URL of a Redis or Valkey server that several caches share, such as redis://127.0.0.1:6379.
    #[arg(long, value_name = "URL", env = "FOREBAY_REDIS", hide_env_values = true)]
    redis: Option<String>,
    /// Directory of the disk tier; without it there is no disk tier.
    #[arg(long, value_name = "DIR", env = "FOREBAY_DISK", hide_env_values = true)]
    disk: Option<String>,
    /// Size of the disk tier [default: 10GiB].
    #[arg(long, value_name = "SIZE", env = "FOREBAY_DISK_SIZE", hide_env_values = true)]
    disk_size: Option<String>,
    /// Serve this name over https with an automatic certificate; separate several with commas, or
    /// repeat the flag. Without --listen and a configuration file, the cache listens on port 443,
    /// and redirects from port 80.
    #[arg(long, value_name = "NAME", env = "FOREBAY_DOMAIN", hide_env_values = true)]
    domain: Vec<String>,
    /// Agree to the terms of service of the certificate authority, Let's Encrypt by default.
    #[arg(long, env = "FOREBAY_AGREE_TO_TERMS", hide_env_values = true)]
    agree_to_terms: bool,
    /// Format of messages on stderr: auto, text, logfmt or json [default: auto].
    #[arg(long, value_name = "FORMAT", env = "FOREBAY_LOG_FORMAT", hide_env_values = true)]
    log_format: Option<String>,
    /// Access log: off, common, combined, logfmt or json [default: off].
    #[arg(long, value_name = "FORMAT", env = "FOREBAY_ACCESS_LOG", hide_env_values = true)]
    access_log: Option<String>,
    /// Start a sample origin as well, cache it, and print example commands. Without --disk, the
    /// disk tier uses a temporary directory, which is removed when the process exits.
    #[arg(long, env = "FOREBAY_DEMO", hide_env_values = true)]
    pub(crate) demo: bool,
    #[command(flatten)]
    later: LaterArgs,
}

/// Flags for tiers of later versions. They are parsed so that using one gives a clear error.
#[derive(Debug, Group)]
struct LaterArgs {
    #[arg(
        long,
        hide = true,
        value_name = "ADDR",
        env = "FOREBAY_MEMCACHED",
        hide_env_values = true
    )]
    memcached: Option<String>,
}

impl ServeArgs {
    /// Configuration values given as flags or environment variables.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            origin: self.origin.clone(),
            memory: self.memory.clone(),
            redis: self.redis.clone(),
            disk: self.disk.clone(),
            disk_size: self.disk_size.clone(),
            domain: (!self.domain.is_empty()).then(|| self.domain.join(",")),
            agree_to_terms: self.agree_to_terms,
            log_format: self.log_format.clone(),
            access_log: self.access_log.clone(),
        }
    }

    /// Error messages about the flags themselves, one sentence each; empty if they are valid.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let later = &self.later;
        let flags = [("--memcached", &later.memcached, "memcached tier")];
        let given = flags.iter().filter(|(_, value, _)| value.is_some());
        let mut complaints: Vec<String> = given
            .map(|(flag, _, tier)| format!("{flag}: this version has no {tier}; remove the flag"))
            .collect();
        complaints.extend(match &self.origin {
            Some(origin) if self.demo => {
                Some(format!("--demo uses its own origin; remove --demo or --origin {origin}"))
            }
            None if !self.demo && self.config.is_none() => Some(
                "no origin: name the origin server with --origin URL or --config FILE, or try \
                 --demo"
                    .to_owned(),
            ),
            _ => None,
        });
        complaints
    }
}

/// Prefix of the environment variables of `serve`.
const PREFIX: &str = "FOREBAY_";

/// Warnings about environment variables that begin like those of `serve` and are none of them.
pub(crate) fn unknown_variables(set: impl Iterator<Item = OsString>) -> Vec<String> {
    let command = Args::command();
    let serve = command.find_subcommand("serve").into_iter();
    let known = serve.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_env);
    let known: Vec<&str> = known.filter_map(|name| name.to_str()).collect();
    let set = set.filter_map(|name| name.into_string().ok());
    let ours = set.filter(|name| name.starts_with(PREFIX) && !is_of_kubernetes(name));
    let unknown = ours.filter(|name| !known.contains(&name.as_str()));
    let warning = unknown.map(|name| {
        let near = nearest(known.iter().copied(), &name);
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        format!("environment variable {name} is unknown and has no effect{near}")
    });
    warning.collect()
}

/// Returns `true` for variables that Kubernetes sets for a service whose name begins with `forebay`,
/// such as `FOREBAY_SERVICE_HOST` and `FOREBAY_PORT_8080_TCP`.
fn is_of_kubernetes(name: &str) -> bool {
    name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT")
}

/// Arguments of `check`.
#[derive(Debug, Group)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML).
    pub(crate) file: PathBuf,
    /// Exit with status 1 if there are warnings about rules.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print what the rules do with a request for this URL.
    #[arg(long, value_name = "URL")]
    pub(crate) explain: Option<String>,
    #[command(flatten)]
    pub(crate) request: ExplainArgs,
}

/// Request of `check --explain`.
#[derive(Debug, Group)]
pub(crate) struct ExplainArgs {
    /// Header field of the request; may be repeated.
    #[arg(short = 'H', value_name = "NAME: VALUE", requires = "explain")]
    pub(crate) fields: Vec<String>,
    /// Method of the request.
    #[arg(short = 'X', value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// Address of the client.
    #[arg(long, value_name = "ADDR", requires = "explain")]
    pub(crate) client: Option<IpAddr>,
    /// Response of the origin: its status, then fields separated by semicolons.
    #[arg(long, value_name = "STATUS [NAME: VALUE]", requires = "explain")]
    pub(crate) response: Option<String>,
    /// Print JSON.
    #[arg(long, requires = "explain")]
    pub(crate) json: bool,
}

/// Flags of `origin`.
#[derive(Debug, Group)]
pub(crate) struct OriginArgs {
    /// Listen address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    pub(crate) listen: SocketAddr,
}

/// Arguments of `probe`.
#[derive(Debug, Group)]
pub(crate) struct ProbeArgs {
    /// URL of the probe listener or the admin listener; without a path, /readyz is asked.
    #[arg(default_value = "http://127.0.0.1:8081")]
    pub(crate) url: String,
}

/// Arguments of `warm`: exactly one list, which `warm::run` checks with its own error message.
#[derive(Debug, Group)]
#[command(override_usage = "forebay warm <FILE|-|--sitemap URL|--log FILE> [OPTIONS]")]
pub(crate) struct WarmArgs {
    /// File with one URL per line; - reads standard input.
    pub(crate) file: Option<PathBuf>,
    /// URL of a sitemap, or of an index of sitemaps; it is fetched through the cache, too.
    #[arg(long, value_name = "URL")]
    pub(crate) sitemap: Option<String>,
    /// Access log of any format of forebay: each URL of a GET request, once.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// URL of a listener of the cache. With one for each scheme, each URL goes to that of its scheme.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) via: Vec<String>,
    /// Authorities that may sign the certificate of an https listener: a PEM file, or `system`
    /// [default: the roots of Mozilla].
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Number of URLs that are fetched at once.
    #[arg(long, value_name = "N", default_value = "8", value_parser = concurrency)]
    pub(crate) concurrency: usize,
    /// Number of URLs at the beginning of the list that are left out, to continue a warm-up.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) skip: usize,
}

fn concurrency(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_024).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 1024".to_owned())
}

/// Flags of `purge`.
#[derive(Debug, Group)]
#[command(
    override_usage = "forebay purge <--url URL|--tag TAG|--prefix PREFIX|--path-regex REGEX|--site ID|--all> [OPTIONS]"
)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) what: PurgeWhat,
    /// Remove the entries instead of marking them stale.
    #[arg(long)]
    pub(crate) hard: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Group)]
pub(crate) struct ExplainUrlArgs {
    /// URL as clients request it.
    pub(crate) url: String,
    /// Header field of the request; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) fields: Vec<String>,
    /// Method of the request.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// Address of the client [default: 127.0.0.1].
    #[arg(long, value_name = "ADDR")]
    pub(crate) client: Option<IpAddr>,
    /// Send one GET to the origin, and judge its response. Nothing is stored.
    #[arg(long)]
    pub(crate) live: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 3 if the request would not be a hit.
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `tail`.
#[derive(Debug, Group)]
pub(crate) struct TailArgs {
    /// Expression that selects responses, such as 'status>=500 and site=shop'.
    #[arg(long = "where", value_name = "EXPR")]
    pub(crate) selection: Option<String>,
    /// Format of the lines.
    #[arg(long, value_enum, default_value_t = LineFormat::Text)]
    pub(crate) format: LineFormat,
    /// End after this number of lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<u64>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `top`.
#[derive(Debug, Group)]
pub(crate) struct TopArgs {
    /// Print the lists once, also on a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, once.
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds between two prints on a terminal, and for which a cache counts before the first.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Maximum number of rows of a list in the text.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rows: usize,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Target of a purge: exactly one flag, which `purge::run` checks with its own error message.
#[derive(Debug, Group)]
#[group(multiple = false)]
pub(crate) struct PurgeWhat {
    /// URL as clients request it; all its variants are purged.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Tag: every entry whose response carried it in Surrogate-Key or Cache-Tag. May be repeated.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// URL prefix: `host/path`, or `/path` for every host.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Regular expression that is found in the path; of every site. `^/img/.*\.png$` needs quotes.
    #[arg(long, value_name = "REGEX")]
    pub(crate) path_regex: Option<String>,
    /// Id of a site: all its entries.
    #[arg(long, value_name = "ID")]
    pub(crate) site: Option<String>,
    /// All entries of all sites.
    #[arg(long)]
    pub(crate) all: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_named_with_the_nearest_one() {
        let warnings =
            |names: &[&str]| unknown_variables(names.iter().map(|name| OsString::from(*name)));
        let known = ["FOREBAY_MEMORY", "FOREBAY_DISK_SIZE", "OTHER", "FOREBAYS"];
        assert!(warnings(&known).is_empty());
        let of_kubernetes = ["FOREBAY_SERVICE_HOST", "FOREBAY_PORT", "FOREBAY_PORT_8080_TCP_ADDR"];
        assert!(warnings(&of_kubernetes).is_empty());
        let near = warnings(&["FOREBAY_MEMROY"]);
        assert!(near[0].ends_with("no effect; did you mean FOREBAY_MEMORY?"), "{near:?}");
        let far = warnings(&["FOREBAY_COLOUR_OF_THE_PAGE"]);
        assert!(far[0].ends_with("is unknown and has no effect"), "{far:?}");
    }

    /// `cargo run` passes the variables of the build script to the command.
    #[test]
    fn the_build_script_sets_no_variable_that_looks_like_an_option() {
        let script = include_str!("../build.rs");
        assert!(script.contains("rustc-env=") && !script.contains("rustc-env=FOREBAY_"));
    }
}
