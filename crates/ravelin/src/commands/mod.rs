//! One file per command.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod code;
pub(crate) mod common;
pub(crate) mod complete;
pub(crate) mod daemon;
#[cfg(feature = "studies")]
pub(crate) mod doctor;
pub(crate) mod drive;
#[cfg_attr(
    not(feature = "studies"),
    expect(dead_code, reason = "some are of the studies")
)]
pub(crate) mod examples;
pub(crate) mod journal;
#[cfg(feature = "studies")]
pub(crate) mod lab;
pub(crate) mod layout;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod pool;
#[cfg(feature = "studies")]
pub(crate) mod shear;
#[cfg(feature = "studies")]
pub(crate) mod sim;
pub(crate) mod table;
pub(crate) mod topics;
pub(crate) mod usage;
pub(crate) mod volume;
