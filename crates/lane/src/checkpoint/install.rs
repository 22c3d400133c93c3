//! A checkpoint's blocks go to their places, and their entries into pages.

use std::collections::BTreeSet;

use block::{BLOCK_BYTES, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{BlockName, Entry, Form, Sequence};
use plan::action::{IoKind, Origin, Service};
use plan::{Transfer, merge};

use super::installs::Installs;
use super::{Collected, Next, Phase, Running};
use crate::context::Context;
use crate::discard::Emptied;
use crate::io::IoTable;
use crate::overlay::{Logged, Overlay};
use crate::pages::PageCache;
use crate::purpose::Purpose;
use crate::writes::Writes;

impl Running {
    pub(super) fn install(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        overlay: &Overlay,
        mut collected: Collected,
    ) -> Next {
        let mut transfers = Vec::new();
        cx.epochs.enter(&mut self.epoch);
        // A block that has been logged again since is left to the next checkpoint. Its newer record is complete, and is
        // flushed before this checkpoint's anchor is written.
        let mut get_of = overlay.get_in_order();
        { &mut collected.blocks }.retain(|&(name, logged)| get_of(name, logged.sequence).is_some());
        for (name, logged) in &collected.blocks {
            let Some(slice) = logged.bytes.memory() else {
                continue;
            };
            let column = cx.view().column(&cx.geometry, name.group, name.column);
            let cells = column.cells();
            let cells = cells.take(if seeded::is(SeededFault::SkipFillTarget) {
                1
            } else {
                2
            });
            transfers.extend(cells.map(|cell| Transfer {
                seat: cell.seat,
                column: name.column,
                kind: IoKind::Write,
                offset: cx.geometry.block_offset(cell, name.block.into()),
                length: slice.length,
                slice: Some(slice),
            }));
        }
        // A column that is filled in place has its cell twice. If its blocks were written twice, some joined with their
        // neighbours and some not, the runs of a drive would overlap.
        let place = |transfer: &Transfer| (transfer.seat, transfer.offset);
        transfers.sort_by_key(place);
        transfers.dedup_by_key(|transfer| place(transfer));
        merge(&mut transfers);
        let installs = Installs::new(transfers);
        let seats = installs.seats();
        self.phase = Phase::Installing {
            collected,
            installs,
            writes: Writes::default(),
        };
        for seat in seats {
            self.begin_installs(cx, ios, seat);
        }
        self.installs_ended()
    }

    /// Submits as many installs as a drive may have. The installs of one run are submitted in one turn, so that they go
    /// out as one operation.
    fn begin_installs(&mut self, cx: &mut Context, ios: &mut IoTable, seat: Seat) {
        let Phase::Installing {
            installs, writes, ..
        } = &mut self.phase
        else {
            unreachable!("nothing is installed in {:?}", self.phase);
        };
        loop {
            let members = installs.begin_run(seat);
            if members == 0 {
                return;
            }
            for _ in 0..members {
                let transfer = installs.take(seat);
                if cx.view().is_out(seat) {
                    installs.ended(&transfer);
                    continue;
                }
                writes.begin();
                let purpose = Purpose::Install { transfer };
                let service = Service::bulk(Origin::Checkpoint);
                ios.submit_transfer(cx, purpose, service, &transfer);
            }
        }
    }

    /// A drive has written an install, or has failed to. `out`: the drive is out by now.
    pub(crate) fn install_written(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        transfer: &Transfer,
        outcome: Outcome,
        out: bool,
    ) -> Next {
        let Phase::Installing {
            collected,
            installs,
            writes,
        } = &mut self.phase
        else {
            unreachable!("nothing is installed in {:?}", self.phase);
        };
        writes.ended(transfer.seat, outcome, out);
        if outcome.is_err() && !out {
            let block = cx.geometry.block_of(transfer.offset);
            let blocks = block..block + transfer.length / BLOCK_BYTES;
            let hit = collected.blocks.iter().filter(|(name, logged)| {
                name.column == transfer.column
                    && blocks.contains(&u64::from(name.block))
                    && logged.bytes.memory().is_some_and(|slice| {
                        transfer.slice.is_some_and(|all| all.buffer == slice.buffer)
                    })
            });
            self.held_back.extend(hit.map(|&(name, _)| name));
        }
        if installs.ended(transfer) {
            self.begin_installs(cx, ios, transfer.seat);
        }
        self.installs_ended()
    }

    pub(super) fn installs_ended(&mut self) -> Next {
        let Phase::Installing {
            installs, writes, ..
        } = &self.phase
        else {
            return Next::Wait;
        };
        if !installs.have_begun() || !writes.is_done() {
            return Next::Wait;
        }
        let refused = writes.kept().values().next().copied();
        if refused.is_none() {
            // Every install that failed was for a drive that is out now: no block has to stay logged for it.
            self.held_back.clear();
        }
        Next::Installed(refused)
    }

    /// The blocks that this checkpoint is to put in place.
    pub(crate) fn blocks(&self) -> &[(BlockName, Logged)] {
        match &self.phase {
            Phase::Installing { collected, .. } => &collected.blocks,
            other => unreachable!("nothing is installed in {other:?}"),
        }
    }

    /// Enters into the pages that blocks are in place. Some blocks stay logged: those that are `preserved`, those that
    /// drives have refused, and those of columns and pages that have returned. `room`: the ring needs space. Returns
    /// what is unwritten from now on.
    pub(crate) fn enter(
        &mut self,
        cx: &Context,
        overlay: &mut Overlay,
        pages: &mut PageCache,
        preserved: BTreeSet<BlockName>,
        room: bool,
    ) -> Vec<Emptied> {
        let Phase::Installing { collected, .. } = &mut self.phase else {
            unreachable!("nothing is installed in {:?}", self.phase);
        };
        let Collected {
            mut blocks,
            zeroed,
            pinned,
        } = std::mem::take(collected);
        self.only_preserved =
            !blocks.is_empty() && blocks.iter().all(|(name, _)| preserved.contains(name));
        self.held_back.extend(preserved);
        // A column or page that has returned while the checkpoint ran lacks these changes: its blocks stay logged.
        for same in of_pages(&blocks) {
            let (name, _) = same[0];
            if self.back.contains(&(name.group, name.column)) || pages.is_back(cx, name.page()) {
                self.held_back.extend(same.iter().map(|&(name, _)| name));
            }
        }
        self.room = room;
        self.progress = blocks.is_empty() || self.held_back.len() < blocks.len();
        let mut emptied = Vec::new();
        for &(stripe, sequence) in &zeroed {
            let (group, number) = stripe;
            let all = Emptied {
                only: None,
                group,
                stripe: number,
            };
            emptied.push(all);
            if cx.geometry.is_elastic() {
                // Where the stripe was never copies, there is nothing to discard in the other planes.
                let mut copies = cx.geometry.blocks_only_of(group, number, Form::Copies);
                let was_written = |name| pages.peek(name) != Some(Entry::UNWRITTEN);
                emptied.extend(copies.any(was_written).then_some(Emptied {
                    only: Some(Form::Copies),
                    ..all
                }));
            }
            if !seeded::is(SeededFault::TrimWithoutEntry) {
                for name in { &cx.geometry }.blocks_of_stripes(group, number..number.next()) {
                    pages.set(name, Entry::UNWRITTEN);
                }
            }
            overlay.zeroes_installed(stripe, sequence);
        }
        let mut get_of = overlay.get_in_order();
        blocks.retain_mut(|(name, logged)| {
            if self.held_back.contains(name) {
                return false;
            }
            // A block that had no bytes may have been reconstructed meanwhile: take its present entry.
            if let Some(now) = get_of(*name, logged.sequence) {
                logged.entry = now.entry;
            }
            true
        });
        drop(get_of);
        for same in of_pages(&blocks) {
            let entries = same.iter().map(|&(name, logged)| (name, logged.entry));
            pages.set_all(same[0].0.page(), entries);
        }
        if cx.geometry.is_elastic() {
            self.groups
                .extend(blocks.iter().map(|(name, _)| name.group));
            self.groups
                .extend(emptied.iter().map(|emptied| emptied.group));
            emptied.extend(given_up(cx, &blocks));
            emptied.sort_unstable();
            emptied.dedup();
        }
        self.installed = blocks;
        for sequence in pinned {
            overlay.unpin(sequence);
        }
        emptied
    }

    /// Takes the blocks that are durable in their places, to be [released](Self::release).
    pub(crate) fn take_installed(&mut self) -> Vec<(BlockName, Logged)> {
        std::mem::take(&mut self.installed)
    }

    /// The installed blocks are durable in their places; until now they were in memory too. If a block's drive has gone
    /// out since, and with it more drives than the code survives, the block may have been only in that drive's cache:
    /// the block is `preserved`. Returns the oldest batch that the journal must keep.
    pub(crate) fn release(
        &mut self,
        cx: &Context,
        overlay: &mut Overlay,
        pages: &mut PageCache,
        installed: &[(BlockName, Logged)],
        preserved: BTreeSet<BlockName>,
    ) -> Sequence {
        let mut kept = preserved;
        for same in of_pages(installed) {
            if pages.is_back(cx, same[0].0.page()) {
                let there = |&&(name, logged): &&(BlockName, Logged)| {
                    overlay.get_of(name, logged.sequence).is_some()
                };
                kept.extend(same.iter().filter(there).map(|&(name, _)| name));
            }
        }
        let stays = |&&(name, _): &&(BlockName, Logged)| kept.contains(&name);
        let oldest = installed.iter().filter(stays).map(|(_, was)| was.sequence);
        self.first = oldest.fold(self.first, Sequence::min);
        let leave = installed.iter().filter(|block| !stays(block));
        // A block may have been reconstructed in the meantime, so that its entry is known now.
        overlay.installed(leave, |name, entry| pages.set(name, entry));
        self.late |= !kept.is_empty();
        self.held_back.extend(kept);
        self.first
    }
}

/// What conversions have given up of stripes: blocks whose entries are *unwritten* now.
fn given_up(cx: &Context, blocks: &[(BlockName, Logged)]) -> Vec<Emptied> {
    let mut emptied: Vec<Emptied> = Vec::new();
    let gone = { blocks.iter() }.filter(|(_, logged)| logged.entry == Entry::UNWRITTEN);
    let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
    let chunk = |&&(name, _): &&(BlockName, Logged)| {
        (name.group, name.column, u64::from(name.block) / per_chunk)
    };
    let mut last = None;
    for block in gone {
        if last.replace(chunk(&block)) == Some(chunk(&block)) {
            continue;
        }
        let (name, _) = *block;
        if let Some(form) = cx.geometry.form_at(name) {
            emptied.push(Emptied {
                only: Some(form),
                group: name.group,
                stripe: cx.geometry.stripe_of(name),
            });
        }
    }
    emptied
}

/// Groups blocks, which are in order, by page: a stream has tens of thousands of them, and each check of a page holds
/// for all blocks of the page.
pub(super) fn of_pages(
    blocks: &[(BlockName, Logged)],
) -> impl Iterator<Item = &[(BlockName, Logged)]> {
    blocks.chunk_by(|(a, _), (b, _)| a.page() == b.page())
}
