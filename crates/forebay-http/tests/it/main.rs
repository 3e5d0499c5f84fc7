//! The service behind real sockets: scenarios, crowds, and what no client may get away with.

mod apart;
mod clocks;
mod continued;
mod crowds;
mod door;
mod framing;
mod interims;
mod limits;
mod origins;
mod purges;
mod readers;
mod reloads;
mod scenarios;
mod stops;
mod tunnels;
mod uploads;
