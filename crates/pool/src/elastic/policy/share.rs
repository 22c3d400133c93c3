//! A share of the written stripes that the administrator has set.

use super::ElasticPolicy;

/// A fixed share.
#[derive(Debug)]
pub(super) struct Share;

impl ElasticPolicy for Share {
    fn name(&self) -> &'static str {
        "share"
    }

    fn wanted(&self, written: u64, share: Option<u8>) -> u64 {
        written * u64::from(share.unwrap_or(0).min(100)) / 100
    }
}
