//! A small web service over an SQLite file, with a cache in front of the database.
//!
//! `cargo run -p users-service` serves the file `users.sqlite` on 127.0.0.1:3000; arguments set
//! another file and another address. Two requests cause one load:
//!
//! ```text
//! $ curl http://127.0.0.1:3000/users/1
//! {"id":1,"name":"Ada","team":"engines","version":1}
//! $ curl http://127.0.0.1:3000/users/1
//! {"id":1,"name":"Ada","team":"engines","version":1}
//! $ curl http://127.0.0.1:3000/metrics | grep 'loads_total{cache="users"}'
//! cache_loads_total{cache="users"} 1
//! ```
//!
//! | request | response |
//! |---|---|
//! | `GET /users/7` | the user, or 404 |
//! | `PUT /users/7` with `{"name": "Ada", "team": "engines"}` | 204; the next request reads the new state |
//! | `GET /teams/engines` | all users of a team |
//! | `DELETE /teams/engines/cache` | 204; removes the cached member list of the team |
//! | `GET /stats` | counters of the cache, and the number of database queries |
//! | `GET /metrics` | counters of each cache, for Prometheus |
//!
//! | module | content |
//! |---|---|
//! | `database` | the origin: an SQLite file and its queries |
//! | `users` | access to users through the cache |
//! | `web` | the HTTP interface |
//! | `metrics` | Prometheus metrics of the caches |
#![expect(clippy::print_stderr, reason = "the example logs to stderr")]

pub mod database;
pub mod metrics;
pub mod users;
pub mod web;
