//! A small web service over an SQLite file, with a cache before it.
//!
//! | request | answer |
//! |---|---|
//! | `GET /users/7` | the user, or 404 |
//! | `PUT /users/7` with `{"name": "Ada", "team": "engines"}` | 204; who asks next reads it |
//! | `GET /teams/engines` | all users of a team |
//! | `DELETE /teams/engines/cache` | 204; all that is cached of a team is gone |
//! | `GET /stats` | what the cache has done, and how often the database was asked |
//!
//! | file | holds |
//! |---|---|
//! | `database` | the truth: a file, and the questions that are asked of it |
//! | `users` | the cache: what is asked of it, and what it asks |
//! | `web` | requests and answers |

pub mod database;
pub mod users;
pub mod web;
