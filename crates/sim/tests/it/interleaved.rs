//! Volumes that are interleaved over the groups of a declustered pool: a stream uses all drives, and no byte moves when
//! the volume grows or shrinks, is opened again, or loses drives.

use block::{Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{CutSpec, Drive, Oracle, World, WorldOptions};

const VOLUME: &str = "v";
/// Scheme and drives; the sets have seven groups of four cells, nine of five, and thirteen of six.
const POOLS: [(&str, u16); 3] = [
    ("pddl2:2d:7c:1s", 7),
    ("ddp:3d:2p:9c:1s", 9),
    ("pddl2:4d:13c:1s", 13),
];

fn options(scheme: &str, drives: u16, interleave: bool) -> WorldOptions {
    WorldOptions {
        lazy: true,
        interleave,
        ..WorldOptions::small(scheme, drives)
    }
}

struct Bench {
    world: World,
    oracle: Oracle,
    group_bytes: u64,
    size: u64,
}

impl Bench {
    fn new(options: &WorldOptions, groups: u64) -> Self {
        let mut world = World::create(options);
        let group_bytes = world.pool().geometry().group_data_bytes();
        let size = groups * group_bytes;
        world.create_volume(VOLUME, size).unwrap();
        Self {
            world,
            oracle: Oracle::new(size),
            group_bytes,
            size,
        }
    }

    fn write(&mut self, offset: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        self.world.write(VOLUME, offset, &bytes).unwrap();
        self.oracle.wrote(offset, &bytes);
    }

    fn zero(&mut self, kind: RequestKind, offset: u64, length: u64) {
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        self.world.request(VOLUME, request, &[]).unwrap();
        let zeros = vec![0; usize::try_from(length).unwrap()];
        self.oracle.wrote(offset, &zeros);
    }

    /// Resizes the volume and the oracle, which expects zeros in new space.
    fn resize(&mut self, size: u64) {
        self.world.resize_volume(VOLUME, size).unwrap();
        let mut bytes = self.world.read(VOLUME, 0, size.min(self.size)).unwrap();
        self.oracle.check(0, &bytes, "resized");
        bytes.resize(usize::try_from(size).unwrap(), 0);
        self.oracle = Oracle::new(size);
        self.oracle.wrote(0, &bytes);
        self.size = size;
    }

    fn check(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}"));
        self.oracle.check(0, &read, when);
    }
}

/// Bytes that each drive has written since `before`.
fn written(world: &World, before: &[u64]) -> Vec<u64> {
    let now = world.drives().iter().map(Drive::written_bytes);
    now.zip(before).map(|(now, before)| now - before).collect()
}

/// Of thirteen drives a group uses six. The test writes as much at a time as one group holds.
#[test]
fn a_stream_as_long_as_a_group_has_all_drives() {
    for (scheme, drives) in POOLS {
        let used = |interleave: bool| {
            let mut bench = Bench::new(&options(scheme, drives, interleave), u64::from(drives));
            // All groups are made blank and written once before, so that only data is counted.
            bench.write(0, bench.size);
            bench.world.settle();
            let before = vec![0; usize::from(drives)];
            let before = written(&bench.world, &before);
            bench.write(0, bench.group_bytes);
            bench.world.settle();
            let written = written(&bench.world, &before);
            let most = *written.iter().max().unwrap();
            let mean = written.iter().sum::<u64>() / u64::from(drives);
            (most, mean)
        };
        let (most, mean) = used(true);
        let (most_alone, mean_alone) = used(false);
        assert!(
            most * mean_alone < most_alone * mean,
            "{scheme}: {most} of {mean}, one group after the other {most_alone} of {mean_alone}"
        );
        assert!(most < mean * 2, "{scheme}: {most} of {mean}");
    }
}

#[test]
fn what_was_written_stays_when_a_volume_grows_and_shrinks() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(&options(scheme, drives, true), 2);
        let group = bench.group_bytes;
        bench.write(0, bench.size);
        // Past the end of a set of two groups: first a new set, then into the middle of a third one.
        for groups in [3, 11, 20] {
            let old = bench.size;
            bench.resize(groups * group - 8192);
            let new = bench.size - old;
            let zeros = bench.world.read(VOLUME, old, new).unwrap();
            assert!(zeros.iter().all(|&byte| byte == 0), "{scheme}: {groups}");
            bench.write(old, new);
            bench.check("grown");
        }
        let drives = bench.world.cut(CutSpec::None);
        // The labels of the growths may have flushed writes or not: the content that is there now counts from here on.
        let mut world = World::open(drives, true, 3).unwrap();
        let bytes = world.read(VOLUME, 0, bench.size).unwrap();
        bench.oracle.wrote(0, &bytes);
        bench.world = world;
        bench.write(0, bench.size);
        // Into the middle of sets, to their ends, and down to the first set.
        for blocks in [
            19 * group / 4096 - 1,
            11 * group / 4096,
            7 * group / 4096 + 3,
            1,
        ] {
            bench.resize(blocks * 4096);
            bench.check("smaller");
            let closed = bench.world.close().unwrap();
            bench.world = World::open(closed, false, 4).unwrap();
            bench.check("opened");
        }
    }
}

/// Groups that a volume gives up when it shrinks can go to another volume: the two share no byte.
#[test]
fn the_groups_that_a_smaller_volume_gives_back_are_another_ones() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(&options(scheme, drives, true), 20);
        bench.write(0, bench.size);
        bench.resize(5 * bench.group_bytes + 4096);
        let free = bench.world.pool().free_bytes();
        bench.world.create_volume("other", free).unwrap();
        let ones = vec![1; 64 << 10];
        let mut offset = 0;
        while offset < free {
            let length = u64::min(free - offset, ones.len() as u64);
            let part = &ones[..usize::try_from(length).unwrap()];
            bench.world.write("other", offset, part).unwrap();
            offset += length;
        }
        bench.check("beside another volume");
        bench.write(0, bench.size);
        let read = bench.world.read("other", 0, free).unwrap();
        assert!(read.iter().all(|&byte| byte == 1), "{scheme}");
    }
}

/// Requests of all kinds and sizes across the ends of units, groups and sets, while drives fail one after the other.
#[test]
fn every_request_is_where_the_oracle_has_it() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(&options(scheme, drives, true), 16);
        for step in 0..=2 {
            for _ in 0..60 {
                let length = match bench.world.rng().random_range(0..4) {
                    0 => 512,
                    1 => 512 * bench.world.rng().random_range(1..32),
                    2 => 4096 * bench.world.rng().random_range(1..16),
                    _ => bench.world.rng().random_range(1..bench.size),
                };
                let length = length.min(bench.size);
                let offset = bench.world.rng().random_range(0..=bench.size - length) / 512 * 512;
                match bench.world.rng().random_range(0..6) {
                    0 => bench.zero(RequestKind::Trim, offset, length),
                    1 => bench.zero(RequestKind::WriteZeroes, offset, length),
                    _ => bench.write(offset, length),
                }
            }
            bench.check(&format!("{scheme}, {step} drives out"));
            if step < 2 {
                bench.world.pull(Seat(2 * step));
            }
        }
        bench.world.settle();
        bench.check("rebuilt");
        bench.world = World::open(bench.world.kill(), true, 5).unwrap();
        bench.check("killed");
        bench.world.scrub().unwrap();
        bench.world.settle();
        assert_eq!(bench.world.scrub_progress().bad, 0, "{scheme}");
    }
}
