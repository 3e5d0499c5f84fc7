//! Cost and exactness of metrics, logs, live views and tracing.
//!
//! | file | contents |
//! |---|---|
//! | `cost.rs` | hits of 1 KiB on one core, without records and with each consumer of them |
//! | `counts.rs` | counters beside those of clients, the origin and the access log |
//! | `requests.rs` | the clients of that comparison: every kind of request |
//! | `stuck.rs` | latency of hits while a consumer of records does not read |
//! | `footprint.rs` | resident memory of history, lists, rings and curve at 100 sites |
//! | `viewers.rs` | clients of the admin listener, and a collector of spans |
//! | `samples.rs` | samples of `/metrics` |

mod cost;
mod counts;
mod footprint;
mod requests;
mod samples;
mod stuck;
mod viewers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use forebay_testkit::launch::{Launch, Launched};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::runtime::{Builder, Runtime};

use crate::environment::{Options, build, forebay};
use crate::proxy::load::{Cores, allowed_cores};
use crate::report::Table;

/// Target of hits: 1 KiB that may be stored for an hour.
const TARGET: &str = "/items/a?size=1024&cc=max-age=3600";

/// Builds of forebay, and the cores of the measurement.
struct Ground {
    folder: PathBuf,
    program: PathBuf,
    /// The program without records of responses.
    unrecorded: PathBuf,
    cores: Cores,
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let (cores, folder) = (allowed_cores()?, tempfile::tempdir()?);
    let unrecorded = unrecorded(folder.path())?;
    let folder_path = folder.path().to_owned();
    let ground = Ground { folder: folder_path, program: forebay()?, unrecorded, cores };
    let runtime = runtime(cores)?;
    let mut tables = runtime.block_on(cost::measure(options, &ground)).context("cost")?;
    tables.push(runtime.block_on(stuck::measure(options, &ground)).context("stuck consumers")?);
    // Neither measures time, and the second one waits most of it.
    let counts = counts::measure(options, &ground);
    let footprint = footprint::measure(options, &ground);
    let (counts, footprint) = runtime.block_on(async { tokio::join!(counts, footprint) });
    tables.push(counts.context("counts")?);
    tables.push(footprint.context("footprint")?);
    Ok(tables)
}

/// Clients, collector and readers run on the core of the load.
fn runtime(cores: Cores) -> Result<Runtime> {
    let mut set = CpuSet::new();
    set.set(cores.load);
    let pin = move || {
        // Without it, the measurement has more noise.
        let _ = sched_setaffinity(None, &set);
    };
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(1).on_thread_start(pin).enable_all().build()?)
}

/// Builds the program without records. It is copied, because the next build replaces it.
fn unrecorded(folder: &Path) -> Result<PathBuf> {
    let program = ["-p", "forebay-cli", "--bin", "forebay"];
    let features = ["--features", "forebay-http/unrecorded"];
    let copy = folder.join("forebay-unrecorded");
    std::fs::copy(build("release", &[&program[..], &features].concat())?, &copy)?;
    // Other benchmarks find the program as it is delivered.
    build("release", &program)?;
    Ok(copy)
}

/// Starts a program on the core of the servers, with one thread, and stores the response of
/// [`TARGET`].
async fn pinned(
    program: &Path,
    cores: Cores,
    origin: SocketAddr,
    tables: &str,
) -> Result<Launched> {
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 1\n{tables}\n\
         [[site]]\nid = \"bench\"\norigin = \"http://{origin}\"\n"
    );
    let launch = Launch::binary("taskset").args(["-c", &cores.server.to_string()]);
    let launch = launch.args([program]).args(["serve"]).config(&config)?;
    let server = launch.start().await?;
    let mut client = crate::http::Client::connect(server.address()).await?;
    for _ in 0..2 {
        let (head, length) = client.get(TARGET).await?;
        anyhow::ensure!(head.status() == 200 && length == 1_024, "{head:?}, {length} bytes");
    }
    Ok(server)
}

/// Lines of a configuration with a JSON log in a file.
fn json_log(file: &Path) -> String {
    format!(
        "access_log = \"json\"\n[access]\nfile = \"{}\"\nrotate_size = \"64MiB\"\nrotate_keep = 1",
        file.display()
    )
}

/// Lines of a configuration that trace this share of the requests.
fn tracing(collector: SocketAddr, share: f64) -> String {
    format!("[trace]\nendpoint = \"http://{collector}\"\nsample = {share}")
}

/// CPU time of all threads of a process.
fn cpu_time(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end in between.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let first = text.split(' ').next().context("schedstat is empty")?;
        nanos += first.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}
