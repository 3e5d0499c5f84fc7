//! Tests of the service over real sockets: scenarios, load, and invalid or malicious clients.

mod admission;
mod apart;
mod breaker;
mod carriers;
mod clocks;
mod compress;
mod continued;
mod crowds;
mod direct;
mod endpoint_health;
mod endpoints;
mod explain;
mod framing;
mod interims;
mod limits;
mod origins;
mod purges;
mod readers;
mod records;
mod reloads;
mod retries;
mod scenarios;
mod server;
mod stops;
mod tunnels;
mod uploads;
