//! Real clients and real kernels on a pool whose drives fail under them (`make e2e`).
//!
//! | module | what |
//! | --- | --- |
//! | `nbd_clients` | nbdinfo, nbdcopy, qemu-img, qemu-io, and fio with verification, by NBD |
//! | `systems` | ext4, xfs, btrfs on a loop device over a volume as a file: ours and nbdfuse's |
//! | `devices` | loop and zram devices as drives, taken away under load |
//!
//! Missing tools and kernel features are reported as skipped. `RAVELIN_LONG=1` runs ten times as
//! long where run time is what finds faults.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]

mod common;
mod devices;
mod disk;
mod nbd_clients;
mod pool;
mod systems;
