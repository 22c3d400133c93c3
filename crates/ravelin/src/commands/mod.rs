//! One file per command.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod code;
pub(crate) mod common;
pub(crate) mod complete;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod drive;
pub(crate) mod examples;
pub(crate) mod lab;
pub(crate) mod layout;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod shear;
pub(crate) mod sim;
pub(crate) mod volume;
