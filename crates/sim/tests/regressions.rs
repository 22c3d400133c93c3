//! Schedules that failed once, each with its story. A schedule is kept as text: what a seed means may change.

use sim::schedule::{Runner, Schedule};

fn holds(text: &str) {
    let schedule: Schedule = text.parse().expect("a schedule");
    assert!(schedule.is_within_budget());
    let verdict = Runner::new().run(&schedule);
    assert_eq!(verdict.violation, None, "{schedule}");
}

/// Seed 100893. A batch was on fewer drives than the code survives losses, for one had gone before it was
/// written and the power went while another wrote. The first recovery put it together and left it so; the
/// next power cut came before its checkpoint and took one more. Recovery lays such a batch out anew before
/// anything is answered.
#[test]
fn a_batch_that_recovery_found_is_whole_again_before_anything_else_may_happen() {
    holds(include_str!("schedules/recovery-restores-batches.txt"));
}

/// The same on raid5, small: found again after the order in which drives are asked had changed.
#[test]
fn a_batch_of_a_raid5_that_recovery_found_is_whole_again_too() {
    holds(include_str!(
        "schedules/recovery-restores-batches-raid5.txt"
    ));
}

/// Three changes of the facts within one write of the labels were three generations, of which only the last
/// was ever written. Drives that had not got it yet lagged by three when the power went and were taken for
/// stale: half of a healthy pool. What comes while a generation is being written is one generation.
#[test]
fn a_drive_never_lags_by_more_than_one_generation_however_many_changes_come_at_once() {
    holds(include_str!("schedules/generations-in-turn.txt"));
}

/// The same with a drive that breaks while it is scrubbed: found again after the order in which drives are asked
/// had changed.
#[test]
fn a_drive_never_lags_by_more_than_one_generation_while_it_is_scrubbed_and_breaks() {
    holds(include_str!("schedules/generations-in-turn-scrub.txt"));
    // Since neighbours are joined the others do not show it any more.
    holds(include_str!("schedules/generations-in-turn-joined.txt"));
}

/// A drive went while the pool was being closed; a waiting spare took its seat after that, and its cells
/// were queued for a rebuild that nobody would begin.
#[test]
fn a_pool_that_is_being_closed_seats_no_spare_and_queues_no_cells() {
    holds(include_str!("schedules/closing-begins-no-fill.txt"));
}

/// A scrub dropped pages from memory to compare their copies, and one of them was nowhere else: its column was
/// being filled, and the neighbour's drive was out. The blocks stayed unknown after the fill.
#[test]
fn a_scrub_does_not_forget_checksums_that_only_memory_has() {
    holds(include_str!("schedules/filled-blocks-are-known.txt"));
}

/// Seeds 78552 and 61361. A drive hung and was put out; another was suspect, and to be trusted again in a minute.
/// That look of the pool's was all that was still due, and the ends that the hanging drive held back, for which
/// nobody waited, came only after it: work that had ended long ago was taken for work that does not end.
#[test]
fn what_a_hanging_drive_still_has_does_not_wait_until_a_suspect_is_trusted_again() {
    holds(include_str!("schedules/suspects-timer-is-no-work.txt"));
}

/// Seed 92734. A drive that came back held a block as it had been; a client wrote it anew, and the fill, which found it
/// logged, wrote it in place before any flush had covered its batch. Then the power went and took the batch with it:
/// the older entry counted again, by which the drive held the block. A fill of a drive that catches up waits until
/// what it writes cannot be taken back.
#[test]
fn a_drive_that_catches_up_is_not_given_what_a_power_cut_may_take_back() {
    holds(include_str!("schedules/fill-waits-for-flush.txt"));
}

/// Seed 2005708: the same on mirrors, where nothing read the block before the drives were compared.
#[test]
fn a_mirror_that_catches_up_is_not_given_what_a_power_cut_may_take_back() {
    holds(include_str!("schedules/fill-waits-for-flush-raid10.txt"));
}

/// A recovery left a torn batch out at the end of the ring; the batch that took its number had no room there and went
/// to the start. The next recovery found that one and vouched for all numbers up to it; the one after that met the
/// torn one first, took it for the log's end, and a write that had been answered was gone. Of several batches of one
/// number the latest incarnation's counts, wherever it is.
#[test]
fn a_batch_that_does_not_count_does_not_hide_the_one_that_took_its_number() {
    holds(include_str!("schedules/skipped-batch-stays-out.txt"));
}

/// The power went while a generation was on one drive; that one hung when the pool was opened, which therefore made
/// another generation of the same number. When the power went again, the two were taken for two halves that had
/// gone on alone. What was only begun on a drive that the other label does without does not count.
#[test]
fn a_generation_that_was_only_begun_on_a_drive_that_was_not_found_is_no_other_half() {
    holds(include_str!("schedules/label-only-begun.txt"));
    holds(include_str!("schedules/label-only-begun-raid10.txt"));
    // Seed 300105871: it said that another drive was out.
    holds(include_str!("schedules/label-only-begun-about-another.txt"));
    // Seed 500568684: the pool was opened once more between.
    holds(include_str!(
        "schedules/label-only-begun-two-openings-ago.txt"
    ));
}

/// Seeds 100158277 and 100412277. A drive that was being filled failed and another took its seat before the lanes
/// had heard of either; what they then said was filled, on the drive that was gone, was recorded for the one that
/// had come, and nobody filled it there.
#[test]
fn what_was_filled_on_a_drive_that_left_does_not_count_for_the_one_that_came() {
    holds(include_str!("schedules/filled-for-a-drive-that-left.txt"));
    holds(include_str!(
        "schedules/filled-for-a-drive-that-left-pddl2.txt"
    ));
}

/// Seeds 100161638 and 6812. A page of checksums could not be read while its other holder was being filled, and was
/// written anew with nothing in it, for a scrub to fill; the daemon was killed before that. In its next life nobody
/// knew that something was to be found out.
#[test]
fn blocks_without_checksums_are_found_again_after_a_kill() {
    holds(include_str!("schedules/unknown-blocks-are-found-again.txt"));
    holds(include_str!(
        "schedules/unknown-blocks-are-found-again-raid10.txt"
    ));
}

/// Seed 9400011020. A fresh drive was put into a seat while the labels that said that the old one was out were being
/// written. Lanes, which had not heard of it, wrote a page to the fresh drive; that one hung, and the page arrived
/// after the rebuild. A seat is free when the lanes know that its drive is out.
#[test]
fn a_fresh_drive_is_given_nothing_that_was_meant_for_the_one_before_it() {
    holds(include_str!("schedules/seat-free-when-lanes-know.txt"));
}

/// Seeds 9400194749 and 9300080763. A copy of a page of checksums was older than the others since a power cut, and its
/// drive was slow: whoever needed the page went on without that copy, and it stayed as it was. When a late copy comes,
/// all of them are compared.
#[test]
fn a_copy_of_a_page_that_came_late_is_compared_with_the_others() {
    holds(include_str!("schedules/late-copy-is-compared-dcode.txt"));
    holds(include_str!("schedules/late-copy-is-compared-pddl2.txt"));
}

/// Seed 9900232592. A drive hung while the pool was opened. The lanes got its `SeatOut` together with that of a drive
/// that was out before, and after that where its columns are: on that drive, as they were when the opening began. They
/// read them there, and waited without end. No place on a drive that is out is sent to lanes.
#[test]
fn a_lane_is_not_told_of_a_place_on_a_drive_that_hung_at_the_opening() {
    holds(include_str!("schedules/place-on-a-drive-that-is-out.txt"));
}

/// Seed 43052892. The power went between the record of a fill and the label that the group had been made blank. So a group
/// that was never written had a column on spare space, while its home was there; nobody moved it when the group was
/// made blank again, for no drive was missing.
#[test]
fn a_column_of_a_group_that_is_made_blank_goes_home() {
    holds(include_str!("schedules/lazy-group-goes-home.txt"));
}

/// A stripe in place was torn by the power. While recovery mended it, a drive failed the reads that this needed; the stripe
/// was left as it was, and the anchor vouched for it.
#[test]
fn recovery_compares_torn_stripes_again_when_they_cannot_be_mended() {
    holds(include_str!("schedules/torn-is-compared-again.txt"));
    holds(include_str!("schedules/torn-is-compared-again-raid10.txt"));
}

/// Seed 50031794. A volume was created, in a pool that makes groups blank at once, while a drive caught up. The drive was
/// brought up to date, and counted as complete, while the volume's groups were being made blank on all drives but that
/// one: its copies of their pages of checksums were whatever lay there.
#[test]
fn a_drive_is_not_complete_while_groups_are_made_blank_without_it() {
    holds(include_str!("schedules/made-blank-while-a-drive-joins.txt"));
}

/// Seed 840004978. A stripe moved to a free one, and on while a read of it was in flight. One of its drives had lost what was
/// written in place, and had what the stripe held before; so did the pages of checksums, which say that a stripe was
/// vacated from the next checkpoint on. The read was compared with them, and returned it.
#[test]
fn a_read_of_a_stripe_that_was_vacated_is_not_compared_with_what_it_held_before() {
    holds(include_str!("schedules/vacated-is-not-compared.txt"));
}

/// Seed 610158698. A pool was opened while one of its drives was a thousand times slower than it should be; that takes
/// longer than the minute of virtual time in which work ends beside drives that are fast.
#[test]
fn an_opening_beside_a_slow_drive_has_time() {
    holds(include_str!("schedules/opening-beside-a-slow-drive.txt"));
}

/// Seed 705013725. One batch in flight had half of the memory of the log, so that a checkpoint was wanted; all before it was
/// covered, so that the checkpoint had nothing to do and ended at once. With it space of a deleted volume was looked at
/// again, whose look waits for the next checkpoint; the operation of that look made the lane's turn go on, and the
/// next checkpoint began in the same turn, without end.
#[test]
fn a_checkpoint_that_makes_no_room_does_not_begin() {
    holds(include_str!("schedules/checkpoint-that-makes-no-room.txt"));
}
