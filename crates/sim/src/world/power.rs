//! The end of a world: killed, or cut from power.

use array::IoKind;
use block::BLOCK_BYTES;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::World;
use super::queue::WorldEvent;
use crate::content::{BLOCK, Block};
use crate::drive::{Drive, Effect, Pieces, Survival, rubbish};

/// Which un-flushed writes survive a power cut. They are counted over all drives in the order in
/// which they were carried out; those in flight come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutSpec {
    /// None of them.
    None,
    /// All of them.
    All,
    /// All but one.
    Missing(usize),
    /// The first ones.
    Prefix(usize),
    /// Those whose bit is set; there are at most 64.
    Mask(u64),
    /// The first ones whole, one write torn after that many sectors, nothing later.
    TornAt(usize, u32),
    /// Any of them, each whole, torn after a prefix, or torn into two pieces, by chance.
    Seed(u64),
}

/// Drives at the moment when the power goes, before it is known what their caches lose.
#[derive(Clone, Debug)]
pub struct PowerLoss {
    drives: Vec<Drive>,
    /// Un-flushed writes by their places among all writes.
    order: Vec<u64>,
}

impl PowerLoss {
    /// Un-flushed writes.
    #[must_use]
    pub const fn writes(&self) -> usize {
        self.order.len()
    }

    /// What is left when `spec` says what survives.
    #[must_use]
    pub fn with(&self, spec: CutSpec) -> Vec<Drive> {
        self.clone().into_drives(spec)
    }

    /// The same, when nothing else is to be left of it.
    fn into_drives(self, spec: CutSpec) -> Vec<Drive> {
        let Self { mut drives, order } = self;
        let mut chance = match spec {
            CutSpec::Seed(seed) => Some(ChaCha8Rng::seed_from_u64(seed)),
            _ => None,
        };
        for drive in &mut drives {
            drive.cut(|sequence, sectors| {
                let number = order.partition_point(|&other| other < sequence);
                match &mut chance {
                    Some(chance) => by_chance(chance, sectors),
                    None => decide(spec, number, sectors),
                }
            });
        }
        drives
    }
}

impl World {
    /// Stops everything at this instant, as `kill -9` does: what is in flight is gone, what the
    /// drives have, they keep.
    #[must_use]
    pub fn kill(mut self) -> Vec<Drive> {
        for drive in &mut self.drives {
            drive.begin_clock_at(self.now);
        }
        self.drives
    }

    /// Cuts the power at this instant: volatile caches lose what `spec` says.
    #[must_use]
    pub fn cut(self, spec: CutSpec) -> Vec<Drive> {
        self.lose_power().into_drives(spec)
    }

    /// Cuts the power at this instant, with all that can be left of it.
    #[must_use]
    pub fn lose_power(mut self) -> PowerLoss {
        self.writes_in_flight();
        let mut order: Vec<u64> = self
            .drives
            .iter()
            .flat_map(|drive| drive.cached_writes().map(|(sequence, _)| sequence))
            .collect();
        order.sort_unstable();
        let drives = self.drives;
        PowerLoss { drives, order }
    }

    /// Writes that have been handed over and not ended may be on their medium or not: they go into
    /// the caches behind the others.
    fn writes_in_flight(&mut self) {
        let held = std::mem::take(&mut self.held);
        for event in self.queue.drain().into_iter().chain(held) {
            self.write_sequence += 1;
            let sequence = self.write_sequence;
            match event {
                WorldEvent::LaneIo {
                    lane,
                    drive: Some(drive),
                    io,
                    admitted: Some(admitted),
                } => {
                    let range = (io.offset, io.length);
                    let drive = &mut self.drives[drive];
                    let scratch = &self.scratch[usize::from(lane)];
                    // A drive that refuses the write (it is gone, say) has not done it.
                    let _refused = match io.kind {
                        IoKind::Write => {
                            let slices = io.slices.all().iter();
                            let blocks =
                                slices.flat_map(|&slice| scratch.blocks_in_flight(slice, 0xa5));
                            drive.write_blocks(range, admitted.effect, sequence, blocks)
                        }
                        IoKind::WriteZeroes => {
                            let zeros = (0..io.length / BLOCK_BYTES).map(|_| Block::ZERO);
                            drive.write_blocks(range, admitted.effect, sequence, zeros)
                        }
                        IoKind::Discard => drive.discard_blocks(range, admitted.effect, sequence),
                        IoKind::Read | IoKind::Flush => Ok(()),
                    };
                }
                WorldEvent::PoolWrite {
                    drive: Some(drive),
                    offset,
                    bytes,
                    admitted: Some(admitted),
                    ..
                } => {
                    let range = (offset, bytes.len() as u64);
                    let blocks = bytes.chunks(BLOCK).map(Block::from_bytes);
                    let drive = &mut self.drives[drive];
                    let _refused = drive.write_blocks(range, admitted.effect, sequence, blocks);
                }
                _ => {}
            }
        }
    }
}

fn decide(spec: CutSpec, number: usize, sectors: u32) -> Survival {
    let kept = match spec {
        CutSpec::None => false,
        CutSpec::All => true,
        CutSpec::Missing(missing) => number != missing,
        CutSpec::Prefix(count) => number < count,
        CutSpec::Mask(mask) => mask >> number & 1 == 1,
        CutSpec::TornAt(at, keep) if number == at => {
            return Survival::Torn(Pieces::prefix(keep.min(sectors)));
        }
        CutSpec::TornAt(at, _) => number < at,
        CutSpec::Seed(_) => unreachable!("decided by chance"),
    };
    if kept { Survival::Kept } else { Survival::Lost }
}

pub(super) fn by_chance(chance: &mut ChaCha8Rng, sectors: u32) -> Survival {
    match chance.random_range(0..8) {
        0..3 => Survival::Lost,
        3..6 => Survival::Kept,
        6 => Survival::Torn(Pieces::prefix(chance.random_range(0..=sectors))),
        _ => {
            let mut ends = [0; 3].map(|_| chance.random_range(0..=sectors));
            ends.sort_unstable();
            let [end, begin, last] = ends;
            Survival::Torn(Pieces {
                runs: [(0, end), (begin, last)],
            })
        }
    }
}

/// Writes that had left a process that was stopped, and may land at any time after.
#[derive(Clone, Debug)]
pub struct InFlight(Vec<(usize, u64, Vec<Block>)>);

impl InFlight {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which drive one of them goes to.
    #[must_use]
    pub fn drive(&self, number: usize) -> usize {
        self.0[number].0
    }

    /// One of them lands on the drives, which are somebody else's by now.
    pub fn land(&self, number: usize, drives: &mut [Drive]) {
        let (drive, offset, blocks) = &self.0[number];
        let range = (*offset, (blocks.len() * BLOCK) as u64);
        let blocks = blocks.iter().cloned();
        // A drive that refuses the write has not done it.
        let _refused = drives[*drive].write_blocks(range, Effect::Done, u64::MAX, blocks);
    }
}

impl World {
    /// The writes that have been handed over and have not ended.
    #[must_use]
    pub fn in_flight(mut self) -> InFlight {
        let held = std::mem::take(&mut self.held);
        let events = self.queue.drain().into_iter().chain(held);
        let writes = events.filter_map(|event| match event {
            WorldEvent::LaneIo {
                lane,
                drive: Some(drive),
                io,
                ..
            } if io.kind == IoKind::Write => {
                let scratch = &self.scratch[usize::from(lane)];
                let slices = io.slices.all().iter();
                let blocks = slices.flat_map(|&slice| scratch.blocks(slice));
                Some((drive, io.offset, blocks.collect()))
            }
            WorldEvent::LaneIo {
                drive: Some(drive),
                io,
                ..
            } if io.kind == IoKind::Discard => {
                let first = io.offset / BLOCK_BYTES;
                let blocks = first..first + io.length / BLOCK_BYTES;
                let blocks = blocks.map(|at| rubbish(io.id.0, at)).collect();
                Some((drive, io.offset, blocks))
            }
            WorldEvent::PoolWrite {
                drive: Some(drive),
                offset,
                bytes,
                ..
            } => {
                let blocks = bytes.chunks(BLOCK).map(Block::from_bytes);
                Some((drive, offset, blocks.collect()))
            }
            _ => None,
        });
        InFlight(writes.collect())
    }
}
