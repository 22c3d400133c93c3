//! The state of the log, in sequence numbers of batches.
//!
//! ```text
//!   1 … inherited … flushed … completed ……… ended … next
//!       └ earlier              │            └ batches in flight follow
//!         incarnations         └ the first gap follows, if there is one (`gaps.rs`)
//! ```
//!
//! Invariants: flushed ≤ completed ≤ ended < next, once recovery has found where the log continues. Batches end in
//! order, each once.

use format::Sequence;

/// For each state, the last batch up to which all batches have reached it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequences {
    inherited: Sequence,
    flushed: Sequence,
    completed: Sequence,
    ended: Sequence,
    next: Sequence,
}

impl Sequences {
    /// The log continues with batch `next`; those before it were found by recovery.
    pub(super) const fn go_on_at(&mut self, next: Sequence) {
        self.next = next;
        self.ended = next.before();
        self.completed = next.before();
        self.inherited = next.before();
    }

    /// Checks the order of its numbers.
    ///
    /// # Panics
    /// When a number is smaller than one that it must not be smaller than.
    pub(super) fn check(&self) {
        let order = [self.flushed, self.completed, self.ended, self.next];
        assert!(
            order.is_sorted() && self.ended < self.next.max(Sequence(1)),
            "{self:?} is in order"
        );
    }

    /// The last batch of earlier incarnations.
    pub(super) const fn inherited(&self) -> Sequence {
        self.inherited
    }

    /// The last durable batch: a flush has covered it.
    pub(super) const fn flushed(&self) -> Sequence {
        self.flushed
    }

    /// The last complete batch with no gap before it.
    pub(super) const fn completed(&self) -> Sequence {
        self.completed
    }

    /// The batch that begins next.
    pub(super) const fn next(&self) -> Sequence {
        self.next
    }

    /// A batch begins. Returns its number.
    pub(super) const fn begin(&mut self) -> Sequence {
        let sequence = self.next;
        self.next = sequence.next();
        sequence
    }

    /// A batch has ended. `complete`: neither it nor one before it is a gap.
    pub(super) fn ended(&mut self, sequence: Sequence, complete: bool) {
        assert_eq!(sequence, self.ended.next(), "batches end in order");
        self.ended = sequence;
        if complete {
            self.completed = sequence;
        }
    }

    /// Some gaps are filled, or complete batches have become gaps; `first` is the first gap now.
    pub(super) fn gaps_changed(&mut self, first: Option<Sequence>) {
        self.completed = first.map_or(self.ended, Sequence::before);
    }

    /// A flush has covered batches up to this one.
    pub(super) fn flush_covered(&mut self, sequence: Sequence) {
        assert!(sequence <= self.completed, "what is flushed is complete");
        self.flushed = self.flushed.max(sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recovery has found batches up to 4, and 5 to 8 have begun.
    fn begun() -> Sequences {
        let mut sequences = Sequences::default();
        sequences.go_on_at(Sequence(5));
        for sequence in (5..9).map(Sequence) {
            assert_eq!(sequences.begin(), sequence);
        }
        sequences
    }

    #[test]
    fn what_recovery_has_found_is_complete_and_inherited_and_not_yet_flushed() {
        let sequences = begun();
        assert_eq!(
            (sequences.inherited(), sequences.completed()),
            (Sequence(4), Sequence(4))
        );
        assert_eq!(
            (sequences.flushed(), sequences.next()),
            (Sequence(0), Sequence(9))
        );
    }

    #[test]
    fn batches_behind_a_gap_are_complete_when_it_is_filled() {
        let mut sequences = begun();
        sequences.ended(Sequence(5), true);
        sequences.ended(Sequence(6), false);
        sequences.ended(Sequence(7), false);
        assert_eq!(sequences.completed(), Sequence(5));
        sequences.gaps_changed(Some(Sequence(7)));
        assert_eq!(sequences.completed(), Sequence(6));
        sequences.gaps_changed(None);
        assert_eq!(sequences.completed(), Sequence(7));
    }

    #[test]
    fn an_older_flush_that_ends_later_takes_nothing_back() {
        let mut sequences = begun();
        sequences.ended(Sequence(5), true);
        sequences.flush_covered(Sequence(5));
        sequences.flush_covered(Sequence(4));
        assert_eq!(sequences.flushed(), Sequence(5));
    }

    #[test]
    #[should_panic(expected = "what is flushed is complete")]
    fn a_flush_does_not_reach_behind_a_gap() {
        let mut sequences = begun();
        sequences.ended(Sequence(5), false);
        sequences.flush_covered(Sequence(5));
    }

    #[test]
    #[should_panic(expected = "batches end in order")]
    fn no_batch_ends_before_an_earlier_one() {
        begun().ended(Sequence(6), true);
    }
}
