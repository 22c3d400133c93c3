//! Every kind of drive against the contract of `BlockDevice` and against a plain array of bytes.

#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers made up by the tests"
)]

mod compressed;
mod contract;
mod devices;
mod files;
mod injected;
pub(crate) mod support;
