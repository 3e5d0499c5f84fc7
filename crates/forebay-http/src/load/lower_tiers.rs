//! Lookup in the lower tiers without a request to the origin.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::{
    Audience, Entry, Head, HeadCodec, Load, LoadError, LoadOptions, LoadSource, Loaded, Select,
    TierCall,
};

use super::HttpLoad;

/// Load that fails instead of asking the origin.
#[derive(Clone)]
pub(crate) struct LowerTiersOnly(pub(crate) HttpLoad);

impl Select for LowerTiersOnly {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.field(name)
    }

    fn variants_max(&self) -> usize {
        self.0.variants_max()
    }
}

impl Load for LowerTiersOnly {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }

    fn tier_called(&self, call: TierCall) {
        self.0.request().note_tier_call(call);
    }

    fn options(&self) -> LoadOptions {
        let LoadOptions { extent, .. } = self.0.options();
        LoadOptions { source: LoadSource::LowerTiers, extent, ..LoadOptions::default() }
    }
}

impl HeadCodec for LowerTiersOnly {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        self.0.decode_head(bytes)
    }
}
