//! Clusters and Sentinels.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{sleep, timeout};

use super::{RedisLaunch, RedisServer, free_port};

/// Number of hash slots of a Cluster.
const SLOTS: usize = 16_384;

/// Maximum time for servers to agree.
const AGREE_WAIT: Duration = Duration::from_secs(30);

/// Interval between polls of the servers.
const ASK_GAP: Duration = Duration::from_millis(50);

/// Starts a Cluster and waits until all masters report it as complete.
///
/// # Errors
/// If a server cannot be started, or they do not agree within 30 s.
pub async fn start_cluster(masters: usize) -> anyhow::Result<Vec<RedisServer>> {
    ensure!(masters > 0, "a Cluster of none");
    let mut servers: Vec<RedisServer> = Vec::new();
    for _ in 0..masters {
        let server = start_node(servers.first()).await?;
        servers.push(server);
    }
    for (number, server) in servers.iter().enumerate() {
        let first = number * SLOTS / masters;
        let last = (number + 1) * SLOTS / masters - 1;
        let (first, last) = (first.to_string(), last.to_string());
        server.ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?;
    }
    for server in &servers {
        until("a Cluster", async || {
            let state = server.ask(&["CLUSTER", "INFO"]).await?.text();
            let nodes = format!("cluster_known_nodes:{masters}\r");
            Ok(state.contains("cluster_state:ok") && state.contains(&nodes))
        })
        .await?;
    }
    Ok(servers)
}

/// Adds a replica to a Cluster of `masters` masters, and waits until it is connected.
///
/// # Errors
/// If the server cannot be started, or does not connect within 30 s.
pub async fn add_replica(master: &RedisServer, masters: usize) -> anyhow::Result<RedisServer> {
    let replica = start_node(Some(master)).await?;
    let id = master.ask(&["CLUSTER", "MYID"]).await?.text();
    until("a replica", async || {
        // The replica must know its master first.
        let nodes = replica.ask(&["CLUSTER", "NODES"]).await?.text();
        Ok(nodes.lines().count() > masters && nodes.contains(&id))
    })
    .await?;
    replica.ask(&["CLUSTER", "REPLICATE", &id]).await?;
    until("a replica", async || {
        let role = replica.ask(&["INFO", "replication"]).await?.text();
        let known = master.ask(&["CLUSTER", "REPLICAS", &id]).await?.text();
        Ok(role.contains("master_link_status:up") && !known.is_empty())
    })
    .await?;
    Ok(replica)
}

/// Starts a Cluster node without slots, and introduces it to another one.
async fn start_node(other: Option<&RedisServer>) -> anyhow::Result<RedisServer> {
    let bus = free_port()?;
    let launch = RedisLaunch::new()
        .config("cluster-enabled yes")
        .config(format!("cluster-port {bus}"))
        .config("cluster-node-timeout 1000");
    let server = launch.start().await?;
    if let Some(other) = other {
        let (port, bus) = (server.port().to_string(), bus.to_string());
        other.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
    }
    Ok(server)
}

/// Starts a Sentinel with a quorum of one that monitors a master under `name`, and waits until it
/// knows the master's replicas.
///
/// # Errors
/// If the Sentinel cannot be started, or does not find the replicas within 30 s.
pub async fn start_sentinel(
    name: &str,
    master: &RedisServer,
    replicas: usize,
) -> anyhow::Result<RedisServer> {
    let sentinel = RedisLaunch::new()
        .mode("--sentinel")
        .config(format!("sentinel monitor {name} 127.0.0.1 {} 1", master.port()))
        .config(format!("sentinel down-after-milliseconds {name} 500"))
        .config(format!("sentinel failover-timeout {name} 3000"))
        .start()
        .await?;
    until("a Sentinel", async || {
        let known = sentinel.ask(&["SENTINEL", "REPLICAS", name]).await?;
        Ok(known.text().matches("slave-repl-offset").count() == replicas)
    })
    .await?;
    Ok(sentinel)
}

async fn until(
    what: &str,
    mut is_so: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let agreeing = async {
        while !is_so().await? {
            sleep(ASK_GAP).await;
        }
        Ok(())
    };
    timeout(AGREE_WAIT, agreeing).await.with_context(|| format!("{what} does not come up"))?
}
