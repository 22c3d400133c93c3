//! The journal ring's structures: anchors and batch headers.
//!
//! ```text
//!   a lane's ring on one drive
//!     0        4 KiB   anchor, copy 0
//!     4 KiB    4 KiB   anchor, copy 1
//!     8 KiB    …       batches, each: header, then one column of the batch's blocks
//!
//!   anchor, in its first 512 bytes          header, one block or several
//!     0   4   "RVJA"                          0   4   "RVJB"
//!     4   4   check of bytes 8 to 511         4   4   check of all that follows
//!     8   8   incarnation                     8   8   incarnation
//!     16  8   first sequence that counts      16  8   sequence
//!     24  8   where it is (blocks)            24  8   sequence known to have been flushed
//!     32  8   last sequence of earlier        32  4   blocks of header and column together
//!             incarnations                    36  4   descriptors
//!     40  8   number of this anchor           40  2   data columns (k)
//!                                             42  2   columns (m)
//!                                             44  2   header blocks
//!                                             46  2   rows
//!                                             48  m × 2   seats of the columns
//!                                             …   (m − k) × rows × 4   plain CRC-32C of parity blocks
//!                                             …   descriptors of 24 bytes; behind one of kind 4 its
//!                                                 checksums, 4 bytes each
//! ```
//!
//! Block i of a batch's content is in row i mod rows of column i / rows. Checks are mixed with pool and
//! lane. All numbers are little-endian.

use block::{BLOCK_BYTES, Seat};
use uuid::Uuid;

use super::form::{Form, HeldIn};
use super::ids::{Column, DataStripe, Generation, GroupId, Sequence, StripeId};
use super::page::BlockName;

/// Bytes in front of the first batch.
pub const RING_HEAD_BYTES: u64 = 2 * BLOCK_BYTES;

const ANCHOR_MAGIC: [u8; 4] = *b"RVJA";
const BATCH_MAGIC: [u8; 4] = *b"RVJB";
const ANCHOR_BYTES: usize = 512;
const FIXED_BYTES: usize = 48;
const BLOCK: usize = 4096;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES);
/// Bytes of a descriptor without checksums behind it.
pub const DESCRIPTOR_BYTES: usize = 24;
const CRC_BYTES: usize = 4;

/// Where the log begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// The pool's generation when it was opened.
    pub incarnation: Generation,
    /// First sequence that counts.
    pub first: Sequence,
    /// Its place: blocks from the first batch's place.
    pub position: u64,
    /// Records above this count only if their incarnation is at least this anchor's.
    pub inherited: Sequence,
    /// Of a lane's anchors the one with the highest number counts.
    pub number: u64,
}

impl Anchor {
    /// The anchor as a block.
    #[must_use]
    pub fn encode(&self, pool: Uuid, lane: u16) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        bytes[..4].copy_from_slice(&ANCHOR_MAGIC);
        let fields = [
            self.incarnation.0,
            self.first.0,
            self.position,
            self.inherited.0,
            self.number,
        ];
        for (field, place) in fields.iter().zip(bytes[8..].chunks_mut(8)) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let check = check(pool, lane, &bytes[8..ANCHOR_BYTES]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads an anchor; `None` if the bytes are not an anchor of this pool and lane.
    #[must_use]
    pub fn parse(pool: Uuid, lane: u16, bytes: &[u8]) -> Option<Self> {
        let sector = bytes.get(..ANCHOR_BYTES)?;
        if sector[..4] != ANCHOR_MAGIC || u32_at(sector, 4)? != check(pool, lane, &sector[8..]) {
            return None;
        }
        Some(Self {
            incarnation: Generation(u64_at(sector, 8)?),
            first: Sequence(u64_at(sector, 16)?),
            position: u64_at(sector, 24)?,
            inherited: Sequence(u64_at(sector, 32)?),
            number: u64_at(sector, 40)?,
        })
    }
}

/// A batch's record of one block or of a run of stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// The next block of the batch's content belongs to this name.
    Content {
        /// Where.
        name: BlockName,
        /// Plain CRC-32C of the block.
        crc: u32,
    },
    /// The block has changed while no cell could take it: any content of its cell, now or later, does not count.
    Unknown(BlockName),
    /// The same, and the checksum of the new content is known: a reconstructed block is compared with that. Only in
    /// pools with the feature `page-copies`.
    Absent {
        /// Where.
        name: BlockName,
        /// Plain CRC-32C of the block.
        crc: u32,
    },
    /// Stripes that read as zeros from now on.
    Zeroed {
        /// Which group.
        group: GroupId,
        /// First stripe.
        first: StripeId,
        /// How many.
        count: u32,
        /// Only the blocks that this form alone keeps, parity or copies, become unwritten: the stripes have changed
        /// their form. `None`: all blocks. Only in pools with the feature `elastic`.
        only: Option<Form>,
    },
    /// Blocks that follow each other in a cell have been written in place, where nothing counted before. These blocks
    /// may be only in the drives' caches, like the record itself: one flush covers both. Only in pools with the feature
    /// `direct-writes`.
    Direct {
        /// The first of them.
        first: BlockName,
        /// Plain CRC-32C of each.
        crcs: Vec<u32>,
    },
    /// A block of parity whose content is not in the batch: the code computes it from the data blocks of its row, which
    /// are in the batch. Only in pools with the feature `derived-parity`.
    Derived {
        /// Where it belongs.
        name: BlockName,
        /// Plain CRC-32C of the block.
        crc: u32,
    },
    /// From now on this stripe of the group's data is in another stripe, or in another form. Only in pools with the
    /// feature `free-stripes` or `elastic`.
    Moved {
        /// Which group.
        group: GroupId,
        /// Which stripe of its data.
        data: DataStripe,
        /// The stripe that holds it, and its form.
        to: HeldIn,
    },
}

impl Descriptor {
    /// Its group.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        match self {
            Self::Content { name, .. }
            | Self::Unknown(name)
            | Self::Absent { name, .. }
            | Self::Direct { first: name, .. }
            | Self::Derived { name, .. } => name.group,
            Self::Zeroed { group, .. } | Self::Moved { group, .. } => *group,
        }
    }

    /// Bytes in the header.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Direct { crcs, .. } => Self::bytes_of_direct(crcs.len()),
            _ => DESCRIPTOR_BYTES,
        }
    }

    /// Bytes of a `Direct` descriptor for this many blocks.
    #[must_use]
    pub const fn bytes_of_direct(blocks: usize) -> usize {
        DESCRIPTOR_BYTES + blocks * CRC_BYTES
    }
}

/// The head of every column of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The pool's generation when it was opened.
    pub incarnation: Generation,
    /// Counts batches of the lane, without gaps.
    pub sequence: Sequence,
    /// Sequence that was known to have been flushed.
    pub flushed: Sequence,
    /// Seats of the columns: first data, then parity.
    pub seats: Vec<Seat>,
    /// How many of them are data.
    pub data_columns: u16,
    /// Blocks of each column behind the header.
    pub rows: u16,
    /// Plain CRC-32C of each parity block, column by column.
    pub parity_crcs: Vec<u32>,
    /// In the order in which they apply.
    pub descriptors: Vec<Descriptor>,
}

impl BatchHeader {
    /// Blocks of the header alone, for these numbers of columns, parity blocks and bytes of descriptors.
    #[must_use]
    pub fn blocks(columns: usize, parity_blocks: usize, descriptor_bytes: usize) -> u64 {
        let bytes = FIXED_BYTES + columns * 2 + parity_blocks * CRC_BYTES + descriptor_bytes;
        (bytes as u64).div_ceil(BLOCK_BYTES)
    }

    /// Blocks of this header.
    #[must_use]
    pub fn header_blocks(&self) -> u64 {
        Self::blocks(
            self.seats.len(),
            self.parity_crcs.len(),
            self.descriptors.iter().map(Descriptor::bytes).sum(),
        )
    }

    /// Blocks that the batch takes on each drive.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.header_blocks() + u64::from(self.rows)
    }

    /// The header as whole blocks.
    ///
    /// # Panics
    /// When there are more columns, descriptors or parity blocks than the format can count.
    #[must_use]
    pub fn encode(&self, pool: Uuid, lane: u16) -> Vec<u8> {
        let columns = u16::try_from(self.seats.len()).expect("at most 2^16 columns");
        let blocks = u16::try_from(self.header_blocks()).expect("a header is short");
        let mut bytes = Vec::with_capacity(usize::from(blocks) * BLOCK);
        bytes.extend(BATCH_MAGIC);
        bytes.extend([0; 4]);
        bytes.extend(self.incarnation.0.to_le_bytes());
        bytes.extend(self.sequence.0.to_le_bytes());
        bytes.extend(self.flushed.0.to_le_bytes());
        let length = u32::try_from(self.length()).expect("a batch is short");
        bytes.extend(length.to_le_bytes());
        let descriptors = u32::try_from(self.descriptors.len()).expect("few descriptors");
        bytes.extend(descriptors.to_le_bytes());
        bytes.extend(self.data_columns.to_le_bytes());
        bytes.extend(columns.to_le_bytes());
        bytes.extend(blocks.to_le_bytes());
        bytes.extend(self.rows.to_le_bytes());
        for seat in &self.seats {
            bytes.extend(seat.0.to_le_bytes());
        }
        for crc in &self.parity_crcs {
            bytes.extend(crc.to_le_bytes());
        }
        for descriptor in &self.descriptors {
            let mut crcs: &[u32] = &[];
            let (group, first, number, column, kind) = match *descriptor {
                Descriptor::Content { name, crc } => {
                    (name.group, name.block.into(), crc, name.column.0, 0_u16)
                }
                Descriptor::Unknown(name) => (name.group, name.block.into(), 0, name.column.0, 1),
                Descriptor::Zeroed {
                    group,
                    first,
                    count,
                    only,
                } => (group, first.0, count, part_of(only), 2),
                Descriptor::Absent { name, crc } => {
                    (name.group, name.block.into(), crc, name.column.0, 3)
                }
                Descriptor::Derived { name, crc } => {
                    (name.group, name.block.into(), crc, name.column.0, 5)
                }
                Descriptor::Moved { group, data, to } => (group, data.0, to.encode(), 0, 6),
                Descriptor::Direct {
                    first,
                    crcs: ref all,
                } => {
                    crcs = all;
                    let count = u32::try_from(all.len()).expect("a header is short");
                    (first.group, first.block.into(), count, first.column.0, 4)
                }
            };
            bytes.extend(group.0.to_le_bytes());
            bytes.extend(u64::to_le_bytes(first));
            bytes.extend(number.to_le_bytes());
            bytes.extend(column.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        }
        bytes.resize(usize::from(blocks) * BLOCK, 0);
        let check = check(pool, lane, &bytes[8..]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Number of blocks that the header at the beginning of `bytes` claims to have; not checked yet. `None` if there is
    /// no header.
    #[must_use]
    pub fn claimed_blocks(bytes: &[u8]) -> Option<u64> {
        let blocks = u16_at(bytes, 44)?;
        (bytes.get(..4)? == BATCH_MAGIC && blocks > 0).then(|| blocks.into())
    }

    /// Reads a header from its blocks (more may follow); `None` if they are not a header of this pool and lane, or are
    /// damaged. Never panics, whatever the bytes are.
    #[must_use]
    pub fn parse(pool: Uuid, lane: u16, bytes: &[u8]) -> Option<Self> {
        let blocks = Self::claimed_blocks(bytes)?;
        let bytes = bytes.get(..usize::try_from(blocks * BLOCK_BYTES).ok()?)?;
        if u32_at(bytes, 4)? != check(pool, lane, &bytes[8..]) {
            return None;
        }
        let data_columns = u16_at(bytes, 40)?;
        let columns = u16_at(bytes, 42)?;
        let rows = u16_at(bytes, 46)?;
        let parities = columns.checked_sub(data_columns)?;
        let mut at = FIXED_BYTES;
        let mut seats = Vec::with_capacity(columns.into());
        for _ in 0..columns {
            seats.push(Seat(u16_at(bytes, at)?));
            at += 2;
        }
        let mut parity_crcs = Vec::new();
        for _ in 0..u32::from(parities) * u32::from(rows) {
            parity_crcs.push(u32_at(bytes, at)?);
            at += 4;
        }
        let mut descriptors = Vec::new();
        for _ in 0..u32_at(bytes, 36)? {
            let group = GroupId(u64_at(bytes, at)?);
            let first = u64_at(bytes, at + 8)?;
            let number = u32_at(bytes, at + 16)?;
            let column = u16_at(bytes, at + 20)?;
            let name = || {
                Some(BlockName {
                    group,
                    column: Column(column),
                    block: u32::try_from(first).ok()?,
                })
            };
            descriptors.push(match u16_at(bytes, at + 22)? {
                0 => Descriptor::Content {
                    name: name()?,
                    crc: number,
                },
                1 => Descriptor::Unknown(name()?),
                2 => Descriptor::Zeroed {
                    group,
                    first: StripeId(first),
                    count: number,
                    only: match column {
                        0 => None,
                        1 => Some(Form::Parity),
                        2 => Some(Form::Copies),
                        _ => return None,
                    },
                },
                3 => Descriptor::Absent {
                    name: name()?,
                    crc: number,
                },
                4 => {
                    let crcs = at + DESCRIPTOR_BYTES;
                    let end =
                        crcs.checked_add(usize::try_from(number).ok()?.checked_mul(CRC_BYTES)?)?;
                    let crcs = bytes.get(crcs..end)?.chunks_exact(CRC_BYTES);
                    let first = name()?;
                    // All of these blocks must have 32-bit numbers.
                    first.block.checked_add(number)?;
                    Descriptor::Direct {
                        first,
                        crcs: crcs.filter_map(|crc| u32_at(crc, 0)).collect(),
                    }
                }
                5 => Descriptor::Derived {
                    name: name()?,
                    crc: number,
                },
                6 => Descriptor::Moved {
                    group,
                    data: DataStripe(first),
                    to: HeldIn::decode(number)?,
                },
                _ => return None,
            });
            at += descriptors.last().map_or(0, Descriptor::bytes);
        }
        let contents = descriptors
            .iter()
            .filter(|descriptor| matches!(descriptor, Descriptor::Content { .. }))
            .count();
        let header = Self {
            incarnation: Generation(u64_at(bytes, 8)?),
            sequence: Sequence(u64_at(bytes, 16)?),
            flushed: Sequence(u64_at(bytes, 24)?),
            seats,
            data_columns,
            rows,
            parity_crcs,
            descriptors,
        };
        let fits = data_columns > 0
            && contents.div_ceil(data_columns.into()) == usize::from(rows)
            && header.header_blocks() == blocks
            && u64::from(u32_at(bytes, 32)?) == header.length();
        fits.then_some(header)
    }
}

/// The part of stripes that a `Zeroed` descriptor names, as its column.
const fn part_of(only: Option<Form>) -> u16 {
    match only {
        None => 0,
        Some(Form::Parity) => 1,
        Some(Form::Copies) => 2,
    }
}

fn check(pool: Uuid, lane: u16, bytes: &[u8]) -> u32 {
    let (high, low) = pool.as_u64_pair();
    let seed = (high ^ low ^ (u64::from(lane) << 17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let seed = u32::try_from(seed >> 32).expect("half of 64 bits");
    block::crc32c(bytes) ^ seed
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descriptors: usize) -> BatchHeader {
        let name = |index: usize| BlockName {
            group: GroupId(index as u64),
            column: Column(2),
            block: u32::try_from(index).unwrap() * 3,
        };
        let mut list: Vec<Descriptor> = (0..descriptors)
            .map(|index| Descriptor::Content {
                name: name(index),
                crc: u32::try_from(index).unwrap(),
            })
            .collect();
        list.push(Descriptor::Unknown(name(1)));
        list.push(Descriptor::Absent {
            name: name(2),
            crc: 0x1234_5678,
        });
        list.push(Descriptor::Derived {
            name: name(4),
            crc: 0x8765_4321,
        });
        list.push(Descriptor::Direct {
            first: name(3),
            crcs: (0..u32::try_from(descriptors).unwrap() % 90).collect(),
        });
        list.push(Descriptor::Zeroed {
            group: GroupId(9),
            first: StripeId(4),
            count: 5,
            only: None,
        });
        for form in Form::ALL {
            list.push(Descriptor::Zeroed {
                group: GroupId(9),
                first: StripeId(4),
                count: 1,
                only: Some(form),
            });
            list.push(Descriptor::Moved {
                group: GroupId(9),
                data: DataStripe(7),
                to: HeldIn::new(StripeId(4), form),
            });
        }
        let rows = descriptors.div_ceil(3);
        BatchHeader {
            incarnation: Generation(4),
            sequence: Sequence(1000),
            flushed: Sequence(990),
            seats: [5, 6, 0, 1, 2].map(Seat).to_vec(),
            data_columns: 3,
            rows: u16::try_from(rows).unwrap(),
            parity_crcs: (0..2 * u32::try_from(rows).unwrap()).collect(),
            descriptors: list,
        }
    }

    #[test]
    fn a_header_comes_back_whatever_its_length() {
        let pool = Uuid::from_u128(5);
        for descriptors in [0, 1, 2, 3, 100, 500] {
            let header = header(descriptors);
            let bytes = header.encode(pool, 3);
            assert_eq!(BatchHeader::parse(pool, 3, &bytes), Some(header));
            assert_eq!(BatchHeader::parse(pool, 4, &bytes), None, "another lane");
            assert_eq!(
                BatchHeader::parse(Uuid::from_u128(6), 3, &bytes),
                None,
                "another pool"
            );
        }
    }

    #[test]
    fn damaged_and_short_headers_are_none() {
        let pool = Uuid::from_u128(5);
        let bytes = header(40).encode(pool, 3);
        for at in [0, 5, 9, 33, 41, 47, 50, 600] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            assert_eq!(BatchHeader::parse(pool, 3, &bytes), None, "byte {at}");
        }
        for length in 0..100 {
            assert_eq!(BatchHeader::parse(pool, 3, &bytes[..length]), None);
        }
    }

    #[test]
    fn an_anchor_comes_back() {
        let pool = Uuid::from_u128(5);
        let anchor = Anchor {
            incarnation: Generation(1),
            first: Sequence(2),
            position: 3,
            inherited: Sequence(4),
            number: 5,
        };
        let mut bytes = anchor.encode(pool, 1);
        assert_eq!(Anchor::parse(pool, 1, &bytes), Some(anchor));
        assert_eq!(Anchor::parse(pool, 2, &bytes), None);
        bytes[20] ^= 1;
        assert_eq!(Anchor::parse(pool, 1, &bytes), None);
        assert_eq!(Anchor::parse(pool, 1, &[]), None);
    }
}
