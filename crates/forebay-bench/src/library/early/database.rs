//! Database behind the caches: articles in an SQLite file, listed in pages.
//!
//! The listing looks for a word in every article, finds the author, and sorts by a column without
//! an index: a query that is too slow, and so is cached.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OpenFlags, Row, params};
use tokio::task::spawn_blocking;

/// The articles of one page.
const PAGE_LENGTH: i64 = 20;

const AUTHORS: i64 = 1_000;

/// As many articles as are measured to know how many there have to be.
const FIRST: i64 = 40_000;

/// Number of corrections of the number of articles, so that a listing takes the intended time. The
/// second
/// time nearly all are there.
const CORRECTIONS: usize = 3;

/// More would be some mistake: the file has about 200 bytes for each.
const ARTICLES_MAX: i64 = 2_000_000;

/// The pages whose median is what a listing takes.
const TRIALS: RangeInclusive<i64> = 46..=54;

const SCHEMA: &str = "
    PRAGMA synchronous = OFF;
    CREATE TABLE authors (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE articles (
        id INTEGER PRIMARY KEY,
        author INTEGER NOT NULL REFERENCES authors (id),
        published INTEGER NOT NULL,
        title TEXT NOT NULL,
        body TEXT NOT NULL
    );";

const LISTING: &str = "
    SELECT articles.id, articles.title, authors.name, length(articles.body)
    FROM articles JOIN authors ON authors.id = articles.author
    WHERE articles.body LIKE '%weather%'
    ORDER BY articles.published DESC, articles.id DESC
    LIMIT ?1 OFFSET ?2";

/// One line of a listing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) article: i64,
    pub(super) title: String,
    pub(super) author: String,
    pub(super) length: i64,
}

pub(super) type Listing = Vec<Line>;

/// A file. Clones are the same one.
#[derive(Clone)]
pub(super) struct Database(Arc<Opened>);

struct Opened {
    path: PathBuf,
    articles: i64,
    /// Idle connections. A cache sends one query for each page at
    /// most, and so there are never more than two for each page.
    idle: Mutex<Vec<Connection>>,
}

impl Database {
    /// With so many articles that a listing takes as long as this while nothing else runs.
    pub(super) fn that_takes(listing: Duration, path: &Path) -> Result<Self> {
        let writer = create(path)?;
        write(&writer, 1..=FIRST)?;
        let mut articles = FIRST;
        for _ in 0..CORRECTIONS {
            let takes = Self::open(path, articles).listing_takes()?;
            let wanted = (articles as f64 * listing.as_secs_f64() / takes.as_secs_f64()) as i64;
            ensure!(wanted <= ARTICLES_MAX, "{articles} articles are listed in {takes:?}");
            write(&writer, articles + 1..=wanted)?;
            articles = articles.max(wanted);
        }
        Ok(Self::open(path, articles))
    }

    fn open(path: &Path, articles: i64) -> Self {
        let (path, idle) = (path.to_owned(), Mutex::default());
        Self(Arc::new(Opened { path, articles, idle }))
    }

    pub(super) fn articles(&self) -> i64 {
        self.0.articles
    }

    pub(super) fn bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.0.path)?.len())
    }

    /// Returns the time of a listing on an idle machine.
    pub(super) fn listing_takes(&self) -> Result<Duration> {
        let mut taken = Vec::new();
        for page in TRIALS {
            let begun = Instant::now();
            self.list_here(page)?;
            taken.push(begun.elapsed());
        }
        taken.sort();
        Ok(taken[taken.len() / 2])
    }

    /// Runs on a blocking thread, so that other tasks are not delayed.
    pub(super) async fn list(&self, page: i64) -> Result<Listing> {
        let database = self.clone();
        spawn_blocking(move || database.list_here(page)).await?
    }

    fn list_here(&self, page: i64) -> Result<Listing> {
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            // Without a mutex of SQLite's own: one thread at a time has it.
            None => Connection::open_with_flags(
                &self.0.path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?,
        };
        let asked = params![PAGE_LENGTH, page * PAGE_LENGTH];
        let listing: rusqlite::Result<Listing> =
            connection.prepare(LISTING)?.query_map(asked, line)?.collect();
        self.idle().push(connection);
        Ok(listing?)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file with all authors, who have written nothing yet.
fn create(path: &Path) -> Result<Connection> {
    let writer = Connection::open(path).context("a file for the database")?;
    writer.execute_batch(SCHEMA)?;
    for author in 1..=AUTHORS {
        let name = format!("author {author}");
        writer.execute("INSERT INTO authors VALUES (?1, ?2)", params![author, name])?;
    }
    Ok(writer)
}

fn line(row: &Row<'_>) -> rusqlite::Result<Line> {
    Ok(Line { article: row.get(0)?, title: row.get(1)?, author: row.get(2)?, length: row.get(3)? })
}

/// Writes articles whose order of publishing is not the order of their numbers.
fn write(writer: &Connection, numbers: RangeInclusive<i64>) -> Result<()> {
    let mut insert = writer.prepare("INSERT INTO articles VALUES (?1, ?2, ?3, ?4, ?5)")?;
    writer.execute_batch("BEGIN")?;
    for number in numbers {
        let (author, published) = (1 + number % AUTHORS, published(number));
        let title = format!("What became of number {number}");
        let body = "Nobody knows. ".repeat(5 + (number % 11) as usize) + "So much for the weather.";
        insert.execute(params![number, author, published, title, body])?;
    }
    Ok(writer.execute_batch("COMMIT")?)
}

/// A moment of its own for each of the first million numbers, in no order.
fn published(number: i64) -> i64 {
    // A prime and a modulus without a common divisor: each number goes to another one.
    number * 611_953 % 1_000_003
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_has_the_latest_articles_page_by_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("articles");
        write(&create(&path).unwrap(), 1..=50).unwrap();
        let mut latest: Vec<i64> = (1..=50).collect();
        latest.sort_by_key(|number| std::cmp::Reverse(published(*number)));
        assert_ne!(latest, (1..=50).rev().collect::<Vec<_>>());
        let database = Database::open(&path, 50);
        for page in 0..2 {
            let listing = database.list_here(page).unwrap();
            let numbers: Vec<i64> = listing.iter().map(|line| line.article).collect();
            assert_eq!(numbers, latest[(page * PAGE_LENGTH) as usize..][..PAGE_LENGTH as usize]);
            let author = |line: &Line| format!("author {}", line.article + 1);
            assert!(listing.iter().all(|line| line.author == author(line)));
        }
        assert_eq!(database.list_here(2).unwrap().len(), 10);
        assert_eq!(database.list_here(3).unwrap(), []);
        // They were asked one after another.
        assert_eq!(database.idle().len(), 1);
    }
}
