//! Buffers of one lane, and its computations on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use array::{Action, BufferId, Compute, ComputeStep, Computed, RequestId, ScratchId, Slice};

use crate::buffer::{Buffer, Contents, Sectors};
use crate::content::{BLOCK, Block, SECTOR, SECTORS};

/// The memory behind a lane's buffer names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    buffers: BTreeMap<BufferId, Buffer>,
    contents: Contents,
    spare: Vec<Vec<u8>>,
    sum: Vec<u8>,
}

fn at(value: u64) -> usize {
    usize::try_from(value).expect("fits into memory")
}

impl Scratch {
    pub(crate) fn new(contents: Contents) -> Self {
        Self {
            contents,
            ..Self::default()
        }
    }

    /// True if nothing has content. Then no memory is allocated either, because it is never read.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.contents == Contents::Lengths
    }

    fn allocate(&mut self, id: ScratchId, bytes: u64) {
        // Not zeros, so that a plan that relies on the content of fresh memory is detected.
        let mut memory = |count| {
            let mut memory = self.spare.pop().unwrap_or_default();
            memory.clear();
            memory.resize(count, 0xa5);
            memory
        };
        let buffer = match self.contents {
            Contents::Sectors => Buffer::Sectors(Sectors::new(memory(at(bytes) / SECTOR))),
            Contents::Bytes => Buffer::Bytes(memory(at(bytes))),
            Contents::Lengths => return,
        };
        let before = self.buffers.insert(BufferId::Scratch(id), buffer);
        debug_assert!(before.is_none(), "{id:?} is allocated once");
    }

    fn release(&mut self, id: ScratchId) {
        if self.keeps_nothing() {
            return;
        }
        let buffer = self.buffers.remove(&BufferId::Scratch(id));
        let buffer = buffer.unwrap_or_else(|| panic!("{id:?} is released once"));
        self.recycle(buffer);
    }

    /// Takes memory back for later buffers.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let memory = match buffer {
            Buffer::Bytes(bytes) => bytes,
            Buffer::Sectors(sectors) => sectors.into_values(),
            Buffer::Length(_) => return,
        };
        if self.spare.len() < 64 {
            self.spare.push(memory);
        }
    }

    pub(crate) fn lend(&mut self, id: RequestId, buffer: Buffer) {
        if !self.keeps_nothing() {
            self.buffers.insert(BufferId::Request(id), buffer);
        }
    }

    pub(crate) fn take_back(&mut self, id: RequestId) -> Option<Buffer> {
        self.buffers.remove(&BufferId::Request(id))
    }

    /// Copies bytes of an answered read from the memory that holds them to the place where the client reads them.
    pub(crate) fn bring_home(&mut self, elsewhere: &[(Slice, Slice)]) {
        for &(home, at) in elsewhere {
            self.run(&ComputeStep {
                target: home,
                accumulate: false,
                terms: vec![(at, 1)],
            });
        }
    }

    /// True if the memory of an operation is present. Scratch memory must be.
    pub(crate) fn has(&self, slice: Slice) -> bool {
        self.keeps_nothing()
            || match slice.buffer {
                BufferId::Request(_) => self.buffers.contains_key(&slice.buffer),
                BufferId::Scratch(_) => true,
            }
    }

    /// True if an operation has memory, and none of it is present any more.
    pub(crate) fn has_none_of(&self, slices: &[Slice]) -> bool {
        !slices.is_empty() && !slices.iter().any(|&slice| self.has(slice))
    }

    pub(crate) fn buffer(&self, id: BufferId) -> &Buffer {
        self.buffers.get(&id).expect("the buffer lives")
    }

    pub(crate) fn buffer_mut(&mut self, id: BufferId) -> &mut Buffer {
        self.buffers.get_mut(&id).expect("the buffer lives")
    }

    /// The blocks of a slice, in order.
    pub(crate) fn blocks(&self, slice: Slice) -> impl Iterator<Item = Block> + '_ {
        let buffer = self.buffer(slice.buffer);
        offsets(slice).map(|offset| buffer.block(offset))
    }

    /// The blocks that a write in flight takes from a slice. If its request was answered without it, the memory is the
    /// client's again: the blocks then hold `anything`.
    pub(crate) fn blocks_in_flight(
        &self,
        slice: Slice,
        anything: u8,
    ) -> impl Iterator<Item = Block> + '_ {
        let blocks = self.has(slice).then(|| self.blocks(slice));
        let missing = match blocks {
            Some(_) => 0,
            None => offsets(slice).count(),
        };
        let anything = Block::Sectors([anything; SECTORS]);
        let others = std::iter::repeat_n(anything, missing);
        blocks.into_iter().flatten().chain(others)
    }

    /// True if all memory has been released.
    pub(crate) fn is_idle(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Carries out a computation: puts, steps, sums, takes.
    pub(crate) fn compute(&mut self, work: &Compute) -> Computed {
        if self.contents == Contents::Lengths {
            // One sum per block, all equal. The bytes that `takes` asks for are never read.
            let blocks = work.sums.iter().map(|slice| at(slice.length) / BLOCK).sum();
            return Computed {
                sums: vec![0; blocks],
                bytes: vec![Vec::new(); work.takes.len()],
            };
        }
        // The same header is put before every column of its batch: convert it to blocks only once.
        let mut last: Option<(&Arc<[u8]>, Vec<Block>)> = None;
        for (slice, bytes) in &work.puts {
            if last
                .as_ref()
                .is_none_or(|(other, _)| !Arc::ptr_eq(other, bytes))
            {
                let blocks = bytes.chunks_exact(BLOCK).map(Block::from_bytes);
                last = Some((bytes, blocks.collect()));
            }
            let (_, blocks) = last.as_ref().expect("just put there");
            let buffer = self.buffer_mut(slice.buffer);
            for (offset, block) in offsets(*slice).zip(blocks) {
                buffer.set_block(offset, block);
            }
        }
        for step in &work.steps {
            self.run(step);
        }
        let sums = work.sums.iter().flat_map(|&slice| self.blocks(slice));
        Computed {
            sums: sums.map(|block| block.crc()).collect(),
            bytes: work
                .takes
                .iter()
                .map(|&slice| {
                    let mut bytes = Vec::with_capacity(at(slice.length));
                    for block in self.blocks(slice) {
                        block.append_to(&mut bytes);
                    }
                    bytes
                })
                .collect(),
        }
    }

    /// `target (^)= Σ coefficient · source`, the slow way.
    fn run(&mut self, step: &ComputeStep) {
        if self.contents == Contents::Lengths {
            return;
        }
        let mut sum = std::mem::take(&mut self.sum);
        sum.clear();
        let bytes = at(step.target.length);
        let unit = match self.contents {
            Contents::Sectors => SECTOR,
            Contents::Bytes | Contents::Lengths => 1,
        };
        sum.resize(bytes / unit, 0);
        let own = step.accumulate.then_some((step.target, 1));
        let mut terms = step.terms.iter().copied().chain(own);
        let symbols = terms.all(|(slice, coefficient)| {
            let buffer = self.buffer(slice.buffer);
            buffer.add_to(at(slice.offset), &mut sum, coefficient)
        });
        if symbols {
            self.buffer_mut(step.target.buffer)
                .set_sum(at(step.target.offset), &sum);
        } else {
            sum.clear();
            sum.resize(bytes, 0);
            for (slice, coefficient) in step.terms.iter().copied().chain(own) {
                let buffer = self.buffer(slice.buffer);
                buffer.add_bytes_to(at(slice.offset), &mut sum, coefficient);
            }
            self.buffer_mut(step.target.buffer)
                .set_sum_bytes(at(step.target.offset), &sum);
        }
        self.sum = sum;
    }

    /// Carries out an action on memory. Returns false for any other action.
    pub(crate) fn carry_out(&mut self, action: &Action) -> bool {
        match action {
            Action::Allocate(id, bytes) => self.allocate(*id, *bytes),
            Action::Release(id) => self.release(*id),
            Action::Io(_) | Action::Joined(_) | Action::Compute(_) | Action::Reply(_) => {
                return false;
            }
        }
        true
    }
}

/// Where the blocks of a slice begin in its buffer.
pub(crate) fn offsets(slice: Slice) -> impl Iterator<Item = usize> + use<> {
    (at(slice.offset)..at(slice.offset + slice.length)).step_by(BLOCK)
}
