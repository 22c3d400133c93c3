//! What administrators who know zpool, mdadm, LVM or storcli expect: which commands are safe, and which messages they
//! get.

#[path = "cli/bench.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod bench;
#[path = "admin/destroying.rs"]
mod destroying;
#[path = "admin/doors.rs"]
mod doors;
#[path = "admin/drives.rs"]
mod drives;
#[path = "admin/hardening.rs"]
mod hardening;
#[path = "admin/package.rs"]
mod package;
#[path = "admin/plans.rs"]
mod plans;
#[path = "admin/schemes.rs"]
mod schemes;
#[path = "admin/small.rs"]
mod small;
#[path = "admin/tls.rs"]
mod tls;
#[path = "admin/volumes.rs"]
mod volumes;
#[path = "admin/watching.rs"]
mod watching;

const MIB: u64 = 1 << 20;
