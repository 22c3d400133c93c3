//! Runs arrays on real devices, in real time: drive kinds below, lanes and pools above.

pub mod drive;
pub mod ring;
