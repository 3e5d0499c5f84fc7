//! A tier with one file for each entry.
//!
//! It shows what a tier has to do: verify what it reads, make an entry visible at once or not at all,
//! and forget purged entries also for the next process. Values survive a restart. For production use
//! the disk tier (feature `disk`), which bounds its size and batches its writes.
#![expect(clippy::print_stdout, reason = "the value that the second cache has found")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, mem};

use bytes::Bytes;
use forebay::codec::{Codec, Raw};
use forebay::testkit::check_tier;
use forebay::tier::frame::{self, Arrival, Frame};
use forebay::tier::{
    BoxFuture, Clock, Key, KeyRef, Meta, Position, Purge, Stored, SystemClock, Tier, TierError,
    WriteMode, Writer,
};
use forebay::{Cache, Memory};
use futures_util::{FutureExt, StreamExt, stream};

/// Maximum length of a body in bytes: a draft is collected in memory.
const BODY_MAX: usize = 16 << 20;

/// Tier in a directory that one process uses.
#[derive(Clone)]
pub(crate) struct DirectoryTier(Arc<Directory>);

struct Directory {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    drafts: AtomicU64,
}

impl DirectoryTier {
    /// Opens the directory, and creates it if it is missing.
    pub(crate) fn open(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let drafts = AtomicU64::new(0);
        Ok(Self(Arc::new(Directory { path: path.to_owned(), clock, drafts })))
    }
}

impl Directory {
    /// Returns the file of a key. Two keys may share a file: the frame contains the whole key, so an
    /// entry of another key counts as missing.
    fn file(&self, key: KeyRef<'_>) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        key.bytes().hash(&mut hasher);
        self.path.join(format!("{:016x}.entry", hasher.finish()))
    }

    fn read(&self, key: KeyRef<'_>) -> io::Result<Option<Stored>> {
        let file = self.file(key);
        let bytes = match fs::read(&file) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // The time in the tier is a part of the entry's age.
        let since = fs::metadata(&file)?.modified()?;
        let resided = SystemTime::now().duration_since(since).unwrap_or_default();
        let resided = Duration::from_millis(resided.as_millis().try_into().unwrap_or(u64::MAX));
        let arrival = Arrival { now: self.clock.now(), resided, position: Position::default() };
        // A damaged file, or one of another key or version, is a miss.
        let Ok(found) = frame::decode(&bytes, key, arrival) else { return Ok(None) };
        let body = (!found.body.is_empty()).then_some(Ok(found.body));
        Ok(Some(Stored::new(found.meta, found.head, stream::iter(body).boxed())))
    }

    fn remove(&self, key: KeyRef<'_>) -> io::Result<bool> {
        if self.read(key)?.is_none() {
            return Ok(false);
        }
        fs::remove_file(self.file(key)).map(|()| true)
    }

    fn remove_all(&self) -> io::Result<()> {
        for file in fs::read_dir(&self.path)? {
            fs::remove_file(file?.path())?;
        }
        Ok(())
    }
}

/// Runs a call of the file system on a thread that may block.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, TierError> {
    let ended = tokio::task::spawn_blocking(run).await;
    ended.map_err(TierError::failed)?.map_err(TierError::failed)
}

impl Tier for DirectoryTier {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        let (directory, key) = (self.0.clone(), key.to_key());
        blocking(move || directory.read(key.borrowed())).boxed()
    }

    /// The mode matters to tiers that instances share.
    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        _mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        let (key, meta, head) = (key.to_key(), meta.clone(), head.clone());
        let draft = Draft { directory: self.0.clone(), key, meta, head, pieces: Vec::new() };
        async { Ok(Box::new(draft) as Box<dyn Writer>) }.boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        let (directory, key) = (self.0.clone(), key.to_key());
        blocking(move || directory.remove(key.borrowed())).boxed()
    }

    /// Removes everything: without an index by tag that is the way to forget the purged entries.
    fn purge<'a>(&'a self, _what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        let directory = self.0.clone();
        blocking(move || directory.remove_all()).boxed()
    }
}

/// Entry that is being written.
struct Draft {
    directory: Arc<Directory>,
    key: Key,
    meta: Meta,
    head: Bytes,
    pieces: Vec<Bytes>,
}

impl Draft {
    /// Writes the entry to a file that no read sees.
    fn write_file(&mut self) -> io::Result<PathBuf> {
        let body = mem::take(&mut self.pieces);
        let entry =
            Frame { key: self.key.borrowed(), meta: &self.meta, head: &self.head, body: &body };
        let bytes = frame::encode(&entry, self.directory.clock.now()).map_err(io::Error::other)?;
        let number = self.directory.drafts.fetch_add(1, Ordering::Relaxed);
        let file = self.directory.path.join(format!("{number}.draft"));
        fs::write(&file, bytes)?;
        Ok(file)
    }
}

impl Writer for Draft {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        let length: usize = self.pieces.iter().map(Bytes::len).sum();
        let is_allowed = length + piece.len() <= BODY_MAX;
        self.pieces.push(piece);
        async move { if is_allowed { Ok(()) } else { Err(TierError::TooLarge) } }.boxed()
    }

    /// The entry becomes visible by the rename, in this future: a blocking thread would continue after
    /// the engine has dropped the future, and could show an entry that a purge has missed.
    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let target = self.directory.file(self.key.borrowed());
            let file = blocking(move || self.write_file()).await?;
            fs::rename(file, target).map_err(TierError::failed)
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("directory-tier-{}", std::process::id()));
    let tier = Arc::new(DirectoryTier::open(&path, Arc::new(SystemClock))?);
    check_tier(&*tier, &SystemClock).await?;

    let cache = || {
        let cache = Cache::<Vec<u8>>::builder("pages").memory(Memory::entries(100));
        cache.ttl(Duration::from_secs(60)).tiers(Codec::new(Raw), [tier.clone()]).build()
    };
    let first = cache()?;
    first.set("home", b"welcome".to_vec()).await;
    first.flush().await;
    // Another cache, as after a restart, finds the value in the directory.
    let found = cache()?.get("home").await;
    println!("{:?}", found.map(|page| String::from_utf8_lossy(&page).into_owned()));
    fs::remove_dir_all(path)?;
    Ok(())
}
