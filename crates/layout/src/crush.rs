//! CRUSH: placement by hashing down a weighted tree (Weil, Brandt, Miller, Maltzahn, SC 2006), bit
//! for bit as Ceph computes it.
//!
//! ```text
//!   root ──┬── host0 ──┬── 0          position r of input x: at every level each child draws a
//!          │           └── 1          straw ln(hash(x, child, r)) / weight; the longest wins and
//!          └── host1 ──┬── 2          the search goes on below it. A device that was taken already
//!                      └── 3          or is out is refused, and r changes.
//! ```
//!
//! Since straws of different children are independent, changing one weight moves only what that
//! child gains or loses (*straw2*). *firstn* numbers retries through, so a refusal shifts all later
//! positions: this suits copies. *indep* gives each position its own retries: codes need this.
//! *chooseleaf* picks distinct buckets of a type and one device below each.
//!
//! Hashing places binomially: the fullest drive is 5 to 15 % above the mean and a rebuild 19 to
//! 43 %. That is why pools here place by counting ([`crate::pool`]) and CRUSH is a way to choose
//! candidates. Source: Ceph 16.2 `src/crush/{hash,mapper,crush_ln_table}`; modern tunables
//! (`choose_local_tries` and its fallback 0, `chooseleaf_descend_once`, `vary_r` and `stable` 1).

mod hash;
mod ln;
mod mapper;
mod rule;

use std::borrow::Cow;
use std::collections::BTreeMap;

use block::Hint;

pub use hash::{hash2, hash3};
pub use ln::crush_ln;
pub use rule::{Mode, Rule, RuleError, Step};

/// 1.0 as a weight: 16 bits of fraction.
pub const ONE: u32 = 0x1_0000;

/// A device (0 and up) or a bucket (negative).
pub type Item = i32;

/// An inner node of the tree; straw2 chooses one of its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Negative.
    pub id: Item,
    /// What kind of node; devices are type 0.
    pub kind: u16,
    /// Children and their weights in units of [`ONE`].
    pub items: Vec<(Item, u32)>,
}

/// A tree of buckets over devices `0..devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    devices: u32,
    buckets: BTreeMap<Item, Bucket>,
}

/// Why a map cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A bucket's id is not negative.
    #[error("bucket {id} has a device's number: buckets are negative")]
    Id {
        /// The id.
        id: Item,
    },
    /// Two buckets of one id.
    #[error("bucket {id} comes twice: ids are unique")]
    Twice {
        /// The id.
        id: Item,
    },
    /// A child that is neither a device nor a bucket of the map.
    #[error("bucket {id} has a child {item} that is not in the map of {devices} devices")]
    Child {
        /// The bucket.
        id: Item,
        /// The child.
        item: Item,
        /// Devices of the map.
        devices: u32,
    },
    /// A bucket lies below itself.
    #[error("bucket {id} lies below itself: a map is a tree")]
    Cycle {
        /// The id.
        id: Item,
    },
}

impl Hint for MapError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Id { id } => (-1 - id.abs()).to_string().into(),
            Self::Twice { .. } => "give one another id".into(),
            Self::Child { .. } => "add or remove it".into(),
            Self::Cycle { .. } => "take it out of its descendants".into(),
        })
    }
}

impl Map {
    /// A map of `buckets` over devices `0..devices`.
    ///
    /// # Errors
    /// When ids or children are wrong or the buckets are no tree.
    pub fn new(devices: u32, buckets: Vec<Bucket>) -> Result<Self, MapError> {
        let mut map = Self {
            devices,
            buckets: BTreeMap::new(),
        };
        for bucket in buckets {
            let id = bucket.id;
            if id >= 0 {
                return Err(MapError::Id { id });
            }
            if map.buckets.insert(id, bucket).is_some() {
                return Err(MapError::Twice { id });
            }
        }
        for bucket in map.buckets.values() {
            for &(item, _) in &bucket.items {
                let known = match u32::try_from(item) {
                    Ok(device) => device < devices,
                    Err(_) => map.buckets.contains_key(&item),
                };
                if !known {
                    let id = bucket.id;
                    return Err(MapError::Child { id, item, devices });
                }
            }
        }
        map.check_tree()?;
        Ok(map)
    }

    /// One bucket, -1, with `weights.len()` devices.
    #[must_use]
    pub fn flat(weights: &[u32]) -> Self {
        let items = (0..).zip(weights.iter().copied()).collect();
        let root = Bucket {
            id: -1,
            kind: 2,
            items,
        };
        Self {
            devices: u32::try_from(weights.len()).expect("fewer than 2^32 devices"),
            buckets: BTreeMap::from([(-1, root)]),
        }
    }

    /// Devices are `0..devices()`.
    #[must_use]
    pub const fn devices(&self) -> u32 {
        self.devices
    }

    fn bucket(&self, id: Item) -> Option<&Bucket> {
        self.buckets.get(&id)
    }

    /// A bucket's type, 0 for devices.
    fn kind(&self, item: Item) -> u16 {
        self.buckets.get(&item).map_or(0, |bucket| bucket.kind)
    }

    /// Repeatedly removes buckets whose child buckets are all removed; the rest is on a cycle or
    /// above one.
    fn check_tree(&self) -> Result<(), MapError> {
        let mut left: Vec<&Bucket> = self.buckets.values().collect();
        loop {
            let ids: Vec<Item> = left.iter().map(|bucket| bucket.id).collect();
            let waits = |bucket: &&Bucket| bucket.items.iter().any(|(item, _)| ids.contains(item));
            let before = left.len();
            left.retain(waits);
            match left.first() {
                None => return Ok(()),
                Some(bucket) if left.len() == before => {
                    return Err(MapError::Cycle { id: bucket.id });
                }
                Some(_) => {}
            }
        }
    }
}
