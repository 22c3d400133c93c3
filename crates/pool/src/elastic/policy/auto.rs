//! All stripes, as far as there is space: the default.

use super::ElasticPolicy;

/// As many copies as there is space for.
#[derive(Debug)]
pub(super) struct Auto;

impl ElasticPolicy for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn wanted(&self, written: u64, _share: Option<u8>) -> u64 {
        written
    }
}
