//! Pools of pieces grow and shrink: every cut and every pair of failures of small pools. In a release build:
//!
//! ```text
//! cargo test --release -p ravelin-sim --test growing -- --nocapture [first::|second::|one_|of_twelve_drives::]
//! ```
//!
//! A program of its own, which `make verify` runs and `make test` does not: samples of the same are in `it`, and `growing` and `removing` there.

/// As the program: histories allocate much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "it/resizing/mod.rs"]
mod resizing;

use block::Seat;
use testing::parts;

use crate::resizing::{Case, GROWS, SHRINKS, cuts::power_goes, pairs};

const TWELVE: Case = Case {
    cell_bytes: 128 << 10,
    groups: 12,
    ..GROWS.of(P2, 12)
};
const TWELVE_LESS_ONE: Case = Case {
    change: SHRINKS.change,
    ..TWELVE
};
const P2: &str = "ddp:2d:2p";
const CRUSH: &str = "crush2:2d";

fn cut(case: Case) {
    power_goes(case.tiny(), None);
}

parts!(first {
    a_drive_joins_p1 => cut(GROWS),
    two_drives_join_p1 => cut(GROWS.by(2)),
    a_drive_joins_beside_a_spare_p1 => cut(GROWS.beside(1)),
    two_drives_join_beside_a_spare_p1 => cut(GROWS.by(2).beside(1)),
    a_spare_behind_another_joins_p1 => cut(GROWS.beside(2).by_spares(&[Seat(5)])),
    a_drive_joins_lazy_p1 => cut(GROWS.lazy()),
    a_drive_leaves_p1 => cut(SHRINKS),
    a_failed_drive_leaves_p1 => cut(SHRINKS.failed()),
    a_drive_joins_p2 => cut(GROWS.of(P2, 5)),
    two_drives_join_p2 => cut(GROWS.of(P2, 5).by(2)),
    a_drive_joins_beside_a_spare_p2 => cut(GROWS.of(P2, 5).beside(1)),
    two_drives_join_beside_a_spare_p2 => cut(GROWS.of(P2, 5).by(2).beside(1)),
    a_drive_leaves_crush => cut(SHRINKS.of(CRUSH, 7)),
    a_failed_drive_leaves_crush => cut(SHRINKS.of(CRUSH, 7).failed()),
});

parts!(second {
    a_drive_leaves_p2 => cut(SHRINKS.of(P2, 7)),
    a_failed_drive_leaves_p2 => cut(SHRINKS.of(P2, 7).failed()),
    a_drive_joins_crush => cut(GROWS.of(CRUSH, 5)),
    two_drives_join_crush => cut(GROWS.of(CRUSH, 5).by(2)),
    a_drive_joins_beside_a_spare_crush => cut(GROWS.of(CRUSH, 5).beside(1)),
    two_drives_join_beside_a_spare_crush => cut(GROWS.of(CRUSH, 5).by(2).beside(1)),
});

parts!(one_drive_fails_at_every_moment {
    of_an_expansion => pairs::one(GROWS.tiny(), 1, 0),
    of_a_removal => pairs::one(SHRINKS.tiny(), 1, 0),
});

// Twelve drives of which two fail, at twenty moments, with a power cut between.
parts!(of_twelve_drives {
    of_an_expansion => pairs::two(TWELVE, 20),
    of_a_removal => pairs::two(TWELVE_LESS_ONE, 20),
    of_a_replacement_during_an_expansion => pairs::two(TWELVE.replacing(Seat(7)), 20),
});
