//! A checkpoint's blocks go to their places, and fills keep out of their way.

use std::collections::BTreeSet;

use block::{Outcome, Seat};

use super::installs::Installs;
use super::{Phase, Wanting};
use crate::action::{IoKind, Origin, Service};
use crate::format::{BlockName, Entry};
use crate::lane::blocks::Entries;
use crate::lane::ids::OpId;
use crate::lane::op::{Op, Owner, Task};
use crate::lane::overlay::Logged;
use crate::lane::preserved::Limits;
use crate::lane::{Lane, Purpose};
use crate::plan::{Transfer, merge};
use crate::seeded::{self, Bug};

impl Lane {
    pub(super) fn install(&mut self) {
        let mut transfers = Vec::new();
        let running = self
            .checkpoints
            .running
            .as_mut()
            .expect("a checkpoint runs");
        self.cx.epochs.enter(&mut running.epoch);
        running.phase = Phase::Installing;
        // What has changed since is left to the next checkpoint: the newer record is complete, and
        // will have been flushed when this one's anchor is written.
        let overlay = &self.overlay;
        running.blocks.retain(|(name, logged)| {
            let now = overlay.get(*name);
            now.is_some_and(|now| now.sequence == logged.sequence)
        });
        for (name, logged) in &running.blocks {
            let Some(slice) = logged.bytes.memory() else {
                continue;
            };
            let column = self
                .cx
                .view()
                .column(&self.cx.geometry, name.group, name.column);
            let cells = column.cells();
            let cells = cells.take(if seeded::is(Bug::SkipFillTarget) {
                1
            } else {
                2
            });
            transfers.extend(cells.map(|cell| Transfer {
                seat: cell.seat,
                column: name.column,
                kind: IoKind::Write,
                offset: self.cx.geometry.block_offset(cell, name.block.into()),
                length: slice.length,
                slice: Some(slice),
            }));
        }
        // A column that is filled where it is has its cell twice. Were its blocks written twice, some joined with their neighbours
        // and some not, the runs of a drive would overlap.
        let place = |transfer: &Transfer| (transfer.seat, transfer.offset);
        transfers.sort_by_key(place);
        transfers.dedup_by_key(|transfer| place(transfer));
        merge(&mut transfers);
        let installs = Installs::new(transfers);
        let seats = installs.seats();
        running.installs = installs;
        for seat in seats {
            self.begin_installs(seat);
        }
        self.installs_ended();
    }

    /// Hands out as many installs as a drive may have. Those of one run go in one turn, and so as one operation.
    fn begin_installs(&mut self, seat: Seat) {
        loop {
            let members = self.running().installs.begin_run(seat);
            if members == 0 {
                return;
            }
            for _ in 0..members {
                let running = self.running();
                let transfer = running.installs.take(seat);
                if self.cx.view().is_out(seat) {
                    self.running().installs.ended(&transfer);
                    continue;
                }
                self.running().writes.begin();
                let purpose = Purpose::Install { transfer };
                let service = Service::bulk(Origin::Checkpoint);
                self.ios
                    .submit_transfer(&mut self.cx, purpose, service, &transfer);
            }
        }
    }

    pub(in crate::lane) fn install_written(&mut self, transfer: Transfer, outcome: Outcome) {
        self.checkpoint_wrote(transfer.seat, transfer.offset, outcome);
        if outcome.is_err() {
            let block = self.cx.geometry.block_of(transfer.offset);
            let blocks = block..block + transfer.length / block::BLOCK_BYTES;
            let out = self.cx.view().is_out(transfer.seat);
            let running = self.running();
            let hit = running.blocks.iter().filter(|(name, logged)| {
                name.column == transfer.column
                    && blocks.contains(&u64::from(name.block))
                    && logged.bytes.memory().is_some_and(|slice| {
                        transfer.slice.is_some_and(|all| all.buffer == slice.buffer)
                    })
            });
            let hit: Vec<BlockName> = hit.map(|&(name, _)| name).collect();
            if !out {
                running.stuck.extend(hit);
            }
        }
        if self.running().installs.ended(&transfer) {
            self.begin_installs(transfer.seat);
        }
        self.installs_ended();
    }

    /// Whether a fill must not write to a column now: an older version of one of its blocks may be on
    /// its way to the target, and come after the fill's. Then the fill is planned again when all
    /// are in place.
    pub(in crate::lane) fn fill_must_wait(&mut self, op: OpId, group: u64, column: u16) -> bool {
        let installing = self.checkpoints.running.as_ref().is_some_and(|running| {
            !seeded::is(Bug::FillDuringInstall)
                && running.phase == Phase::Installing
                && running.blocks.iter().any(|(name, logged)| {
                    (name.group, name.column) == (group, column) && logged.bytes.memory().is_some()
                })
        });
        if installing {
            self.checkpoints.fills.push(op);
        }
        installing
    }

    /// Whether a fill of a drive that catches up would write a block that is logged and not yet flushed. The
    /// power may go and take the batch with it: then what was there before counts again, by its entry the drive
    /// holds it, and it must not have been overwritten. So the fill is planned again when a checkpoint has put the
    /// block in place.
    pub(in crate::lane) fn fill_is_early(&mut self, op: OpId) -> bool {
        let Owner::Job(job) = self.ops[&op].owner else {
            return false;
        };
        if !self.jobs.catches_up(job) {
            return false;
        }
        let flushed = self.log.flushed;
        let early = self.written_blocks(&self.ops[&op]).iter().any(|(name, _)| {
            let logged = self.overlay.get(*name);
            logged.is_some_and(|logged| logged.sequence > flushed)
        });
        if early && let Some(fault) = self.log.stuck {
            // A drive that stays does not take what is logged: nobody knows until when.
            self.end(op, Err(fault));
        } else if early {
            self.checkpoints.fills.push(op);
            self.want_checkpoint();
        }
        early
    }

    pub(super) fn installs_ended(&mut self) {
        let running = self
            .checkpoints
            .running
            .as_mut()
            .expect("a checkpoint runs");
        if running.phase != Phase::Installing
            || !running.installs.have_begun()
            || !running.writes.is_done()
        {
            return;
        }
        if running.writes.kept().is_empty() {
            // Whatever failed was on drives that are out now: it is not there to be missed.
            running.stuck.clear();
        }
        self.log.stuck = running.writes.kept().values().next().copied();
        let (blocks, zeroed) = (
            std::mem::take(&mut running.blocks),
            std::mem::take(&mut running.zeroed),
        );
        let forgotten = self.groups_forgotten();
        let room = self.log.wants_checkpoint()
            || self.overlay.bytes() >= self.batch_memory() / 2
            || !forgotten.is_empty();
        let limits = Limits {
            forgotten: &forgotten,
            most: self.preserved_at_most(room),
        };
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let preserved = self.preserved.select(&self.cx, entries, &blocks, limits);
        let running = self.running();
        running.stuck.extend(preserved);
        // Nor is what came back while it ran, a column or a page, as it should be.
        let back = |name: &BlockName| running.back.contains(&(name.group, name.column));
        let missed = blocks.iter().map(|&(name, _)| name).filter(back);
        let missed: Vec<BlockName> = missed.collect();
        running.stuck.extend(missed);
        let unlisted = |name: &BlockName| self.pages.is_back(&self.cx, name.page());
        let unlisted = blocks.iter().map(|&(name, _)| name).filter(unlisted);
        let unlisted: Vec<BlockName> = unlisted.collect();
        let running = self.running();
        running.stuck.extend(unlisted);
        running.room = room;
        running.progress = blocks.is_empty() || running.stuck.len() < blocks.len();
        let stuck = running.stuck.clone();
        let pinned = std::mem::take(&mut running.pinned);
        for (stripe, sequence) in zeroed {
            for name in self
                .cx
                .geometry
                .blocks_of_stripes(stripe.0, stripe.1..stripe.1 + 1)
            {
                if !seeded::is(Bug::TrimWithoutEntry) {
                    self.pages.set(name, Entry::UNWRITTEN);
                }
            }
            self.overlay.zeroes_installed(stripe, sequence);
            self.discards.made_unwritten(stripe);
        }
        for (name, logged) in blocks {
            if stuck.contains(&name) {
                continue;
            }
            // A block that nobody had may have been reconstructed meanwhile.
            let now = self.overlay.get(name);
            let entry = match now.filter(|now| now.sequence == logged.sequence) {
                Some(now) => now.entry,
                None => logged.entry,
            };
            self.pages.set(name, entry);
            let logged = Logged { entry, ..logged };
            self.running().installed.push((name, logged));
        }
        for sequence in pinned {
            self.overlay.unpin(sequence);
        }
        let fills = std::mem::take(&mut self.checkpoints.fills);
        self.runnable.extend(fills);
        self.relog_preserved(room);
        self.write_pages();
    }

    /// What was put in place is durable there. Until now it was in memory, too: where its drive has gone out since, and
    /// with it more than the code survives, it may have been in that drive's cache only, and stays logged.
    pub(super) fn installs_durable(&mut self) {
        let installed = std::mem::take(&mut self.running().installed);
        let forgotten = self.groups_forgotten();
        let room = self.running().room;
        let limits = Limits {
            forgotten: &forgotten,
            most: self.preserved_at_most(room),
        };
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let mut kept = { &mut self.preserved }.select_more(&self.cx, entries, &installed, limits);
        let logged = |&&(name, logged): &&(BlockName, Logged)| {
            let now = self.overlay.get(name);
            now.is_some_and(|now| now.sequence == logged.sequence)
        };
        let unlisted = installed.iter().filter(logged).map(|&(name, _)| name);
        kept.extend(unlisted.filter(|name| self.pages.is_back(&self.cx, name.page())));
        for (name, logged) in installed {
            if kept.contains(&name) {
                let running = self.running();
                running.first = running.first.min(logged.sequence);
            } else {
                // It may have been reconstructed in the meantime, and its entry be known.
                let now = self.overlay.get(name).copied();
                let now = now.filter(|now| now.sequence == logged.sequence);
                if let Some(now) = now.filter(|now| now.entry != logged.entry) {
                    self.pages.set(name, now.entry);
                }
                self.overlay.installed(name, logged.sequence);
            }
        }
        let running = self.running();
        running.late |= !kept.is_empty();
        running.stuck.extend(kept);
    }

    /// How many blocks may be preserved: none while a batch has to be made unnecessary; if the ring wants `room` what can be
    /// logged again, which takes no more than a part of ring and memory.
    fn preserved_at_most(&self, room: bool) -> usize {
        if self.log.blocked {
            return 0;
        }
        if !room {
            return usize::MAX;
        }
        let ring = self.log.ring.batch_blocks_max();
        let memory = self.batch_memory() / block::BLOCK_BYTES / 8;
        usize::try_from(ring.min(memory)).expect("a ring fits into memory")
    }

    /// Logs again what is preserved and must be.
    fn relog_preserved(&mut self, room: bool) {
        let locks = &self.locks;
        let is_free = |group, stripe| locks.is_free(group, stripe);
        for relog in { &mut self.preserved }.relog(&self.cx, &self.overlay, room, is_free) {
            let stripes = relog.stripe..relog.stripe + 1;
            let task = Task::Relog(relog.names);
            self.start(Op::new(Owner::Lane, relog.group, stripes, task));
        }
    }

    /// Groups that those who wait for this checkpoint are about to make unwritten.
    fn groups_forgotten(&self) -> BTreeSet<u64> {
        let running = self.checkpoints.running.as_ref();
        let wanting = running.into_iter().flat_map(|running| &running.wanting);
        let groups = wanting.filter_map(|wanting| match *wanting {
            Wanting::Job(job) => self.jobs.zeroes(job),
            Wanting::Pool => None,
        });
        groups.collect()
    }
}
