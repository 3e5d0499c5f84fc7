//! Memory of metrics, history, lists and rings with 100 sites and viewers, beside one site without.

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::{Launched, memory};
use forebay_testkit::origin::{Answer, Origin};
use futures_util::future::try_join_all;
use tokio::io::{copy, sink};

use super::{open, start};
use crate::environment::{Options, mib};
use crate::report::{Bound, Table};

const SITES: usize = 100;

/// Requests, each for a URL of its own, so that the lists are full.
const REQUESTS: usize = 300_000;
const REQUESTS_QUICK: usize = 60_000;

const CLIENTS: usize = 16;
const TAILS: usize = 4;

/// Interval of requests at which the lists are asked for, so that they go on.
const VIEW_EVERY: usize = 4_096;

/// Largest difference of resident memory in MiB.
const MOST_MIB: f64 = 40.0;

pub(super) async fn run(options: &Options) -> Result<Table> {
    let requests = options.pick(REQUESTS, REQUESTS_QUICK);
    let origin = Origin::always(Answer::ok("hello").field("Cache-Control", "max-age=600")).await?;
    let folder = tempfile::tempdir()?;
    let config = |sites: usize| {
        let site = |number| {
            format!(
                "[[site]]\nid = \"s{number}\"\nhosts = [\"s{number}.example\"]\norigin = \"{}\"\n",
                origin.url()
            )
        };
        let sites: String = (0..sites).map(site).collect();
        format!("threads = 2\nmemory = \"16MiB\"\n{sites}")
    };
    let one = start(folder.path(), "one", &config(1), None).await?;
    load(&one, 1, requests, false).await?;
    let alone = memory(one.pid(), "VmRSS")?;
    drop(one);
    let all = start(folder.path(), "all", &config(SITES), None).await?;
    for _ in 0..TAILS {
        let mut tail = open(&all, "/tail", 1).await?;
        tokio::spawn(async move { copy(&mut tail, &mut sink()).await });
    }
    load(&all, SITES, requests, true).await?;
    let viewed = memory(all.pid(), "VmRSS")?;
    let mut table = Table::figures(format!("resident memory after {requests} URLs")).note(
        "The history has its whole size from the first second of a site. The difference also \
         contains what 100 sites need otherwise.",
    );
    table.figure("one site", mib(alone), "MiB", Bound::None);
    table.figure("100 sites, top and 4 tails", mib(viewed), "MiB", Bound::None);
    let bound = Bound::AtMost(MOST_MIB);
    table.figure("difference", mib(viewed.saturating_sub(alone)), "MiB", bound);
    Ok(table)
}

async fn load(server: &Launched, sites: usize, requests: usize, is_viewed: bool) -> Result<()> {
    let clients = (0..CLIENTS).map(|first| async move {
        let mut client = Client::connect(server.address()).await?;
        for number in (first..requests).step_by(CLIENTS) {
            if is_viewed && number % VIEW_EVERY == 0 {
                let top = server.get_admin("/top").await.context("top")?;
                ensure!(top.status == 200, "top: {}", top.status);
            }
            let host = format!("s{}.example", number % sites);
            let request = Request::get(&format!("/items/{number}")).field("Host", host);
            let reply = client.ask(&request).await?;
            ensure!(reply.status == 200, "{}", reply.status_line);
        }
        Ok(())
    });
    try_join_all(clients).await?;
    Ok(())
}
