//! The tier against real servers.

mod damaged;
mod entries;
mod modes;
mod trouble;
mod world;
mod writes;
