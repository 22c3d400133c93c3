//! Units: the blocks of one sub-stripe of one stripe, which must be logged together. An operation that writes more than
//! a sub-stripe has several units, which need not be in one batch.

use std::ops::Range;

use block::Instant;
use format::{
    BlockName, DESCRIPTOR_BYTES, DataStripe, Descriptor, Form, GroupId, HeldIn, StripeId,
};
use plan::action::Slice;

use crate::ids::OpId;

/// Stripes that become unwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zeroed {
    pub(crate) group: GroupId,
    pub(crate) stripes: Range<StripeId>,
    /// Only what this form alone keeps.
    pub(crate) only: Option<Form>,
}

/// Blocks that count only together.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The operation that waits for it.
    pub(crate) op: OpId,
    /// When the operation began, and whether it logs preserved blocks again: the log sets both.
    pub(crate) begun: Instant,
    pub(crate) again: bool,
    /// The blocks that are written: their bytes, and their plain CRC-32C.
    pub(crate) blocks: Vec<(BlockName, Slice, u32)>,
    /// Parity that can be computed from `blocks`, in the same form: it is written to its place only.
    pub(crate) derived: Vec<(BlockName, Slice, u32)>,
    /// Blocks that have changed and are written nowhere.
    pub(crate) unknown: Vec<BlockName>,
    /// The same for blocks whose checksum is known: plain CRC-32C.
    pub(crate) absent: Vec<(BlockName, u32)>,
    /// Runs of blocks that are in place: the first of each run, and the plain CRC-32C of all its blocks.
    pub(crate) direct: Vec<(BlockName, Vec<u32>)>,
    /// Stripes that are zeroed.
    pub(crate) zeroed: Option<Zeroed>,
    /// A stripe of the group's data that moves to another stripe or another form: group, stripe of the data, new place.
    pub(crate) moved: Option<(GroupId, DataStripe, HeldIn)>,
}

impl Unit {
    /// An empty unit of an operation.
    pub(crate) const fn of(op: OpId) -> Self {
        Self {
            op,
            begun: Instant::ZERO,
            again: false,
            blocks: Vec::new(),
            derived: Vec::new(),
            unknown: Vec::new(),
            absent: Vec::new(),
            direct: Vec::new(),
            zeroed: None,
            moved: None,
        }
    }

    /// The number of descriptors that let a batch begin although another one is in flight. Those of blocks in place do
    /// not count, because they can wait: the fewer batches they are in, the fewer operations they cost their drives.
    pub(super) fn urgent(&self) -> usize {
        let nowhere = self.unknown.len() + self.absent.len();
        let written = self.blocks.len() + self.derived.len();
        let zeroed = self.zeroed.is_some() && self.moved.is_none();
        written + nowhere + usize::from(zeroed)
    }

    /// Bytes of its descriptors.
    pub(super) fn bytes(&self) -> usize {
        let runs = self.direct.iter();
        let direct = runs.map(|(_, crcs)| Descriptor::bytes_of_direct(crcs.len()));
        // One descriptor for the new stripe, and one for the old stripe.
        let moved = 2 * usize::from(self.moved.is_some());
        (self.urgent() + moved) * DESCRIPTOR_BYTES + direct.sum::<usize>()
    }
}

/// The descriptors of a batch of these units, in their order.
pub(super) fn descriptors_of(units: &[Unit]) -> Vec<Descriptor> {
    let mut descriptors = Vec::new();
    for unit in units {
        // Stripes are zeroed before the unit's other descriptors apply.
        if let Some(zeroed) = &unit.zeroed {
            let stripes = &zeroed.stripes;
            descriptors.push(Descriptor::Zeroed {
                group: zeroed.group,
                first: stripes.start,
                count: u32::try_from(StripeId::count(stripes)).expect("few at a time"),
                only: zeroed.only,
            });
        }
        descriptors.extend(
            unit.blocks
                .iter()
                .map(|&(name, _, crc)| Descriptor::Content { name, crc }),
        );
        let derived = unit.derived.iter();
        descriptors.extend(derived.map(|&(name, _, crc)| Descriptor::Derived { name, crc }));
        descriptors.extend(unit.unknown.iter().map(|&name| Descriptor::Unknown(name)));
        let absent = unit.absent.iter();
        descriptors.extend(absent.map(|&(name, crc)| Descriptor::Absent { name, crc }));
        let direct = unit.direct.iter().cloned();
        descriptors.extend(direct.map(|(first, crcs)| Descriptor::Direct { first, crcs }));
        let moved = unit.moved.into_iter();
        descriptors.extend(moved.map(|(group, data, to)| Descriptor::Moved { group, data, to }));
    }
    descriptors
}
