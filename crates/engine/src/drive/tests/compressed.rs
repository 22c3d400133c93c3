//! Drives with a budget of physical space, against the plain sum of what their blocks take.

use std::sync::Arc;

use block::{BlockDevice, Fault, Memory, Request, RequestKind, SplitMix64, Usage};

use super::support::{Collector, Place, open_sized, request};
use crate::drive::{Drive, Effect, Open, OpenDriveError, Trap, open, sync};

const BLOCK: u64 = 4096;

/// What a block can hold, by how much of it is noise, and its physical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zeros,
    Half,
    Noise,
}

/// A block, and the same one for the same `seed`.
fn block(kind: Kind, seed: u64) -> Vec<u8> {
    match kind {
        Kind::Zeros => vec![0; BLOCK as usize],
        Kind::Noise => SplitMix64::new(seed).bytes(BLOCK as usize),
        Kind::Half => {
            let half = BLOCK as usize / 2;
            [SplitMix64::new(seed).bytes(half), vec![0; half]].concat()
        }
    }
}

/// Physical bytes of a block, by the library itself.
fn length(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let compressed = lz4_flex::block::compress(bytes);
    BLOCK.min(compressed.len() as u64)
}

fn used(drive: &Drive) -> u64 {
    drive.device.usage().expect("it counts").used_bytes
}

#[test]
fn zeros_take_nothing_and_overwrites_count_the_difference() {
    let drive = open_sized("compress:mem:1M?physical=16K", 0);
    let device = &*drive.device;
    assert_eq!(
        device.usage(),
        Some(Usage {
            physical_bytes: 16 << 10,
            used_bytes: 0
        })
    );
    sync::write(device, 0, &vec![0; 1 << 20]).unwrap();
    assert_eq!(used(&drive), 0, "a megabyte of zeros");
    sync::write(device, 0, &block(Kind::Noise, 1)).unwrap();
    assert_eq!(used(&drive), BLOCK, "noise is stored as it is");
    sync::write(device, 0, &block(Kind::Half, 1)).unwrap();
    let half = length(&block(Kind::Half, 1));
    assert!((2048..2200).contains(&half), "{half}");
    assert_eq!(used(&drive), half);
    sync::write(device, 0, &block(Kind::Zeros, 1)).unwrap();
    assert_eq!(used(&drive), 0);
}

#[test]
fn a_write_beyond_the_budget_is_refused_whole_and_changes_no_byte() {
    for inline in [true, false] {
        let drive = open_sized("compress:mem:1M?physical=64K", 0);
        let device = &*drive.device;
        let before = block(Kind::Noise, 7).repeat(8);
        sync::write(device, 0, &before).unwrap();
        // More than is left, although its first blocks would fit; longer than what the submitter's thread counts or not.
        let blocks = if inline { 9 } else { 32 };
        let more = block(Kind::Noise, 8).repeat(blocks);
        assert_eq!(sync::write(device, 8 * BLOCK, &more), Err(Fault::Full));
        assert_eq!(used(&drive), 8 * BLOCK);
        let read = sync::read(device, 0, 1 << 20).unwrap();
        assert!(read[..before.len()] == before);
        assert!(read[before.len()..].iter().all(|byte| *byte == 0));
        // What adds nothing, and what fits, is taken.
        sync::write(device, 0, &block(Kind::Noise, 9)).unwrap();
        sync::write(device, 8 * BLOCK, &more[..8 * BLOCK as usize]).unwrap();
        assert_eq!(used(&drive), 64 << 10, "full to the byte");
        assert_eq!(
            sync::write(device, 16 * BLOCK, &block(Kind::Half, 1)),
            Err(Fault::Full)
        );
        sync::write_zeroes(device, 16 * BLOCK, BLOCK).unwrap();
    }
}

#[test]
fn trims_discards_and_writes_of_zeros_give_room_back_at_once() {
    type Free = fn(&dyn BlockDevice, u64, u64) -> block::Outcome;
    for free in [sync::trim as Free, sync::discard, sync::write_zeroes] {
        let drive = open_sized("compress:mem:1M?physical=32K", 0);
        let device = &*drive.device;
        let full = block(Kind::Noise, 3).repeat(8);
        sync::write(device, 0, &full).unwrap();
        assert_eq!(
            sync::write(device, 8 * BLOCK, &full[..BLOCK as usize]),
            Err(Fault::Full)
        );
        free(device, 2 * BLOCK, 2 * BLOCK).unwrap();
        assert_eq!(used(&drive), 6 * BLOCK);
        sync::write(device, 8 * BLOCK, &full[..2 * BLOCK as usize]).unwrap();
        assert_eq!(used(&drive), 8 * BLOCK);
    }
}

#[test]
fn what_a_discard_has_freed_reads_as_zeros_and_stays_free_when_the_drive_is_opened_again() {
    let place = Place::new();
    let uri = format!("compress:{}?physical=1M", place.file("d"));
    let drive = open_sized(&uri, 4 << 20);
    for index in 0..64 {
        let kind = [Kind::Noise, Kind::Half, Kind::Zeros][index as usize % 3];
        sync::write(&*drive.device, index * 3 * BLOCK, &block(kind, index)).unwrap();
    }
    sync::discard(&*drive.device, 20 * 3 * BLOCK, 9 * 3 * BLOCK).unwrap();
    let before = used(&drive);
    let bytes = sync::read(&*drive.device, 0, 4 << 20).unwrap();
    assert!(
        bytes[20 * 3 * BLOCK as usize..][..9 * 3 * BLOCK as usize] == [0; 9 * 3 * BLOCK as usize]
    );
    let plain: u64 = bytes.chunks(BLOCK as usize).map(length).sum();
    assert_eq!(before, plain);
    drop(drive);
    assert_eq!(used(&open_sized(&uri, 0)), before);
}

#[test]
fn a_drive_that_holds_more_than_its_budget_opens_and_shrinks() {
    let place = Place::new();
    let file = place.file("d");
    let plain = open_sized(&file, 1 << 20);
    sync::write(&*plain.device, 0, &block(Kind::Noise, 1).repeat(16)).unwrap();
    drop(plain);
    let drive = open_sized(&format!("compress:{file}?physical=32K"), 0);
    let device = &*drive.device;
    assert_eq!(used(&drive), 16 * BLOCK, "twice the budget");
    let noise = block(Kind::Noise, 2);
    assert_eq!(sync::write(device, 16 * BLOCK, &noise), Err(Fault::Full));
    sync::write(device, 0, &noise).unwrap();
    sync::discard(device, 0, 9 * BLOCK).unwrap();
    sync::write(device, 16 * BLOCK, &noise).unwrap();
    assert_eq!(used(&drive), 8 * BLOCK);
}

#[test]
fn the_exposed_size_is_the_drives_and_a_smaller_drive_below_is_refused() {
    let drive = open_sized("compress:mem:1M?physical=64K&exposed=131K", 0);
    assert_eq!(drive.size_bytes, 128 << 10, "whole blocks");
    let device = &*drive.device;
    assert_eq!(
        sync::write(device, 128 << 10, &block(Kind::Noise, 1)),
        Err(Fault::Invalid)
    );
    let part = Request {
        length: 512,
        ..request(RequestKind::Write, 0, 512)
    };
    assert_eq!(
        sync::run(device, part, Memory::zeroed(512)),
        Err(Fault::Invalid),
        "blocks are counted whole"
    );
    let place = Place::new();
    let file = place.file("made");
    let made = open_sized(&format!("compress:{file}?physical=1M&exposed=8M"), 1 << 20);
    assert_eq!(made.size_bytes, 8 << 20, "a new file gets the exposed size");
    drop(made);
    let uri = format!("compress:{file}?physical=1M&exposed=9M");
    let error = open(&uri.parse().unwrap(), Open::default()).unwrap_err();
    assert!(matches!(error, OpenDriveError::TooSmall { .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("has 8 MiB, less than exposed=9 MiB"),
        "{error}"
    );
}

#[test]
fn wrappers_pass_the_use_on_and_other_drives_know_none() {
    let place = Place::new();
    let file = place.file("plain");
    for plain in ["mem:1M", "slow:faulty:mem:1M??iops=100000", &file] {
        assert_eq!(open_sized(plain, 1 << 20).device.usage(), None, "{plain}");
    }
    let drive = open_sized("slow:faulty:compress:mem:1M?physical=64K??iops=100000", 0);
    sync::write(&*drive.device, 0, &block(Kind::Noise, 1)).unwrap();
    let usage = drive.device.usage().unwrap();
    assert_eq!((usage.physical_bytes, usage.used_bytes), (64 << 10, BLOCK));
}

/// The drive below has the whole write, a part of it, or nothing of it. What it holds then is counted.
#[test]
fn a_write_that_fails_below_gives_its_room_back() {
    for effect in [Effect::Medium, Effect::Full] {
        let drive = open_sized("compress:faulty:mem:1M??physical=32K", 0);
        let device = &*drive.device;
        let faults = drive.faults.as_ref().unwrap();
        let full = block(Kind::Noise, 1).repeat(6);
        sync::write(device, 0, &full).unwrap();
        for kind in [RequestKind::Write, RequestKind::Trim] {
            faults.set(Trap {
                on: Some(kind),
                effect,
                ..Trap::default()
            });
        }
        let fault = Err(match effect {
            Effect::Full => Fault::Full,
            _ => Fault::Medium,
        });
        // Two blocks more, and one that shrinks.
        let write = [block(Kind::Half, 2), full[..2 * BLOCK as usize].to_vec()].concat();
        assert_eq!(sync::write(device, 5 * BLOCK, &write), fault);
        assert_eq!(used(&drive), 6 * BLOCK, "nothing was written");
        assert_eq!(sync::discard(device, 0, 6 * BLOCK), fault);
        assert_eq!(used(&drive), 6 * BLOCK, "nothing was freed");
        // All of the room is there again.
        sync::write(device, 6 * BLOCK, &full[..2 * BLOCK as usize]).unwrap();
        assert_eq!(used(&drive), 8 * BLOCK);
    }
}

#[test]
fn what_cannot_be_read_after_a_failed_write_counts_with_the_longer_content() {
    let place = Place::new();
    let file = place.file("d");
    let plain = open_sized(&file, 1 << 20);
    sync::write(&*plain.device, 0, &block(Kind::Half, 3).repeat(2)).unwrap();
    drop(plain);
    let drive = open_sized(&format!("compress:faulty:{file}?bad=0+4K?physical=32K"), 0);
    let device = &*drive.device;
    let half = length(&block(Kind::Half, 3));
    assert_eq!(used(&drive), BLOCK + half, "the bad block counts whole");
    let faults = drive.faults.as_ref().unwrap();
    faults.set(Trap {
        on: Some(RequestKind::Write),
        ..Trap::default()
    });
    let write = [block(Kind::Half, 1), block(Kind::Noise, 2)].concat();
    assert_eq!(sync::write(device, 0, &write), Err(Fault::Medium));
    assert_eq!(used(&drive), 2 * BLOCK);
    sync::write(device, 0, &write).unwrap();
    let both: u64 = write.chunks(BLOCK as usize).map(length).sum();
    assert_eq!(used(&drive), both, "a write makes the bad block good");
}

/// Many writes in flight, to few blocks, so that most of them must wait for others: the budget is never exceeded, and
/// in the end the count is that of the bytes.
#[test]
fn writes_in_flight_to_the_same_blocks_never_exceed_the_budget_together() {
    const BLOCKS: u64 = 12;
    const REQUESTS: u64 = 600;
    for (seed, uri) in [
        "compress:mem:48K?physical=20K",
        "compress:slow:mem:48K?latency=200us?physical=20K",
        "compress:faulty:mem:48K?fail=eio&nth=5&times=40&on=write?physical=20K",
    ]
    .into_iter()
    .enumerate()
    {
        let drive = open_sized(uri, 0);
        let device = &*drive.device;
        let collector = Arc::new(Collector::default());
        let mut chance = SplitMix64::new(seed as u64);
        for token in 0..REQUESTS {
            let first = chance.below(BLOCKS);
            let count = 1 + chance.below(3).min(BLOCKS - first - 1);
            let bytes: Vec<u8> = (0..count)
                .flat_map(|index| {
                    let kind = [Kind::Zeros, Kind::Half, Kind::Noise][chance.below(3) as usize];
                    block(kind, 1000 * token + index)
                })
                .collect();
            let (kind, memory) = match chance.below(4) {
                0 => (RequestKind::Discard, Memory::empty()),
                _ => (RequestKind::Write, Memory::from_bytes(&bytes)),
            };
            let change = request(kind, first * BLOCK, count * BLOCK);
            collector.submit(device, change, memory, token);
            let usage = device.usage().unwrap();
            assert!(usage.used_bytes <= usage.physical_bytes, "{uri}: {usage:?}");
        }
        collector.wait(REQUESTS as usize);
        let outcomes = collector.once_each(REQUESTS);
        let full = outcomes
            .iter()
            .filter(|end| **end == Err(Fault::Full))
            .count();
        assert!(
            full > 0 && full < REQUESTS as usize / 2,
            "{uri}: {full} refused"
        );
        let bytes = sync::read(device, 0, (BLOCKS * BLOCK) as usize).unwrap();
        let plain: u64 = bytes.chunks(BLOCK as usize).map(length).sum();
        assert_eq!(used(&drive), plain, "{uri}");
    }
}

/// Random requests one after another against a list of blocks: refused are exactly the writes that the sum of their
/// lengths has no room for.
#[test]
fn one_after_another_exactly_those_writes_are_refused_that_have_no_room() {
    const BLOCKS: usize = 40;
    const BUDGET: u64 = 64 << 10;
    for seed in 0..4 {
        let drive = open_sized("compress:mem:160K?physical=64K", 0);
        let device = &*drive.device;
        let mut chance = SplitMix64::new(seed);
        let mut model = vec![block(Kind::Zeros, 0); BLOCKS];
        let mut refused = 0;
        for step in 0..400 {
            let first = chance.below(BLOCKS as u64) as usize;
            // Some are longer than what the submitter's thread counts.
            let count = (1 + chance.below(16) as usize).min(BLOCKS - first);
            let offset = first as u64 * BLOCK;
            if chance.below(5) == 0 {
                sync::discard(device, offset, count as u64 * BLOCK).unwrap();
                model[first..first + count].fill(block(Kind::Zeros, 0));
            } else {
                let kind = [Kind::Zeros, Kind::Half, Kind::Noise][chance.below(3) as usize];
                let new: Vec<Vec<u8>> = (0..count as u64)
                    .map(|index| block(kind, seed << 32 | step << 8 | index))
                    .collect();
                let sum =
                    |blocks: &[Vec<u8>]| blocks.iter().map(|bytes| length(bytes)).sum::<u64>();
                let (all, old, new_sum) =
                    (sum(&model), sum(&model[first..first + count]), sum(&new));
                let fits = new_sum <= old || all - old + new_sum <= BUDGET;
                let end = sync::write(device, offset, &new.concat());
                assert_eq!(end.is_ok(), fits, "seed {seed}, step {step}: {end:?}");
                match end {
                    Ok(()) => model[first..first + count].clone_from_slice(&new),
                    Err(_) => refused += 1,
                }
            }
            let plain: u64 = model.iter().map(|bytes| length(bytes)).sum();
            assert_eq!(used(&drive), plain, "seed {seed}, step {step}");
        }
        assert!(refused > 20, "{refused} refused");
        assert!(sync::read(device, 0, BLOCKS * BLOCK as usize).unwrap() == model.concat());
    }
}

#[test]
fn a_drive_that_is_dropped_while_it_counts_answers_what_waits() {
    let place = Place::new();
    let file = place.file("d");
    let plain = open_sized(&file, 8 << 20);
    sync::write(&*plain.device, 0, &block(Kind::Noise, 1).repeat(2048)).unwrap();
    drop(plain);
    let drive = open_sized(&format!("compress:slow:{file}?iops=20?physical=8M"), 0);
    let collector = Arc::new(Collector::default());
    let write = request(RequestKind::Write, 0, BLOCK);
    collector.submit(&*drive.device, write, Memory::zeroed(4096), 0);
    drop(drive);
    collector.wait(1);
    assert_eq!(collector.once_each(1), [Err(Fault::Shutdown)]);
}
