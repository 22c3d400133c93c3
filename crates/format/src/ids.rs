//! Identities that more than one part of the array has in common, and the indices that name places in a pool.
//!
//! Each index has a type, so that swapped arguments do not compile. An index prints as its bare number, and is stored as
//! that. `layout` and `block`, which lie below, take the numbers themselves: `plan::Geometry` converts.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The identity of a volume in lanes: the number of its first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl VolumeId {
    /// No volume: for requests that use none of the resources that volumes share.
    pub const NONE: Self = Self(u64::MAX);
}

macro_rules! indices {
    ($($(#[doc = $what:literal])+ $name:ident($number:ty),)+) => {$(
        $(#[doc = $what])+
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $number);

        impl $name {
            /// The range that has these numbers.
            #[must_use]
            pub const fn range(numbers: Range<$number>) -> Range<Self> {
                Self(numbers.start)..Self(numbers.end)
            }

            /// The numbers of a range.
            #[must_use]
            pub const fn numbers(range: &Range<Self>) -> Range<$number> {
                range.start.0..range.end.0
            }

            /// The one behind it.
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// The one in front of it.
            #[must_use]
            pub const fn before(self) -> Self {
                Self(self.0 - 1)
            }

            /// The one that is so many behind it.
            #[must_use]
            pub const fn plus(self, count: $number) -> Self {
                Self(self.0 + count)
            }

            /// How many a range has.
            #[must_use]
            pub const fn count(range: &Range<Self>) -> $number {
                range.end.0 - range.start.0
            }

            /// Each of a range, in ascending order.
            pub fn each(range: Range<Self>) -> impl DoubleEndedIterator<Item = Self> + Clone + use<> {
                (range.start.0..range.end.0).map(Self)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )+};
}

indices! {
    /// A group of the pool, counted from 0 over all drives. It has a cell for each of its columns.
    GroupId(u64),
    /// A stripe of a group: its place in the group's cells, counted from 0. Free stripes count too.
    StripeId(u64),
    /// A stripe of a group's data, counted from 0 in the order of the data. In pools with free stripes the group's map
    /// has the stripe that holds it.
    DataStripe(u64),
    /// A batch of a lane's journal. Batches are counted from 1 without gaps, over all openings of the pool; 0 stands
    /// for no batch.
    Sequence(u64),
    /// A generation of the pool's facts: each change of the facts begins the next one. An opening's incarnation is the
    /// generation in which it began.
    Generation(u64),
    /// A column of a group, counted from 0 in the layout's order of the group's cells.
    Column(u16),
}

impl StripeId {
    /// The stripe as an index into a table with one entry per stripe of a group.
    ///
    /// # Panics
    /// When the number does not fit into memory's addresses.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.0).expect("groups have fewer than 2^32 stripes")
    }

    /// The stripe of the data that it holds unless data has moved.
    #[must_use]
    pub const fn own_data(self) -> DataStripe {
        DataStripe(self.0)
    }
}

impl DataStripe {
    /// The stripe that holds it unless it has moved.
    #[must_use]
    pub const fn own_place(self) -> StripeId {
        StripeId(self.0)
    }
}

impl Column {
    /// The column as an index into a table with one entry per column.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
