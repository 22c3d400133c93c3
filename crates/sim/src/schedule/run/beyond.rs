//! Damage beyond what the code survives, at the end of a run (I7).
//!
//! Random blocks of the drives' data rot. The blocks that the pool reports as lost after a scrub, and after a restart,
//! must be exactly those that a client cannot read: each block is read separately and returns the correct value or an
//! error, and the errors must be the reported blocks. The readable blocks are also computed without the pool, from the
//! rotten blocks and the code's equations alone.

use std::collections::BTreeSet;

use array::format::{GroupId, StripeId};
use array::router::VolumeMap;
use block::{BLOCK_BYTES, Request, RequestKind, Seat, mix};
use erasure::ElementSet;

use super::{Checked, Run, Violation};
use crate::buffer::Buffer;
use crate::content::SECTOR;
use crate::schedule::{VOLUME, check};

/// Maximum number of blocks that rot.
const ROTTEN_MAX: u64 = 24;

impl Run {
    /// Lets blocks rot, in some stripes more than the code survives, and checks as described above.
    pub(super) fn rot_beyond(&mut self) -> Checked {
        // The pool may be converting stripes because the neighbour has gone: a block that is being written does not rot.
        self.settle()?;
        self.say(|| "blocks rot beyond the code".to_owned());
        // Faults have stopped: no drive is set back any more.
        self.stale.clear();
        let rotten = self.rot();
        let lost = self.told_by_equations(&rotten);
        self.world().begin_scrub();
        self.settle()?;
        self.names_exactly(&lost, "after a scrub")?;
        self.reopen()?;
        self.settle()?;
        self.names_exactly(&lost, "after a restart")?;
        let blocks = self.ledger.sectors() as u64 * SECTOR as u64 / BLOCK_BYTES;
        for block in 0..blocks {
            let begun = self.ledger.read_begins();
            let request = Request {
                kind: RequestKind::Read,
                offset: block * BLOCK_BYTES,
                length: BLOCK_BYTES,
                fua: false,
            };
            let id = self.world().submit_sectors(VOLUME, request, Vec::new());
            self.settle()?;
            let violation = |what: &str| Violation::new("I7", format!("block {block} {what}"));
            match self.world().ended_pieces(id) {
                None => return Err(violation("is not answered")),
                Some(Err(_)) if lost.contains(&block) => {}
                Some(Err(fault)) => return Err(violation(&format!("can be had: {fault}"))),
                Some(Ok(_)) if lost.contains(&block) => {
                    return Err(violation("is lost, and was returned"));
                }
                Some(Ok(pieces)) => {
                    let mut low = super::sector(block * BLOCK_BYTES);
                    for piece in pieces {
                        let Buffer::Sectors(sectors) = piece else {
                            unreachable!("schedules have symbolic contents");
                        };
                        let values = sectors.values();
                        self.ledger
                            .read_ends(begun, low, values)
                            .map_err(|illegal| Violation::new("I1", illegal.to_string()))?;
                        low += values.len();
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets blocks rot. Returns them (seat and byte).
    fn rot(&mut self) -> BTreeSet<(Seat, u64)> {
        let seed = self.seed;
        let world = self.world();
        let geometry = world.pool().geometry();
        let drives = u64::from(geometry.layout().drives());
        let data_offset = world.pool().facts().data_offset;
        // The rows that the volume is in.
        let groups = world
            .pool()
            .facts()
            .allocated_groups()
            .max()
            .unwrap_or(GroupId(0));
        let last = { geometry.columns() }
            .map(|column| geometry.home(groups, column).row)
            .max()
            .unwrap_or(0);
        let blocks = (last + 1) * geometry.cell_bytes() / BLOCK_BYTES;
        let count = 1 + mix(seed ^ 0x10) % ROTTEN_MAX;
        let mut rotten = BTreeSet::new();
        for number in 0..count {
            let drawn = mix(seed ^ mix(0x20 + number));
            let seat = Seat(u16::try_from(drawn % drives).expect("few drives"));
            let offset = data_offset + (drawn >> 16) % blocks * BLOCK_BYTES;
            if rotten.insert((seat, offset))
                && let Some(drive) = world.drive_in(seat)
            {
                drive.flip(offset, 9);
            }
        }
        rotten
    }

    /// Blocks of the volume that cannot be recovered without the rotten blocks, by the code alone. A block that was
    /// never written reads as zeros whatever the drive holds there, and so do stripes that hold nothing.
    fn told_by_equations(&mut self, rotten: &BTreeSet<(Seat, u64)>) -> BTreeSet<u64> {
        let world = self.world();
        let geometry = std::sync::Arc::clone(world.pool().geometry());
        let mut lost = BTreeSet::new();
        let facts = world.pool().facts();
        let written: BTreeSet<GroupId> = facts.allocated_groups().collect();
        let map = VolumeMap::new(&geometry, &facts.volumes[0]);
        for &group in &written {
            for stripe in StripeId::each(StripeId::range(0..geometry.stripes_per_group())) {
                let Some(data) = world.lane_of(group).data_of_stripe(group, stripe) else {
                    // The stripe is free.
                    continue;
                };
                let form = world.lane_of(group).form_of_stripe(group, stripe);
                let form = form.unwrap_or_default();
                let code = geometry.code_of(form);
                for low in (0..geometry.chunk_bytes()).step_by(4096) {
                    let mut known = ElementSet::new(code.elements());
                    for slot in 0..code.elements() {
                        let (column, chunk) = geometry.place(group, stripe, form, slot);
                        let cell = geometry.home(group, column);
                        let at = geometry.drive_offset(cell, chunk) + low;
                        let written = check::is_written(
                            world,
                            group,
                            column,
                            chunk * geometry.chunk_bytes() + low,
                        );
                        if !written || !rotten.contains(&(cell.seat, at)) {
                            known.insert(slot);
                        }
                    }
                    for slot in code.data_slots() {
                        let wanted: ElementSet = std::iter::once(slot).collect();
                        if code.recover(&known, &wanted).is_err() {
                            let block = geometry.data_block(data, slot, low);
                            let at =
                                block.and_then(|block| map.offset_of(group, block * BLOCK_BYTES));
                            lost.extend(at.map(|at| at / BLOCK_BYTES));
                        }
                    }
                }
            }
        }
        lost
    }

    fn names_exactly(&mut self, lost: &BTreeSet<u64>, when: &str) -> Checked {
        let named: BTreeSet<u64> = self
            .world()
            .pool()
            .lost_data()
            .iter()
            .flat_map(|data| {
                let first = data.offset_bytes / BLOCK_BYTES;
                first..first + data.length_bytes / BLOCK_BYTES
            })
            .collect();
        match named == *lost {
            true => Ok(()),
            false => Err(Violation::new(
                "I7",
                format!("{when} the pool names {named:?} as lost, and lost is {lost:?}"),
            )),
        }
    }
}
