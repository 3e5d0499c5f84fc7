//! Formats and compressions of values, beside those of Rails' stores and of Node.js: size, encoding,
//! decoding, and a read with decoding from memory, disk and Redis.
//!
//! Values are lists of articles with authors, comments and random strings, as in the published
//! text. All programs get the same values.

mod rivals;
mod values;

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay::codec::{Codec, Compression, Format, Json, MessagePack, Postcard, Raw};

use crate::environment::{Options, median};
use crate::layers::through::Through;
use crate::report::{Better, Bound, Comparison, Table, Unit, Verdict};
use values::{Article, articles};

/// Time of one measurement.
const SPAN: Duration = Duration::from_millis(300);
const SPAN_QUICK: Duration = Duration::from_millis(60);

/// Sizes as JSON.
const SIZES: [(usize, &str); 3] = [(1 << 10, "1 KiB"), (64 << 10, "64 KiB"), (1_000_000, "1 MB")];

const COMPRESSIONS: [(Compression, &str); 6] = [
    (Compression::None, "none"),
    (Compression::Lz4, "lz4"),
    (Compression::Snappy, "snappy"),
    (Compression::Zstd, "zstd"),
    (Compression::Gzip, "gzip"),
    (Compression::Brotli, "brotli"),
];

/// The format and the compression that the documentation recommends.
const RECOMMENDED: (&str, &str) = ("MessagePack", "zstd");

const SOURCE: &str = "Rails article";

/// Reads through a tier whose median counts.
const READS: usize = 60;

/// Bytes of a value, and how often a second it is written and read.
#[derive(Clone)]
pub(super) struct Measured {
    pub(super) owner: &'static str,
    pub(super) format: String,
    pub(super) compression: String,
    pub(super) bytes: f64,
    pub(super) write: f64,
    pub(super) read: f64,
}

impl Measured {
    fn name(&self) -> String {
        format!("{} {} + {}", self.owner, self.format, self.compression)
    }

    fn is_recommended(&self) -> bool {
        self.owner == "forebay" && (self.format.as_str(), self.compression.as_str()) == RECOMMENDED
    }
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let span = options.pick(SPAN, SPAN_QUICK);
    let mut tables = Vec::new();
    for (size, name) in SIZES {
        eprintln!("measuring: {name}");
        let value = articles(size)?;
        let plain = serde_json::to_vec(&value)?.len() as f64;
        let mut all = Vec::new();
        all.extend(of_format("MessagePack", MessagePack, &value, span)?);
        all.extend(of_format("JSON", Json, &value, span)?);
        all.extend(of_format("postcard", Postcard, &value, span)?);
        let (theirs, described) = rivals::measure(&value, span)?;
        all.extend(theirs);
        let mut compared = compare(&all, name, plain)?;
        if size == SIZES[2].0 {
            published(&mut compared, &value, span)?;
        }
        tables.push(compared.with_rivals(described));
        tables.push(matrix(&all, name, plain));
    }
    let runtime = tokio::runtime::Runtime::new()?;
    tables.push(runtime.block_on(through_tiers())?);
    Ok(tables)
}

/// Calls in a second.
fn rate<T>(span: Duration, mut call: impl FnMut() -> Result<T>) -> Result<f64> {
    let (begun, mut count) = (Instant::now(), 0.0);
    loop {
        black_box(call()?);
        count += 1.0;
        let took = begun.elapsed();
        if took >= span {
            return Ok(count / took.as_secs_f64());
        }
    }
}

fn of_format<F: Format<Vec<Article>> + Clone>(
    name: &str,
    format: F,
    value: &Vec<Article>,
    span: Duration,
) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    for (compression, compressed) in COMPRESSIONS {
        let codec = Codec::new(format.clone()).compressed(compression).threshold(0);
        let bytes = codec.encode(value)?;
        ensure!(codec.decode::<Vec<Article>>(&bytes)? == *value, "{name} returns another value");
        all.push(Measured {
            owner: "forebay",
            format: name.to_owned(),
            compression: compressed.to_owned(),
            bytes: bytes.len() as f64,
            write: rate(span, || Ok(codec.encode(value)?))?,
            read: rate(span, || Ok(codec.decode::<Vec<Article>>(&bytes)?))?,
        });
    }
    Ok(all)
}

/// The recommended codec beside each rival.
fn compare(all: &[Measured], size: &str, plain: f64) -> Result<Table> {
    let ours = all.iter().find(|one| one.is_recommended()).context("it was measured")?;
    let theirs = || all.iter().filter(|one| one.owner != "forebay");
    let title = format!(
        "{size}: the recommended codec ({} + {}) beside rivals; as JSON {}",
        RECOMMENDED.0,
        RECOMMENDED.1,
        Unit::Bytes.show(plain)
    );
    let mut table = Table::comparisons(title);
    let mut row = |name: &str, unit, better, figure: fn(&Measured) -> f64| {
        let row = Comparison::new(format!("{size}: {name}"), unit, better).ours(vec![figure(ours)]);
        let row = theirs().fold(row, |row, one| row.rival(&one.name(), vec![figure(one)]));
        table.compare(row);
    };
    row("bytes", Unit::Bytes, Better::Lower, |one| one.bytes);
    row("encode", Unit::PerSecond, Better::Higher, |one| one.write);
    row("read and decode", Unit::PerSecond, Better::Higher, |one| one.read);
    let ahead = theirs().filter(|one| one.bytes < ours.bytes && one.read > ours.read);
    let name = format!("{size}: rivals both smaller and faster to decode");
    table.compare(
        Comparison::new(name, Unit::Count, Better::Neither)
            .ours(vec![ahead.count() as f64])
            .bound(Bound::AtMost(0.0)),
    );
    Ok(table)
}

/// Compression alone of the value in MessagePack, beside the published sizes and speeds.
fn published(table: &mut Table, value: &Vec<Article>, span: Duration) -> Result<()> {
    const PLAIN: f64 = 1_023_931.0;
    const PRINTED: [(&str, f64, f64); 5] = [
        ("brotli", 577_629.0, 35.899),
        ("snappy", 895_496.0, 3_086.8),
        ("zstd", 587_085.0, 278.536),
        ("lz4", 878_160.0, 1_959.3),
        ("gzip", f64::NAN, 35.028),
    ];
    let plain = rmp(value)?;
    for (name, bytes, speed) in PRINTED {
        let (compression, _) =
            *COMPRESSIONS.iter().find(|(_, one)| *one == name).context("it is in the list")?;
        let codec = Codec::new(Raw).compressed(compression).threshold(0);
        let length = codec.encode(&plain)?.len() as f64;
        let mut size = Comparison::new(
            format!("{name}: size after compression"),
            Unit::Share,
            Better::Neither,
        );
        if bytes.is_finite() {
            size = size.published(SOURCE, bytes / PLAIN);
        }
        table.compare(size.ours(vec![length / plain.len() as f64]));
        let ours = rate(span, || Ok(codec.encode(&plain)?))?;
        let speed = Comparison::new(format!("{name}: compress"), Unit::PerSecond, Better::Neither)
            .published(SOURCE, speed * PLAIN / plain.len() as f64);
        table.compare(speed.ours(vec![ours]));
    }
    Ok(())
}

fn rmp(value: &Vec<Article>) -> Result<Vec<u8>> {
    // The header of the codec is a few bytes of a mebibyte.
    Ok(Codec::new(MessagePack).encode(value)?.to_vec())
}

fn matrix(all: &[Measured], size: &str, plain: f64) -> Table {
    let columns = ["codec", "bytes", "of JSON", "encode", "decode", "decode, as JSON"];
    let mut table = Table::new(format!("{size}: every codec"), &columns);
    for one in all {
        let cells = vec![
            one.name(),
            format!("{:.0}", one.bytes),
            Unit::Share.show(one.bytes / plain),
            Unit::PerSecond.show(one.write),
            Unit::PerSecond.show(one.read),
            format!("{:.0} MB/s", one.read * plain / 1e6),
        ];
        table.row(cells, "", Verdict::Shown);
    }
    table
}

/// Reads of a value by a cache that has it in one tier only: read, verify, decompress and decode.
async fn through_tiers() -> Result<Table> {
    let codecs = ["none", "lz4", "snappy", "zstd", "gzip", "brotli"];
    let columns = [&["value, tier"][..], &codecs].concat();
    let mut table = Table::new("a read with decoding, MessagePack", &columns)
        .note("memory holds values that are decoded already; forebay has no memcached tier");
    for (size, name) in SIZES {
        let value = articles(size)?;
        for tier in Through::ALL {
            let mut cells = vec![format!("{name}, {}", tier.name())];
            for (compression, _) in COMPRESSIONS {
                let codec = Codec::new(MessagePack).compressed(compression);
                let times = tier.reads(&codec, &value, READS).await?;
                cells.push(Unit::Seconds.show(median(&times)));
            }
            table.row(cells, "", Verdict::Shown);
        }
    }
    Ok(table)
}
