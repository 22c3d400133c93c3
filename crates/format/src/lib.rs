//! Format 1: what is where on a drive. `docs/format.md` has the same tables.
//!
//! ```text
//!   0         4 KiB     never written after creation (place of boot sectors)
//!   4 KiB     508 KiB   label, copy 0
//!   512 KiB   512 KiB   label, copy 1
//!   1 MiB     C         cell table: which foreign cells this drive holds
//!   …         J         journal: a ring for each lane
//!   …         M         metadata pages: checksums of blocks, as many cells' worth for each cell as pages have copies
//!   data      rows × cell
//!   …         B         one free segment for expansion (reserved)
//!   end − 8 MiB         reserved
//! ```
//!
//! Format 1 is fixed. An addition gets a feature bit, so that a version without that feature leaves the pool alone. A
//! change of place gets a format number and a migration. `sim/tests/it/format1.rs` has pools as they were when the format
//! began.

mod cells;
mod facts;
mod form;
mod holder;
mod ids;
mod journal;
mod label;
mod map;
mod page;
pub mod runs;
pub mod seeded;

pub use cells::{CELL_PAGE_BYTES, CellEntry, CellPage, ENTRIES_PER_PAGE};
pub use facts::{
    Bay, Interleave, LossFacts, OutReason, PoolFacts, RegionFacts, ScrubFacts, SeatFacts,
    SeatState, SteerFacts, VolumeFacts,
};
pub use form::{Form, HeldIn};
pub use holder::{HEARTBEAT_OFFSET, HOLDER_OFFSET, Holder, usurper};
pub use ids::{Column, DataStripe, Generation, GroupId, Sequence, StripeId, VolumeId};
pub use journal::{Anchor, BatchHeader, DESCRIPTOR_BYTES, Descriptor, RING_HEAD_BYTES};
pub use label::{
    DERIVED_PARITY, DIRECT_WRITES, ELASTIC, FEATURES, FORMAT, FREE_STRIPES, INTERLEAVED_VOLUMES,
    LABEL_MAGIC, LABEL_OFFSETS, LABEL_SLOT_BYTES, LAZY_INITIALIZATION, Label, LabelError,
    LabelReader, PAGE_COPIES, Payload, RETIRED_MAGIC, label_copies, newest_label,
};
pub use map::{CellShape, DriveMap, DriveMapError};
pub use page::{
    BlockName, ENTRIES_PER_META_PAGE, Entry, Merged, MetaPage, PAGE_BYTES, PageName, pages_per_cell,
};
