//! Blocks that only the journal has survive the loss of as many drives as all other blocks.

use block::{Request, RequestKind};
use rand::Rng;
use sim::{Drive, Oracle, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// A killed world with flushed batches of `blocks` blocks each that no checkpoint has put in place, and
/// the byte range of the rings on a drive.
struct Killed {
    drives: Vec<Drive>,
    oracle: Oracle,
    size: u64,
    rings: std::ops::Range<u64>,
}

impl Killed {
    fn new(scheme: &str, drives: u16, blocks: u64) -> Self {
        let mut world = World::create(&WorldOptions {
            seed: blocks,
            ..WorldOptions::small(scheme, drives)
        });
        let size = 24 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut oracle = Oracle::new(size);
        for offset in (0..6).map(|k| k * size / 6 / BLOCK * BLOCK) {
            let length = (blocks * BLOCK).min(size - offset);
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            world.rng().fill_bytes(&mut bytes);
            world.write(VOLUME, offset, &bytes).unwrap();
            oracle.wrote(offset, &bytes);
        }
        let flush = Request {
            kind: RequestKind::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        world.request(VOLUME, flush, &[]).unwrap();
        let facts = world.pool().facts();
        let regions = facts.regions.expect("a journal");
        let rings = regions.journal_offset
            ..regions.journal_offset + u64::from(facts.lanes) * regions.ring_bytes;
        Self {
            drives: world.kill(),
            oracle,
            size,
            rings,
        }
    }

    /// Opens the pool on these drives and checks that all data is there.
    fn check(&self, drives: Vec<Drive>, when: &str) {
        let mut world = World::open(drives, false, 1).unwrap();
        for again in ["", ", settled"] {
            let read = world.read(VOLUME, 0, self.size);
            let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
            self.oracle.check(0, &read, &format!("{when}{again}"));
            world.settle();
        }
    }

    /// All drives except `gone`.
    fn without(&self, gone: &[usize]) -> Vec<Drive> {
        let left = self.drives.iter().enumerate();
        left.filter(|(index, _)| !gone.contains(index))
            .map(|(_, drive)| drive.clone())
            .collect()
    }
}

/// All sets of `count` drives.
fn sets(drives: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let smaller = sets(drives, count - 1).into_iter();
    smaller
        .flat_map(|set| {
            let from = set.last().map_or(0, |last| last + 1);
            (from..drives).map(move |next| [&set[..], &[next]].concat())
        })
        .collect()
}

/// Before, the lane that read the journal panicked when two data columns of a batch were on drives that
/// were missing at the opening: solving for two columns needs sums of their own, for which there was no
/// place. The pool opened, and every request to that lane hung. Kills of a real daemon, with drives
/// taken away meanwhile, found this.
#[test]
fn what_is_in_the_journal_alone_is_there_after_a_kill_and_as_many_losses_as_the_code_survives() {
    let pools = [
        ("raid1:3r", 3, 1),
        ("raid5", 5, 1),
        ("raid6", 6, 2),
        ("raid6:dcode:5c", 5, 2),
        ("pddl2:2d:7c:1s", 7, 2),
        ("raid7", 7, 3),
    ];
    for (scheme, drives, survives) in pools {
        for blocks in [2, 9] {
            let killed = Killed::new(scheme, drives, blocks);
            for gone in sets(usize::from(drives), survives) {
                let when = format!("{scheme}, {blocks} blocks, without {gone:?}");
                killed.check(killed.without(&gone), &when);
            }
        }
    }
}

/// The zeros that fill up a batch's last row count towards its parity. Before, they were not compared: a
/// drive with wrong bytes there spoilt the block that was computed for a missing drive.
#[test]
fn a_drive_whose_ring_is_garbage_is_one_loss_and_no_more() {
    for (scheme, drives) in [("raid6", 6), ("pddl2:2d:7c:1s", 7)] {
        for blocks in [3, 5] {
            let killed = Killed::new(scheme, drives, blocks);
            for wrong in 0..usize::from(drives) {
                for gone in (0..usize::from(drives)).filter(|&gone| gone != wrong) {
                    let mut left = killed.without(&[gone]);
                    let drive = &mut left[wrong - usize::from(wrong > gone)];
                    for block in killed.rings.clone().step_by(4096) {
                        drive.write(block, &[0xa5; 4096]).unwrap();
                    }
                    drive.flush().unwrap();
                    let when = format!("{scheme}, {blocks} blocks, {wrong} wrong, {gone} gone");
                    killed.check(left, &when);
                }
            }
        }
    }
}
