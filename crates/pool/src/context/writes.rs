//! The pool's own writes in flight: labels, pages of cell tables, and zeros over journals. Each is written durably, that
//! is, written and then flushed.
//!
//! Input: a write to begin, its end, a drive that is out. Output: [`PoolAction::WriteDurably`], and what has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{Fault, Instant, Outcome, Seat};
use plan::DEADLINE;
use plan::action::{IoId, WRITE_RETRIES};

use crate::{Half, PoolAction};

/// The pool's own kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolWrite {
    Label {
        seat: Seat,
    },
    CellPage {
        seat: Seat,
        first_row: u64,
    },
    /// Zeros over the journal of a returning drive.
    WipeJournal {
        seat: Seat,
    },
}

impl PoolWrite {
    pub(crate) const fn seat(self) -> Seat {
        match self {
            Self::Label { seat } | Self::CellPage { seat, .. } | Self::WipeJournal { seat } => seat,
        }
    }
}

/// A write in flight.
#[derive(Clone, Debug)]
struct PoolIo {
    what: PoolWrite,
    offset: u64,
    bytes: Arc<[u8]>,
    since: Instant,
    tries: u8,
}

impl PoolIo {
    fn is_late(&self, now: Instant) -> bool {
        self.since + DEADLINE <= now
    }
}

/// What follows the end of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    /// Nothing waits for it: its drive has gone out.
    Forgotten,
    /// The medium has refused it, and it is tried again.
    Again(PoolAction),
    /// It has ended.
    Over(PoolWrite),
}

/// Writes in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    ios: BTreeMap<IoId, PoolIo>,
    /// Writes to drives that have gone out since: their results are ignored.
    forgotten: BTreeMap<IoId, Seat>,
    last: u64,
}

impl Writes {
    pub(crate) fn is_idle(&self) -> bool {
        self.ios.is_empty()
    }

    /// Whether something is being written to a drive.
    pub(crate) fn is_writing(&self, seat: Seat) -> bool {
        self.ios.values().any(|io| io.what.seat() == seat)
    }

    /// Whether a write is in flight to a drive that was in the seat when the write began, and has gone out there.
    pub(crate) fn is_forgotten(&self, seat: Seat) -> bool {
        self.forgotten.values().any(|&other| other == seat)
    }

    /// When the oldest write began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.ios.values().map(|io| io.since).min()
    }

    /// Writes that have not ended in time, in the order in which they began.
    pub(crate) fn late(&self, now: Instant) -> impl Iterator<Item = PoolWrite> + '_ {
        let late = self.ios.values().filter(move |io| io.is_late(now));
        late.map(|io| io.what)
    }

    pub(crate) fn begin(
        &mut self,
        now: Instant,
        what: PoolWrite,
        offset: u64,
        bytes: Vec<u8>,
    ) -> PoolAction {
        self.push(PoolIo {
            what,
            offset,
            bytes: bytes.into(),
            since: now,
            tries: 0,
        })
    }

    fn push(&mut self, io: PoolIo) -> PoolAction {
        self.last += 1;
        let id = IoId(self.last);
        let action = PoolAction::WriteDurably {
            id,
            seat: io.what.seat(),
            offset: io.offset,
            bytes: Arc::clone(&io.bytes),
        };
        self.ios.insert(id, io);
        action
    }

    /// A write has ended; `last` is the half that ended it. A write that fails with a medium error is tried again, as in
    /// lanes. A flush is never tried again: other writes that it should have covered may be lost.
    ///
    /// # Panics
    /// When `id` is not in flight.
    pub(crate) fn ended(
        &mut self,
        now: Instant,
        id: IoId,
        last: Half,
        outcome: Outcome,
    ) -> WriteEnd {
        if self.forgotten.remove(&id).is_some() {
            return WriteEnd::Forgotten;
        }
        let io = self.ios.remove(&id).expect("the write is in flight");
        if (last, outcome) == (Half::Write, Err(Fault::Medium)) && io.tries < WRITE_RETRIES {
            return WriteEnd::Again(self.push(PoolIo {
                since: now,
                tries: io.tries + 1,
                ..io
            }));
        }
        WriteEnd::Over(io.what)
    }

    /// The results of all writes to a drive are ignored.
    pub(crate) fn forget(&mut self, seat: Seat) {
        self.forget_those(|io| io.what.seat() == seat);
    }

    /// Zeros over journals that have not been written in time are not waited for. Returns their drives.
    pub(crate) fn forget_late_wipes(&mut self, now: Instant) -> Vec<Seat> {
        self.forget_those(|io| matches!(io.what, PoolWrite::WipeJournal { .. }) && io.is_late(now))
    }

    fn forget_those(&mut self, is_one: impl Fn(&PoolIo) -> bool) -> Vec<Seat> {
        let forgotten = self.ios.extract_if(.., |_, io| is_one(io));
        let forgotten: Vec<(IoId, Seat)> = forgotten.map(|(id, io)| (id, io.what.seat())).collect();
        self.forgotten.extend(forgotten.iter().copied());
        forgotten.into_iter().map(|(_, seat)| seat).collect()
    }

    /// The drive of a seat is that of another seat from now on, and with it what is written to it.
    pub(crate) fn rename(&mut self, from: Seat, to: Seat) {
        for io in self.ios.values_mut() {
            match &mut io.what {
                PoolWrite::Label { seat: at }
                | PoolWrite::CellPage { seat: at, .. }
                | PoolWrite::WipeJournal { seat: at }
                    if *at == from =>
                {
                    *at = to;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: PoolWrite = PoolWrite::Label { seat: Seat(1) };
    const PAGE: PoolWrite = PoolWrite::CellPage {
        seat: Seat(2),
        first_row: 170,
    };

    /// Begins a write of one block; returns its number.
    fn begin(writes: &mut Writes, at: u64, what: PoolWrite) -> IoId {
        match writes.begin(Instant(at), what, 4096, vec![7; 4096]) {
            PoolAction::WriteDurably {
                id,
                seat,
                offset: 4096,
                bytes,
            } => {
                assert_eq!((seat, bytes.len()), (what.seat(), 4096));
                id
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_write_ends_once_and_says_what_was_written() {
        let mut writes = Writes::default();
        let id = begin(&mut writes, 5, PAGE);
        assert!(writes.is_writing(Seat(2)) && !writes.is_writing(Seat(1)));
        let ended = writes.ended(Instant(6), id, Half::Flush, Ok(()));
        assert_eq!(ended, WriteEnd::Over(PAGE));
        assert!(writes.is_idle());
    }

    #[test]
    fn what_the_medium_refuses_is_written_again_a_few_times() {
        let mut writes = Writes::default();
        let mut id = begin(&mut writes, 5, LABEL);
        for at in 0..u64::from(WRITE_RETRIES) {
            let ended = writes.ended(Instant(10 + at), id, Half::Write, Err(Fault::Medium));
            let WriteEnd::Again(PoolAction::WriteDurably { id: again, .. }) = ended else {
                panic!("{ended:?}");
            };
            assert_eq!(writes.oldest(), Some(Instant(10 + at)), "it begins again");
            id = again;
        }
        let ended = writes.ended(Instant(99), id, Half::Write, Err(Fault::Medium));
        assert_eq!(ended, WriteEnd::Over(LABEL));
    }

    #[test]
    fn neither_a_flush_nor_another_fault_is_tried_again() {
        for (last, fault) in [(Half::Flush, Fault::Medium), (Half::Write, Fault::Gone)] {
            let mut writes = Writes::default();
            let id = begin(&mut writes, 5, LABEL);
            let ended = writes.ended(Instant(6), id, last, Err(fault));
            assert_eq!(ended, WriteEnd::Over(LABEL), "{last:?} {fault:?}");
        }
    }

    #[test]
    fn what_goes_to_a_drive_that_is_out_is_waited_for_by_nobody_but_its_seat() {
        let mut writes = Writes::default();
        let ids = [LABEL, PAGE].map(|what| begin(&mut writes, 5, what));
        writes.forget(Seat(1));
        assert!(writes.is_forgotten(Seat(1)) && !writes.is_writing(Seat(1)));
        assert!(!writes.is_forgotten(Seat(2)) && !writes.is_idle());
        let ended = writes.ended(Instant(6), ids[0], Half::Write, Err(Fault::Medium));
        assert_eq!(ended, WriteEnd::Forgotten);
        assert!(!writes.is_forgotten(Seat(1)));
    }

    #[test]
    fn writes_go_with_their_drive_to_another_seat() {
        let mut writes = Writes::default();
        let ids = [LABEL, PAGE].map(|what| begin(&mut writes, 5, what));
        writes.rename(Seat(2), Seat(7));
        let ended = ids.map(|id| writes.ended(Instant(6), id, Half::Flush, Ok(())));
        let moved = PoolWrite::CellPage {
            seat: Seat(7),
            first_row: 170,
        };
        assert_eq!(ended, [WriteEnd::Over(LABEL), WriteEnd::Over(moved)]);
    }

    #[test]
    fn late_wipes_are_given_up_and_other_late_writes_are_named() {
        let wipe = PoolWrite::WipeJournal { seat: Seat(4) };
        let mut writes = Writes::default();
        for (at, what) in [(5, LABEL), (6, wipe), (9, PAGE)] {
            begin(&mut writes, at, what);
        }
        let now = |at| Instant(at) + DEADLINE;
        assert_eq!(writes.late(now(4)).count(), 0);
        assert_eq!(writes.late(now(6)).collect::<Vec<_>>(), [LABEL, wipe]);
        assert_eq!(writes.forget_late_wipes(now(5)), []);
        assert_eq!(writes.forget_late_wipes(now(9)), [Seat(4)]);
        assert!(writes.is_forgotten(Seat(4)));
        assert_eq!(writes.oldest(), Some(Instant(5)));
    }
}
