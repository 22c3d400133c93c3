//! What administrators who know zpool, mdadm, LVM or storcli expect: which commands are safe, and which messages they
//! get.

mod blocks;
mod checks;
mod compress;
mod destroying;
mod devices;
mod doctoring;
mod doors;
mod drives;
mod elastic;
mod hardening;
mod history;
mod identify;
mod journal;
mod listing;
mod loads;
mod package;
mod plans;
mod schemes;
mod scrubs;
mod sizes;
mod slips;
mod small;
mod steering;
mod tables;
mod tls;
mod volumes;
mod watching;

const MIB: u64 = 1 << 20;
