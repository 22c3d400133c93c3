//! Exports: protocols through which other programs use a [`block::BlockDevice`].
//!
//! This crate handles requests, sockets and clients. It contains no RAID: it serves any device that implements the
//! trait. [`nbd`] implements the Network Block Device protocol, [`fuse`] presents the device as a file.

mod descriptors;
pub mod fuse;
pub mod nbd;
pub mod socket;
