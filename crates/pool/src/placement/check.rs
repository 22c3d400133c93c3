//! Invariants of the placement, and its walks by seat beside one over all groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Seat;
use format::{Column, GroupId, PoolFacts};
use layout::Cell;
use plan::Geometry;

use super::groups::Groups;
use super::joining::Joining;
use super::twins::Twin;
use super::{Key, Placement, Record, Standing};

/// All that walks depend on, as it was when they were checked last: most steps of the simulator leave it as it is, and then
/// the walks find what they found.
#[derive(Debug)]
pub(super) struct Walked {
    geometry: Arc<Geometry>,
    standings: Vec<Standing>,
    groups: Groups,
    joining: Joining,
    leaving: Option<Seat>,
    places: BTreeMap<Key, Record>,
    taken: BTreeMap<Cell, Key>,
    twins: BTreeMap<Seat, Twin>,
}

impl Walked {
    fn of(placement: &Placement) -> Self {
        Self {
            geometry: Arc::clone(&placement.geometry),
            standings: placement.standings.clone(),
            groups: placement.groups.clone(),
            joining: placement.joining.clone(),
            leaving: placement.leaving,
            places: placement.places.clone(),
            taken: placement.taken.clone(),
            twins: placement.twins.clone(),
        }
    }

    fn is(&self, placement: &Placement) -> bool {
        Arc::ptr_eq(&self.geometry, &placement.geometry)
            && self.standings == placement.standings
            && self.groups == placement.groups
            && self.joining == placement.joining
            && self.leaving == placement.leaving
            && self.places == placement.places
            && self.taken == placement.taken
            && self.twins == placement.twins
    }
}

/// Which columns should move: by a question about each, and by a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub(crate) is_due: fn(&Placement, Key) -> bool,
    pub(crate) away: fn(&Placement) -> Vec<Key>,
}

impl Placement {
    /// Checks what the pool has reported.
    ///
    /// # Panics
    /// When the facts have changed without a report.
    pub(crate) fn check_reports(&self, facts: &PoolFacts) {
        let standings = self.standings.iter();
        let same = standings.zip(&facts.seats).all(|(standing, seat)| {
            (standing.state, standing.drive, &standing.holds)
                == (seat.state, seat.drive, &seat.holds)
        });
        assert!(
            same && self.standings.len() == facts.seats.len()
                && self.leaving == facts.leaves.map(Seat),
            "seats are {:?}, and were reported as {:?}",
            facts.seats,
            self.standings
        );
        assert_eq!(self.groups, super::Groups::of(facts), "groups with content");
    }

    /// Checks that exactly these columns move to these cells.
    ///
    /// # Panics
    /// When another column moves, or to another cell.
    pub(crate) fn check_moves(&self, moves: impl Iterator<Item = (Key, Cell)>) {
        let moves: BTreeMap<Key, Cell> = moves.collect();
        assert_eq!(self.claims, moves, "columns that move");
    }

    /// Checks cells and indexes. `is_promoted`: seats whose drive lanes know by its previous seat. `moves`: which columns
    /// should move.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub(crate) fn check(&mut self, is_promoted: impl Fn(Seat) -> bool, moves: Moves) {
        let mut before: Option<GroupId> = None;
        for (&key, record) in &self.places {
            let (cell, (group, column)) = (record.cell, key);
            assert_eq!(record.key, key, "{record:?}");
            let state = self.state(cell.seat);
            assert!(
                state.takes_part(),
                "column {column} of group {group} is in {cell:?}, whose drive is {state:?}"
            );
            if before.replace(group) != Some(group) {
                self.check_drives(group);
            }
            assert_eq!(
                self.taken.get(&cell),
                Some(&key),
                "{cell:?} is a place, and taken"
            );
            // Until the lanes switch to it, the table of a successor is listed under its previous seat.
            if !is_promoted(cell.seat) {
                let known = self.tables[&cell.seat].at(cell.row);
                assert_eq!(known, Some(record.entry()), "the table of {cell:?}");
            }
        }
        for (&cell, &key) in &self.taken {
            let of_group = key.0 < GroupId(self.geometry.groups());
            let exists = cell.seat.index() < self.standings.len();
            assert!(of_group && exists, "{cell:?} exists");
            // The cells of a successor are taken until it has its seat.
            let on_successor = cell.seat.0 >= self.geometry.layout().drives();
            let moves = [&self.claims, &self.before].map(|cells| cells.get(&key) == Some(&cell));
            assert!(
                on_successor || moves.contains(&true) || self.is_recorded(key, cell),
                "{cell:?} is taken for {key:?}, which neither is there nor moves there"
            );
        }
        for (&key, cell) in &self.before {
            assert_eq!(
                self.taken.get(cell),
                Some(&key),
                "operations may still use {cell:?}, and it is taken"
            );
        }
        if !self.walked.as_ref().is_some_and(|walked| walked.is(self)) {
            self.check_walks(moves);
            self.walked = Some(Arc::new(Walked::of(self)));
        }
    }

    /// Columns that share a drive although the layout has them on two are lost together: the group survives fewer failures
    /// than the pool reports.
    fn check_drives(&self, group: GroupId) {
        let mut seats: BTreeMap<Seat, Column> = BTreeMap::new();
        for column in self.columns() {
            let Some(cell) = self.place((group, column)) else {
                continue;
            };
            if let Some(other) = seats.insert(cell.seat, column) {
                assert_eq!(
                    self.home((group, column)).seat,
                    self.home((group, other)).seat,
                    "drive {} has columns {other} and {column} of group {group}",
                    cell.seat
                );
            }
        }
    }

    /// What walks by seat find is what a walk over all groups finds.
    fn check_walks(&self, moves: Moves) {
        if self.places.is_empty()
            && self.twins.is_empty()
            && self.leaving.is_none()
            && self.incomplete().next().is_none()
        {
            // Every column is at home.
            return;
        }
        // The simulator checks this after each step: each column is looked at once, and lists are sorted at the end.
        let (mut absent, mut lacking, mut away) = (Vec::new(), Vec::new(), Vec::new());
        let mut on = vec![Vec::new(); self.standings.len()];
        for group in self.groups.all() {
            for column in self.columns() {
                let key = (group, column);
                match self.place(key) {
                    Some(cell) => on[cell.seat.index()].push(key),
                    None => absent.push(key),
                }
                away.extend((moves.is_due)(self, key).then_some(key));
            }
            if absent.last().is_some_and(|&(last, _)| last == group) {
                lacking.push(group);
            }
        }
        assert_eq!(
            sorted(absent),
            without_twice(self.absent()),
            "absent columns"
        );
        // Each group once.
        assert_eq!(
            sorted(lacking),
            sorted(self.lacking().collect()),
            "groups that lack a column"
        );
        assert_eq!(
            sorted(away),
            without_twice((moves.away)(self).into_iter()),
            "columns that are not where they should be"
        );
        for (seat, on) in (0..).map(Seat).zip(on) {
            assert_eq!(
                sorted(on),
                without_twice(self.columns_on(seat)),
                "columns on {seat}"
            );
        }
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all
}

fn without_twice<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = sorted(all.collect());
    all.dedup();
    all
}
