use super::*;

const EMPTY: [u8; BLOCK] = [0; BLOCK];

fn block_of(drive: &mut Drive, at: u64) -> [u8; BLOCK] {
    let mut bytes = EMPTY;
    drive.read(at * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_lone_server_takes_size_over_bandwidth_plus_time_per_operation() {
    let mut drive = Drive::null(
        1 << 20,
        Pace::Server {
            bytes_per_second: 1_000_000,
            per_operation: Duration::from_millis(2),
        },
    );
    // Two at once: the second waits for the first.
    assert_eq!(drive.serve(Instant(0), 8_000), Instant(10_000_000));
    assert_eq!(drive.serve(Instant(0), 8_000), Instant(20_000_000));
    // After a pause there is no burst.
    assert_eq!(drive.serve(Instant(90_000_000), 0), Instant(92_000_000));
}

#[test]
fn a_drive_that_was_stalled_when_its_host_was_killed_is_so_for_the_rest_of_that_time() {
    let mut drive = Drive::new(1 << 20, Pace::Null);
    drive.faults.stall = Some(Duration::from_secs(2));
    let killed = Instant(75_000_000_000);
    let done = drive.answer_at(killed, killed);
    assert_eq!(done, Instant(77_000_000_000));
    drive.begin_clock_at(Instant(76_500_000_000));
    let done = drive.answer_at(Instant(1), Instant(2));
    assert_eq!(done, Instant(500_000_000));
}

#[test]
fn a_spoiled_block_reads_again_once_written() {
    let mut drive = Drive::new(1 << 20, Pace::Null);
    let mut block = [1; BLOCK];
    drive.spoil(8192 + 17);
    assert_eq!(drive.read(8192, &mut block), Err(Fault::Medium));
    drive.write(8192, &[7; BLOCK]).unwrap();
    drive.read(8192, &mut block).unwrap();
    assert_eq!(block, [7; BLOCK]);
    drive.pull();
    assert_eq!(drive.flush(), Err(Fault::Gone));
}

#[test]
fn a_cut_loses_what_no_flush_covers_and_nothing_else() {
    let mut drive = Drive::new(1 << 20, Pace::Null);
    drive.write(0, &[1; BLOCK]).unwrap();
    drive.flush().unwrap();
    let flushed = drive.digest();
    drive.write(0, &[2; BLOCK]).unwrap();
    drive.write(4096, &[3; BLOCK]).unwrap();
    assert_eq!(block_of(&mut drive, 0), [2; BLOCK], "reads see the cache");
    assert_eq!(drive.digest(), flushed, "the medium has not changed");
    let mut lost = drive.clone();
    lost.cut(|_, _| Survival::Lost);
    assert_eq!(block_of(&mut lost, 0), [1; BLOCK]);
    assert_eq!(lost.digest(), flushed);
    let mut kept = drive.clone();
    kept.cut(|_, _| Survival::Kept);
    drive.flush().unwrap();
    assert_eq!(kept.digest(), drive.digest());
}

#[test]
fn a_flush_covers_what_had_completed_when_it_began() {
    let mut drive = Drive::new(1 << 20, Pace::Null);
    drive.write(0, &[1; BLOCK]).unwrap();
    let flush = drive.admit(IoKind::Flush, 0);
    drive.write(4096, &[2; BLOCK]).unwrap();
    drive.flush_to(flush.mark, flush.effect).unwrap();
    assert_eq!(drive.cached_writes().count(), 1);
    drive.cut(|_, _| Survival::Lost);
    assert_eq!(block_of(&mut drive, 0), [1; BLOCK]);
    assert_eq!(block_of(&mut drive, 1), EMPTY);
}

#[test]
fn a_later_write_can_survive_an_earlier_one_and_each_can_be_torn() {
    let mut drive = Drive::new(1 << 20, Pace::Null);
    drive.write(0, &[1; 2 * BLOCK]).unwrap();
    drive.write(4096, &[2; 2 * BLOCK]).unwrap();
    let mut turn = 0;
    drive.cut(|_, sectors| {
        assert_eq!(sectors, 16);
        turn += 1;
        if turn == 1 {
            Survival::Lost
        } else {
            Survival::Torn(Pieces {
                runs: [(1, 2), (15, 16)],
            })
        }
    });
    assert_eq!(block_of(&mut drive, 0), EMPTY);
    let mut first = EMPTY;
    first[512..1024].fill(2);
    assert_eq!(block_of(&mut drive, 1), first);
    let mut second = EMPTY;
    second[3584..].fill(2);
    assert_eq!(block_of(&mut drive, 2), second);
}

#[test]
fn each_silent_fault_does_what_its_name_says() {
    let fresh = || {
        let mut drive = Drive::new(1 << 20, Pace::Null);
        for at in 0..8 {
            drive
                .write(at * BLOCK_BYTES, &[at as u8 + 1; BLOCK])
                .unwrap();
        }
        drive
    };
    let write = |fault| {
        let mut drive = fresh();
        drive.inject(Trigger::nth(0), fault);
        drive.write(4096, &[99; BLOCK]).unwrap();
        assert_eq!(drive.faults_happened(), 1);
        drive
    };
    let mut dropped = write(DriveFault::Dropped);
    assert_eq!(block_of(&mut dropped, 1), [2; BLOCK]);
    let mut stray = write(DriveFault::Stray { blocks: 3 });
    assert_eq!(block_of(&mut stray, 1), [2; BLOCK]);
    assert_eq!(block_of(&mut stray, 4), [99; BLOCK]);
    let mut shorn = write(DriveFault::Shorn(Pieces::prefix(1)));
    assert_eq!(block_of(&mut shorn, 1)[..512], [99; 512]);
    assert_eq!(block_of(&mut shorn, 1)[512..], [2; 3584]);

    let mut drive = fresh();
    drive.inject(Trigger::nth(1), DriveFault::WrongRead { blocks: -1 });
    assert_eq!(block_of(&mut drive, 3), [4; BLOCK], "the first goes well");
    assert_eq!(block_of(&mut drive, 3), [3; BLOCK]);
    assert_eq!(block_of(&mut drive, 3), [4; BLOCK], "once");
    drive.inject(Trigger::nth(0), DriveFault::Flip { bit: 3 });
    assert_eq!(block_of(&mut drive, 3)[0], 4 ^ 8);
    assert_eq!(block_of(&mut drive, 3)[0], 4 ^ 8, "rot stays");

    let mut drive = fresh();
    drive.flush().unwrap();
    drive.inject(Trigger::nth(0), DriveFault::IgnoreFlush);
    drive.write(0, &[50; BLOCK]).unwrap();
    drive.flush().unwrap();
    drive.flush().unwrap();
    drive.cut(|_, _| Survival::Lost);
    assert_eq!(block_of(&mut drive, 0), [1; BLOCK]);
}

#[test]
fn reported_faults_end_once_or_never() {
    let mut drive = Drive::new(1 << 20, Pace::Null);
    let mut block = EMPTY;
    drive.inject(Trigger::nth(0), DriveFault::Eio { for_good: false });
    assert_eq!(drive.read(0, &mut block), Err(Fault::Medium));
    assert_eq!(drive.read(0, &mut block), Ok(()));
    drive.inject(Trigger::nth(0), DriveFault::Full { for_good: true });
    assert_eq!(drive.read(0, &mut block), Ok(()), "reading needs no space");
    assert_eq!(drive.write(0, &block), Err(Fault::Full));
    assert_eq!(drive.zero(0, 4096), Err(Fault::Full));
    drive.recover();
    assert_eq!(drive.write(0, &block), Ok(()));
    drive.inject(Trigger::nth(0), DriveFault::Eio { for_good: true });
    assert_eq!(drive.write(0, &block), Err(Fault::Medium));
    assert_eq!(drive.flush(), Err(Fault::Medium));
}
