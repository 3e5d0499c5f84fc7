//! Real Redis servers on free loopback ports: single, replicas, Sentinels, a Cluster.
//!
//! Each server has its own temporary directory and persists nothing.

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

/// Name of the server program; Valkey's takes the same options.
const PROGRAM: &str = "redis-server";

/// Environment variable with the path of another program.
const PROGRAM_VARIABLE: &str = "FOREBAY_REDIS_SERVER";

/// Maximum duration of a start or a stop.
const START_WAIT: Duration = Duration::from_secs(10);

/// Maximum number of starts on other ports when a port is in use.
const ATTEMPTS_MAX: usize = 5;

/// Server to start.
#[derive(Clone, Debug, Default)]
pub struct RedisLaunch {
    port: Option<u16>,
    has_socket: bool,
    tls: Option<TlsIdentity>,
    config: Vec<String>,
    mode: Vec<String>,
}

/// TLS configuration of a server, as PEM.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    /// Authority that signs client certificates.
    pub authority: String,
    /// Certificate of the server.
    pub certificate: String,
    /// Private key of the server.
    pub key: String,
    /// True if clients must present a certificate.
    pub wants_clients: bool,
}

impl RedisLaunch {
    /// Empty server with default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the port, for example that of a server that was stopped.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Adds a Unix socket.
    pub fn socket(mut self) -> Self {
        self.has_socket = true;
        self
    }

    /// Adds a second port with TLS.
    pub fn tls(mut self, identity: TlsIdentity) -> Self {
        self.tls = Some(identity);
        self
    }

    /// Adds a configuration line, such as `maxmemory 1mb` or `user cache on >secret ~* +get`.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Adds a command line argument that selects a mode.
    fn mode(mut self, argument: impl Into<String>) -> Self {
        self.mode.push(argument.into());
        self
    }

    /// Makes it a replica of another server.
    pub fn replica_of(self, master: &RedisServer) -> Self {
        self.config(format!("replicaof 127.0.0.1 {}", master.port))
    }

    /// Starts the server and waits until it accepts connections.
    ///
    /// # Errors
    /// If the program is missing, or does not become ready within 10 s.
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
            // Without a delay, the master does not wait for further replicas.
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

/// Running server; dropping it kills it.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    lines: Lines,
    port: u16,
    tls_port: Option<u16>,
    folder: TempDir,
}

impl RedisServer {
    /// Port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Address that it listens on.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// URL of the TLS port, if any, with the host name of the certificates.
    pub fn tls_url(&self) -> Option<String> {
        self.tls_port.map(|port| format!("rediss://localhost:{port}"))
    }

    /// Path of the Unix socket; it exists if [`RedisLaunch::socket`] was called.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Lines of stdout so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.so_far()
    }

    /// Sends a command on a new connection.
    ///
    /// # Errors
    /// If the server answers with an error, or not within 10 s.
    pub async fn ask<A: AsRef<[u8]>>(&self, command: &[A]) -> anyhow::Result<Reply> {
        speak::ask(self.address(), command).await
    }

    /// Suspends the server: it accepts connections and does not answer.
    ///
    /// # Errors
    /// If the server has ended.
    pub async fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::Stop).await
    }

    /// Resumes the server.
    ///
    /// # Errors
    /// If the server has ended.
    pub async fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::Cont).await
    }

    async fn signal(&self, sent: Signal) -> anyhow::Result<()> {
        signal(self.child.id().context("the server has ended")?, sent)
    }

    /// Kills the server, waits for its exit, and returns its port, which is free again.
    ///
    /// # Errors
    /// If the server does not exit.
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
        // A server that requires a password is ready as well.
        let is_there = reply.as_ref().map_or_else(
            |error| error.to_string().starts_with("NOAUTH"),
            |reply| *reply == Reply::Text("PONG".to_owned()),
        );
        ensure!(is_there, "no answer to a ping: {reply:?}");
        Ok(())
    }
}
