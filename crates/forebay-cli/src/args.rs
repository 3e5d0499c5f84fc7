//! The command line. Every flag of `serve` has an environment twin, `FOREBAY_<FLAG>`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand};

use crate::config::resolved::Overrides;

/// What a newcomer may type next.
const EXAMPLES: &str = "\
Try it:   forebay serve --demo
Use it:   forebay serve --origin http://127.0.0.1:3000

`forebay COMMAND --help` tells more about a command.";

/// A shared HTTP cache that keeps crowds away from your origin.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the cache.
    ///
    /// `forebay serve --demo` needs nothing else: it starts a sample origin and a cache in front
    /// of it. `forebay serve --origin URL` puts the cache in front of your own origin. A file, with
    /// --config, can say more; `forebay check FILE` tells what it means.
    ///
    /// A flag stands over its variable of the environment, and both stand over the file.
    Serve(ServeArgs),
    /// Read a configuration file and say what it means, or everything that is wrong with it.
    Check(CheckArgs),
    /// Run the sample origin: an HTTP server that answers as its URLs tell it to, and counts.
    Origin(OriginArgs),
    /// Tell a running cache to forget.
    Purge(PurgeArgs),
}

/// Flags of `serve`. Each one overrides the file. The values of variables stay out of the help:
/// what a service runs with is nobody else's business.
#[derive(Debug, Group)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Where clients are answered; several with commas between them [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR", env = "FOREBAY_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Where health, metrics, purges and the dashboard are served [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDR", env = "FOREBAY_ADMIN", hide_env_values = true)]
    admin: Option<String>,
    /// Where answers come from, such as http://127.0.0.1:3000.
    #[arg(long, value_name = "URL", env = "FOREBAY_ORIGIN", hide_env_values = true)]
    origin: Option<String>,
    /// How much may be stored in memory, such as 512MiB [default: 256MiB].
    #[arg(long, value_name = "SIZE", env = "FOREBAY_MEMORY", hide_env_values = true)]
    memory: Option<String>,
    /// A Redis or Valkey that several caches share, such as redis://127.0.0.1:6379.
    #[arg(long, value_name = "URL", env = "FOREBAY_REDIS", hide_env_values = true)]
    redis: Option<String>,
    /// Directory for what outlives the process; none without it.
    #[arg(long, value_name = "DIR", env = "FOREBAY_DISK", hide_env_values = true)]
    disk: Option<String>,
    /// How much may be stored there [default: 10GiB].
    #[arg(long, value_name = "SIZE", env = "FOREBAY_DISK_SIZE", hide_env_values = true)]
    disk_size: Option<String>,
    /// Start a sample origin too, use it, and print what to try. Without --disk, the disk tier is
    /// in a temporary directory, which is removed at the end.
    #[arg(long, env = "FOREBAY_DEMO", hide_env_values = true)]
    pub(crate) demo: bool,
    #[command(flatten)]
    later: LaterArgs,
}

/// Flags whose tiers are not there yet: known, so that the answer is a sentence of their own.
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
    /// What the flags say, over whatever the file says.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            origin: self.origin.clone(),
            memory: self.memory.clone(),
            redis: self.redis.clone(),
            disk: self.disk.clone(),
            disk_size: self.disk_size.clone(),
        }
    }

    /// One sentence for each thing that makes no sense before any file is read.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let later = &self.later;
        let flags = [("--memcached", &later.memcached, "memcached tier")];
        let given = flags.iter().filter(|(_, value, _)| value.is_some());
        let mut complaints: Vec<String> = given
            .map(|(flag, _, tier)| format!("{flag}: this version has no {tier} yet; leave it out"))
            .collect();
        complaints.extend(match &self.origin {
            Some(origin) if self.demo => Some(format!(
                "--demo brings its own origin; leave out --origin {origin}, or --demo"
            )),
            None if !self.demo && self.config.is_none() => Some(
                "there is nothing to serve yet: say where answers come from with --origin URL or \
                 --config FILE, or try --demo"
                    .to_owned(),
            ),
            _ => None,
        });
        complaints
    }
}

/// Arguments of `check`.
#[derive(Debug, Group)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML).
    pub(crate) file: PathBuf,
}

/// Flags of `origin`.
#[derive(Debug, Group)]
pub(crate) struct OriginArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    pub(crate) listen: SocketAddr,
}

/// Flags of `purge`.
#[derive(Debug, Group)]
#[command(
    override_usage = "forebay purge <--url URL|--tag TAG|--prefix PREFIX|--site ID|--all> [OPTIONS]"
)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) what: PurgeWhat,
    /// Remove it, instead of making it stale.
    #[arg(long)]
    pub(crate) hard: bool,
    /// The admin listener of the cache, as its ready line names it.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub(crate) admin: String,
    /// File with the admin listener's token, if it has one.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What to forget: exactly one of these, which the command itself checks, in words of its own.
#[derive(Debug, Group)]
#[group(multiple = false)]
pub(crate) struct PurgeWhat {
    /// One URL, as clients ask for it, with all its variants.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Everything that carries a tag (Surrogate-Key or Cache-Tag of the origin's answers).
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Everything whose URL begins so: `host/path`, or `/path` for every host.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Everything of one site.
    #[arg(long, value_name = "ID")]
    pub(crate) site: Option<String>,
    /// Everything.
    #[arg(long)]
    pub(crate) all: bool,
}
