//! The truth: a file, and the questions that are asked of it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

/// A user, as the table has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its number.
    pub id: i64,
    /// What it is called.
    pub name: String,
    /// Whom it belongs to.
    pub team: String,
    /// Grows with each change.
    #[serde(default)]
    pub version: i64,
}

/// Why the database has no answer.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A database. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Database {
    connection: Arc<Mutex<Connection>>,
    questions: Arc<AtomicU64>,
}

impl Database {
    /// Opens a file, which is made if it is missing.
    ///
    /// # Errors
    /// If it cannot be, or is no database.
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
        Ok(Self { connection: Arc::new(Mutex::new(connection)), questions: Arc::default() })
    }

    /// How many questions it was asked.
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// The version of a user, if there is one: a question that costs less than the user.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn version(&self, id: i64) -> Result<Option<i64>, Failure> {
        let question = "SELECT version FROM users WHERE id = ?1";
        self.ask(move |connection| {
            connection.query_row(question, [id], |row| row.get(0)).optional()
        })
        .await
    }

    /// A user, if there is one.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn user(&self, id: i64) -> Result<Option<User>, Failure> {
        let question = "SELECT id, name, team, version FROM users WHERE id = ?1";
        self.ask(move |connection| connection.query_row(question, [id], user).optional()).await
    }

    /// Several users, those that there are.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn users(&self, ids: Vec<i64>) -> Result<Vec<User>, Failure> {
        let question = "SELECT id, name, team, version FROM users
             WHERE id IN (SELECT value FROM json_each(?1))";
        let ids = serde_json::to_string(&ids)?;
        self.ask(move |connection| connection.prepare(question)?.query_map([ids], user)?.collect())
            .await
    }

    /// The numbers of all users of a team.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn team(&self, team: String) -> Result<Vec<i64>, Failure> {
        let question = "SELECT id FROM users WHERE team = ?1 ORDER BY id";
        let id = |row: &Row<'_>| row.get(0);
        self.ask(move |connection| connection.prepare(question)?.query_map([team], id)?.collect())
            .await
    }

    /// Writes a user.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn write(&self, user: User) -> Result<(), Failure> {
        let change = "INSERT INTO users (id, name, team) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET name = ?2, team = ?3, version = version + 1";
        self.ask(move |connection| {
            connection.execute(change, params![user.id, user.name, user.team]).map(drop)
        })
        .await
    }

    /// Takes the table away, as an outage would.
    ///
    /// # Errors
    /// If the database fails, which is what was wanted.
    pub async fn break_down(&self) -> Result<(), Failure> {
        let change = "ALTER TABLE users RENAME TO gone";
        self.ask(move |connection| connection.execute(change, []).map(drop)).await
    }

    /// SQLite blocks, and so is asked where that is allowed.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let connection = self.connection.clone();
        let answer = spawn_blocking(move || {
            question(&connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(answer.await??)
    }
}

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User { id: row.get(0)?, name: row.get(1)?, team: row.get(2)?, version: row.get(3)? })
}
