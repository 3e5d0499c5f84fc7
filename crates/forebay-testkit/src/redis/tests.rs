use super::*;

async fn get(server: &RedisServer, name: &str) -> Reply {
    server.ask(&["GET", name]).await.unwrap()
}

#[tokio::test]
async fn a_server_stores_values_and_is_empty_after_a_restart() {
    let server = RedisLaunch::new().socket().start().await.unwrap();
    server.ask(&["SET", "a", "1"]).await.unwrap();
    assert_eq!(get(&server, "a").await, Reply::Bytes(b"1".to_vec()));
    assert!(server.socket().exists());
    assert!(server.ask(&["NONSENSE"]).await.unwrap_err().to_string().starts_with("ERR"));
    let port = server.kill().await.unwrap();
    let again = RedisLaunch::new().port(port).start().await.unwrap();
    assert_eq!(get(&again, "a").await, Reply::Nil);
}

#[tokio::test]
async fn a_suspended_server_answers_after_it_is_resumed() {
    let server = RedisLaunch::new().start().await.unwrap();
    server.freeze().await.unwrap();
    let mut asked = std::pin::pin!(server.ask(&["PING"]));
    let soon = Duration::from_millis(60);
    assert!(tokio::time::timeout(soon, &mut asked).await.is_err());
    server.thaw().await.unwrap();
    assert_eq!(asked.await.unwrap(), Reply::Text("PONG".to_owned()));
}

#[tokio::test]
async fn three_servers_are_a_cluster() {
    let servers = start_cluster(3).await.unwrap();
    let slot = servers[0].ask(&["CLUSTER", "KEYSLOT", "{a}b"]).await.unwrap();
    assert_eq!(slot, servers[1].ask(&["CLUSTER", "KEYSLOT", "c{a}"]).await.unwrap());
    let nodes = servers[2].ask(&["CLUSTER", "SHARDS"]).await.unwrap();
    assert!(matches!(nodes, Reply::All(nodes) if nodes.len() == 3));
}

#[tokio::test]
async fn a_sentinel_knows_a_master_and_its_replica() {
    let master = RedisLaunch::new().start().await.unwrap();
    let _replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let sentinel = start_sentinel("m", &master, 1).await.unwrap();
    let named = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"]).await.unwrap();
    assert_eq!(named.text(), format!("127.0.0.1 {}", master.port()));
}
