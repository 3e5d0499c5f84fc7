//! The typed cache beside other libraries: cost of a hit, hit ratios, and the loads that early
//! refresh prevents in front of SQLite. `cargo xtask build-time` measures its build.

pub(crate) mod entries;
pub(crate) mod hits;
mod policies;
mod ratios;
mod subjects;
mod tiered;
pub(crate) mod zipf;

use anyhow::Result;

use crate::early;
use crate::environment::Options;
use crate::report::Table;

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let mut tables = ratios::run(options);
    tables.extend(early::run_sqlite(options)?);
    Ok(tables)
}
