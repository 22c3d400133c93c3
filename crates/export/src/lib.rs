//! The ways in: protocols through which other programs use a [`block::BlockDevice`].
//!
//! This crate knows requests, sockets and clients, and nothing of RAID: what it serves is any
//! device behind the trait. [`nbd`] speaks the Network Block Device protocol, [`fuse`] makes
//! the device a file.

mod descriptors;
pub mod fuse;
pub mod nbd;
pub mod socket;
