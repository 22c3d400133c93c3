//! What a new pool is made of.

use format::Bay;
use layout::Scheme;
use uuid::Uuid;

/// The specification of a new pool.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Its identity, random.
    pub uuid: Uuid,
    /// Its scheme.
    pub scheme: Scheme,
    /// `-o chunk=`.
    pub chunk_bytes: Option<u64>,
    /// `-o cell=` or `-o piece=`: in elastic pools the size of each plane of a cell.
    pub cell_bytes: Option<u64>,
    /// Whether writes are journalled and blocks have checksums; false is `-o journal=off`.
    pub journal: bool,
    /// Whether groups of volumes are made blank when they are first written (`lazy-initialization`), and not when a
    /// volume is created. Only with a journal.
    pub lazy: bool,
    /// Whether volumes are interleaved over several groups if one group does not use all drives
    /// (`interleaved-volumes`).
    pub interleave: bool,
    /// Stripes of each group that are left free for overwrites (`free-stripes`); `None`: as many as its shape suggests,
    /// 0: none. Only with a journal.
    pub free_stripes: Option<u64>,
    /// Drives for the layout's seats, in order.
    pub drives: Vec<NewDrive>,
    /// Drives that wait as spares.
    pub spares: Vec<NewDrive>,
}

/// A drive for a new pool, or one that joins a pool.
#[derive(Clone, Debug)]
pub struct NewDrive {
    /// Its identity, random.
    pub uuid: Uuid,
    /// Where it is.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its enclosure or host.
    pub domain: Option<String>,
    /// Its bay, if one is known.
    pub bay: Option<Bay>,
    /// Its physical space, if it knows how much of that is used.
    pub physical_bytes: Option<u64>,
}

impl NewDrive {
    /// A drive of which only this much is known.
    #[must_use]
    pub const fn new(uuid: Uuid, path: String, size_bytes: u64) -> Self {
        Self {
            uuid,
            path,
            size_bytes,
            domain: None,
            bay: None,
            physical_bytes: None,
        }
    }
}
