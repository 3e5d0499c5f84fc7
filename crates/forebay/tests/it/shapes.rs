//! Types that loaders may return, and types of their errors, without further type annotations.

use std::collections::{BTreeMap, HashMap};
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use forebay::{Answer, Cache, Error, Memory, Options, Warm};

use crate::world::secs;

#[derive(Clone, Debug, PartialEq)]
struct User {
    id: u64,
}

fn users() -> Cache<User> {
    Cache::builder("users").memory(Memory::entries(100)).build().expect("valid settings")
}

/// An error like that of a database driver.
#[derive(Debug)]
enum DriverError {
    RowNotFound,
    #[expect(dead_code, reason = "the variant makes the enum realistic")]
    Io(std::io::Error),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no rows returned by a query that expected one")
    }
}

impl StdError for DriverError {}

#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error("the database: {0}")]
    Database(#[from] DriverError),
}

/// A handle of a database driver.
#[derive(Clone)]
struct Database;

impl Database {
    async fn user(&self, id: u64) -> Result<User, DriverError> {
        if id == 0 { Err(DriverError::RowNotFound) } else { Ok(User { id }) }
    }

    async fn maybe(&self, id: u64) -> Result<Option<User>, DriverError> {
        Ok((id > 0).then_some(User { id }))
    }

    async fn shared(&self, id: u64) -> Result<Arc<User>, DriverError> {
        self.user(id).await.map(Arc::new)
    }

    async fn boxed(&self, id: u64) -> Result<Box<User>, DriverError> {
        self.user(id).await.map(Box::new)
    }

    async fn by_anyhow(&self, id: u64) -> anyhow::Result<User> {
        Ok(self.user(id).await?)
    }

    async fn by_box(&self, id: u64) -> Result<User, Box<dyn StdError + Send + Sync>> {
        Ok(self.user(id).await?)
    }

    async fn by_service(&self, id: u64) -> Result<User, ServiceError> {
        Ok(self.user(id).await?)
    }

    async fn by_text(&self, id: u64) -> Result<User, String> {
        self.user(id).await.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn a_loader_may_return_value_arc_box_option_or_answer() {
    let (cache, database) = (users(), Database);
    let db = database.clone();
    let user = cache.get_or_load("a", || async move { db.user(1).await }).await.expect("a user");
    assert_eq!(user.id, 1);
    let db = database.clone();
    let user = cache.get_or_load("b", || async move { db.shared(2).await }).await.expect("a user");
    assert_eq!(user.id, 2);
    let db = database.clone();
    let user = cache.get_or_load("c", || async move { db.boxed(3).await }).await.expect("a user");
    assert_eq!(user.id, 3);
    let db = database.clone();
    let user = cache.get_or_load("d", || async move { db.maybe(4).await }).await.expect("a user");
    assert_eq!(user.id, 4);
    let db = database.clone();
    let load = || async move { db.user(6).await.map(|user| Answer::value(user).ttl(secs(7))) };
    assert_eq!(cache.get_or_load("f", load).await.expect("a user").id, 6);
    assert_eq!(cache.explain("f").stored.expect("a stored entry").ttl, secs(7));
}

#[tokio::test]
async fn a_missing_row_is_stored_as_absent() {
    let (cache, database) = (users(), Database);
    for _ in 0..2 {
        let db = database.clone();
        let error = cache.get_or_load("a", || async move { db.maybe(0).await }).await;
        let error = error.expect_err("there is none");
        assert!(matches!(error, Error::Absent), "{error}");
    }
    assert_eq!(cache.stats().loads, 1);
    let db = database.clone();
    let found = cache.get_or_load_with("b", |_| async move { db.user(1).await }).await;
    assert_eq!(found.expect("an answer").expect("a user").id, 1);
    let found = cache.get_or_load_with("c", |_| async { Ok::<_, Error>(None) }).await;
    assert_eq!(found.expect("an answer"), None);
}

#[tokio::test]
async fn a_cache_of_options_holds_options() {
    let cache: Cache<Option<User>> =
        Cache::builder("users").memory(Memory::entries(9)).build().expect("valid settings");
    let found = cache.get_or_load("a", || async { Ok::<Option<User>, DriverError>(None) }).await;
    assert_eq!(*found.expect("a value"), None);
    assert!(!cache.explain("a").stored.expect("a stored entry").is_absent);
}

#[tokio::test]
async fn an_error_of_any_type_is_the_unchanged_cause() {
    let (cache, database) = (users(), Database);
    let cause = |told: Result<Arc<User>, Error>| {
        told.expect_err("no such row").cause().expect("the loader's own").clone()
    };
    let db = database.clone();
    let told = cause(cache.get_or_load("a", || async move { db.user(0).await }).await);
    assert!(matches!(told.downcast_ref(), Some(DriverError::RowNotFound)));
    let db = database.clone();
    let told = cause(cache.get_or_load("b", || async move { db.by_service(0).await }).await);
    let told = told.downcast_ref::<ServiceError>().expect("unchanged");
    assert!(matches!(told, ServiceError::Database(DriverError::RowNotFound)));
    let db = database.clone();
    let told = cause(cache.get_or_load("c", || async move { db.by_box(0).await }).await);
    assert!(
        matches!(told.downcast_ref(), Some(DriverError::RowNotFound)),
        "the cause of a boxed error"
    );
    let db = database.clone();
    let told = cause(cache.get_or_load("d", || async move { db.by_anyhow(0).await }).await);
    assert_eq!(told.to_string(), DriverError::RowNotFound.to_string());
    let told = cause(cache.get_or_load("e", || async move { database.by_text(0).await }).await);
    assert_eq!(told.to_string(), DriverError::RowNotFound.to_string());
}

/// A caller's function whose error type converts from [`Error`].
async fn name_of(cache: &Cache<User>, id: u64) -> anyhow::Result<String> {
    let user =
        cache.get_or_load(format!("user:{id}"), move || async move { Database.user(id).await });
    Ok(format!("user {}", user.await?.id))
}

#[tokio::test]
async fn an_error_converts_to_anyhow() {
    let cache = users();
    assert_eq!(name_of(&cache, 7).await.expect("a name"), "user 7");
    let error = name_of(&cache, 0).await.expect_err("no such row");
    assert!(error.downcast_ref::<Error>().is_some(), "{error}");
}

#[tokio::test]
async fn batch_rows_may_be_any_collection_and_set_their_own_lifetimes() {
    let cache = users();
    let list = |keys: Vec<String>| async move {
        Ok::<_, DriverError>(keys.into_iter().map(|key| (key, User { id: 1 })).collect::<Vec<_>>())
    };
    let found = cache.get_many_or_load(&["a", "b"], list).await.expect("users");
    assert!(found.iter().all(Option::is_some));
    let map = |keys: Vec<String>| async move {
        let rows = keys.into_iter().map(|key| (key, Arc::new(User { id: 2 })));
        anyhow::Ok(rows.collect::<HashMap<_, _>>())
    };
    let found = cache.get_many_or_load(&["c".to_owned()], map).await.expect("users");
    assert_eq!(found[0].as_deref(), Some(&User { id: 2 }));
    let some = |keys: Vec<String>| async move {
        let found = |key: &str| (key != "d").then_some(User { id: 3 });
        let rows = keys.into_iter().map(|key| (key.clone(), found(&key)));
        Ok::<_, String>(rows.collect::<BTreeMap<_, _>>())
    };
    let found = cache.get_many_or_load(&["d", "e"], some).await.expect("users");
    assert_eq!(found, [None, Some(Arc::new(User { id: 3 }))]);
    let answers = |keys: Vec<String>| async move {
        let answer = |key: &str| Answer::value(User { id: 4 }).ttl(secs(5)).tags([key]);
        let rows: Vec<_> = keys.into_iter().map(|key| (key.clone(), answer(&key))).collect();
        Ok::<_, Error>(rows)
    };
    cache.get_many_or_load(&["f"], answers).await.expect("users");
    let stored = cache.explain("f").stored.expect("a stored entry");
    assert_eq!((stored.ttl, stored.tags), (secs(5), vec!["f".to_owned()]));
}

#[tokio::test]
async fn set_and_warm_accept_all_value_types() {
    let cache = users();
    assert!(cache.set("a", User { id: 1 }).await);
    assert!(cache.set(String::from("b"), Arc::new(User { id: 2 })).await);
    let key: Arc<str> = "c".into();
    let short = cache.with(Options::new().ttl(secs(9)));
    let load = |_| async { Database.maybe(3).await };
    let warmed = short.warm([key], Warm::new(), load).await;
    assert_eq!((warmed.done, warmed.failed), (1, 0));
    assert_eq!(cache.get("c").await.expect("a stored entry").id, 3);
    assert_eq!(cache.explain("c").stored.expect("a stored entry").ttl, secs(9));
}
