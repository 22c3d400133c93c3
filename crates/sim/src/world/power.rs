//! The end of a world: a kill or a power cut.

use array::IoKind;
use block::BLOCK_BYTES;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::World;
use super::queue::WorldEvent;
use crate::content::{BLOCK, Block};
use crate::drive::{Drive, Effect, Pieces, Survival, rubbish};

/// Which un-flushed writes survive a power cut. Writes are numbered over all drives in the order in which they were
/// carried out; writes in flight come last.
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
    /// The first ones complete, the next one torn after that many sectors, no later ones.
    TornAt(usize, u32),
    /// Chosen at random: each write whole, lost, torn after a prefix, or torn into two pieces.
    Seed(u64),
}

impl CutSpec {
    /// Every subset of at most `subsets_of_max` writes. Of more writes: none, all, each one missing, each prefix.
    #[must_use]
    pub fn of(writes: usize, subsets_of_max: usize) -> Vec<Self> {
        if writes <= subsets_of_max {
            return (0..1 << writes).map(Self::Mask).collect();
        }
        let missing = (0..writes).map(Self::Missing);
        let prefixes = (1..writes).map(Self::Prefix);
        { [Self::None, Self::All].into_iter() }
            .chain(missing)
            .chain(prefixes)
            .collect()
    }
}

/// Drives at the moment of a power cut, before it is decided which cached writes survive.
#[derive(Clone, Debug)]
pub struct PowerLoss {
    drives: Vec<Drive>,
    /// Sequence numbers of the un-flushed writes, sorted.
    order: Vec<u64>,
}

impl PowerLoss {
    /// Number of un-flushed writes.
    #[must_use]
    pub const fn writes(&self) -> usize {
        self.order.len()
    }

    /// The drives after the cut, with the writes that survive under `spec`.
    #[must_use]
    pub fn with(&self, spec: CutSpec) -> Vec<Drive> {
        self.clone().into_drives(spec)
    }

    /// The same, without a copy of the drives.
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
    /// Stops everything at this instant, as `kill -9` does: operations in flight are lost, and the drives keep their
    /// data and their caches.
    #[must_use]
    pub fn kill(mut self) -> Vec<Drive> {
        for drive in &mut self.drives {
            drive.begin_clock_at(self.now);
        }
        self.drives
    }

    /// Cuts the power at this instant: `spec` decides which writes in volatile caches survive.
    #[must_use]
    pub fn cut(self, spec: CutSpec) -> Vec<Drive> {
        self.lose_power().into_drives(spec)
    }

    /// Cuts the power at this instant. Every set of surviving writes can be derived from the result.
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

    /// A write in flight may or may not reach the medium: put it into the cache, behind all completed writes.
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
                    // A drive that refuses the write, for example because it is gone, has not carried it out.
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

/// Writes that a stopped process had submitted. They may reach the drives at any later time.
#[derive(Clone, Debug)]
pub struct InFlight(Vec<(usize, u64, Vec<Block>)>);

impl InFlight {
    /// Number of writes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Index of the drive that a write goes to.
    #[must_use]
    pub fn drive(&self, number: usize) -> usize {
        self.0[number].0
    }

    /// Carries out one of the writes on the drives, which belong to another process by now.
    pub fn land(&self, number: usize, drives: &mut [Drive]) {
        let (drive, offset, blocks) = &self.0[number];
        let range = (*offset, (blocks.len() * BLOCK) as u64);
        let blocks = blocks.iter().cloned();
        // A drive that refuses the write has not carried it out.
        let _refused = drives[*drive].write_blocks(range, Effect::Done, u64::MAX, blocks);
    }
}

impl World {
    /// The writes that have been handed to drives and have not ended.
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
