//! Real Redis servers on free loopback ports: alone, as replicas, as Sentinels, as a Cluster.
//!
//! Each has a folder of its own, which goes with it, and keeps nothing on disk.

mod cluster;
mod speak;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::launch::{Lines, Signal, signal};

pub use cluster::{add_replica, start_cluster, start_sentinel};
pub use speak::Reply;

/// The program; Valkey's speaks the same and takes the same options.
const PROGRAM: &str = "redis-server";

/// Names a program to take in its place.
const PROGRAM_VARIABLE: &str = "FOREBAY_REDIS_SERVER";

/// How long a start, or an end, may take.
const START_WAIT: Duration = Duration::from_secs(10);

/// How often a server is started on other ports when somebody else took the first ones.
const ATTEMPTS_MAX: usize = 5;

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct RedisLaunch {
    port: Option<u16>,
    has_socket: bool,
    tls: Option<TlsIdentity>,
    config: Vec<String>,
    mode: Vec<String>,
}

/// What a server needs for TLS, as PEM.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    /// Who may vouch for clients.
    pub authority: String,
    /// The server's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Whether clients must have a certificate, too.
    pub wants_clients: bool,
}

impl RedisLaunch {
    /// A server of its own, with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// On this port, where a server was before.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// With a unix socket, too.
    pub fn socket(mut self) -> Self {
        self.has_socket = true;
        self
    }

    /// With a second port that speaks TLS.
    pub fn tls(mut self, identity: TlsIdentity) -> Self {
        self.tls = Some(identity);
        self
    }

    /// With a line of configuration, such as `maxmemory 1mb` or `user cache on >secret ~* +get`.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// With an argument that chooses a mode.
    fn mode(mut self, argument: impl Into<String>) -> Self {
        self.mode.push(argument.into());
        self
    }

    /// As the replica of another server.
    pub fn replica_of(self, master: &RedisServer) -> Self {
        self.config(format!("replicaof 127.0.0.1 {}", master.port))
    }

    /// Starts it, and waits until it accepts connections.
    pub async fn start(self) -> anyhow::Result<RedisServer> {
        for _ in 1..ATTEMPTS_MAX {
            match self.attempt().await {
                Err(error) if self.port.is_none() && is_taken(&error) => {}
                result => return result,
            }
        }
        self.attempt().await
    }

    async fn attempt(&self) -> anyhow::Result<RedisServer> {
        let folder = TempDir::with_prefix("forebay-redis-")?;
        let port = self.port.map_or_else(free_port, Ok)?;
        let tls_port = self.tls.as_ref().map(|_| free_port()).transpose()?;
        let file = folder.path().join("redis.conf");
        std::fs::write(&file, self.written(port, tls_port, &folder)?)?;
        let program = std::env::var_os(PROGRAM_VARIABLE).unwrap_or_else(|| PROGRAM.into());
        let mut command = Command::new(&program);
        command.arg(&file).args(&self.mode).current_dir(folder.path()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = command.spawn();
        let mut child = started.with_context(|| format!("start {}", program.display()))?;
        let lines = Lines::of(child.stdout.take().context("no stdout")?);
        let server = RedisServer { child, lines, port, tls_port, folder };
        server.ready().await?;
        Ok(server)
    }

    fn written(&self, port: u16, tls: Option<u16>, folder: &TempDir) -> anyhow::Result<String> {
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            // A replica is brought up without waiting for others that might want one.
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        if self.mode.iter().any(|argument| argument == "--sentinel") {
            lines.truncate(3);
        }
        if self.has_socket {
            lines.push(format!("unixsocket {}", folder.path().join("redis.sock").display()));
        }
        if let (Some(tls), Some(port)) = (&self.tls, tls) {
            let files = [("ca", &tls.authority), ("cert", &tls.certificate), ("key", &tls.key)];
            lines.push(format!("tls-port {port}"));
            for (name, pem) in files {
                let path = folder.path().join(name);
                std::fs::write(&path, pem)?;
                let option = if name == "ca" { "ca-cert" } else { name };
                lines.push(format!("tls-{option}-file {}", path.display()));
            }
            let wanted = if tls.wants_clients { "yes" } else { "no" };
            lines.push(format!("tls-auth-clients {wanted}"));
        }
        lines.extend(self.config.iter().cloned());
        lines.push(String::new());
        Ok(lines.join("\n"))
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("Address already in use")
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A running server; dropping it kills it.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    lines: Lines,
    port: u16,
    tls_port: Option<u16>,
    folder: TempDir,
}

impl RedisServer {
    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The URL of its TLS port, if it has one. It has the name that certificates are for.
    pub fn tls_url(&self) -> Option<String> {
        self.tls_port.map(|port| format!("rediss://localhost:{port}"))
    }

    /// Its unix socket, if it was asked for.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// What it has written so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.so_far()
    }

    /// Asks it something over a connection of its own; an error if the answer is one.
    pub async fn ask<A: AsRef<[u8]>>(&self, command: &[A]) -> anyhow::Result<Reply> {
        speak::ask(self.address(), command).await
    }

    /// Stops it for a while: it accepts connections, and never answers.
    pub async fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::Stop).await
    }

    /// Lets it go on.
    pub async fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::Cont).await
    }

    async fn signal(&self, sent: Signal) -> anyhow::Result<()> {
        signal(self.child.id().context("the server has ended")?, sent).await
    }

    /// Kills it, and waits until it is gone. Its port can be used again.
    pub async fn kill(mut self) -> anyhow::Result<u16> {
        self.child.start_kill()?;
        let ended = tokio::time::timeout(START_WAIT, self.child.wait()).await;
        ended.context("a killed server does not end")??;
        Ok(self.port)
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let is_ready = |line: &str| {
            line.contains("Ready to accept connections") || line.contains("Sentinel ID is")
        };
        if self.lines.find(START_WAIT, is_ready).await.is_none() {
            bail!("not ready: {:#?}", self.lines.so_far());
        }
        let reply = self.ask(&["PING"]).await;
        // One that wants a password is there, too.
        let is_there = reply.as_ref().map_or_else(
            |error| error.to_string().starts_with("NOAUTH"),
            |reply| *reply == Reply::Text("PONG".to_owned()),
        );
        ensure!(is_there, "no answer to a ping: {reply:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
