//! Tests of the `forebay` binary: its output, its responses, its exit.
//!
//! | module | subject |
//! |---|---|
//! | `acme` | automatic certificates from pebble, a test server of Let's Encrypt |
//! | `alerts` | drills of the alerts in `deploy` |
//! | `apart` | no client receives the response of another, over all tiers and several instances |
//! | `start` | flags, environment variables and files; errors at the start |
//! | `serve` | all threads share one cache |
//! | `demo` | the commands that `serve --demo` prints |
//! | `stop` | graceful shutdown |
//! | `disk` | disk tier across restarts |
//! | `disk_bodies` | large bodies on disk, read while they are written, and byte ranges |
//! | `disk_cluster` | instance with a disk that misses purges while it is down |
//! | `disk_trouble` | disk tier that cannot be opened, or fails |
//! | `lifecycle` | starts, stops, restarts and log rotations under load |
//! | `load` | steady load on a server |
//! | `reload` | configuration reload |
//! | `reload_listeners` | listeners that a reload adds, changes and removes |
//! | `h2spec` | a conformance suite for HTTP/2 |
//! | `http2` | HTTP/2: one key for all protocols, rules, floods |
//! | `http2_attacks` | published attacks over HTTP/2 |
//! | `live` | `forebay tail` and `forebay top` |
//! | `logs` | access log, messages, secrets |
//! | `cluster` | instances that share a Redis: leases and purges |
//! | `cluster_trouble` | misconfigured or failing Redis of several instances; refreshes |
//! | `shared` | shared Redis tier: hits, and the cost of failures |
//! | `servers` | Redis per site, replicas, Cluster, Sentinels, TLS; signatures; health |
//! | `second_parser` | forwarded requests, read by the parser of Node |
//! | `secrets` | planted secrets are in no log, page, feed, span or explanation |
//! | `tier` | slow, frozen or unreachable Redis, and foreign values in it |
//! | `tls` | TLS listeners, certificates, redirects |
//! | `tools` | `check`, `origin` and `help` |
//! | `versions` | another version beside this one, with one Redis for both |
//! | `opt_ins` | responses stored by request body, and cache groups |
//! | `plan` | estimates of the memory size, compared with caches of other sizes |
//! | `proxies` | proxies in front, PROXY protocol, Unix sockets |
//! | `purge` | `forebay purge` and its effect |
//! | `admin` | admin listener and its access rules |
//! | `rules_attacks` | cache deception and poisoning against rules |
//! | `rules_explain` | explanations of rules, compared with the running cache |
//! | `rules_bodies` | GraphQL operations and cuts of JSON by rules |
//! | `rules_keys` | key parts of rules, private caches per user, purges by requests |
//! | `crowded` | more clients than the limit on open files allows |
//! | `bad_input` | malformed input of clients and origins |
//! | `broken` | stale responses while the origin is broken |
//! | `clocks` | a wall clock that jumps by an hour while the cache runs |
//! | `explain` | `forebay explain` and its endpoint |
//! | `stampede` | crowds of 500 clients |
//!
//! Assertions are on counters and responses; only the drain is asserted by time.

mod acme;
mod admin;
mod alerts;
mod apart;
mod bad_input;
mod broken;
mod budget;
mod clocks;
mod cluster;
mod cluster_trouble;
mod crowded;
mod dashboard;
mod demo;
mod disk;
mod disk_bodies;
mod disk_cluster;
mod disk_trouble;
mod endpoints;
mod explain;
mod h2spec;
mod http2;
mod http2_attacks;
mod lifecycle;
mod live;
mod load;
mod logs;
mod operate;
mod opt_ins;
mod origin_nginx;
mod plan;
mod probe;
mod proxies;
mod purge;
mod reload;
mod reload_listeners;
mod rules;
mod rules_attacks;
mod rules_bodies;
mod rules_explain;
mod rules_keys;
mod rules_metrics;
mod second_parser;
mod secrets;
mod serve;
mod servers;
mod shared;
mod stampede;
mod start;
mod stop;
mod tier;
mod tls;
mod tools;
mod traces;
mod versions;
mod warm;
mod world;
