//! nginx as the origin, over https with HTTP/1.1 and HTTP/2, reloaded under load.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_testkit::client::{Client, Request};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::world::{ConfigFile, nowhere};

/// Folders of servers that are missing in the search path of ordinary users.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"];

/// Maximum time for nginx to listen.
const START_MAX: Duration = Duration::from_secs(20);

const NAME: &str = "origin.example";

/// Number of reloads.
const RELOADS: usize = 20;

/// Number of clients that send requests during the reloads.
const CLIENTS: usize = 8;

/// Running nginx; dropping it kills its master process, whose workers end with it.
struct Nginx {
    address: SocketAddr,
    master: Child,
    folder: TempDir,
    program: PathBuf,
}

impl Nginx {
    async fn start(http2: bool) -> anyhow::Result<Self> {
        let folders = FOLDERS.iter().map(|folder| Path::new(folder).join("nginx"));
        let program = folders.into_iter().find(|path| path.is_file());
        let program = program.context("nginx is not installed; `cargo xtask test` installs it")?;
        let (folder, address) = (tempfile::tempdir()?, nowhere()?);
        let key = generate_simple_self_signed([NAME.to_owned()])?;
        let CertifiedKey { cert, signing_key } = key;
        std::fs::write(folder.path().join("cert.pem"), cert.pem())?;
        std::fs::write(folder.path().join("key.pem"), signing_key.serialize_pem())?;
        let protocol = if http2 { " http2" } else { "" };
        let root = folder.path().display();
        let text = format!(
            "worker_processes 1;\nerror_log stderr;\npid {root}/pid;\nevents {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path {root}/b;\nproxy_temp_path {root}/p;\n\
             fastcgi_temp_path {root}/f;\nuwsgi_temp_path {root}/u;\nscgi_temp_path {root}/s;\n\
             keepalive_requests 300;\nserver {{\nlisten {address} ssl{protocol};\n\
             ssl_certificate cert.pem;\nssl_certificate_key key.pem;\n\
             location / {{ return 200 $server_protocol; }}\n}}\n}}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), text)?;
        let mut master = Self::command(&program, folder.path(), &["-g", "daemon off;"]).spawn()?;
        let begun = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = master.try_wait()? {
                anyhow::bail!("nginx ended with {status}");
            }
            anyhow::ensure!(begun.elapsed() < START_MAX, "nginx does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { address, master, folder, program })
    }

    fn command(program: &Path, root: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("-p").arg(root).arg("-c").arg(root.join("nginx.conf")).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true);
        command
    }

    /// Replaces the workers: the old ones end after their requests.
    async fn reload(&self) -> anyhow::Result<()> {
        let mut command = Self::command(&self.program, self.folder.path(), &["-s", "reload"]);
        anyhow::ensure!(command.status().await?.success(), "nginx -s reload");
        Ok(())
    }

    /// Ends the processes.
    async fn stop(mut self) -> anyhow::Result<()> {
        Self::command(&self.program, self.folder.path(), &["-s", "stop"]).status().await?;
        self.master.wait().await?;
        Ok(())
    }
}

/// Reloads nginx while clients send requests; none may fail.
async fn assert_no_failure(protocols: &str, http2: bool, seen: &str) -> anyhow::Result<()> {
    let nginx = Nginx::start(http2).await?;
    let ca = nginx.folder.path().join("cert.pem");
    let file = ConfigFile::of(&format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[[site]]\nid = \"shop\"\n\
         [site.origin]\nurls = [\"https://{}\"]\nca = \"{}\"\nserver_name = \"{NAME}\"\n\
         protocols = {protocols}\n",
        nginx.address,
        ca.display()
    ))?;
    let cache = file.serve().await?;
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (address, stop, count) = (cache.address(), stop.clone(), count.clone());
        let seen = seen.to_owned();
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            while !stop.load(Ordering::Relaxed) {
                let turn = count.fetch_add(1, Ordering::Relaxed);
                let request = Request::get(&format!("/{number}/{turn}"));
                let reply = client.ask(&request.field("Cache-Control", "no-store")).await?;
                anyhow::ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
                anyhow::ensure!(reply.text() == seen, "{}", reply.text());
            }
            anyhow::Ok(())
        });
    }
    for reloads in 0..RELOADS {
        nginx.reload().await?;
        // Each worker gets requests before it is replaced.
        let enough = count.load(Ordering::Relaxed) + 10 * CLIENTS;
        while count.load(Ordering::Relaxed) < enough {
            anyhow::ensure!(clients.len() == CLIENTS, "{reloads} reloads");
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(ended) = clients.try_join_next() {
                ended??;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    nginx.stop().await
}

#[tokio::test]
async fn an_https_origin_is_reloaded_without_a_failed_request() -> anyhow::Result<()> {
    assert_no_failure("[\"http/1.1\"]", false, "HTTP/1.1").await
}

#[tokio::test]
async fn an_http2_origin_is_reloaded_without_a_failed_request() -> anyhow::Result<()> {
    assert_no_failure("[\"h2\", \"http/1.1\"]", true, "HTTP/2.0").await
}

#[tokio::test]
async fn a_server_without_http2_gets_http1() -> anyhow::Result<()> {
    assert_no_failure("[\"h2\", \"http/1.1\"]", false, "HTTP/1.1").await
}
