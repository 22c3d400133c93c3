//! Pools of pieces that drives join or leave while clients write: what is there before, what is true in the end, and a client.
//!
//! | file | what |
//! | --- | --- |
//! | `cuts.rs` | the power goes after writes and flushes, and drives with it |
//! | `pairs.rs` | drives fail meanwhile, one or two of them |

pub(crate) mod cuts;
pub(crate) mod pairs;

use array::pool::{Report, SeatState};
use block::{Fault, Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{Drive, Oracle, Pace, World, WorldOptions};

pub(crate) const VOLUME: &str = "v";
pub(crate) const BLOCK: u64 = 4096;
/// Bytes of a drive for labels and the journal.
const RESERVED: u64 = 13 << 20;

/// What happens to the drives of a layout.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// So many fresh drives join, and these waiting spares.
    Join {
        fresh: usize,
        waiting: &'static [Seat],
    },
    /// A drive leaves; `failed`: it has failed before, and its columns are rebuilt.
    Leave { seat: Seat, failed: bool },
}

/// A pool whose layout changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) scheme: &'static str,
    pub(crate) drives: u16,
    pub(crate) spares: u16,
    pub(crate) lazy: bool,
    pub(crate) cell_bytes: u64,
    /// Groups of the volume.
    pub(crate) groups: u64,
    pub(crate) change: Change,
    /// Once the change has begun, this working drive is replaced.
    pub(crate) replaced: Option<Seat>,
}

/// A small pool that a drive joins.
pub(crate) const GROWS: Case = Case {
    scheme: "ddp:2d:1p",
    drives: 4,
    spares: 0,
    lazy: false,
    cell_bytes: 128 << 10,
    groups: 8,
    change: Change::Join {
        fresh: 1,
        waiting: &[],
    },
    replaced: None,
};

/// A small pool that a working drive leaves.
pub(crate) const SHRINKS: Case = Case {
    scheme: "ddp:2d:1p",
    drives: 6,
    spares: 0,
    lazy: false,
    cell_bytes: 128 << 10,
    groups: 6,
    change: Change::Leave {
        seat: LEAVES,
        failed: false,
    },
    replaced: None,
};

/// The drive that leaves [`SHRINKS`].
pub(crate) const LEAVES: Seat = Seat(2);

impl Case {
    pub(crate) const fn of(self, scheme: &'static str, drives: u16) -> Self {
        Self {
            scheme,
            drives,
            ..self
        }
    }

    /// So many fresh drives join.
    pub(crate) const fn by(self, fresh: usize) -> Self {
        Self {
            change: Change::Join {
                fresh,
                waiting: &[],
            },
            ..self
        }
    }

    /// So many spares wait.
    pub(crate) const fn beside(self, spares: u16) -> Self {
        Self { spares, ..self }
    }

    /// These waiting spares join.
    pub(crate) const fn by_spares(self, waiting: &'static [Seat]) -> Self {
        Self {
            change: Change::Join { fresh: 0, waiting },
            ..self
        }
    }

    /// Half of the volume was never written, and its groups are made blank when they are.
    pub(crate) const fn lazy(self) -> Self {
        Self { lazy: true, ..self }
    }

    /// With little data: each fill is one step.
    pub(crate) const fn tiny(self) -> Self {
        Self {
            cell_bytes: 16 << 10,
            groups: 4,
            ..self
        }
    }

    /// Meanwhile a working drive is replaced.
    pub(crate) const fn replacing(self, seat: Seat) -> Self {
        Self {
            replaced: Some(seat),
            ..self
        }
    }

    /// The drive that leaves has failed before.
    pub(crate) const fn failed(self) -> Self {
        Self {
            change: Change::Leave {
                seat: LEAVES,
                failed: true,
            },
            ..self
        }
    }
}

/// A pool with a volume of random bytes, closed.
pub(crate) struct Template {
    pub(crate) case: Case,
    pub(crate) options: WorldOptions,
    pub(crate) size: u64,
    drives: Vec<Drive>,
    oracle: Oracle,
    groups_before: u64,
    /// Drives that may fail.
    pub(crate) tolerance: usize,
}

impl Template {
    pub(crate) fn new(case: Case) -> Self {
        let options = WorldOptions {
            spares: case.spares,
            cell_bytes: case.cell_bytes,
            drive_bytes: RESERVED + 8 * case.cell_bytes,
            lazy: case.lazy,
            ..WorldOptions::small(case.scheme, case.drives)
        };
        let options = options.with_one_lane(256 << 10);
        let mut world = World::create(&options);
        let geometry = world.pool().geometry();
        let groups_before = geometry.groups();
        let tolerance = geometry.code().tolerance().into();
        let size = case.groups * geometry.group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut oracle = Oracle::new(size);
        let written = if case.lazy { size / 2 } else { size };
        write(&mut world, &mut oracle, 0, written / BLOCK * BLOCK);
        let drives = world.close().unwrap();
        Self {
            case,
            options,
            size,
            drives,
            oracle,
            groups_before,
            tolerance,
        }
    }

    /// The pool before its layout changes.
    pub(crate) fn open(&self, seed: u64) -> (World, Oracle) {
        let mut world = World::open(self.drives.clone(), false, seed).unwrap();
        let oracle = self.oracle.clone();
        if let Change::Leave { seat, failed: true } = self.case.change {
            world.pull(seat);
            world.fail_drive(seat, false).unwrap();
            world.settle();
            self.check(&mut world, &oracle, "a drive has failed");
            let state = world.pool().facts().seats[seat.index()].state;
            assert!(matches!(state, SeatState::Out { .. }), "{state:?}");
            assert_eq!(world.pool().absent_columns(), 0);
        }
        (world, oracle)
    }

    pub(crate) fn fresh(&self) -> Drive {
        Drive::new(self.options.drive_bytes, Pace::Null)
    }

    /// The drives and the waiting spares that join.
    pub(crate) fn joining(&self) -> (Vec<Drive>, &'static [Seat]) {
        let Change::Join { fresh, waiting } = self.case.change else {
            panic!("no drive joins {}", self.case.scheme);
        };
        let drives = std::iter::repeat_with(|| self.fresh()).take(fresh);
        (drives.collect(), waiting)
    }

    pub(crate) fn begin(&self, world: &mut World) {
        match self.case.change {
            Change::Join { .. } => {
                let (drives, waiting) = self.joining();
                world.begin_expand(drives, waiting).unwrap();
            }
            Change::Leave { seat, .. } => {
                world.begin_remove(seat).unwrap();
            }
        }
    }

    fn is_under_way(&self, world: &World) -> bool {
        match self.case.change {
            Change::Join { .. } => world.pool().is_growing(),
            Change::Leave { .. } => world.pool().leaving().is_some(),
        }
    }

    /// Whether the labels know of the change: then it goes on after a restart.
    pub(crate) fn has_begun(&self, world: &World) -> bool {
        let layout = world.pool().geometry().layout();
        match self.case.change {
            Change::Join { .. } => layout.drives() > self.case.drives,
            Change::Leave { seat, .. } => {
                let is_begin = |report: &Report| matches!(report, Report::RemoveBegins { .. });
                layout.vacant().contains(&seat)
                    || world.pool().leaving() == Some(seat)
                    || world.reports.iter().any(is_begin)
            }
        }
    }

    /// What was written is there.
    pub(crate) fn check(&self, world: &mut World, oracle: &Oracle, when: &str) {
        let read = world.read(VOLUME, 0, self.size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
        oracle.check(0, &read, when);
    }

    /// The change has been carried out, or has never begun.
    pub(crate) fn check_over(&self, world: &World, when: &str) {
        if self.has_begun(world) {
            self.check_done(world, when);
            return;
        }
        let pool = world.pool();
        let reports = &world.reports;
        assert!(!self.is_under_way(world), "{when}: {reports:#?}");
        if let Change::Join { fresh, .. } = self.case.change {
            // Drives that were to join are spares, if the labels know them.
            let had = usize::from(self.case.spares);
            let seats = &pool.facts().seats;
            assert!(spares(world) <= had + fresh, "{when}: {seats:#?}");
        }
    }

    /// No drive has failed: as [`Self::check_over`], and no spare has been used for anything else than the change.
    pub(crate) fn check_over_with_all(&self, world: &World, when: &str) {
        self.check_over(world, when);
        if let Change::Join { .. } = self.case.change
            && !self.has_begun(world)
        {
            let seats = &world.pool().facts().seats;
            let had = usize::from(self.case.spares);
            assert!(spares(world) >= had, "{when}: {seats:#?}");
        }
    }

    /// The change has been carried out: every drive of the layout is complete, every column is at home, and redundancy is
    /// as the code promises.
    pub(crate) fn check_done(&self, world: &World, when: &str) {
        let pool = world.pool();
        let reports = &world.reports;
        assert!(!self.is_under_way(world), "{when}: {reports:#?}");
        let layout = pool.geometry().layout();
        let (drives, vacant) = match self.case.change {
            Change::Join { fresh, waiting } => {
                let joined = u16::try_from(fresh + waiting.len()).unwrap();
                (self.case.drives + joined, None)
            }
            Change::Leave { seat, .. } => (self.case.drives, Some(seat)),
        };
        assert_eq!(layout.drives(), drives, "{when}");
        assert_eq!(layout.vacant(), vacant.as_slice(), "{when}: {reports:#?}");
        for (seat, facts) in pool.facts().seats().take(drives.into()) {
            let removed = vacant == Some(seat) && facts.is_removed(seat);
            assert!(
                removed || facts.state == SeatState::Current,
                "{when}, {seat} is {:?}: {reports:#?}",
                facts.state
            );
        }
        for group in pool.facts().allocated_groups() {
            for column in pool.geometry().columns() {
                let home = pool.geometry().home(group, column);
                let place = world.place(group, column);
                assert_eq!(place, Some(home), "{when}: {group}, {column}");
            }
        }
        assert_eq!(pool.absent_columns(), 0, "{when}");
        assert_eq!(
            pool.survives_drives(),
            pool.geometry().code().tolerance(),
            "{when}"
        );
        if vacant.is_none() {
            assert!(pool.geometry().groups() > self.groups_before, "{when}");
        }
    }

    /// Fresh drives take the seats of all that have failed and were not to leave.
    pub(crate) fn make_whole(&self, world: &mut World, when: &str) {
        let drives = world.pool().geometry().layout().drives();
        for seat in (0..drives).map(Seat) {
            let facts = &world.pool().facts().seats[seat.index()];
            let stays = !facts.is_removed(seat) && world.pool().leaving() != Some(seat);
            if matches!(facts.state, SeatState::Out { .. }) && stays {
                world.replace_drive(seat, self.fresh()).expect(when);
                world.settle();
            }
        }
    }

    /// Begins the change while a client writes, and calls `at` after each write and flush of a drive that has ended.
    /// Returns their number.
    pub(crate) fn moments(&self, mut at: impl FnMut(u64, &World, &Client)) -> u64 {
        let (mut world, oracle) = self.open(3);
        let mut client = Client::new(self, oracle);
        client.advance(&mut world, true);
        self.begin(&mut world);
        let (mut seen, mut count) = (world.boundaries(), 0);
        let mut to_replace = self.case.replaced;
        loop {
            at(count, &world, &client);
            count += 1;
            while world.boundaries() == seen {
                if self.has_begun(&world)
                    && let Some(seat) = to_replace.take()
                {
                    world.replace_working(seat, self.fresh()).unwrap();
                }
                let more = self.is_under_way(&world);
                client.advance(&mut world, more);
                if world.is_quiet() || !world.step() {
                    self.check_done(&world, "without a failure");
                    client.check(&mut world, "without a failure");
                    return count;
                }
            }
            seen = world.boundaries();
        }
    }
}

pub(crate) fn write(world: &mut World, oracle: &mut Oracle, offset: u64, length: u64) {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    world.rng().fill_bytes(&mut bytes);
    world.write(VOLUME, offset, &bytes).unwrap();
    oracle.wrote(offset, &bytes);
}

#[derive(Clone)]
struct Write {
    id: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// A client that writes at random places, two requests at a time, and flushes now and then.
#[derive(Clone)]
pub(crate) struct Client {
    size: u64,
    /// What the last flush covers.
    flushed: Oracle,
    /// Flushes that have ended.
    pub(crate) flushes: u64,
    /// Writes since then, ended or not.
    since: Vec<Write>,
    /// Writes for which there was no space.
    refused: Vec<Write>,
    in_flight: Vec<u64>,
    is_flushing: bool,
    /// A drive may be full: no other request fails.
    pub(crate) may_be_refused: bool,
}

impl Client {
    pub(crate) fn new(template: &Template, oracle: Oracle) -> Self {
        Self {
            size: template.size,
            flushed: oracle,
            flushes: 0,
            since: Vec::new(),
            refused: Vec::new(),
            in_flight: Vec::new(),
            is_flushing: true,
            may_be_refused: false,
        }
    }

    /// Takes what has ended, and submits the next requests when nothing is in flight; `more`: also writes.
    pub(crate) fn advance(&mut self, world: &mut World, more: bool) {
        let ended = |&id: &u64| Some((id, world.ended(id)?));
        let ended: Vec<(u64, Result<Vec<u8>, Fault>)> =
            self.in_flight.iter().filter_map(ended).collect();
        for (id, end) in ended {
            self.in_flight.retain(|&other| other != id);
            if self.may_be_refused && end == Err(Fault::Full) {
                // What a refused write has written may be there or not.
                self.is_flushing = false;
                let refused = self.since.extract_if(.., |write| write.id == id);
                self.refused.extend(refused);
            } else {
                end.expect("no request fails");
            }
        }
        if !self.in_flight.is_empty() {
            return;
        }
        if self.is_flushing {
            self.flushes += 1;
            for write in std::mem::take(&mut self.since) {
                self.flushed.wrote(write.offset, &write.bytes);
            }
            self.is_flushing = false;
        } else if !self.since.is_empty() {
            self.is_flushing = true;
            let flush = request(RequestKind::Flush, 0, 0);
            self.in_flight.push(world.submit(VOLUME, flush, &[]));
            return;
        }
        // On either half of the volume: two writes of a block in flight may end in any order.
        let half = self.size / 2 / BLOCK;
        for part in 0..if more { 2 } else { 0 } {
            let blocks = world.rng().random_range(1..4_u64);
            let offset = (part * half + world.rng().random_range(0..half - blocks)) * BLOCK;
            let mut bytes = vec![0; usize::try_from(blocks * BLOCK).unwrap()];
            world.rng().fill_bytes(&mut bytes);
            let write = request(RequestKind::Write, offset, blocks * BLOCK);
            let id = world.submit(VOLUME, write, &bytes);
            self.in_flight.push(id);
            self.since.push(Write { id, offset, bytes });
        }
    }

    /// Goes on for some steps, and until nothing is in flight.
    pub(crate) fn go_on(&mut self, world: &mut World, steps: u32) {
        for step in 0.. {
            self.advance(world, step < steps);
            if self.in_flight.is_empty() || !world.step() {
                return;
            }
        }
    }

    /// The power has gone: requests in flight have ended, and the next flush covers what is there now.
    pub(crate) fn after_cut(&mut self, world: &mut World, when: &str) {
        self.check(world, when);
        let read = world.read(VOLUME, 0, self.size).expect(when);
        self.flushed.wrote(0, &read);
        self.since.clear();
        self.refused.clear();
        self.in_flight.clear();
        self.is_flushing = false;
    }

    /// Each block is as it was flushed, or as a later write has it.
    pub(crate) fn check(&self, world: &mut World, when: &str) {
        let read = world.read(VOLUME, 0, self.size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
        let offsets = (0..self.size).step_by(usize::try_from(BLOCK).unwrap());
        for (offset, block) in offsets.zip(read.chunks(usize::try_from(BLOCK).unwrap())) {
            let mut others = self.since.iter().chain(&self.refused);
            let is_later = others.any(|write| {
                let at = offset.checked_sub(write.offset);
                let at = at.and_then(|at| usize::try_from(at).ok());
                at.is_some_and(|at| write.bytes.get(at..at + block.len()) == Some(block))
            });
            if !is_later {
                self.flushed.check(offset, block, when);
            }
        }
    }
}

const fn request(kind: RequestKind, offset: u64, length: u64) -> Request {
    Request {
        kind,
        offset,
        length,
        fua: false,
    }
}

/// Spares that wait.
fn spares(world: &World) -> usize {
    let seats = &world.pool().facts().seats;
    seats.iter().filter(|facts| facts.is_free()).count()
}
