//! Tests of the service over HTTP, each with its own database file.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use users_service::database::{Database, User};
use users_service::users::Users;
use users_service::web::Service;

/// Maximum time that a test waits for a response.
const RESPONSE_MAX: Duration = Duration::from_secs(20);

struct World {
    address: SocketAddr,
    database: Database,
    _folder: TempDir,
}

impl World {
    async fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        let database = Database::open(&folder.path().join("users.sqlite")).expect("a new file");
        for id in 1..=5 {
            let (name, team) = (format!("user {id}"), "engines".to_owned());
            database.write(User { id, name, team, version: 0 }).await.expect("a user");
        }
        let users = Users::new(database.clone()).expect("valid settings");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(Service { users, database: database.clone() }.serve(listener));
        Ok(Self { address, database, _folder: folder })
    }

    /// Sends a request, and returns its status and its JSON body.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<(u16, Value)> {
        let (status, body) = self.exchange(method, path, body).await?;
        let body = if body.is_empty() { Value::Null } else { serde_json::from_str(&body)? };
        Ok((status, body))
    }

    async fn exchange(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let asking = async {
            let mut stream = TcpStream::connect(self.address).await?;
            let length = body.len();
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = timeout(RESPONSE_MAX, asking).await??;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
        let status = head.split(' ').nth(1).context("a status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "").await.expect("an answer")
    }

    async fn put(&self, id: i64, name: &str, team: &str) -> u16 {
        let body = json!({ "name": name, "team": team }).to_string();
        self.ask("PUT", &format!("/users/{id}"), &body).await.expect("an answer").0
    }
}

fn names(users: &Value) -> Vec<&str> {
    let users = users.as_array().expect("a list").iter();
    users.map(|user| user["name"].as_str().expect("a name")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_simultaneous_requests_are_one_query() {
    let world = World::new().await.unwrap();
    let before = world.database.queries();
    let answers = join_all((0..200).map(|_| world.get("/users/3"))).await;
    for (status, user) in answers {
        assert_eq!((status, user["name"].as_str()), (200, Some("user 3")));
    }
    assert_eq!(world.database.queries() - before, 1);
    let (_, stats) = world.get("/stats").await;
    assert_eq!(stats["loads"], 1);
    assert_eq!(stats["hits"].as_u64().unwrap() + stats["misses"].as_u64().unwrap(), 200);
}

#[tokio::test]
async fn a_write_is_visible_to_the_next_request() {
    let world = World::new().await.unwrap();
    assert_eq!(world.get("/users/9").await.0, 404);
    let before = world.database.queries();
    assert_eq!(world.get("/users/9").await.0, 404);
    assert_eq!(world.database.queries(), before, "the missing user is cached");
    for name in ["Ada", "Grace"] {
        assert_eq!(world.put(9, name, "engines").await, 204);
        let (status, user) = world.get("/users/9").await;
        assert_eq!((status, user["name"].as_str()), (200, Some(name)));
    }
    for wrong in ["{}", "no JSON", "{\"name\": 7, \"team\": \"x\"}"] {
        assert_eq!(world.ask("PUT", "/users/9", wrong).await.unwrap().0, 400, "{wrong}");
    }
    assert_eq!(world.get("/users/ada").await.0, 400);
}

#[tokio::test]
async fn a_team_is_two_queries_and_cached_users_are_not_queried() {
    let world = World::new().await.unwrap();
    world.get("/users/1").await;
    let before = world.database.queries();
    let (status, team) = world.get("/teams/engines").await;
    assert_eq!(status, 200);
    assert_eq!(names(&team), ["user 1", "user 2", "user 3", "user 4", "user 5"]);
    world.get("/teams/engines").await;
    assert_eq!(world.database.queries() - before, 2);
    world.put(2, "Ada", "other").await;
    let (_, team) = world.get("/teams/engines").await;
    assert_eq!(
        names(&team),
        ["user 1", "user 3", "user 4", "user 5"],
        "the user has left the team"
    );
    assert_eq!(
        names(&world.get("/teams/other").await.1),
        ["Ada"],
        "the user has joined the other team"
    );
    assert_eq!(world.ask("DELETE", "/teams/other/cache", "").await.unwrap().0, 204);
    assert_eq!(names(&world.get("/teams/other").await.1), ["Ada"]);
}

#[tokio::test]
async fn metrics_contain_the_counters_of_each_cache() {
    let world = World::new().await.unwrap();
    for _ in 0..3 {
        world.get("/users/1").await;
    }
    world.get("/teams/engines").await;
    let (status, text) = world.exchange("GET", "/metrics", "").await.unwrap();
    assert_eq!(status, 200);
    for line in [
        "# TYPE cache_hits counter",
        "# TYPE cache_entries gauge",
        // Two requests for the user, and one for its team.
        "cache_hits_total{cache=\"users\"} 3",
        "cache_loads_total{cache=\"users\"} 5",
        "cache_no_hits_total{cache=\"users\",reason=\"uri-miss\"} 5",
        "cache_entries{cache=\"users\"} 5",
        "cache_loads_total{cache=\"teams\"} 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn cached_users_are_served_while_the_database_is_down() {
    let world = World::new().await.unwrap();
    world.get("/users/1").await;
    world.database.break_down().await.unwrap();
    assert_eq!(world.get("/users/1").await.1["name"], "user 1");
    let (status, said) = world.get("/users/2").await;
    assert_eq!(
        (status, said),
        (500, json!({ "error": "temporarily unavailable" })),
        "without details of the database"
    );
}
