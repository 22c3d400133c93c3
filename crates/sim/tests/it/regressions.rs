//! Schedules that failed once, each with its cause. A schedule is stored as text, because the meaning of a seed may
//! change.

use sim::schedule::{Runner, Schedule};

fn holds(text: &str) {
    let schedule: Schedule = text.parse().expect("a schedule");
    assert!(schedule.is_within_budget());
    let verdict = Runner::new().run(&schedule);
    assert_eq!(verdict.violation, None, "{schedule}");
}

/// Seed 100893. One drive failed before a batch was written, and the power went while another drive wrote its part: the
/// batch was on fewer drives than may be lost. The first recovery put the batch together and left it as it was; the
/// next power cut came before its checkpoint and took one more drive. Recovery now writes such a batch anew before any
/// request is answered.
#[test]
fn a_batch_that_recovery_found_is_whole_again_before_anything_else_may_happen() {
    holds(include_str!("../schedules/recovery-restores-batches.txt"));
}

/// The same on a small raid5 and with RDP: found again after the order of drive operations had changed.
#[test]
fn a_batch_of_a_raid5_that_recovery_found_is_whole_again_too() {
    holds(include_str!(
        "../schedules/recovery-restores-batches-raid5.txt"
    ));
    holds(include_str!(
        "../schedules/recovery-restores-batches-rdp.txt"
    ));
}

/// Three changes of the facts during one write of the labels became three generations, of which only the last was
/// written. Drives that did not have it yet lagged by three when the power went, and counted as stale: half of a
/// healthy pool. All changes that come while a generation is being written are now one generation.
#[test]
fn a_drive_never_lags_by_more_than_one_generation_however_many_changes_come_at_once() {
    holds(include_str!("../schedules/generations-in-turn.txt"));
}

/// The same with a drive that breaks while it is scrubbed: found again after the order of drive operations had changed.
#[test]
fn a_drive_never_lags_by_more_than_one_generation_while_it_is_scrubbed_and_breaks() {
    holds(include_str!("../schedules/generations-in-turn-scrub.txt"));
    // Since neighbours are joined, the other schedules no longer show the fault.
    holds(include_str!("../schedules/generations-in-turn-joined.txt"));
}

/// A drive failed while the pool was being closed. Then a waiting spare took its seat, and its cells were queued for a
/// rebuild that was never begun.
#[test]
fn a_pool_that_is_being_closed_seats_no_spare_and_queues_no_cells() {
    holds(include_str!("../schedules/closing-begins-no-fill.txt"));
}

/// A scrub dropped pages from memory to compare their copies. One of them was only in memory: its column was being
/// filled, and the neighbour's drive was out. The blocks stayed unknown after the fill.
#[test]
fn a_scrub_does_not_forget_checksums_that_only_memory_has() {
    holds(include_str!("../schedules/filled-blocks-are-known.txt"));
}

/// Seeds 78552 and 61361. A drive hung and was put out; another drive was suspect, to be trusted again in a minute. The
/// pool's timer for this was all that was still due, and the simulator gave back the operations of the hung drive only
/// after it, although no request waited for them. Work that had ended long ago was taken for work that does not end.
#[test]
fn what_a_hanging_drive_still_has_does_not_wait_until_a_suspect_is_trusted_again() {
    holds(include_str!("../schedules/suspects-timer-is-no-work.txt"));
}

/// Seed 92734. A drive that returned had the old content of a block. A client wrote the block anew, and the fill found
/// the new content in the log and wrote it in place before a flush had covered its batch. Then a power cut took the
/// batch: the older entry counted again, and by this entry the drive had the block. A fill of a drive that catches up
/// now writes only blocks that a power cut cannot take back.
#[test]
fn a_drive_that_catches_up_is_not_given_what_a_power_cut_may_take_back() {
    holds(include_str!("../schedules/fill-waits-for-flush.txt"));
}

/// Seed 2005708: the same on mirrors, where no read met the block before the drives were compared.
#[test]
fn a_mirror_that_catches_up_is_not_given_what_a_power_cut_may_take_back() {
    holds(include_str!("../schedules/fill-waits-for-flush-raid10.txt"));
}

/// A recovery left out a torn batch at the end of the ring. The batch that took its number had no room there and went
/// to the start. The next recovery found the new batch, and its anchor vouched for all numbers up to it. The recovery
/// after that met the torn batch first and took it for the end of the log: an acknowledged write was lost. Of several
/// batches of one number the one of the latest incarnation counts, wherever it is.
#[test]
fn a_batch_that_does_not_count_does_not_hide_the_one_that_took_its_number() {
    holds(include_str!("../schedules/skipped-batch-stays-out.txt"));
}

/// The power went while a generation was on one drive only. This drive hung at the next opening, which therefore made
/// another generation of the same number. After the next power cut, the two were taken for two halves that had gone on
/// alone. A generation that was only begun, on a drive that the other label does without, does not count.
#[test]
fn a_generation_that_was_only_begun_on_a_drive_that_was_not_found_is_no_other_half() {
    holds(include_str!("../schedules/label-only-begun.txt"));
    holds(include_str!("../schedules/label-only-begun-raid10.txt"));
    // Seed 300105871: the generation that was only begun said that another drive was out.
    holds(include_str!(
        "../schedules/label-only-begun-about-another.txt"
    ));
    // Seed 500568684: the pool was opened once more in between.
    holds(include_str!(
        "../schedules/label-only-begun-two-openings-ago.txt"
    ));
}

/// Seeds 100158277 and 100412277. A drive that was being filled failed, and another took its seat before the lanes had
/// learned of either. Cells that the lanes then reported as filled, on the old drive, were recorded for the new drive,
/// and were never filled there.
#[test]
fn what_was_filled_on_a_drive_that_left_does_not_count_for_the_one_that_came() {
    holds(include_str!(
        "../schedules/filled-for-a-drive-that-left.txt"
    ));
    holds(include_str!(
        "../schedules/filled-for-a-drive-that-left-pddl2.txt"
    ));
}

/// Seeds 100161638 and 6812. A page of checksums could not be read while its other holder was being filled. The page
/// was written anew without entries, for a scrub to fill; the daemon was killed before the scrub. After the restart no
/// record said that these checksums were missing.
#[test]
fn blocks_without_checksums_are_found_again_after_a_kill() {
    holds(include_str!(
        "../schedules/unknown-blocks-are-found-again.txt"
    ));
    holds(include_str!(
        "../schedules/unknown-blocks-are-found-again-raid10.txt"
    ));
}

/// Seed 9400011020. A fresh drive was put into a seat while the labels that said that the old drive was out were being
/// written. The lanes did not know of this yet and wrote a page to the fresh drive; the drive hung, and the page
/// arrived after the rebuild. A seat is free when the lanes know that its drive is out.
#[test]
fn a_fresh_drive_is_given_nothing_that_was_meant_for_the_one_before_it() {
    holds(include_str!("../schedules/seat-free-when-lanes-know.txt"));
}

/// Seeds 9400194749 and 9300080763. Since a power cut a copy of a page of checksums was older than the others, and its
/// drive was slow: reads of the page went on without that copy, and the copy stayed old. When a late copy arrives, all
/// copies are now compared.
#[test]
fn a_copy_of_a_page_that_came_late_is_compared_with_the_others() {
    holds(include_str!("../schedules/late-copy-is-compared-dcode.txt"));
    holds(include_str!("../schedules/late-copy-is-compared-pddl2.txt"));
}

/// Seed 9900232592. A drive hung while the pool was opened. Its `SeatOut` was joined with that of a drive that was out
/// before, and so reached the lanes before the places of its columns, which were those at the beginning of the opening:
/// on the hung drive. The lanes read the columns there, and waited without end. No place on a drive that is out is sent
/// to lanes.
#[test]
fn a_lane_is_not_told_of_a_place_on_a_drive_that_hung_at_the_opening() {
    holds(include_str!(
        "../schedules/place-on-a-drive-that-is-out.txt"
    ));
}

/// Seed 43052892. The power went between the record of a fill and the label that said that the group had been made
/// blank. So a group that was never written had a column in spare space, although the column's home drive was there.
/// When the group was made blank again, the column was not moved home, for no drive was missing.
#[test]
fn a_column_of_a_group_that_is_made_blank_goes_home() {
    holds(include_str!("../schedules/lazy-group-goes-home.txt"));
}

/// The power tore a stripe in place. While recovery repaired the stripe, a drive failed the reads that the repair
/// needed; the stripe was left as it was, and the anchor vouched for it.
#[test]
fn recovery_compares_torn_stripes_again_when_they_cannot_be_mended() {
    holds(include_str!("../schedules/torn-is-compared-again.txt"));
    holds(include_str!(
        "../schedules/torn-is-compared-again-raid10.txt"
    ));
}

/// Seed 50031794. In a pool that makes groups blank at once, a volume was created while a drive caught up. The drive
/// was brought up to date and counted as complete while the volume's groups were being made blank on all other drives:
/// its copies of their pages of checksums were arbitrary old bytes.
#[test]
fn a_drive_is_not_complete_while_groups_are_made_blank_without_it() {
    holds(include_str!(
        "../schedules/made-blank-while-a-drive-joins.txt"
    ));
}

/// Seed 840004978. A stripe moved to a free one, and moved on while a read of it was in flight. One of its drives had
/// lost the write in place and had the content from before. So had the pages of checksums, which say only from the next
/// checkpoint on that a stripe was vacated. The read was compared with these pages, and returned the old content.
#[test]
fn a_read_of_a_stripe_that_was_vacated_is_not_compared_with_what_it_held_before() {
    holds(include_str!("../schedules/vacated-is-not-compared.txt"));
}

/// Seeds 760204118 and 760514809. A stripe moved to a free one, and a drive lost its write. A read found that, and the
/// block was reconstructed and logged. Another read of it, which had begun before without a lock, was compared with the
/// page, because what is logged has no place yet. The page had the entry from before the move, which the drive's old
/// content matches, and the read returned that.
#[test]
fn a_read_is_not_compared_with_the_page_of_a_block_that_was_logged_meanwhile() {
    holds(include_str!(
        "../schedules/logged-again-is-not-compared.txt"
    ));
    holds(include_str!(
        "../schedules/logged-again-is-not-compared-raid10.txt"
    ));
}

/// Seed 610158698. A pool was opened while one of its drives was a thousand times slower than normal. This takes longer
/// than the minute of virtual time in which work ends beside fast drives.
#[test]
fn an_opening_beside_a_slow_drive_has_time() {
    holds(include_str!("../schedules/opening-beside-a-slow-drive.txt"));
}

/// Seed 705013725. One batch in flight had half of the memory of the log, so that the lane wanted a checkpoint. All
/// batches before it were covered, so that the checkpoint had nothing to do and ended at once. With each checkpoint the
/// lane examined space of a deleted volume again, which waits for the next checkpoint. The operation for this kept the
/// lane's turn going, and the next checkpoint began in the same turn, without end.
#[test]
fn a_checkpoint_that_makes_no_room_does_not_begin() {
    holds(include_str!(
        "../schedules/checkpoint-that-makes-no-room.txt"
    ));
}

/// Seed 791030210. A drive wrote its copy of a batch at a wrong place: over the first batch of the ring. The power went,
/// and with it the batch's other copy. Recovery found none where the batch should be, and searched at the start of the
/// ring, where batches are that had no room at its end. It took the copy there, although the first batch counted.
#[test]
fn a_batch_that_a_drive_has_written_astray_is_not_at_the_start_of_the_ring() {
    holds(include_str!(
        "../schedules/stray-batch-is-not-at-the-start-of-the-ring.txt"
    ));
}

/// Seed 792526230. A column of a group that was never written was in spare space, and its home drive was back. While the
/// group was made blank, the drive with the spare cell failed. The pool counted the column as at home, but its pages
/// there were not blank; and for its lane the column was nowhere.
#[test]
fn a_column_is_at_home_before_its_group_is_made_blank() {
    holds(include_str!("../schedules/blank-pages-at-home-too.txt"));
}

/// Seed 776026096. The same in a pool without `lazy-initialization`: the lane was not informed when the labels had the
/// volume, and had the column nowhere from then on.
#[test]
fn a_column_is_at_home_before_its_group_is_made_blank_for_a_new_volume() {
    holds(include_str!("../schedules/blank-in-spare-space.txt"));
}

/// Seed 2698. A spare had taken the seat of the first drive that was gone, and could not be filled because the others were
/// gone, too. When they were back, nothing tried to fill it again.
#[test]
fn what_could_not_be_filled_while_drives_were_gone_is_filled_when_they_are_back() {
    holds(include_str!("../schedules/fills-after-a-blink.txt"));
}

/// Seeds 811006801 and 811048982. Drives stayed and returned errors. A write whose row could not be read made the parity
/// unknown, as for lost blocks; when the drives worked again, redundancy was less, or a block of another drive was lost.
#[test]
fn a_write_loses_no_parity_because_drives_do_not_work_for_a_while() {
    holds(include_str!(
        "../schedules/parity-unknown-after-a-blink.txt"
    ));
    holds(include_str!("../schedules/block-lost-after-a-blink.txt"));
}

/// Seed 811049219. The power went while a generation was on one drive alone. The pool was opened without this drive, which
/// was given up by name; when the drive was back, the labels counted as those of two halves.
#[test]
fn a_drive_that_was_given_up_is_no_half_of_its_own() {
    holds(include_str!("../schedules/given-up-with-a-newer-label.txt"));
}

/// Seed 811073667. A drive left in the middle of a checkpoint, and was taken back at the opening: a copy of a page on it
/// was torn.
#[test]
fn pages_of_drives_that_are_taken_back_are_compared() {
    holds(include_str!(
        "../schedules/torn-page-of-a-drive-taken-back.txt"
    ));
}

/// Seed 860044404. Three drives of a `raid5` left one after the other, while batches were written. The first batch was a
/// gap. The next one had been refused by one of its two drives, and recovery would have found it on the other one; so
/// it was acknowledged, although recovery stops at the gap before it.
#[test]
fn a_batch_behind_a_gap_is_not_acknowledged_also_if_a_drive_has_refused_it() {
    holds(include_str!("../schedules/acknowledged-behind-a-gap.txt"));
}

/// A lane whose write found no room asked again, and was heard when the next round had begun: so one round followed
/// another without a pause, for as long as a drive did not answer. Now what a lane lacks counts for the round that is due.
#[test]
fn rounds_of_room_do_not_follow_one_another_while_a_drive_does_not_answer() {
    holds(include_str!("../schedules/room-asked-during-a-round.txt"));
}

/// Seed 1103947. While writes wait, each round of room makes lanes begin a checkpoint, and a checkpoint that has ended says
/// that something may be free. Beside a drive that did not answer rounds followed one another without a pause. Now there is
/// one.
#[test]
fn lanes_that_free_nothing_do_not_ask_for_room_without_a_pause() {
    holds(include_str!("../schedules/room-freed-without-end.txt"));
}

/// A rebuild was paused while a column of a deleted volume was being filled. The group was given to another volume, whose
/// first write waited for the end of this fill, as long as the pause. The fill is abandoned now.
#[test]
fn a_write_to_a_group_that_is_filled_does_not_wait_for_the_end_of_a_pause() {
    holds(include_str!("../schedules/blank-while-paused.txt"));
}

/// Seed 3029914. A client's flush failed on a drive that stays, and no client sent another one. The lane counted as stalled
/// for ever, also after its checkpoints had flushed the same drives, and cells that could not be filled during the stall
/// waited for its end: the seat was never complete.
#[test]
fn drives_that_a_checkpoint_has_flushed_take_flushes_again() {
    holds(include_str!("../schedules/stall-ends-with-any-flush.txt"));
}

/// A stripe was being turned into copies when the power was cut, and two copies of a block were torn. The block's data,
/// which the record of a conversion does not have, was damaged by a stray write. Recovery must find that the copies cannot
/// be made whole, and end the log before them; else it gives up the parity that can still reconstruct the block.
#[test]
fn torn_copies_of_damaged_data_do_not_replace_the_parity() {
    holds(include_str!("../schedules/torn-copies-of-damaged-data.txt"));
}

/// Seed 9002351. Five of six drives went out one after the other while a group was made blank. Its pages were on one drive
/// when labels recorded it as blank, so never-written blocks were lost when the drives were back. Such a group
/// stays "never written", and is made blank again.
#[test]
fn a_group_is_not_blank_if_more_drives_are_out_than_the_code_survives() {
    holds(include_str!("../schedules/blank-beside-a-blink.txt"));
}

/// Seeds 9085793 and 10041062. While moves were paused, a group was to be made blank whose stripes were being counted or
/// converted for the volume that had it before. Such a job takes no step during a pause, so the first write to the new
/// volume waited for as long. It is told to end, like fills and scrubs.
#[test]
fn a_paused_conversion_does_not_keep_a_group_from_being_made_blank() {
    holds(include_str!(
        "../schedules/conversion-ends-while-paused.txt"
    ));
    holds(include_str!(
        "../schedules/conversion-ends-while-paused-free.txt"
    ));
}

/// Seed 9152114. A paused rebuild, writes that wait for room, and a drive that hangs: the pool asks its lanes for room every
/// five milliseconds, and all goes on when the drive answers.
#[test]
fn rounds_of_room_beside_a_paused_rebuild_end_when_the_drive_answers() {
    holds(include_str!("../schedules/hang-beside-rounds-of-room.txt"));
}

/// Seeds 30199214 and 30167459. A drive went out, a spare took its seat at once, and then more drives went than the code
/// survives. The first drive had batches that counted, and was no drive of the layout any more: the next opening did not
/// count it among those that the journal needs, took the rest for the end of the log, and flushed writes were lost. A spare
/// now waits until the lanes have put in place or logged again what the drive had.
#[test]
fn a_spare_takes_no_seat_while_the_journal_needs_the_drive_that_left_it() {
    holds(include_str!("../schedules/spare-waits-for-the-journal.txt"));
    holds(include_str!(
        "../schedules/spare-waits-for-the-journal-grown.txt"
    ));
}

/// Seed 21014303. An expansion that followed one that had been called off waited for a dead drive to end its operations: it
/// was in the seat that the layout got next.
#[test]
fn a_growth_does_not_wait_for_a_dead_drive() {
    holds(include_str!("../schedules/growth-beside-a-dead-drive.txt"));
}

/// Seeds 40050001 and 30060629. Nine drives, stripes of three columns: a batch was on two drives, and both of them left within
/// a millisecond, before a flush, with all that was in their caches. The lane logged the blocks again, behind the batch, and
/// put them in place; the power was cut before the anchor passed the batch, so the next recovery ended before both, and a
/// stripe was torn. Now the batch itself is written again, to other drives.
#[test]
fn a_batch_whose_drives_have_left_is_found_by_recovery() {
    holds(include_str!(
        "../schedules/logged-again-behind-a-lost-batch.txt"
    ));
}

/// Seed 82064638. A drive that was being removed failed, and a waiting spare took its seat. Nothing was to be there any more,
/// so the removal did not end.
#[test]
fn a_spare_does_not_take_the_seat_of_a_drive_that_leaves() {
    holds(include_str!(
        "../schedules/spare-and-a-drive-that-leaves.txt"
    ));
}

/// Seeds 90000365 and 90301229. A drive failed an operation while labels were being written that say that it leaves. The pool
/// took the failure for one of a drive before it, whose end was decided, and the lane waited for ever.
#[test]
fn a_failure_of_a_drive_that_begins_to_leave_is_decided() {
    holds(include_str!(
        "../schedules/a-drive-that-leaves-fails-once.txt"
    ));
    holds(include_str!(
        "../schedules/a-drive-that-leaves-fails-once-ddp1.txt"
    ));
}

/// Seed 80029832. A volume was created while labels were being written with a table that has fewer groups, because a drive
/// had left, and got one of the others.
#[test]
fn a_volume_does_not_get_groups_that_the_pool_gives_up() {
    holds(include_str!(
        "../schedules/given-up-groups-are-given-to-no-volume.txt"
    ));
}

/// Seed 91020997. An expansion was called off after columns had got records at home, because one of its drives was replaced.
/// The successor's cell table did not get these records, and when it was to leave, none was written for a column that had one
/// in memory: after the next opening the columns were nowhere.
#[test]
fn a_successor_has_the_records_that_its_drive_has_of_columns_at_home() {
    holds(include_str!(
        "../schedules/successor-lacks-entries-at-home.txt"
    ));
}

/// Seed 91023436. A drive that was to be removed got a successor before the removal began: then the successor was to leave, and
/// nothing moved.
#[test]
fn a_drive_that_is_to_be_removed_gets_no_successor() {
    holds(include_str!(
        "../schedules/replaced-and-removed-at-once.txt"
    ));
}

/// Seeds 7006888 and 8001867. All drives left and came back. A batch that one of them had refused was not needed any more after
/// the next checkpoint, and nothing else was logged: the lane went on saying that drives refuse its writes, and the pool did
/// not try again to fill a cell that it could not fill meanwhile.
#[test]
fn a_lane_is_stalled_no_more_when_a_checkpoint_has_made_the_refused_batch_unnecessary() {
    holds(include_str!("../schedules/refused-batch-is-not-needed.txt"));
    holds(include_str!(
        "../schedules/refused-batch-is-not-needed-raid6.txt"
    ));
}

/// Seed 101050431. A drive failed while a column was being filled onto it and a successor was copying it. The successor took the
/// seat, and the lane went on writing to the cell, which the pool gave to another column.
#[test]
fn a_lane_forgets_a_fill_onto_a_drive_whose_successor_steps_in() {
    holds(include_str!("../schedules/target-on-a-replaced-drive.txt"));
}

/// Seed 200012429. The removal of a drive was called off while one of its columns was being copied from the spare cell of another
/// drive to that drive's successor: it did not move home after that, and the seat was never complete.
#[test]
fn a_column_that_a_successor_has_moves_on_if_it_should() {
    holds(include_str!(
        "../schedules/copied-to-a-successor-and-not-home.txt"
    ));
}

/// Seed 200034733. The power went when a successor had entries already, and the drive that it was to replace was out: the
/// entries counted, as places outside of the layout.
#[test]
fn entries_of_a_spare_that_was_to_replace_a_drive_do_not_count() {
    holds(include_str!(
        "../schedules/spare-with-entries-of-a-successor.txt"
    ));
}

/// Seed 400054238. A volume was deleted while one of its columns was being copied to a successor, so nothing of the drive was
/// missing there, and the successor took the seat. The copy ended after that, and counted as a place outside of the layout.
#[test]
fn a_copy_that_ends_after_the_promotion_is_no_place() {
    holds(include_str!(
        "../schedules/copy-that-ends-after-the-promotion.txt"
    ));
}

/// Seed 301005963. A successor that stepped in had all columns, and its seat was complete before the labels gave it the seat: then
/// the pool had records for its columns, and the lanes had none. When the drive was to leave, its columns were nowhere.
#[test]
fn a_successor_that_steps_in_is_complete_when_it_has_the_seat() {
    holds(include_str!(
        "../schedules/complete-before-the-promotion.txt"
    ));
}

/// Seed 302016696. A drive came back with all its columns, but with a copy of a page that had been written again meanwhile. A
/// checkpoint needed that page, so it stayed in memory, and its copies were not compared.
#[test]
fn copies_on_a_drive_that_is_back_are_compared_although_a_checkpoint_needs_the_page() {
    holds(include_str!(
        "../schedules/copy-of-a-page-kept-for-a-checkpoint.txt"
    ));
}

/// Seed 1102001094. The time at which a lane would have had something to do, a minute later, counted as work although the lane
/// needed it no more: a fault of the simulator.
#[test]
fn a_time_that_a_lane_needs_no_more_is_no_work() {
    holds(include_str!(
        "../schedules/time-that-a-lane-needs-no-more.txt"
    ));
}

/// Seed 1301008302. Four of six drives failed and came back, and three spares waited. When data could not be read any more, spares
/// took the seats of drives that had the only copy.
#[test]
fn no_spare_takes_the_seat_of_a_drive_that_may_have_the_only_copy() {
    holds(include_str!(
        "../schedules/spares-for-drives-that-blink.txt"
    ));
}
