//! A small web service over an SQLite file, with a cache before it.
//!
//! `cargo run -p users-service` serves a file of its own, `users.sqlite`, on 127.0.0.1:3000;
//! another file and another address can be given. Ask it twice, and see that the database was
//! asked once:
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
//! | request | answer |
//! |---|---|
//! | `GET /users/7` | the user, or 404 |
//! | `PUT /users/7` with `{"name": "Ada", "team": "engines"}` | 204; who asks next reads it |
//! | `GET /teams/engines` | all users of a team |
//! | `DELETE /teams/engines/cache` | 204; all that is cached of a team is gone |
//! | `GET /stats` | what the cache has done, and how often the database was asked |
//! | `GET /metrics` | what each cache has done, for Prometheus |
//!
//! | file | holds |
//! |---|---|
//! | `database` | the truth: a file, and the questions that are asked of it |
//! | `users` | the cache: what is asked of it, and what it asks |
//! | `web` | requests and answers |
//! | `metrics` | what a cache tells of itself, as metrics |
#![expect(clippy::print_stderr, reason = "the example logs to stderr")]

pub mod database;
pub mod metrics;
pub mod users;
pub mod web;
