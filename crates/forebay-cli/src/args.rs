//! The command line. Every flag of `serve` has an environment twin, `FOREBAY_<FLAG>`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand};

use crate::config::plan::Overrides;

/// A stampede-proof HTTP cache.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, arg_required_else_help = true)]
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
    /// of it. `forebay serve --origin URL` is a complete configuration too.
    Serve(ServeArgs),
    /// Read a configuration file and say what it means, or everything that is wrong with it.
    Check(CheckArgs),
    /// Run the sample origin: an HTTP server that answers as its URLs tell it to, and counts.
    Origin(OriginArgs),
    /// Tell a running cache to forget.
    Purge(PurgeArgs),
}

/// Flags of `serve`. Each one overrides the file.
#[derive(Debug, Group)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where clients are answered [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR", env = "FOREBAY_LISTEN")]
    listen: Option<String>,
    /// Where the admin listener is [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDR", env = "FOREBAY_ADMIN")]
    admin: Option<String>,
    /// Where answers come from, such as http://127.0.0.1:3000; alone a complete configuration.
    #[arg(long, value_name = "URL", env = "FOREBAY_ORIGIN")]
    origin: Option<String>,
    /// What memory may hold, such as 256MiB [default: 256MiB].
    #[arg(long, value_name = "SIZE", env = "FOREBAY_MEMORY")]
    memory: Option<String>,
    /// Start a sample origin too, and print what to try.
    #[arg(long, env = "FOREBAY_DEMO")]
    pub(crate) demo: bool,
    #[command(flatten)]
    later: LaterArgs,
}

/// Flags whose tiers are not there yet: known, so that the answer is a sentence of their own.
#[derive(Debug, Group)]
struct LaterArgs {
    #[arg(long, hide = true, value_name = "DIR", env = "FOREBAY_DISK")]
    disk: Option<String>,
    #[arg(long, hide = true, value_name = "SIZE", env = "FOREBAY_DISK_SIZE")]
    disk_size: Option<String>,
    #[arg(long, hide = true, value_name = "URL", env = "FOREBAY_REDIS")]
    redis: Option<String>,
    #[arg(long, hide = true, value_name = "ADDR", env = "FOREBAY_MEMCACHED")]
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
        }
    }

    /// One sentence for each flag whose tier is not there yet.
    pub(crate) fn not_yet(&self) -> Vec<String> {
        let later = &self.later;
        let flags = [
            ("--disk", &later.disk, "disk tier"),
            ("--disk-size", &later.disk_size, "disk tier"),
            ("--redis", &later.redis, "Redis tier"),
            ("--memcached", &later.memcached, "memcached tier"),
        ];
        let given = flags.iter().filter(|(_, value, _)| value.is_some());
        given
            .map(|(flag, _, tier)| format!("{flag}: this version has no {tier} yet; leave it out"))
            .collect()
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
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) what: PurgeWhat,
    /// Remove it, instead of making it stale.
    #[arg(long)]
    pub(crate) hard: bool,
    /// The admin listener of the cache.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub(crate) admin: String,
    /// File with the admin listener's token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What to forget.
#[derive(Debug, Group)]
#[group(required = true, multiple = false)]
pub(crate) struct PurgeWhat {
    /// One URL, as clients ask for it, with all its variants.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Everything that carries a tag.
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Everything of one site.
    #[arg(long, value_name = "ID")]
    pub(crate) site: Option<String>,
    /// Everything.
    #[arg(long)]
    pub(crate) all: bool,
    /// Everything under a path: not there yet.
    #[arg(long, hide = true)]
    pub(crate) prefix: Option<String>,
}
