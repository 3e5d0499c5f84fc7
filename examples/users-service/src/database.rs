//! The origin: an SQLite file and its queries.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

/// A row of the table `users`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Primary key.
    pub id: i64,
    /// Name of the user.
    pub name: String,
    /// Team of the user.
    pub team: String,
    /// Version, which grows with each change.
    #[serde(default)]
    pub version: i64,
}

/// Error of the database.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A handle of the database. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Database {
    connection: Arc<Mutex<Connection>>,
    queries: Arc<AtomicU64>,
}

impl Database {
    /// Opens a file, and creates it if it is missing.
    ///
    /// # Errors
    /// The file cannot be created or opened, or is not a database.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS users (
                 id INTEGER PRIMARY KEY,
                 name TEXT NOT NULL,
                 team TEXT NOT NULL,
                 version INTEGER NOT NULL DEFAULT 1
             );
             CREATE INDEX IF NOT EXISTS users_by_team ON users (team);",
        )?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), queries: Arc::default() })
    }

    /// Returns the number of queries since the start.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// Returns the version of a user, if the user exists. Cheaper than reading the user.
    ///
    /// # Errors
    /// The query fails.
    pub async fn version(&self, id: i64) -> Result<Option<i64>, Failure> {
        let query = "SELECT version FROM users WHERE id = ?1";
        self.run(move |connection| connection.query_row(query, [id], |row| row.get(0)).optional())
            .await
    }

    /// Returns a user, if the user exists.
    ///
    /// # Errors
    /// The query fails.
    pub async fn user(&self, id: i64) -> Result<Option<User>, Failure> {
        let query = "SELECT id, name, team, version FROM users WHERE id = ?1";
        self.run(move |connection| connection.query_row(query, [id], user).optional()).await
    }

    /// Returns the existing ones of several users.
    ///
    /// # Errors
    /// The query fails.
    pub async fn users(&self, ids: Vec<i64>) -> Result<Vec<User>, Failure> {
        let query = "SELECT id, name, team, version FROM users
             WHERE id IN (SELECT value FROM json_each(?1))";
        let ids = serde_json::to_string(&ids)?;
        self.run(move |connection| connection.prepare(query)?.query_map([ids], user)?.collect())
            .await
    }

    /// Returns the ids of all users of a team.
    ///
    /// # Errors
    /// The query fails.
    pub async fn team(&self, team: String) -> Result<Vec<i64>, Failure> {
        let query = "SELECT id FROM users WHERE team = ?1 ORDER BY id";
        let id = |row: &Row<'_>| row.get(0);
        self.run(move |connection| connection.prepare(query)?.query_map([team], id)?.collect())
            .await
    }

    /// Inserts or updates a user.
    ///
    /// # Errors
    /// The query fails.
    pub async fn write(&self, user: User) -> Result<(), Failure> {
        let change = "INSERT INTO users (id, name, team) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET name = ?2, team = ?3, version = version + 1";
        self.run(move |connection| {
            connection.execute(change, params![user.id, user.name, user.team]).map(drop)
        })
        .await
    }

    /// Renames the table away, so that later queries fail like in an outage.
    ///
    /// # Errors
    /// The statement fails.
    pub async fn break_down(&self) -> Result<(), Failure> {
        let change = "ALTER TABLE users RENAME TO gone";
        self.run(move |connection| connection.execute(change, []).map(drop)).await
    }

    /// Runs a query on a thread for blocking work, because SQLite blocks.
    async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let connection = self.connection.clone();
        let answer = spawn_blocking(move || {
            query(&connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(answer.await??)
    }
}

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User { id: row.get(0)?, name: row.get(1)?, team: row.get(2)?, version: row.get(3)? })
}
