//! Rust libraries as a child process with the commands of rivals/node/rival.mjs.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use forebay::{Answer, Cache, Memory, Redis};
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::catalog::{OURS, OURS_SHARED, UNCOALESCED};
use crate::library::zipf::zipf;

/// Argument that makes this program such a child.
pub(crate) const CHILD: &str = "library";

/// Numbers of entries for libraries that are bound by them.
const ENTRIES: u64 = 200_000;

/// Reads of which one is timed.
const TIMED_EVERY: usize = 16;

/// Maximum number of times in an answer.
const TIMES_MAX: usize = 20_000;

type Text = String;
type Loading = Arc<dyn Fn() -> BoxFuture<'static, Text> + Send + Sync>;

/// A library behind common calls.
#[derive(Clone)]
enum Library {
    Uncoalesced,
    Forebay(Cache<Text>),
    Moka(moka::future::Cache<String, Arc<Text>>),
    Foyer(foyer_memory::Cache<String, Arc<Text>>),
}

/// Runs a library until the input ends.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(serve(words))
}

async fn serve(words: &[&str]) -> Result<()> {
    let [name, ttl, memory, ref redis @ ..] = *words else { bail!("expected NAME TTL MEMORY") };
    let (ttl, memory) = (Duration::from_millis(ttl.parse()?), memory.parse()?);
    let (library, version, settings) = open(name, ttl, memory, redis.first().copied()).await?;
    answer(&json!({ "version": version, "settings": settings }))?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let done = library.command(&words).await;
        answer(&done.unwrap_or_else(|error| json!({ "failed": format!("{error:#}") })))?;
    }
    Ok(())
}

fn answer(value: &Value) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{value}")?;
    Ok(output.flush()?)
}

async fn open(
    name: &str,
    ttl: Duration,
    memory: u64,
    redis: Option<&str>,
) -> Result<(Library, &'static str, Value)> {
    let weigh = |_: &str, text: &Text| text.len() + size_of::<Text>();
    let forebay = || Cache::<Text>::builder("bench").memory(Memory::bytes(memory)).weigher(weigh);
    let version = env!("CARGO_PKG_VERSION");
    let plain = json!({ "memory": memory, "ttl": ttl.as_millis() as u64 });
    Ok(match name {
        UNCOALESCED => (Library::Uncoalesced, version, json!({})),
        OURS => (Library::Forebay(forebay().ttl(ttl).build()?), version, plain),
        OURS_SHARED => {
            let redis = Redis::connect(redis.context("it needs a Redis")?).await?;
            let cache = forebay().ttl(ttl).redis(redis).build()?;
            (Library::Forebay(cache), version, plain)
        }
        "moka" => {
            let cache = moka::future::Cache::builder().max_capacity(memory).time_to_live(ttl);
            let cache =
                cache.weigher(|key: &String, text: &Arc<Text>| (key.len() + text.len()) as u32);
            (Library::Moka(cache.build()), locked("moka")?, plain)
        }
        "foyer" => {
            let cache = foyer_memory::CacheBuilder::new(ENTRIES as usize).build();
            (Library::Foyer(cache), locked("foyer-memory")?, json!({ "entries": ENTRIES }))
        }
        other => bail!("no library {other}"),
    })
}

/// Version of a package in the lock file of the benchmarks.
fn locked(package: &str) -> Result<&'static str> {
    let lock = include_str!("../../Cargo.lock");
    let name = format!("name = \"{package}\"\nversion = \"");
    let (_, rest) = lock.split_once(&name).context("it is not in the lock file")?;
    rest.split('"').next().context("no version")
}

impl Library {
    async fn command(&self, words: &[&str]) -> Result<Value> {
        match *words {
            ["load", key, callers, millis, size] => {
                let load = Duration::from_millis(millis.parse()?);
                self.load(key, callers.parse()?, load, size.parse()?).await
            }
            ["set", key, size] => self.set(key, size.parse()?, &[]).await,
            ["set", key, size, tag] => self.set(key, size.parse()?, &[tag]).await,
            ["fill", count, size, ref tag @ ..] => {
                for number in 0..count.parse::<usize>()? {
                    self.set(&format!("key:{number}"), size.parse()?, tag).await?;
                }
                Ok(json!({}))
            }
            ["remove", key] => self.remove(key).await,
            ["tag", tag] => match self {
                Self::Forebay(cache) => {
                    cache.invalidate_tag(tag).await;
                    Ok(json!({}))
                }
                _ => bail!("it has no tags"),
            },
            ["reads", keys, tasks, millis, seed] => {
                let span = Duration::from_millis(millis.parse()?);
                self.reads(keys.parse()?, tasks.parse()?, span, seed.parse()?).await
            }
            _ => bail!("no such command"),
        }
    }

    async fn load(&self, key: &str, callers: usize, span: Duration, size: usize) -> Result<Value> {
        let loads = Arc::new(AtomicU64::new(0));
        let counted = loads.clone();
        let loading: Loading = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                tokio::time::sleep(span).await;
                "x".repeat(size)
            })
        });
        let calls = (0..callers).map(|_| {
            let (library, key, loading) = (self.clone(), key.to_owned(), loading.clone());
            tokio::spawn(async move {
                let begun = Instant::now();
                let length = library.get_or_load(&key, loading).await;
                (length, begun.elapsed().as_secs_f64() * 1e6)
            })
        });
        let (mut errors, mut micros) = (0, Vec::with_capacity(callers));
        for call in join_all(calls.collect::<Vec<_>>()).await {
            let (length, took) = call?;
            errors += u64::from(length != Some(size));
            micros.push(took);
        }
        let loads = loads.load(Ordering::Relaxed);
        Ok(json!({ "loads": loads, "errors": errors, "micros": micros }))
    }

    /// Returns the length of the value.
    async fn get_or_load(&self, key: &str, loading: Loading) -> Option<usize> {
        match self {
            Self::Uncoalesced => Some(loading().await.len()),
            Self::Forebay(cache) => {
                let load =
                    move || async move { Ok::<_, std::convert::Infallible>(loading().await) };
                cache.get_or_load(key, load).await.ok().map(|text| text.len())
            }
            Self::Moka(cache) => {
                let load = async move { Arc::new(loading().await) };
                Some(cache.get_with_by_ref(key, load).await.len())
            }
            Self::Foyer(cache) => {
                let load = move || async move { anyhow::Ok(Arc::new(loading().await)) };
                let entry = cache.get_or_fetch(key, load).await;
                entry.ok().map(|entry| entry.value().len())
            }
        }
    }

    async fn set(&self, key: &str, size: usize, tags: &[&str]) -> Result<Value> {
        let text = "x".repeat(size);
        match self {
            Self::Forebay(cache) if tags.is_empty() => {
                anyhow::ensure!(cache.set(key, text).await, "it does not take it");
            }
            Self::Forebay(cache) => {
                let answer = Answer::value(text).tags(tags.iter().copied());
                let load = move |_| async move { Ok::<_, std::convert::Infallible>(answer) };
                cache.get_or_load_with(key, load).await?;
            }
            Self::Moka(cache) => cache.insert(key.to_owned(), Arc::new(text)).await,
            Self::Foyer(cache) => drop(cache.insert(key.to_owned(), Arc::new(text))),
            Self::Uncoalesced => bail!("it stores nothing"),
        }
        Ok(json!({}))
    }

    async fn remove(&self, key: &str) -> Result<Value> {
        match self {
            Self::Forebay(cache) => return Ok(json!({ "removed": cache.remove(key).await })),
            Self::Moka(cache) => cache.invalidate(key).await,
            Self::Foyer(cache) => drop(cache.remove(key)),
            Self::Uncoalesced => {}
        }
        Ok(json!({}))
    }

    async fn get(&self, key: &str) -> bool {
        match self {
            Self::Uncoalesced => false,
            Self::Forebay(cache) => cache.get(key).await.is_some(),
            Self::Moka(cache) => cache.get(key).await.is_some(),
            Self::Foyer(cache) => cache.get(key).is_some(),
        }
    }

    async fn reads(&self, keys: usize, tasks: usize, span: Duration, seed: u64) -> Result<Value> {
        let asked: Arc<Vec<String>> =
            Arc::new(zipf(keys, seed).take(1 << 16).map(|rank| format!("key:{rank}")).collect());
        let begun = Instant::now();
        let readers = (0..tasks).map(|task| {
            let (library, asked) = (self.clone(), asked.clone());
            tokio::spawn(async move {
                let (mut done, mut misses, mut times) = (0_u64, 0_u64, Vec::new());
                for (number, key) in asked.iter().cycle().skip(task * 977 % asked.len()).enumerate()
                {
                    let timed = number.is_multiple_of(TIMED_EVERY).then(Instant::now);
                    if timed.is_some_and(|now| now.duration_since(begun) >= span) {
                        break;
                    }
                    misses += u64::from(!library.get(key).await);
                    times.extend(timed.map(|begun| begun.elapsed().as_nanos() as f64 / 1e3));
                    done += 1;
                    if timed.is_some() {
                        // A hit in memory never waits, so nothing else would run meanwhile.
                        tokio::task::consume_budget().await;
                    }
                }
                (done, misses, times)
            })
        });
        let (mut done, mut misses, mut micros) = (0, 0, Vec::new());
        for reader in join_all(readers.collect::<Vec<_>>()).await {
            let (read, missed, times) = reader?;
            (done, misses) = (done + read, misses + missed);
            micros.extend(times);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let step = micros.len() / TIMES_MAX + 1;
        let micros: Vec<f64> = micros.into_iter().step_by(step).collect();
        Ok(json!({ "done": done, "misses": misses, "seconds": seconds, "micros": micros }))
    }
}
