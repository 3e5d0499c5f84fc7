//! The cache: what is asked of it, and what it asks.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Answer, Cache, Error, Memory, Prior, Stats, cached};

use crate::database::{Database, Failure, User};

/// Users, and a cache before them. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Users {
    database: Database,
    cache: Cache<User>,
    teams: Cache<Vec<i64>>,
}

impl Users {
    /// Users of a database. The bounds and times are what one might choose for a table that
    /// changes now and then:
    ///
    /// - a user is asked about again after a minute, behind an answer within ten seconds more;
    /// - that there is no user is believed for five seconds;
    /// - an outage of an hour goes unnoticed by those who ask for what is known;
    /// - a database that takes longer than 200 ms is not waited for where something is at hand;
    /// - the database bears eight questions at once.
    ///
    /// # Errors
    /// If these settings were at odds.
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

    /// A user. A load that finds the version unchanged leaves the user as it is.
    ///
    /// # Errors
    /// If there is none at hand and the database fails.
    pub async fn user(&self, id: i64) -> Result<Option<Arc<User>>, Error> {
        let database = self.database.clone();
        let load = move |prior| load(database, id, prior);
        self.cache.get_or_load_with(key(id), load).await
    }

    /// All users of a team: one question for who they are, and one for those of them that are not
    /// at hand.
    ///
    /// # Errors
    /// If the database fails.
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

    /// Writes a user. Who asks after this has it, also while a load is under way that began
    /// before.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn write(&self, user: User) -> Result<(), Failure> {
        let (key, before) = (key(user.id), self.user(user.id).await.ok().flatten());
        let left = before.map(|before| before.team.clone());
        let joined = user.team.clone();
        self.database.write(user).await?;
        self.cache.remove(key).await;
        self.teams.invalidate_tags(left.into_iter().chain([joined])).await;
        Ok(())
    }

    /// Forgets who is in a team.
    pub async fn forget_team(&self, team: &str) {
        self.teams.invalidate_tag(team).await;
    }

    /// What the cache of users has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// What each cache has done.
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

/// Who is in a team.
#[cached(cache = teams, key = "team:{team}", ttl = "60s", tags = [team])]
async fn members(
    teams: &Cache<Vec<i64>>,
    database: Database,
    team: &str,
) -> Result<Vec<i64>, Failure> {
    database.team(team.to_owned()).await
}
