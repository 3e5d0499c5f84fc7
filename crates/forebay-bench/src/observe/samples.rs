//! Samples of `/metrics`.

use std::collections::BTreeMap;

use anyhow::Result;
use forebay_testkit::launch::Launched;

/// Text of `/metrics`.
pub(super) struct Samples(String);

/// Labels of a sample, by name.
pub(super) type Labels<'a> = BTreeMap<&'a str, &'a str>;

impl Samples {
    pub(super) async fn of(server: &Launched) -> Result<Self> {
        Ok(Self(server.get_admin("/metrics").await?.text().into_owned()))
    }

    /// Labels and values of the samples of a counter. Values of labels here have no commas.
    pub(super) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (Labels<'a>, u64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?.strip_prefix('{')?;
            let (labels, value) = rest.rsplit_once("} ")?;
            let label = |text: &'a str| text.trim_end_matches('"').split_once("=\"");
            let labels = labels.split(',').filter_map(label).collect();
            Some((labels, value.parse::<f64>().ok()? as u64))
        })
    }

    /// Sum of the samples of a counter.
    pub(super) fn sum(&self, name: &str) -> u64 {
        self.named(name).map(|(_, value)| value).sum()
    }
}
