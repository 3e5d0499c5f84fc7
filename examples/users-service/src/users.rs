//! Access to users through the cache.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Answer, Cache, Error, Memory, Prior, Stats, cached};

use crate::database::{Database, Failure, User};

/// Access to users through caches. Clones share the caches.
#[derive(Clone, Debug)]
pub struct Users {
    database: Database,
    cache: Cache<User>,
    teams: Cache<Vec<i64>>,
}

impl Users {
    /// Creates the caches of a database. The settings suit a table that changes occasionally:
    ///
    /// - a user is fresh for one minute, and refreshed in the background for ten seconds more;
    /// - a missing user is cached for five seconds;
    /// - cached users are served during an outage of up to one hour;
    /// - a query that takes longer than 200 ms is answered with a stale user, if there is one;
    /// - at most eight loads run at once.
    ///
    /// # Errors
    /// The settings of a cache contradict each other.
    pub fn new(database: Database) -> Result<Self, Failure> {
        let cache = Cache::builder("users")
            .memory(Memory::bytes(16 << 20))
            .weigher(|_, user: &User| user.name.capacity() + user.team.capacity())
            .ttl(Duration::from_secs(60))
            .negative_ttl(Duration::from_secs(5))
            .stale_while_revalidate(Duration::from_secs(10))
            .stale_if_error(Duration::from_secs(3_600))
            .soft_timeout(Duration::from_millis(200))
            .hard_timeout(Duration::from_secs(2))
            .loads_max(8)
            .build()?;
        let teams = Cache::builder("teams").memory(Memory::entries(1_000)).build()?;
        Ok(Self { database, cache, teams })
    }

    /// Returns a user. A load with an unchanged version keeps the cached user.
    ///
    /// # Errors
    /// The query fails, and no cached user may be served.
    pub async fn user(&self, id: i64) -> Result<Option<Arc<User>>, Error> {
        let database = self.database.clone();
        let load = move |prior| load(database, id, prior);
        self.cache.get_or_load_with(key(id), load).await
    }

    /// Returns all users of a team: one query for their ids, and one for those that are not cached.
    ///
    /// # Errors
    /// A query fails.
    pub async fn team(&self, team: &str) -> Result<Vec<Arc<User>>, Error> {
        let ids = members(&self.teams, self.database.clone(), team).await?;
        let keys: Vec<String> = ids.iter().copied().map(key).collect();
        let database = self.database.clone();
        let load = move |missing: Vec<String>| {
            let database = database.clone();
            async move {
                let found = database.users(missing.iter().filter_map(|key| id(key)).collect());
                Ok::<Vec<_>, Failure>(
                    found.await?.into_iter().map(|one| (key(one.id), one)).collect(),
                )
            }
        };
        let found = self.cache.get_many_or_load(&keys, load).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Writes a user. Later calls return the new state, also if a load of the old one is in flight.
    ///
    /// # Errors
    /// The statement fails.
    pub async fn write(&self, user: User) -> Result<(), Failure> {
        let (key, before) = (key(user.id), self.user(user.id).await.ok().flatten());
        let left = before.map(|before| before.team.clone());
        let joined = user.team.clone();
        self.database.write(user).await?;
        self.cache.remove(key).await;
        self.teams.invalidate_tags(left.into_iter().chain([joined])).await;
        Ok(())
    }

    /// Removes the cached member list of a team.
    pub async fn forget_team(&self, team: &str) {
        self.teams.invalidate_tag(team).await;
    }

    /// Returns the counters of the cache of users.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// Returns the counters of each cache, with its name.
    #[must_use]
    pub fn stats_by_cache(&self) -> [(&str, Stats); 2] {
        [(self.cache.name(), self.cache.stats()), (self.teams.name(), self.teams.stats())]
    }
}

fn key(id: i64) -> String {
    format!("user:{id}")
}

fn id(key: &str) -> Option<i64> {
    key.strip_prefix("user:")?.parse().ok()
}

async fn load(database: Database, id: i64, prior: Prior<User>) -> Result<Answer<User>, Failure> {
    if let Some(known) = prior.validator() {
        let version = database.version(id).await?;
        if version.is_some_and(|version| version.to_string().as_bytes() == known) {
            return Ok(Answer::unchanged());
        }
    }
    let Some(user) = database.user(id).await? else { return Ok(Answer::absent()) };
    let version = user.version.to_string();
    Ok(Answer::value(user).validator(version))
}

/// Returns the ids of the users of a team.
#[cached(cache = teams, key = "team:{team}", ttl = "60s", tags = [team])]
async fn members(
    teams: &Cache<Vec<i64>>,
    database: Database,
    team: &str,
) -> Result<Vec<i64>, Failure> {
    database.team(team.to_owned()).await
}
