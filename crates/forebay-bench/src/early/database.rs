//! Database behind the caches: articles in an SQLite file, listed in pages.
//!
//! The listing looks for a word in every article, finds the author, and sorts by a column without
//! an index: a query that is too slow, and so is cached.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::client::Timings;
use rusqlite::{Connection, OpenFlags, Row, params};
use tokio::task::spawn_blocking;

/// The articles of one page.
const PAGE_LENGTH: i64 = 20;

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
    );
    INSERT INTO authors SELECT value, 'author ' || value FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n
        WHERE value < 1000) SELECT value FROM n);";

/// Articles whose order of publishing is not the order of their numbers: the factor and the modulus
/// have no common divisor.
const ARTICLES: &str = "
    INSERT INTO articles
    SELECT value, 1 + value % 1000, value * 611953 % 1000003, 'What became of number ' || value,
        replace(hex(zeroblob(5 + value % 11)), '00', 'All is well. ') || 'So much for the weather.'
    FROM (WITH RECURSIVE n(value) AS (SELECT ?1 UNION ALL SELECT value + 1 FROM n WHERE value < ?2)
        SELECT value FROM n)";

const LISTING: &str = "
    SELECT articles.id, articles.title, authors.name, length(articles.body)
    FROM articles JOIN authors ON authors.id = articles.author
    WHERE articles.body LIKE '%weather%'
    ORDER BY articles.published DESC, articles.id DESC
    LIMIT ?1 OFFSET ?2";

/// One line of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
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
}

impl Database {
    /// With so many articles that a listing takes as long as this while nothing else runs.
    pub(super) fn that_takes(listing: Duration, path: &Path) -> Result<Self> {
        let writer = Connection::open(path).context("a file for the database")?;
        writer.execute_batch(SCHEMA)?;
        writer.execute(ARTICLES, [1, FIRST])?;
        let mut articles = FIRST;
        for _ in 0..CORRECTIONS {
            let takes = Self::open(path, articles).listing_takes()?;
            let wanted = (articles as f64 * listing.as_secs_f64() / takes.as_secs_f64()) as i64;
            ensure!(wanted <= ARTICLES_MAX, "{articles} articles are listed in {takes:?}");
            if wanted > articles {
                writer.execute(ARTICLES, [articles + 1, wanted])?;
                articles = wanted;
            }
        }
        Ok(Self::open(path, articles))
    }

    fn open(path: &Path, articles: i64) -> Self {
        Self(Arc::new(Opened { path: path.to_owned(), articles }))
    }

    pub(super) fn articles(&self) -> i64 {
        self.0.articles
    }

    pub(super) fn bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.0.path)?.len())
    }

    /// Returns the time of a listing on an idle machine.
    pub(super) fn listing_takes(&self) -> Result<Duration> {
        let taken = TRIALS.map(|page| {
            let begun = Instant::now();
            self.list_here(page)?;
            Ok(begun.elapsed())
        });
        Ok(Timings::new(taken.collect::<Result<Vec<_>>>()?).p50())
    }

    /// Runs on a blocking thread, so that other tasks are not delayed.
    pub(super) async fn list(&self, page: i64) -> Result<Listing> {
        let database = self.clone();
        spawn_blocking(move || database.list_here(page)).await?
    }

    fn list_here(&self, page: i64) -> Result<Listing> {
        let connection =
            Connection::open_with_flags(&self.0.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let asked = params![PAGE_LENGTH, page * PAGE_LENGTH];
        let mut listing = connection.prepare(LISTING)?;
        Ok(listing.query_map(asked, line)?.collect::<rusqlite::Result<_>>()?)
    }
}

fn line(row: &Row<'_>) -> rusqlite::Result<Line> {
    Ok(Line { article: row.get(0)?, title: row.get(1)?, author: row.get(2)?, length: row.get(3)? })
}
