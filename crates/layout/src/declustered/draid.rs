//! dRAID with exactly the permutation maps of OpenZFS.
//!
//! The placement is permutation development ([`crate::developed`]); what makes it dRAID are the
//! bases: 256 permutations (512 from 32 children on), each shuffled from the one before by a
//! generator whose seed is fixed for each number of children. The seeds were chosen by their
//! authors for good average balance and are part of the on-disk format, modulo bias of the shuffle
//! included.
//!
//! ```text
//!   7 children, row 0:  5 0 6 1 4 3 2     draid1:2d:7c:1s   position  0 1 2   3 4 5   6
//!                                                           slice 0   5 0 6 | 1 4 3 | 2
//!                                                           slice 1   6 1 0 | 2 5 4 | 3
//! ```
//!
//! Source: OpenZFS, `module/zfs/vdev_draid.c` and `module/zcommon/zfs_comutil.c` and the published
//! list of seeds. Group g of slice S begins at position (g mod ng)·(d+p) mod (c−s); parity comes
//! first in a group; spare j of a row is position c−1−j; slice S uses permutation
//! (S div c) mod M shifted by S mod c.

mod seeds;

use std::sync::Arc;

use super::{Domains, Kind, Made, Parity};
use crate::classic::small;
use crate::developed::{Developed, Development, Shape};
use crate::geometry::{Ask, Field, GeometryError};

/// Children that the format can name: one byte per map entry.
pub const CHILDREN_MAX: u16 = 255;

/// Distributed spares that the format allows.
pub const SPARES_MAX: u16 = 100;

/// Half of the generator's state; the other half is the map's seed.
const CONSTANT_SEED: u64 = 0xd7a_1d5_eed;

/// Number of permutations in the map for `children`.
#[must_use]
pub const fn permutation_count(children: u16) -> usize {
    if children <= 31 { 256 } else { 512 }
}

/// The seed of the map for `children`, 2 to 255.
#[must_use]
pub fn seed(children: u16) -> Option<u64> {
    entry(children).map(|(seed, _)| seed)
}

/// The published checksum of the map for `children`: the first word of its Fletcher-4.
#[must_use]
pub fn published_checksum(children: u16) -> Option<u64> {
    entry(children).map(|(_, checksum)| checksum)
}

fn entry(children: u16) -> Option<(u64, u64)> {
    let index = usize::from(children).checked_sub(2)?;
    seeds::SEEDS.get(index).copied()
}

/// The permutation map for `children`: `permutation_count` rows of `children` bytes.
///
/// `None` outside 2 to 255.
#[must_use]
pub fn map(children: u16) -> Option<Vec<u8>> {
    let mut generator = Generator(CONSTANT_SEED, seed(children)?);
    let width = usize::from(children);
    let mut row: Vec<u8> = (0..=u8::MAX).take(width).collect();
    let mut map = Vec::with_capacity(width * permutation_count(children));
    for _ in 0..permutation_count(children) {
        for j in (1..children).rev() {
            let k = small(generator.next() % (u64::from(j) + 1));
            row.swap(j.into(), k.into());
        }
        map.extend_from_slice(&row);
    }
    Some(map)
}

/// Fletcher-4 over little-endian 32-bit words, as OpenZFS checks its maps. `bytes` is a whole
/// number of words, which maps always are; a tail would be left out.
#[must_use]
pub fn fletcher4(bytes: &[u8]) -> [u64; 4] {
    let mut sums = [0_u64; 4];
    for word in bytes.as_chunks::<4>().0 {
        let mut carry = u64::from(u32::from_le_bytes(*word));
        for sum in &mut sums {
            *sum = sum.wrapping_add(carry);
            carry = *sum;
        }
    }
    sums
}

/// The layout's name and fields in scheme strings.
pub(super) static KIND: Kind = Kind {
    name: "draid",
    // OpenZFS's default.
    parity: Parity::DigitOr(1),
    domains: Domains::Refused("OpenZFS's maps know no failure domains"),
    is_pool: false,
    offered: &["draid1", "draid2", "draid3"],
    examples: &[
        "draid2:4d:14c:2s",
        "draid2:8d:24c:2s",
        "draid1:4d:34c:1s",
        "draid3:8d:36c:3s",
        "draid2:8d:60c:3s",
        "draid2:10d:255c:7s",
        "draid3:100d:255c:3s",
    ],
    make,
};

fn make(ask: &Ask<'_>, shape: Shape) -> Made {
    if shape.spares > SPARES_MAX {
        return Err(GeometryError::Impossible {
            field: Field::Spares,
            why: format!("dRAID's label holds at most {SPARES_MAX} spares"),
            nearest: format!("{SPARES_MAX}s"),
        });
    }
    let layout = layout(shape).ok_or_else(|| GeometryError::TooManyDrives {
        drives: ask.drives,
        why: "OpenZFS has maps for 2 to 255 children, one byte each".to_owned(),
        nearest: format!("{CHILDREN_MAX}c` or `pddl{}", shape.parity),
    })?;
    Ok(Arc::new(layout))
}

/// The dRAID layout of `shape`, or `None` outside 2 to 255 drives.
///
/// # Panics
/// When the generated map does not have its published checksum, or the group is wider than the
/// drives that are not spares.
#[must_use]
pub fn layout(shape: Shape) -> Option<Developed> {
    let map = map(shape.drives)?;
    assert_eq!(
        Some(fletcher4(&map)[0]),
        published_checksum(shape.drives),
        "a map differs from the published one"
    );
    let bases: Vec<u16> = map.into_iter().map(u16::from).collect();
    Some(Developed::new(shape, Development::Modulo, &bases))
}

/// xoroshiro128++ in the variant with rotations 17, 49, 28 and shift 21.
struct Generator(u64, u64);

impl Generator {
    const fn next(&mut self) -> u64 {
        let Self(s0, mut s1) = *self;
        let out = s0.wrapping_add(s1).rotate_left(17).wrapping_add(s0);
        s1 ^= s0;
        self.0 = s0.rotate_left(49) ^ s1 ^ (s1 << 21);
        self.1 = s1.rotate_left(28);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_numbers_for_seven_children() {
        let mut generator = Generator(CONSTANT_SEED, seed(7).unwrap());
        let first: Vec<u64> = (0..4).map(|_| generator.next()).collect();
        assert_eq!(
            first,
            [
                0xb02e_5deb_aba1_d3b8,
                0x273d_5c91_0adb_bb27,
                0x39e7_db28_0d59_b3f1,
                0xca10_14a9_a9e8_ff9d,
            ]
        );
    }

    #[test]
    fn there_are_maps_for_2_to_255_children() {
        assert!(map(1).is_none() && map(0).is_none() && map(256).is_none());
        for children in 2..=CHILDREN_MAX {
            let map = map(children).unwrap();
            assert_eq!(
                map.len(),
                permutation_count(children) * usize::from(children)
            );
            assert_eq!(
                Some(fletcher4(&map)[0]),
                published_checksum(children),
                "{children}"
            );
        }
    }
}
