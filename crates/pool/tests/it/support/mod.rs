//! A pool that several tests start from.

pub(crate) mod driven;

use pool::{NewDrive, PoolSpec};
use uuid::Uuid;

pub(crate) const DRIVE_BYTES: u64 = 64 << 20;

/// `raid5` of `drives` drives, and `spares` waiting spares. The drives' identities are their numbers.
pub(crate) fn spec(drives: u128, spares: u128) -> PoolSpec {
    let drive = |number| {
        let path = format!("drive:{number}");
        NewDrive::new(Uuid::from_u128(number), path, DRIVE_BYTES)
    };
    PoolSpec {
        name: "p".to_owned(),
        uuid: Uuid::from_u128(99),
        scheme: "raid5".parse().unwrap(),
        chunk_bytes: None,
        cell_bytes: None,
        journal: true,
        lazy: false,
        interleave: false,
        free_stripes: Some(0),
        drives: (0..drives).map(drive).collect(),
        spares: (drives..drives + spares).map(drive).collect(),
    }
}
