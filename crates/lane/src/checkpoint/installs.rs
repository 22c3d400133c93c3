//! The installs that wait and are in flight, drive by drive.
//!
//! ```text
//!   seat 0   in flight [ run ][ run ]  ◄── run  run  run …    waiting, in order of address
//!   seat 1   in flight [ run ][run]    ◄── run  run …
//! ```
//!
//! A *run* is what goes to a drive as one operation: neighbours up to the longest joined operation (`lane/io/join.rs`),
//! begun in one turn. Each drive has its own queue, so that all drives stream, whatever the order of names is.
//!
//! Invariants: of a lane's installs a drive has at most [`DRIVE_BYTES_MAX`] in flight, so a client's operation waits
//! behind two long ones at most; a drive with installs that wait has at least one in flight.

use std::collections::VecDeque;
use std::ops::Range;

use block::Seat;
use plan::Transfer;

use crate::io::JOINED_BYTES_MAX;

/// Bytes of a lane's installs in flight at one drive: two long operations, so that the drive already has the second
/// when the first ends.
const DRIVE_BYTES_MAX: u64 = 2 * JOINED_BYTES_MAX;

/// Short runs in flight at all drives together: enough to keep every drive of a wide pool busy.
const RUNS_MAX: usize = 64;

/// The least number of short runs that one drive may have in flight, however many drives share [`RUNS_MAX`].
const DRIVE_RUNS_MIN: usize = 4;

/// The installs of a checkpoint that have not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Installs {
    /// By seat.
    drives: Vec<Drive>,
    /// Runs that may be in flight at one drive.
    runs_max: usize,
    /// Installs that have not begun, of all drives.
    waiting: usize,
}

/// The installs of one drive.
#[derive(Clone, Debug, Default)]
struct Drive {
    waiting: VecDeque<Transfer>,
    in_flight: Vec<Run>,
    bytes_in_flight: u64,
}

/// A run in flight.
#[derive(Clone, Debug)]
struct Run {
    range: Range<u64>,
    /// Members that have not ended.
    left: usize,
}

impl Drive {
    /// The next run: how many transfers it has, and where it lies on the drive.
    fn next_run(&self) -> Option<(usize, Range<u64>)> {
        let first = self.waiting.front()?;
        let mut range = first.offset..first.offset + first.length;
        let mut members = 1;
        for next in self.waiting.iter().skip(1) {
            let end = next.offset + next.length;
            if next.offset != range.end || end - range.start > JOINED_BYTES_MAX {
                break;
            }
            range.end = end;
            members += 1;
        }
        Some((members, range))
    }
}

impl Installs {
    /// Of transfers in order of drive and address. They must not overlap: a transfer is found by its address when it
    /// ends.
    pub(super) fn new(transfers: Vec<Transfer>) -> Self {
        let apart = |pair: &[Transfer]| {
            let (first, next) = (&pair[0], &pair[1]);
            (first.seat, first.offset + first.length) <= (next.seat, next.offset)
        };
        assert!(transfers.windows(2).all(apart), "installs do not overlap");
        let mut installs = Self {
            waiting: transfers.len(),
            ..Self::default()
        };
        for transfer in transfers {
            let seat = transfer.seat.index();
            if installs.drives.len() <= seat {
                installs.drives.resize_with(seat + 1, Drive::default);
            }
            installs.drives[seat].waiting.push_back(transfer);
        }
        let drives = installs.drives.iter();
        let busy = drives.filter(|drive| !drive.waiting.is_empty()).count();
        installs.runs_max = RUNS_MAX.div_ceil(busy.max(1)).max(DRIVE_RUNS_MIN);
        installs
    }

    /// All seats that may have installs.
    pub(super) fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        (0..self.drives.len()).map(|seat| Seat(u16::try_from(seat).expect("it was a seat's")))
    }

    /// True if all installs have begun. Some may be in flight.
    pub(super) const fn have_begun(&self) -> bool {
        self.waiting == 0
    }

    /// Begins the next run of a drive, if the drive may have one more. Returns the number of its transfers; the caller
    /// fetches each with [`take`](Self::take).
    pub(super) fn begin_run(&mut self, seat: Seat) -> usize {
        let drive = &mut self.drives[seat.index()];
        if drive.in_flight.len() >= self.runs_max {
            return 0;
        }
        let Some((left, range)) = drive.next_run() else {
            return 0;
        };
        let bytes = range.end - range.start;
        if drive.bytes_in_flight > 0 && drive.bytes_in_flight + bytes > DRIVE_BYTES_MAX {
            return 0;
        }
        drive.bytes_in_flight += bytes;
        drive.in_flight.push(Run { range, left });
        left
    }

    /// The next transfer of the run that was begun last.
    pub(super) fn take(&mut self, seat: Seat) -> Transfer {
        self.waiting -= 1;
        let drive = &mut self.drives[seat.index()];
        drive.waiting.pop_front().expect("a run has as many")
    }

    /// A transfer has ended. True if its run has ended with it.
    pub(super) fn ended(&mut self, transfer: &Transfer) -> bool {
        let drive = &mut self.drives[transfer.seat.index()];
        let mut runs = drive.in_flight.iter();
        let run = runs.position(|run| run.range.contains(&transfer.offset));
        let index = run.expect("it is in flight");
        let run = &mut drive.in_flight[index];
        run.left -= 1;
        if run.left > 0 {
            return false;
        }
        let run = drive.in_flight.swap_remove(index);
        drive.bytes_in_flight -= run.range.end - run.range.start;
        true
    }
}

#[cfg(test)]
mod tests {
    use block::BLOCK_BYTES;
    use format::Column;
    use plan::action::IoKind;

    use super::*;

    fn transfer(seat: u16, block: u64) -> Transfer {
        Transfer {
            seat: Seat(seat),
            column: Column(0),
            kind: IoKind::Write,
            offset: block * BLOCK_BYTES,
            length: BLOCK_BYTES,
            slice: None,
        }
    }

    fn begin(installs: &mut Installs, seat: Seat) -> Vec<Transfer> {
        let members = installs.begin_run(seat);
        (0..members).map(|_| installs.take(seat)).collect()
    }

    const LONG: u64 = JOINED_BYTES_MAX / BLOCK_BYTES;

    #[test]
    fn a_drive_has_two_long_runs_and_gets_the_next_when_one_has_ended() {
        let blocks = 0..3 * LONG + 1;
        let mut installs = Installs::new(blocks.map(|block| transfer(1, block)).collect());
        let seat = Seat(1);
        let first = begin(&mut installs, seat);
        assert_eq!(first.len() as u64, LONG);
        let second = begin(&mut installs, seat);
        assert_eq!(second[0].offset, JOINED_BYTES_MAX);
        assert!(begin(&mut installs, seat).is_empty(), "two are in flight");
        // Members end in any order; the last one ends the run.
        for (index, member) in second.iter().enumerate().rev() {
            assert_eq!(installs.ended(member), index == 0);
        }
        let third = begin(&mut installs, seat);
        assert_eq!(third[0].offset, 2 * JOINED_BYTES_MAX);
        assert!(begin(&mut installs, seat).is_empty() && !installs.have_begun());
        for member in first.iter().chain(&third) {
            installs.ended(member);
        }
        assert_eq!(begin(&mut installs, seat).len(), 1);
        assert!(installs.have_begun());
    }

    #[test]
    fn short_runs_are_as_many_as_all_drives_share() {
        for (drives, each) in [(1, 64), (6, 11), (16, 4), (40, 4)] {
            // No two are neighbours.
            let all = (0..drives).flat_map(|seat| (0..100).map(move |at| transfer(seat, 2 * at)));
            let mut installs = Installs::new(all.collect());
            assert_eq!(installs.seats().count(), usize::from(drives));
            for seat in installs.seats() {
                let begun = std::iter::from_fn(|| Some(begin(&mut installs, seat)));
                let begun = begun.take_while(|run| !run.is_empty()).count();
                assert_eq!(begun, each, "of {drives}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "installs do not overlap")]
    fn installs_that_overlap_are_refused() {
        let long = Transfer {
            length: 2 * BLOCK_BYTES,
            ..transfer(1, 4)
        };
        Installs::new(vec![long, transfer(1, 5)]);
    }

    #[test]
    fn a_run_longer_than_a_drive_may_have_goes_alone() {
        let long = Transfer {
            length: 3 * DRIVE_BYTES_MAX,
            ..transfer(0, 0)
        };
        let mut installs = Installs::new(vec![long, transfer(0, 10_000)]);
        assert_eq!(begin(&mut installs, Seat(0)), [long]);
        assert!(begin(&mut installs, Seat(0)).is_empty());
        assert!(installs.ended(&long));
        assert_eq!(begin(&mut installs, Seat(0)).len(), 1);
    }
}
