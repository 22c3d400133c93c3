//! Converting stripes between parity and copies (elastic RAID, section 3.1).
//!
//! A conversion reads the data, and writes what the new form has beside it: parity, or copies. Data blocks stay where
//! they are. Rows in which no data was written have neither parity nor copies.

use std::collections::BTreeMap;

use block::BLOCK_BYTES;
use erasure::ElementSet;
use format::seeded::{self, SeededFault};
use format::{BlockName, Column, Form, StripeId};

use super::fill::{Chunk, Run};
use super::sub_stripe::SubStripePlans;
use super::{BlockState, Blocks, Kind, Lost, Plan, Scratch, Stripe};

/// The blocks of stripes as they will be after a conversion.
#[derive(Debug)]
struct Converted<'a> {
    blocks: &'a dyn Blocks,
    to: Form,
}

impl Blocks for Converted<'_> {
    fn form(&self, _stripe: StripeId) -> Form {
        self.to
    }

    fn state(&self, stripe: StripeId, column: Column, block: u64) -> BlockState {
        self.blocks.state(stripe, column, block)
    }

    fn is_uniform(&self) -> bool {
        self.blocks.is_uniform()
    }
}

/// Plans to write what these stripes need for the form `to` (`first.stripe` is ignored). Their columns all have one
/// place.
///
/// # Errors
/// [`Lost`] when data cannot be read: a conversion reconstructs nothing.
pub fn plan_convert(
    plans: &mut SubStripePlans,
    first: Stripe<'_>,
    stripes: &[StripeId],
    to: Form,
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let chunk_bytes = first.geometry.chunk_bytes();
    let blocks = Converted {
        blocks: first.blocks,
        to,
    };
    let first = Stripe {
        form: to,
        blocks: &blocks,
        ..first
    };
    let code = first.code();
    let data: ElementSet = code.data_slots().collect();
    let mut run = Run::new(first, StripeId::range(0..0));
    let mut writes = Vec::new();
    // A copy has the memory of its data.
    let mut copies: BTreeMap<Chunk, Chunk> = BTreeMap::new();
    for &stripe in stripes {
        let stripe = first.at(stripe);
        let written_at = |at: u64| -> ElementSet {
            let states = data.iter().map(|slot| (slot, stripe.state(slot, at)));
            let written = states.filter(|&(_, state)| state != BlockState::Zero);
            written.map(|(slot, _)| slot).collect()
        };
        for (low, high, written) in stripe.runs(0, chunk_bytes, written_at) {
            if written.is_empty() {
                continue;
            }
            let unreadable = |at| written.iter().any(|slot| !stripe.is_readable(slot, at));
            if { stripe.runs(low, high, unreadable) }
                .iter()
                .any(|&(.., unreadable)| unreadable)
            {
                return Err(Lost);
            }
            // A parity follows from all data, a copy from its own.
            let wanted: ElementSet = match to {
                Form::Parity => code.parity_slots().collect(),
                Form::Copies => { written.iter() }
                    .flat_map(|slot| code.parities_of(slot).iter().copied())
                    .collect(),
            };
            match to {
                Form::Parity => {
                    let encode = plans.recover(code, &data, &wanted)?;
                    run.compute(&stripe, &encode, (low, high));
                }
                Form::Copies => {
                    for slot in written.iter() {
                        run.read(&stripe, slot, low, high);
                        let original = Run::chunk(&stripe, slot);
                        let all = code.parities_of(slot).iter();
                        copies.extend(all.map(|&copy| (Run::chunk(&stripe, copy), original)));
                    }
                }
            }
            for slot in wanted.iter() {
                let (_, column, _) = stripe.place(slot);
                let chunk = Run::chunk(&stripe, slot);
                let memory = copies.get(&chunk).copied().unwrap_or(chunk);
                let cells = column.cells();
                writes.extend(cells.map(|cell| (chunk, memory, low, high, cell)));
            }
        }
    }
    Ok(run.plan_from(Kind::Convert, &writes, scratch))
}

/// Whether some data of a stripe was written, and whether all of it can be read.
#[must_use]
pub fn data_of(stripe: &Stripe<'_>) -> (bool, bool) {
    let (mut written, mut sound) = (false, true);
    for slot in stripe.code().data_slots() {
        for block in 0..stripe.geometry.chunk_bytes() / BLOCK_BYTES {
            let state = stripe.state(slot, block * BLOCK_BYTES);
            written |= state != BlockState::Zero;
            sound &= state != BlockState::Unreadable;
        }
    }
    (written, sound)
}

/// True if nothing counts where a stripe would have its parity or copies in the form `to`. `logged`: whether any of so
/// many blocks from the first on is in the journal.
pub fn may_become(stripe: &Stripe<'_>, to: Form, logged: impl Fn(BlockName, u32) -> bool) -> bool {
    let per_chunk = stripe.geometry.chunk_bytes() / BLOCK_BYTES;
    let (group, number) = (stripe.group, stripe.stripe);
    let mut slots = stripe.geometry.code_of(to).parity_slots();
    slots.all(|slot| {
        let (column, chunk) = stripe.geometry.place(group, number, to, slot);
        let narrow = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        let first = BlockName {
            group,
            column,
            block: narrow(chunk * per_chunk),
        };
        let mut blocks = chunk * per_chunk..(chunk + 1) * per_chunk;
        let unwritten = |block| stripe.blocks.state(number, column, block) == BlockState::Zero;
        let early = seeded::is(SeededFault::ConvertTooSoon);
        (early || !logged(first, narrow(per_chunk))) && blocks.all(unwritten)
    })
}
