//! Space that holds no data is discarded on the drives, and no later read or volume sees its old content.

use block::{BLOCK_BYTES, Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{CutSpec, Drive, Oracle, Region, World, WorldOptions};

const VOLUME: &str = "v";

/// Scheme and drives.
const POOLS: [(&str, u16); 6] = [
    ("raid1:3r", 3),
    ("raid10:2r:far", 4),
    ("raid5", 4),
    ("raid6", 6),
    ("raid6:dcode:5c", 5),
    ("pddl2:2d:7c:1s", 7),
];

struct Bench {
    world: World,
    oracle: Oracle,
    size: u64,
}

impl Bench {
    fn new(scheme: &str, drives: u16, lazy: bool) -> Self {
        Self::of(&WorldOptions {
            drive_bytes: 14 << 20,
            lazy,
            ..WorldOptions::small(scheme, drives)
        })
    }

    /// Groups of 32 stripes, some of which are free.
    fn with_free_stripes(scheme: &str, drives: u16) -> Self {
        let small = WorldOptions::small(scheme, drives);
        let bench = Self::of(&WorldOptions {
            drive_bytes: 56 << 20,
            cell_bytes: 4 * small.cell_bytes,
            free_stripes: true,
            ..small
        });
        let geometry = bench.world.pool().geometry();
        assert!(geometry.free_stripes() > 0, "{scheme}");
        bench
    }

    fn of(options: &WorldOptions) -> Self {
        let mut world = World::create(options);
        let size = 6 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        world.settle();
        Self {
            world,
            oracle: Oracle::new(size),
            size,
        }
    }

    fn write(&mut self, offset: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        self.world.write(VOLUME, offset, &bytes).unwrap();
        self.oracle.wrote(offset, &bytes);
    }

    fn request(&mut self, kind: RequestKind, offset: u64, length: u64) {
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        self.world.request(VOLUME, request, &[]).unwrap();
        if kind == RequestKind::Trim {
            let zeros = vec![0; usize::try_from(length).unwrap()];
            self.oracle.wrote(offset, &zeros);
        }
    }

    /// Bytes of cells that all drives together have discarded.
    fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes_of(Region::Data)
    }

    fn discarded_bytes_of(&self, region: Region) -> u64 {
        let drives = self.world.drives().iter();
        drives.map(|drive| drive.discarded_bytes(region)).sum()
    }

    /// Bytes that the volume takes on the drives if all of it is written.
    fn bytes_on_drives(&self) -> u64 {
        let geometry = self.world.pool().geometry();
        let (code, groups) = (geometry.code(), self.size / geometry.group_data_bytes());
        groups * geometry.stripes_per_group() * code.elements() as u64 * geometry.chunk_bytes()
    }

    fn check(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }

    fn check_left(&self, drives: Vec<Drive>, when: &str) {
        let mut world = World::open(drives, true, 1).unwrap();
        world.settle();
        let read = world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }
}

/// Before, a trim changed entries only, and the drives kept all blocks.
#[test]
fn whatever_whole_stripes_are_trimmed_is_discarded_once() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(scheme, drives, false);
        bench.write(0, bench.size);
        bench.world.settle();
        assert_eq!(bench.discarded_bytes(), 0, "{scheme}");
        bench.request(RequestKind::Trim, 0, bench.size);
        bench.world.settle();
        assert_eq!(bench.discarded_bytes(), bench.bytes_on_drives(), "{scheme}");
        bench.check(scheme);
        // Written and settled again, the space is like any other, also without a drive.
        bench.write(0, bench.size);
        bench.write(BLOCK_BYTES, BLOCK_BYTES);
        bench.world.settle();
        assert_eq!(bench.discarded_bytes(), bench.bytes_on_drives(), "{scheme}");
        bench.check(scheme);
        let mut left = bench.world.clone().cut(CutSpec::None);
        left.remove(Seat(1).index());
        bench.check_left(left, scheme);
    }
}

/// Free stripes are soon overwritten while their group has data: discards of them would be wasted. They are
/// discarded with the last data of their group.
#[test]
fn free_stripes_are_discarded_with_the_last_data_of_their_group() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::with_free_stripes(scheme, drives);
        for _ in 0..3 {
            let stripe = bench.world.pool().geometry().stripe_data_bytes();
            for number in 0..bench.size / stripe {
                bench.write(number * stripe, stripe);
            }
            bench.world.settle();
        }
        assert_eq!(bench.discarded_bytes(), 0, "{scheme}");
        let free = {
            let geometry = bench.world.pool().geometry();
            bench.bytes_on_drives() / geometry.stripes_per_group() * geometry.free_stripes()
        };
        let most = bench.size - BLOCK_BYTES;
        bench.request(RequestKind::Trim, 0, most);
        bench.world.settle();
        bench.check(scheme);
        let groups = bench.size / bench.world.pool().geometry().group_data_bytes();
        let stripe = {
            let geometry = bench.world.pool().geometry();
            geometry.code().elements() as u64 * geometry.chunk_bytes()
        };
        let left = free / groups + stripe;
        let all = bench.bytes_on_drives();
        assert_eq!(bench.discarded_bytes(), all - left, "{scheme}");
        bench.request(RequestKind::Trim, most, BLOCK_BYTES);
        bench.world.settle();
        bench.check(scheme);
        bench.write(0, bench.size);
        bench.world.settle();
        bench.check(scheme);
        let left = bench.world.clone().cut(CutSpec::None);
        bench.check_left(left, scheme);
    }
}

/// Blocks that are written to a stripe between its trim and the checkpoint stay.
#[test]
fn only_what_still_holds_nothing_is_discarded() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(scheme, drives, false);
        bench.write(0, bench.size);
        bench.world.settle();
        bench.request(RequestKind::Trim, 0, bench.size);
        bench.write(bench.size / 2, BLOCK_BYTES);
        bench.world.settle();
        let stripe = {
            let geometry = bench.world.pool().geometry();
            geometry.code().elements() as u64 * geometry.chunk_bytes()
        };
        let all = bench.bytes_on_drives();
        assert_eq!(bench.discarded_bytes(), all - stripe, "{scheme}");
        bench.check(scheme);
    }
}

/// Groups that a volume gives up are discarded, written or not. Groups that are still uninitialized are not.
#[test]
fn what_a_deleted_volume_had_is_discarded_and_the_next_one_reads_zeros() {
    for (scheme, drives) in POOLS {
        for lazy in [false, true] {
            let mut bench = Bench::new(scheme, drives, lazy);
            let group = bench.world.pool().geometry().group_data_bytes();
            bench.write(0, group);
            bench.world.delete_volume(VOLUME).unwrap();
            bench.world.settle();
            let geometry = bench.world.pool().geometry();
            let cells = |groups: u64| {
                groups * u64::from(geometry.layout().columns()) * geometry.cell_bytes()
            };
            let groups = bench.size / group;
            let discarded = bench.discarded_bytes();
            if lazy {
                // The next region is made blank when a part of the first has been written.
                let few = cells(1)..cells(groups);
                assert!(few.contains(&discarded), "{scheme}: {discarded}");
            } else {
                assert_eq!(discarded, cells(groups), "{scheme}");
            }
            bench.world.create_volume(VOLUME, bench.size).unwrap();
            bench.oracle = Oracle::new(bench.size);
            bench.check(scheme);
            bench.write(0, BLOCK_BYTES);
            bench.write(group + BLOCK_BYTES, group);
            bench.check(scheme);
            let left = bench.world.clone().cut(CutSpec::All);
            bench.check_left(left, scheme);
        }
    }
}

/// A drive that is away when stripes are trimmed and discarded returns with the old blocks; the drives that were
/// there have discarded them.
#[test]
fn drives_that_come_back_agree_with_those_that_discarded() {
    for (scheme, drives) in [("raid5", 4), ("raid6", 6), ("pddl2:2d:7c:1s", 7)] {
        let mut bench = Bench::new(scheme, drives, false);
        bench.write(0, bench.size);
        bench.world.settle();
        bench.world.fail_drive(Seat(0), false).unwrap();
        bench.request(RequestKind::Trim, 0, bench.size / 2);
        bench.world.settle();
        assert!(bench.discarded_bytes() > 0, "{scheme}");
        bench.write(BLOCK_BYTES, 3 * BLOCK_BYTES);
        assert!(bench.world.begin_return_drive(Seat(0), None), "{scheme}");
        bench.world.settle();
        bench.check(scheme);
        bench.world.fail_drive(Seat(1), false).unwrap();
        bench.check(scheme);
    }
}

/// The power goes while discards are in flight: each of them is lost, done or torn.
#[test]
fn a_cut_in_the_middle_of_discards_loses_nothing() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(scheme, drives, false);
        bench.write(0, bench.size);
        bench.world.settle();
        bench.request(RequestKind::Trim, bench.size / 3, bench.size / 2);
        bench.request(RequestKind::Flush, 0, 0);
        let mut cuts = 0;
        while !bench.world.is_quiet() || bench.discarded_bytes() == 0 {
            assert!(bench.world.step(), "{scheme}");
            let before = bench.discarded_bytes();
            if before > 0 && before < bench.bytes_on_drives() {
                let seed = bench.world.rng().random();
                for spec in [CutSpec::None, CutSpec::All, CutSpec::Seed(seed)] {
                    let left = bench.world.clone().cut(spec);
                    bench.check_left(left, scheme);
                    cuts += 1;
                }
            }
        }
        assert!(cuts > 20, "{scheme}: {cuts}");
    }
}
