//! How many stripes should be copies: a policy, one in each file.
//!
//! Space comes first and is not a policy: above the upper line of a drive's use stripes become parity again, and below
//! the lower line of all drives they may become copies (`conversion.rs`). A policy says how many should.
//!
//! Adding one is a file here, its `mod` line and its line in [`ELASTIC_POLICIES`].

mod auto;
mod share;

use std::fmt;

/// A policy: how many stripes should be copies.
pub trait ElasticPolicy: fmt::Debug + Send + Sync {
    /// Its name in commands and status.
    fn name(&self) -> &'static str;

    /// How many of so many written stripes should be copies, if there is space. `share`: the percentage that the
    /// administrator has set.
    fn wanted(&self, written: u64, share: Option<u8>) -> u64;
}

/// All policies: without a share the first one counts, with one the second.
pub const ELASTIC_POLICIES: &[&dyn ElasticPolicy] = &[&auto::Auto, &share::Share];

/// The policy for a share, or for none.
#[must_use]
pub fn policy_of(share: Option<u8>) -> &'static dyn ElasticPolicy {
    ELASTIC_POLICIES[usize::from(share.is_some())]
}
