//! Pools of pieces grow by a drive or two while clients write. The power is cut after every write and flush, and with it a
//! drive is lost: the pool opens, goes on, and every block is as it was written. Drives also fail while the pool is open.

use array::pool::SeatState;
use block::{Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{CutSpec, Drive, Oracle, Pace, PowerLoss, World, WorldOptions};

use crate::support::parts;

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// A pool that grows.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) scheme: &'static str,
    pub(crate) drives: u16,
    pub(crate) spares: u16,
    pub(crate) lazy: bool,
    /// Groups of the volume.
    pub(crate) groups: u64,
    /// Drives that join.
    pub(crate) fresh: usize,
    /// Waiting spares that join.
    pub(crate) waiting: &'static [Seat],
}

/// A pool with a volume of random bytes, closed.
pub(crate) struct Template {
    pub(crate) case: Case,
    pub(crate) options: WorldOptions,
    size: u64,
    drives: Vec<Drive>,
    oracle: Oracle,
}

impl Template {
    pub(crate) fn new(case: Case) -> Self {
        let options = WorldOptions {
            spares: case.spares,
            cell_bytes: 128 << 10,
            drive_bytes: 14 << 20,
            lazy: case.lazy,
            ..WorldOptions::small(case.scheme, case.drives)
        };
        let options = options.with_one_lane(256 << 10);
        let mut world = World::create(&options);
        let size = case.groups * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut oracle = Oracle::new(size);
        // A volume whose second half was never written, if its groups are made blank when they are.
        let written = if case.lazy { size / 2 } else { size };
        write(&mut world, &mut oracle, 0, written / BLOCK * BLOCK);
        let drives = world.close().unwrap();
        Self {
            case,
            options,
            size,
            drives,
            oracle,
        }
    }

    pub(crate) fn open(&self, seed: u64) -> (World, Oracle) {
        let world = World::open(self.drives.clone(), false, seed).unwrap();
        (world, self.oracle.clone())
    }

    fn fresh(&self) -> Vec<Drive> {
        let fresh = || Drive::new(self.options.drive_bytes, Pace::Null);
        std::iter::repeat_with(fresh)
            .take(self.case.fresh)
            .collect()
    }

    /// Seats of the layout after the growth.
    fn drives_after(&self) -> u16 {
        let joined = self.case.fresh + self.case.waiting.len();
        self.case.drives + u16::try_from(joined).unwrap()
    }

    pub(crate) fn check(&self, world: &mut World, oracle: &Oracle, when: &str) {
        let read = world.read(VOLUME, 0, self.size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
        oracle.check(0, &read, when);
    }

    /// The pool has grown to the end: all drives are complete, every column is at home, and there is room for more.
    fn check_grown(&self, world: &World, when: &str) {
        let pool = world.pool();
        let reports = &world.reports;
        assert!(!pool.is_growing(), "{when}: {reports:#?}");
        let layout = pool.geometry().layout();
        assert_eq!(layout.drives(), self.drives_after(), "{when}");
        for (seat, facts) in pool.facts().seats().take(layout.drives().into()) {
            assert_eq!(
                facts.state,
                SeatState::Current,
                "{when}, {seat}: {reports:#?}"
            );
        }
        for group in pool.facts().allocated_groups() {
            for column in 0..layout.columns() {
                let home = Some(layout.cell(group, column));
                assert_eq!(
                    world.place(group, column),
                    home,
                    "{when}: {group}, {column}"
                );
            }
        }
        assert!(pool.geometry().groups() > self.groups_before(), "{when}");
    }

    fn groups_before(&self) -> u64 {
        let (world, _) = self.open(0);
        world.pool().geometry().groups()
    }
}

fn write(world: &mut World, oracle: &mut Oracle, offset: u64, length: u64) {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    world.rng().fill_bytes(&mut bytes);
    world.write(VOLUME, offset, &bytes).unwrap();
    oracle.wrote(offset, &bytes);
}

/// A client that writes at random places, two requests at a time, and flushes now and then.
#[derive(Clone)]
pub(crate) struct Client {
    size: u64,
    /// What the last flush covers.
    flushed: Oracle,
    /// Writes since then, ended or not.
    since: Vec<(u64, Vec<u8>)>,
    pub(crate) in_flight: Vec<u64>,
    flushes: bool,
}

impl Client {
    pub(crate) fn new(template: &Template, oracle: Oracle) -> Self {
        Self {
            size: template.size,
            flushed: oracle,
            since: Vec::new(),
            in_flight: Vec::new(),
            flushes: true,
        }
    }

    /// Takes what has ended, and submits the next requests when nothing is in flight; `more`: also writes.
    pub(crate) fn advance(&mut self, world: &mut World, more: bool) {
        self.in_flight.retain(|&id| match world.ended(id) {
            Some(end) => {
                end.expect("no request fails");
                false
            }
            None => true,
        });
        if !self.in_flight.is_empty() {
            return;
        }
        if self.flushes {
            for (offset, bytes) in std::mem::take(&mut self.since) {
                self.flushed.wrote(offset, &bytes);
            }
            self.flushes = false;
        } else if !self.since.is_empty() {
            self.flushes = true;
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
            self.in_flight.push(world.submit(VOLUME, write, &bytes));
            self.since.push((offset, bytes));
        }
    }

    /// Each block is as it was flushed, or as a later write has it.
    pub(crate) fn check(&self, world: &mut World, when: &str) {
        let read = world.read(VOLUME, 0, self.size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
        let offsets = (0..self.size).step_by(usize::try_from(BLOCK).unwrap());
        for (offset, block) in offsets.zip(read.chunks(usize::try_from(BLOCK).unwrap())) {
            let mut later = self.since.iter();
            let is_later = later.any(|(first, bytes)| {
                let at = offset
                    .checked_sub(*first)
                    .and_then(|at| usize::try_from(at).ok());
                at.is_some_and(|at| bytes.get(at..at + block.len()) == Some(block))
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

const SMALL: Case = Case {
    scheme: "ddp:2d:1p",
    drives: 4,
    spares: 0,
    lazy: false,
    groups: 8,
    fresh: 1,
    waiting: &[],
};

#[test]
fn a_pool_that_has_grown_reads_right_and_has_room_for_more() {
    let cases = [
        SMALL,
        Case {
            lazy: true,
            ..SMALL
        },
        Case { fresh: 2, ..SMALL },
        Case {
            scheme: "ddp:2d:2p",
            drives: 5,
            ..SMALL
        },
        Case {
            scheme: "crush2:2d",
            drives: 5,
            ..SMALL
        },
        Case { spares: 2, ..SMALL },
        Case {
            spares: 2,
            fresh: 0,
            waiting: &[Seat(5)],
            ..SMALL
        },
    ];
    for case in cases {
        let when = case.scheme;
        let template = Template::new(case);
        let (mut world, mut oracle) = template.open(1);
        let planned = world
            .pool()
            .plan_growth(case.fresh + case.waiting.len())
            .unwrap();
        let before = world.pool().capacity_bytes();
        world.expand(template.fresh(), case.waiting).unwrap();
        for _ in 0..3 {
            let offset = world.rng().random_range(0..template.size / BLOCK) * BLOCK;
            write(&mut world, &mut oracle, offset, BLOCK);
        }
        world.settle();
        template.check_grown(&world, when);
        let after = world.pool().capacity_bytes();
        assert_eq!((before, after), planned.capacity_bytes, "{when}");
        let copied = world.pool().progress().copied_bytes;
        match case.lazy {
            false => assert_eq!(copied, planned.moved_bytes, "{when}"),
            true => assert!(
                (1..=planned.moved_bytes).contains(&copied),
                "{when}: {copied}"
            ),
        }
        template.check(&mut world, &oracle, when);
        // New groups take data.
        let free = world.pool().free_bytes();
        world.create_volume("more", free).unwrap();
        let bytes = vec![7; usize::try_from(free).unwrap()];
        world.write("more", 0, &bytes).unwrap();
        world.settle();
        template.check(&mut world, &oracle, when);
        // After a restart, too, and without any one drive.
        let drives = world.close().unwrap();
        for lost in 0..drives.len() {
            let mut left = drives.clone();
            left[lost].pull();
            let mut world = World::open(left, true, 1).expect(when);
            let when = format!("{when}, {lost} lost");
            template.check(&mut world, &oracle, &when);
            assert!(world.read("more", 0, free).unwrap() == bytes, "{when}");
        }
    }
}

/// Grows a pool while a client writes, and calls `at` after each write and flush of a drive that has ended. Returns their
/// number.
fn moments(template: &Template, mut at: impl FnMut(u64, &World, &Client)) -> u64 {
    let (mut world, oracle) = template.open(3);
    let mut client = Client::new(template, oracle);
    client.advance(&mut world, true);
    world
        .begin_expand(template.fresh(), template.case.waiting)
        .unwrap();
    let (mut seen, mut count) = (world.boundaries(), 0);
    loop {
        at(count, &world, &client);
        count += 1;
        while world.boundaries() == seen {
            let grows = world.pool().is_growing();
            client.advance(&mut world, grows);
            if world.is_quiet() || !world.step() {
                template.check_grown(&world, "without a cut");
                client.check(&mut world, "without a cut");
                return count;
            }
        }
        seen = world.boundaries();
    }
}

/// Of the cuts, one in so many: all of them in a release build.
pub(crate) const ONE_IN: u64 = if cfg!(debug_assertions) { 7 } else { 1 };

/// Which un-flushed writes survive a cut after the `at`th: none, all, all but one, the first ones, and others by chance.
pub(crate) fn specs_of(power: &PowerLoss, at: u64) -> Vec<CutSpec> {
    let unflushed = power.writes();
    let mut specs = vec![CutSpec::None, CutSpec::All, CutSpec::Seed(at)];
    if unflushed > 0 {
        let number = usize::try_from(at).unwrap() % unflushed;
        specs.extend([CutSpec::Missing(number), CutSpec::Prefix(number)]);
    }
    specs
}

/// With a cut each drive is lost once, for good: what is left has everything. Returns their number.
pub(crate) fn lose_each(
    case: Case,
    (power, specs): (&PowerLoss, &[CutSpec]),
    at: u64,
    client: &Client,
) -> u64 {
    let drives = power.with(CutSpec::All).len();
    for lost in 0..drives {
        let spec = specs[(usize::try_from(at).unwrap() + lost) % specs.len()];
        let mut fewer = power.with(spec);
        fewer[lost].pull();
        let when = format!(
            "{}: cut after {at}, {spec:?}, drive {lost} lost",
            case.scheme
        );
        let mut world = World::open(fewer, true, 7).expect(&when);
        client.check(&mut world, &when);
        world.settle();
        client.check(&mut world, &format!("{when}, settled"));
    }
    drives as u64
}

/// Cuts the power after every `every`th write and flush from `first` on: none, all, all but one and the first ones of the
/// un-flushed writes survive, and others by chance. With each cut each drive is lost once.
fn power_goes(case: Case, every: u64, first: u64) {
    let template = Template::new(case);
    let (mut cuts, mut losses) = (0_u64, 0_u64);
    let mut grown = [0, 0];
    let ended = moments(&template, |at, world, client| {
        if at % (every * ONE_IN) != first * ONE_IN {
            return;
        }
        let power = world.clone().lose_power();
        let specs = specs_of(&power, at);
        losses += lose_each(case, (&power, &specs), at, client);
        for spec in specs {
            cuts += 1;
            let left = power.with(spec);
            let when = format!("{}: cut after {at}, {spec:?}", case.scheme);
            // All drives are there: the growth goes on to the end, unless it had not begun.
            let mut world = World::open(left, false, 7).expect(&when);
            client.check(&mut world, &when);
            world.settle();
            let began = world.pool().geometry().layout().drives() > case.drives;
            grown[usize::from(began)] += 1;
            if began {
                template.check_grown(&world, &when);
            } else {
                let spares = world.pool().facts().seats.iter();
                let all = spares.filter(|facts| facts.is_free()).count();
                let had = usize::from(case.spares);
                assert!(
                    (had..=had + case.fresh).contains(&all),
                    "{when}: {all} spares"
                );
            }
            client.check(&mut world, &format!("{when}, settled"));
            // And no other copy of anything is missing.
            let seat = Seat(u16::try_from(cuts % u64::from(case.drives)).unwrap());
            world.pull(seat);
            client.check(&mut world, &format!("{when}, settled, {seat} out"));
        }
    });
    let (scheme, began) = (case.scheme, grown[1]);
    eprintln!(
        "{scheme}: {ended} writes and flushes, {cuts} cuts, {began} after the switch, {losses} with a drive"
    );
    assert!(grown.iter().all(|&count| count > 0), "{grown:?}");
    assert!(ended > 60, "{ended}");
}

/// At every `every`th write and flush from `first` on each drive is pulled, one that joins or another, while the client goes
/// on; then a fresh drive takes its seat.
fn a_drive_fails(case: Case, every: u64, first: u64) {
    let template = Template::new(case);
    let mut grown = [0, 0];
    moments(&template, |at, world, client| {
        if at % every != first {
            return;
        }
        for lost in 0..world.drives().len() {
            let when = format!("{}: drive {lost} fails after {at}", case.scheme);
            let (mut world, mut client) = (world.clone(), client.clone());
            world.drives_mut()[lost].pull();
            for step in 0.. {
                client.advance(&mut world, step < 300);
                if client.in_flight.is_empty() || !world.step() {
                    break;
                }
            }
            world.settle();
            client.check(&mut world, &when);
            let is_out = |seat: &Seat| {
                let state = world.pool().facts().seats[seat.index()].state;
                matches!(state, SeatState::Out { .. })
            };
            let drives = world.pool().geometry().layout().drives();
            if let Some(seat) = (0..drives).map(Seat).find(is_out) {
                let drive = Drive::new(template.options.drive_bytes, Pace::Null);
                world.replace_drive(seat, drive).expect(&when);
                world.settle();
            }
            let began = drives > case.drives;
            grown[usize::from(began)] += 1;
            if began {
                template.check_grown(&world, &when);
            } else {
                assert!(!world.pool().is_growing(), "{when}");
            }
            client.check(&mut world, &format!("{when}, replaced"));
        }
    });
    eprintln!(
        "{}: {grown:?} failures before and after the switch",
        case.scheme
    );
    assert!(grown.iter().all(|&count| count > 0), "{grown:?}");
}

parts!(the_power_goes_at_every_write_of_a_growth {
    by_a_drive_0 => power_goes(SMALL, 4, 0),
    by_a_drive_1 => power_goes(SMALL, 4, 1),
    by_a_drive_2 => power_goes(SMALL, 4, 2),
    by_a_drive_3 => power_goes(SMALL, 4, 3),
    by_two_drives => power_goes(Case { fresh: 2, ..SMALL }, 7, 0),
    by_a_spare_behind_another => {
        power_goes(Case { spares: 2, fresh: 0, waiting: &[Seat(5)], ..SMALL }, 7, 1);
    },
    with_two_parities => power_goes(Case { scheme: "ddp:2d:2p", drives: 5, ..SMALL }, 7, 2),
    of_a_crush_pool => power_goes(Case { scheme: "crush2:2d", drives: 5, ..SMALL }, 7, 3),
    with_groups_that_were_never_written => power_goes(Case { lazy: true, ..SMALL }, 7, 4),
});

parts!(drives_fail_during_a_growth {
    by_a_drive => a_drive_fails(SMALL, 9, 3),
    by_two_drives => a_drive_fails(Case { fresh: 2, ..SMALL }, 17, 7),
    with_groups_that_were_never_written => a_drive_fails(Case { lazy: true, ..SMALL }, 17, 5),
    of_a_crush_pool => a_drive_fails(Case { scheme: "crush2:2d", drives: 5, ..SMALL }, 17, 4),
});
