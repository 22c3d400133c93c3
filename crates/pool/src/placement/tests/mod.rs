//! Scenarios of the placement alone: seats, tables and lanes are the test.

mod large;

use std::sync::Arc;

use block::Seat;
use format::{Column, Generation, GroupId, Sequence};
use layout::developed::Shape;
use layout::pool::{Choice, Pool as Table};

use super::*;
use crate::fill::kind::{self, Kind};
use crate::{NewDrive, PoolSpec, Ticket, VolumeFacts, create};

/// A pool of these drives, without spares.
fn spec(scheme: &str, drives: Vec<NewDrive>) -> PoolSpec {
    PoolSpec {
        name: "p".to_owned(),
        uuid: Uuid::from_u128(9999),
        scheme: scheme.parse().unwrap(),
        chunk_bytes: None,
        cell_bytes: None,
        journal: true,
        lazy: true,
        interleave: false,
        free_stripes: None,
        drives,
        spares: Vec::new(),
    }
}

/// Why a column should move.
fn why(places: &Placement, key: Key) -> Option<&'static str> {
    Some(Kind::of(places, key)?.policy().name())
}

struct Lab {
    facts: PoolFacts,
    placement: Placement,
    /// Pages that are being written.
    writes: Vec<PageWrite>,
}

impl Lab {
    /// A pool of drives of 64 MiB with a volume in its first groups.
    fn new(scheme: &str, groups: u64) -> Self {
        let drives = 7;
        let drive = |number| {
            let name = format!("drive:{number}");
            NewDrive::new(Uuid::from_u128(number), name, 64 << 20)
        };
        let spec = PoolSpec {
            free_stripes: Some(0),
            spares: vec![drive(drives)],
            ..spec(scheme, (0..drives).map(drive).collect())
        };
        let pool = create(&spec, Ticket(0)).unwrap();
        let mut facts = pool.facts().clone();
        let extents = vec![(0, groups)];
        facts.volumes.push(volume(extents));
        let seats = facts.seats().map(|(seat, _)| seat);
        let placement = Placement::new(pool.geometry(), &facts, seats);
        Self {
            facts,
            placement,
            writes: Vec::new(),
        }
    }

    fn report(&mut self, seat: u16, state: SeatState) {
        self.facts.seats[usize::from(seat)].state = state;
        self.placement.seats_are(&self.facts);
    }

    /// The drive is out, and what was on it is gone.
    fn lose(&mut self, seat: u16) {
        self.out(seat, OutReason::IoErrors);
        let unrecorded = self.placement.drop_table(Seat(seat));
        for record in unrecorded {
            self.placement.release(record.key, record.cell);
        }
        self.placement.lose(Seat(seat));
    }

    fn out(&mut self, seat: u16, reason: OutReason) {
        self.report(
            seat,
            SeatState::Out {
                since: Generation(2),
                reason,
            },
        );
    }

    /// A new drive is in the seat, and lanes use it.
    fn fill(&mut self, seat: u16) {
        self.report(seat, SeatState::Filling);
        self.placement.begin_table(Seat(seat));
    }

    /// Records a claimed cell. Its page is written when the test says so.
    fn record(&mut self, key: Key, cell: Cell) {
        let page = self.placement.record(key, cell);
        self.writes.extend(page);
    }

    /// All writes of pages end.
    fn write_all(&mut self) {
        while let Some(page) = self.writes.pop() {
            let (seat, row) = (page.seat, page.first_row);
            let Some(records) = self.placement.page_written(seat, row) else {
                continue;
            };
            self.writes.extend(self.placement.next_write(seat, row));
            for record in records {
                self.placement.settle(record);
            }
        }
    }

    /// Moves a column where it should be, and frees its cell before.
    fn move_column(&mut self, key: Key) -> Option<Cell> {
        let target = kind::target(&self.placement, key)?;
        self.placement.claim(key, target);
        self.record(key, target);
        self.write_all();
        self.writes.extend(self.placement.settled(key));
        self.write_all();
        Some(target)
    }

    /// Moves all columns that should move; returns how many did.
    fn move_all(&mut self) -> usize {
        let away: BTreeSet<(Kind, Key)> = kind::away(&self.placement).collect();
        let moved = away
            .into_iter()
            .filter_map(|(_, key)| self.move_column(key));
        moved.count()
    }

    fn check(&mut self) {
        self.placement.check_reports(&self.facts);
        self.placement.check(|_| false, kind::MOVES);
    }

    /// A column whose home is on a seat.
    fn column_of(&self, seat: u16) -> Key {
        let mut columns = self.placement.columns_on(Seat(seat));
        columns.next().expect("the drive has columns")
    }
}

fn volume(extents: Vec<(u64, u64)>) -> VolumeFacts {
    VolumeFacts {
        name: "v".to_owned(),
        uuid: Uuid::from_u128(7),
        size_bytes: 1 << 20,
        extents,
        interleave: None,
    }
}

/// Seven drives with a spare cell in each row.
fn spared() -> Lab {
    Lab::new("pddl1:2d:7c:1s", 30)
}

#[test]
fn a_column_of_a_drive_that_is_out_is_absent_until_it_is_recorded_in_spare_space() {
    let mut lab = spared();
    let key = lab.column_of(2);
    assert_eq!(why(&lab.placement, key), None);
    assert_eq!(lab.placement.place(key), Some(lab.placement.home(key)));
    lab.lose(2);
    assert_eq!(why(&lab.placement, key), Some("rebuild"));
    assert_eq!(lab.placement.absent_in(key.0), 1);
    let target = kind::target(&lab.placement, key).unwrap();
    assert_eq!(target.row, lab.placement.home(key).row);
    lab.placement.claim(key, target);
    lab.record(key, target);
    assert_eq!(lab.placement.place(key), None, "the entry is not durable");
    assert!(lab.placement.is_writing(target.seat));
    lab.write_all();
    assert_eq!(lab.placement.place(key), Some(target));
    assert_eq!(why(&lab.placement, key), None);
    lab.check();
}

#[test]
fn a_column_in_spare_space_goes_home_when_a_drive_is_there_and_its_spare_cell_is_free_then() {
    let mut lab = spared();
    lab.lose(2);
    let moved = lab.move_all();
    assert!(moved > 0 && lab.placement.absent().next().is_none());
    lab.check();
    lab.fill(2);
    let key = lab.placement.records().next().unwrap().key;
    let spare = lab.placement.place(key).unwrap();
    assert_eq!(why(&lab.placement, key), Some("copy_back"));
    assert_eq!(lab.move_column(key), Some(lab.placement.home(key)));
    assert!(!lab.placement.is_taken(spare));
    assert_eq!(lab.placement.tables[&spare.seat].at(spare.row), None);
    assert!(lab.placement.lacks_columns(Seat(2)));
    assert_eq!(lab.move_all(), moved - 1);
    assert!(!lab.placement.lacks_columns(Seat(2)));
    lab.report(2, SeatState::Current);
    lab.placement.complete(Seat(2));
    assert_eq!(lab.placement.records().count(), 0);
    assert!(lab.placement.taken.is_empty(), "{:?}", lab.placement.taken);
    lab.check();
}

#[test]
fn a_seat_lacks_a_column_whose_cell_before_is_still_used() {
    let mut lab = spared();
    lab.lose(2);
    lab.move_all();
    lab.fill(2);
    let key = lab.placement.records().last().unwrap().key;
    let spare = lab.placement.place(key).unwrap();
    let home = lab.placement.home(key);
    lab.placement.claim(key, home);
    lab.record(key, home);
    lab.write_all();
    lab.move_all();
    assert!(kind::away(&lab.placement).next().is_none());
    assert!(lab.placement.lacks_columns(Seat(2)) && lab.placement.is_taken(spare));
    lab.writes.extend(lab.placement.settled(key));
    assert!(!lab.placement.lacks_columns(Seat(2)) && !lab.placement.is_taken(spare));
}

#[test]
fn nothing_moves_to_a_drive_that_joins_or_for_one_that_is_expected_back() {
    let mut lab = spared();
    let key = lab.column_of(2);
    lab.out(2, OutReason::Offline);
    assert_eq!(why(&lab.placement, key), Some("rebuild"));
    assert_eq!(kind::target(&lab.placement, key), None);
    lab.fill(2);
    lab.placement.joins(Seat(2));
    assert_eq!(kind::target(&lab.placement, key), None);
    lab.placement.joined(Seat(2));
    assert_eq!(
        kind::target(&lab.placement, key),
        Some(lab.placement.home(key))
    );
}

#[test]
fn two_lost_columns_of_a_group_do_not_move_to_one_drive() {
    let mut lab = Lab::new("pddl2:2d:7c:2s", 20);
    lab.lose(1);
    lab.lose(4);
    let both = lab
        .placement
        .lacking()
        .find(|&group| lab.placement.absent_in(group) == 2);
    let group = both.expect("some group has columns on both");
    let lost: Vec<Key> = { lab.placement.absent() }
        .filter(|key| key.0 == group)
        .collect();
    let first = kind::target(&lab.placement, lost[0]).unwrap();
    lab.placement.claim(lost[0], first);
    let second = kind::target(&lab.placement, lost[1]);
    assert!(second.is_none_or(|second| second.seat != first.seat));
    lab.placement.release(lost[0], first);
    assert!(!lab.placement.is_taken(first));
    while lab.move_all() > 0 {}
    lab.check();
}

/// A lane may still report that a cell is filled when another drive has the seat, and another column the cell.
#[test]
fn what_is_released_late_stays_with_the_column_that_has_it_by_now() {
    let mut lab = spared();
    let (one, other) = (lab.column_of(2), lab.column_of(3));
    let cell = Cell {
        seat: Seat(5),
        row: 0,
    };
    lab.placement.claim(one, cell);
    lab.placement.lose(Seat(5));
    assert!(!lab.placement.is_taken(cell));
    lab.placement.claim(other, cell);
    lab.placement.release(one, cell);
    assert!(lab.placement.is_taken(cell));
    lab.placement.release(other, cell);
    assert!(!lab.placement.is_taken(cell));
}

#[test]
fn a_lost_drive_takes_its_records_with_it_and_the_columns_are_absent_again() {
    let mut lab = Lab::new("pddl2:2d:7c:2s", 20);
    lab.lose(1);
    lab.move_all();
    let record = lab.placement.records().next().unwrap();
    lab.lose(record.cell.seat.0);
    assert_eq!(lab.placement.place(record.key), None);
    assert!(lab.placement.cells_of(record.cell.seat).next().is_none());
    lab.check();
}

#[test]
fn a_page_that_changes_while_it_is_written_is_written_again_with_what_came_meanwhile() {
    let mut lab = spared();
    lab.lose(2);
    lab.fill(2);
    let mut columns = lab.placement.absent();
    let (one, other) = (columns.next().unwrap(), columns.next().unwrap());
    drop(columns);
    for key in [one, other] {
        let home = lab.placement.home(key);
        lab.placement.claim(key, home);
        lab.record(key, home);
    }
    assert_eq!(lab.writes.len(), 1, "a page is written once at a time");
    let page = lab.writes.pop().unwrap();
    let first = lab
        .placement
        .page_written(page.seat, page.first_row)
        .unwrap();
    assert_eq!(first.iter().map(|of| of.key).collect::<Vec<_>>(), [one]);
    // The drive is full: the record waits for the next write, with the other one.
    lab.placement.page_refused(page.seat, page.first_row, first);
    assert!(lab.placement.is_writing(page.seat));
    lab.writes.extend(lab.placement.write_refused());
    lab.write_all();
    assert!(
        [one, other]
            .iter()
            .all(|&key| lab.placement.place(key).is_some())
    );
    assert!(!lab.placement.is_any_writing());
    lab.check();
}

#[test]
fn a_successor_has_a_column_until_the_column_moves_elsewhere() {
    let mut lab = spared();
    let (seat, with) = (Seat(3), Seat(7));
    lab.placement.begin_table(with);
    lab.placement.twin_begins(seat, with);
    let key = lab.column_of(3);
    let copy = kind::target(&lab.placement, key).unwrap();
    assert_eq!(
        (why(&lab.placement, key), copy.seat),
        (Some("replace"), with)
    );
    assert_eq!(copy.row, lab.placement.home(key).row);
    lab.placement.claim(key, copy);
    lab.placement.twin_has(key, copy);
    assert_eq!(why(&lab.placement, key), None);
    assert!(!lab.placement.twin_has_all(with), "it has one of many");
    lab.placement.claim(key, lab.placement.home(key));
    assert_eq!(why(&lab.placement, key), Some("replace"));
    assert!(!lab.placement.is_taken(copy));
}

#[test]
fn a_successor_that_steps_in_has_its_columns_in_the_seat_and_the_others_are_absent() {
    let mut lab = spared();
    let (seat, with) = (Seat(3), Seat(7));
    lab.placement.begin_table(with);
    lab.placement.twin_begins(seat, with);
    let all: Vec<Key> = lab.placement.columns_on(seat).collect();
    for &key in &all[..all.len() / 2] {
        let copy = kind::target(&lab.placement, key).unwrap();
        lab.placement.claim(key, copy);
        lab.placement.twin_has(key, copy);
    }
    let has = lab.placement.twin_ends(with);
    lab.facts.seats.swap(3, 7);
    lab.report(3, SeatState::Filling);
    lab.placement.lose(seat);
    lab.placement.twin_steps_in(seat, &has);
    lab.placement.twin_moves(with, seat, &has, false);
    for record in has {
        let page = lab.placement.enter_again(record.on(seat));
        lab.writes.extend(page);
    }
    lab.write_all();
    let there: Vec<Key> = lab.placement.columns_on(seat).collect();
    let (first, rest) = all.split_at(all.len() / 2);
    assert_eq!(there, first);
    assert!(rest.iter().all(|&key| lab.placement.place(key).is_none()));
    lab.check();
}

/// Columns without content are copied nowhere. A volume that gets their group meanwhile writes to both drives, so after a
/// restart they must be found where they are.
#[test]
fn a_successor_has_an_entry_for_each_spare_cell_of_its_drive_with_content_or_without() {
    let mut lab = spared();
    let lost = lab.column_of(5);
    lab.lose(5);
    lab.move_all();
    let seat = lab.placement.place(lost).unwrap().seat;
    let with = Seat(7);
    // The volume that had the columns is gone.
    let volumes = std::mem::take(&mut lab.facts.volumes);
    lab.placement.groups_are(&lab.facts);
    lab.placement.begin_table(with);
    lab.placement.twin_begins(seat, with);
    let spares = lab.placement.twin_lacks(with);
    assert!(spares.iter().any(|record| record.key == lost), "{spares:?}");
    for record in spares {
        let page = lab.placement.enter_again(record);
        lab.writes.extend(page);
    }
    lab.write_all();
    assert_eq!(lab.placement.twin_lacks(with), [], "each has an entry");
    lab.facts.volumes = volumes;
    lab.placement.groups_are(&lab.facts);
    let has = lab.placement.twin_ends(with);
    lab.facts.seats.swap(seat.index(), with.index());
    lab.report(seat.0, SeatState::Current);
    let unrecorded = lab.placement.drop_table(seat);
    assert_eq!(unrecorded, []);
    lab.placement.twin_moves(with, seat, &has, true);
    assert_eq!(lab.placement.place(lost).unwrap().seat, seat);
    lab.check();
}

/// An expansion that was called off leaves such records. A drive that is to leave must have each of them on the drive.
#[test]
fn a_successor_has_an_entry_for_each_column_of_its_drive_with_a_record_at_home() {
    let mut lab = spared();
    let (seat, with) = (Seat(3), Seat(7));
    let key = lab.placement.columns_on(seat).next().unwrap();
    let home = lab.placement.home(key);
    lab.placement.claim(key, home);
    lab.record(key, home);
    lab.write_all();
    assert_eq!(lab.placement.recorded(key), Some(home));
    lab.placement.begin_table(with);
    lab.placement.twin_begins(seat, with);
    for key in lab.placement.columns_on(seat).collect::<Vec<Key>>() {
        let copy = kind::target(&lab.placement, key).unwrap();
        lab.placement.claim(key, copy);
        lab.placement.twin_has(key, copy);
    }
    let lacking = lab.placement.twin_lacks(with);
    let keys: Vec<Key> = lacking.iter().map(|record| record.key).collect();
    assert_eq!(keys, [key], "the others are at home without a record");
}

#[test]
fn of_two_entries_for_a_column_the_newer_one_counts_and_the_other_is_superseded() {
    let mut lab = spared();
    let entry = |generation| CellEntry {
        group: GroupId(4),
        column: Column(1),
        generation,
    };
    let page = |row: usize, entry| {
        let mut page = CellPage::empty(0);
        page.entries[row] = Some(entry);
        vec![page]
    };
    // On drives that have no other column of the group.
    let homes = lab
        .placement
        .columns()
        .map(|column| lab.placement.home((GroupId(4), column)).seat);
    let homes: Vec<Seat> = homes.collect();
    let others: Vec<Seat> = (0..7)
        .map(Seat)
        .filter(|seat| !homes.contains(seat))
        .collect();
    let tables = [
        (others[0], page(3, entry(8))),
        (others[1], page(2, entry(9))),
    ];
    let stale = lab.placement.load(&lab.facts, &tables.into());
    let cell = |seat, row| Cell { seat, row };
    assert_eq!(stale, [cell(others[0], 3)]);
    assert_eq!(
        lab.placement.place((GroupId(4), Column(1))),
        Some(cell(others[1], 2))
    );
    assert_eq!(lab.placement.next_generation, 10);
    lab.check();
}

/// The power went while the spare was to succeed a drive. A page that begins at the first sequence number again would be older
/// than that one.
#[test]
fn entries_of_a_spare_count_nowhere_and_its_next_pages_are_newer_than_those_it_has() {
    let mut lab = spared();
    let (spare, seat) = (Seat(7), Seat(3));
    assert!(lab.facts.seats[7].is_free());
    let mut page = CellPage::empty(0);
    page.sequence = 5;
    page.entries[2] = Some(CellEntry {
        group: GroupId(4),
        column: Column(1),
        generation: 9,
    });
    let place = lab.placement.place((GroupId(4), Column(1)));
    let stale = lab
        .placement
        .load(&lab.facts, &[(spare, vec![page])].into());
    let cell = |seat, row| Cell { seat, row };
    assert_eq!(stale, [cell(spare, 2)]);
    assert_eq!(lab.placement.place((GroupId(4), Column(1))), place);
    let cleared = lab.placement.clear_entry(cell(spare, 2)).unwrap();
    assert!(lab.placement.is_writing(spare), "it takes no seat yet");
    assert_eq!(lab.placement.page_written(spare, 0), Some(Vec::new()));
    assert!(!lab.placement.is_writing(spare));
    // It takes a seat.
    let drive = lab.facts.seats[7].drive;
    let key = lab.column_of(3);
    let home = lab.placement.home(key);
    lab.lose(3);
    lab.facts.seats.swap(3, 7);
    lab.placement.seats_are(&lab.facts);
    lab.placement.exchange_tables(spare, seat);
    lab.placement.begin_table(seat);
    let entered = lab.placement.record(key, home).unwrap();
    let sequences = [cleared, entered].map(|write| {
        let page = CellPage::parse(&write.bytes, drive, 0).unwrap();
        (page.sequence, page.entries.iter().flatten().count())
    });
    assert_eq!(sequences, [(6, 0), (7, 1)]);
}

#[test]
fn a_returned_drive_holds_what_was_logged_before_and_only_at_home() {
    let mut lab = spared();
    let key = lab.column_of(2);
    lab.lose(2);
    lab.placement.returns(Seat(2), Some(Generation(5)));
    lab.facts.seats[2].holds = Some(vec![Sequence(70); 16]);
    lab.fill(2);
    let home = lab.placement.home(key);
    assert_eq!(lab.placement.held_before(key, home), Some(Sequence(70)));
    let elsewhere = Cell {
        row: home.row + 1,
        ..home
    };
    assert_eq!(lab.placement.held_before(key, elsewhere), None);
    assert_eq!(lab.placement.out_since(Seat(2)), Generation(5));
    lab.placement.note_return(Seat(2), 4096);
    let back = lab.placement.return_ends(Seat(2)).unwrap();
    assert_eq!((back.cells, back.copied_bytes), (1, 4096));
    assert_eq!(lab.placement.out_since(Seat(2)), Generation(u64::MAX));
}

#[test]
fn groups_count_once_they_have_content_and_are_sorted_as_the_volumes_have_them() {
    let mut lab = spared();
    lab.facts.volumes = vec![volume(vec![(20, 4), (3, 2)]), volume(vec![(10, 2)])];
    lab.facts.uninitialized = vec![(21, 2)];
    lab.placement.groups_are(&lab.facts);
    let all: Vec<GroupId> = lab.placement.groups().all().collect();
    assert_eq!(
        all,
        [
            GroupId(20),
            GroupId(23),
            GroupId(3),
            GroupId(4),
            GroupId(10),
            GroupId(11)
        ]
    );
    assert!(!lab.placement.groups().has(GroupId(21)) && lab.placement.groups().has(GroupId(23)));
    assert_eq!(
        lab.placement
            .groups()
            .first([3, 10, 23].map(GroupId).into_iter()),
        Some(GroupId(23))
    );
    lab.lose(2);
    lab.check();
}

/// Pools that grow: columns are recorded where they are, then the layout has another table.
#[test]
fn a_switch_of_the_table_changes_homes_and_no_place() {
    let shape = Shape {
        drives: 6,
        width: 3,
        parity: 1,
        spares: 1,
    };
    let mut lab = Lab::new("ddp:2d:1p:7c:1s", 12);
    let of_table = |table: &Table, lab: &Lab| {
        let old = &lab.placement.geometry;
        let code = old.code();
        let code = Arc::new(erasure::by_columns(code.name(), code.columns()).unwrap());
        let table: Arc<dyn layout::Layout> = Arc::new(table.clone());
        let sizes = (old.chunk_bytes(), old.cell_bytes(), old.rows());
        Geometry::new(code, table, sizes.0, sizes.1, sizes.2, 1 << 20, 1).unwrap()
    };
    let mut table = Table::new(shape, lab.placement.geometry.rows(), Choice::PairBalanced);
    for _ in 0..12 {
        table.add_group().unwrap();
    }
    lab.placement.switch(&Arc::new(of_table(&table, &lab)));
    lab.check();
    table.add_drive();
    let moves = table.balance();
    assert!(!moves.is_empty());
    for of in &moves {
        let key = key_of(of);
        assert_eq!(lab.placement.home(key), of.from);
        lab.placement.claim(key, of.from);
        lab.record(key, of.from);
    }
    lab.write_all();
    lab.placement.switch(&Arc::new(of_table(&table, &lab)));
    lab.check();
    for of in &moves {
        let key = key_of(of);
        assert_eq!(
            lab.placement.place(key),
            Some(of.from),
            "no place has changed"
        );
        assert_eq!(why(&lab.placement, key), Some("copy_back"));
        assert_eq!(kind::target(&lab.placement, key), Some(of.to));
    }
    assert_eq!(lab.move_all(), moves.len());
    assert_eq!(kind::away(&lab.placement).next(), None);
    lab.check();
}

/// Drives fail, return and are filled in any order: after each step the walks by seat find what a walk over all groups
/// finds, and no two columns of a group are on one drive.
#[test]
fn walks_by_seat_find_what_a_walk_over_all_groups_finds() {
    let schemes = [
        "pddl1:2d:7c:1s",
        "pddl2:2d:7c:2s",
        "raid6:7c",
        "ddp:2d:1p:7c:1s",
        "raid10:far:7c",
    ];
    for scheme in schemes {
        let mut lab = Lab::new(scheme, 12);
        let mut random = block::SplitMix64::new(7);
        let mut next = |below| random.below(below);
        for _ in 0..300 {
            let seat = u16::try_from(next(7)).unwrap();
            match (lab.facts.seats[usize::from(seat)].state, next(4)) {
                (SeatState::Current | SeatState::Filling, 0) => lab.lose(seat),
                (SeatState::Out { .. }, 0 | 1) => lab.fill(seat),
                (SeatState::Filling, 1) if !lab.placement.lacks_columns(Seat(seat)) => {
                    lab.report(seat, SeatState::Current);
                    lab.placement.complete(Seat(seat));
                }
                _ => {
                    let away: Vec<(Kind, Key)> = kind::away(&lab.placement).collect();
                    for (_, key) in away.into_iter().take(5) {
                        lab.move_column(key);
                    }
                }
            }
            lab.check();
        }
    }
}
