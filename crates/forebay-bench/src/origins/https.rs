//! CPU time of responses that are not stored, from an https origin, beside nginx.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use crate::edge::servers::certificate;
use crate::environment::Options;
use crate::proxy::load::{COLUMNS, Load, Sample, allowed_cores, busy, cells, machine, ratio};
use crate::proxy::servers::{Ground, NGINX, Subject};
use crate::report::{Bound, Table, Verdict};

/// CPU time relative to nginx.
const MOST: f64 = 1.0;

/// Length of a response.
const BYTES: usize = 1 << 10;

const ORIGIN: &str = "nginx, origin";

pub(super) fn run(options: &Options) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let (cores, folder) = (allowed_cores()?, tempfile::tempdir()?);
    certificate(folder.path())?;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    // The origin shares the core of the load generator.
    let mut ground = Ground { folder: folder.path().to_owned(), origin: nowhere, cores };
    let there = Ground {
        cores: crate::proxy::load::Cores { server: cores.load, ..cores },
        ..ground.clone()
    };
    let origin = there.nginx_server(ORIGIN, &origin_of(folder.path()))?;
    ground.origin = origin.address;
    let pass = "location / { proxy_pass https://origin; proxy_http_version 1.1; \
                proxy_set_header Connection \"\"; proxy_ssl_session_reuse on; }";
    let runtime = tokio::runtime::Runtime::new()?;
    let site = format!("[site.origin]\nurls = [\"https://{}\"]\nverify = false\n", origin.address);
    let subjects = [
        ground.nginx_server(NGINX, &format!("listen ADDRESS; {pass}"))?,
        runtime.block_on(ground.forebay_site("", &site))?,
    ];
    let mut measured: [Vec<Sample>; 2] = Default::default();
    for _ in 0..rounds {
        for (subject, samples) in subjects.iter().zip(&mut measured) {
            let load = Load::new(format!("http://{}/", subject.address), seconds);
            samples.push(load.run(subject.pid, cores.load)?);
        }
    }
    let rows = subjects.iter().zip(&measured);
    let note = busy(rows.clone().map(|(subject, samples)| (subject.name, &**samples)));
    let title = format!("response of {BYTES} B from an https origin; {}", machine(cores));
    let mut table = Table::new(title, &COLUMNS).note(note);
    for (Subject { name, .. }, samples) in rows {
        table.row(cells(name, samples, &measured[0]), "", Verdict::Shown);
    }
    let mut bounds = Table::figures("bound, as a ratio of CPU time per request");
    let found = ratio(&measured[1], &measured[0]);
    bounds.figure("https origin: forebay to nginx", found, "", Bound::AtMost(MOST));
    Ok(vec![table, bounds])
}

/// Server block of the origin.
fn origin_of(folder: &Path) -> String {
    format!(
        "listen ADDRESS ssl; ssl_certificate {folder}/a.pem; ssl_certificate_key {folder}/a.key;
        location / {{ add_header Cache-Control no-store; return 200 \"{body}\"; }}",
        folder = folder.display(),
        body = "x".repeat(BYTES)
    )
}
