//! The disk tier from outside: over a real directory, and past the end of a process.

mod burst;
mod desk;
mod kill;
mod stored;
