//! Visit: columns move to cells that were named for them, stay there, and move home again when they are named no longer.
//!
//! A column that is away from home although its home could take it is copied back (`copy_back.rs`); `keeps` holds it where
//! it visits. A drive that fails ends no visit: what it had is rebuilt, and moves to the named cell from there.

use layout::Cell;
use layout::pool::Elsewhere;

use super::MoveKind;
use crate::placement::{Key, Placement};

/// The name of the plan that has the columns and their cells.
const VISIT: &str = "visit";

#[derive(Debug)]
pub(super) struct Visit;

impl MoveKind for Visit {
    fn name(&self) -> &'static str {
        VISIT
    }

    fn is_due(&self, places: &Placement, key: Key) -> bool {
        let named = places.planned(VISIT, key);
        named.is_some() && places.place(key) != named
    }

    fn candidates<'a>(&self, places: &'a Placement) -> Box<dyn Iterator<Item = Key> + 'a> {
        let named = places.columns_planned(VISIT);
        Box::new(named.filter(|&(group, _)| places.groups().has(group)))
    }

    fn target(&self, places: &Placement, key: Key) -> Option<Cell> {
        { places.planned(VISIT, key) }.filter(|&cell| !places.is_used(cell))
    }

    fn keeps(&self, places: &Placement, key: Key) -> bool {
        let named = places.planned(VISIT, key);
        named.is_some() && places.place(key) == named
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use block::{Instant, Seat};
    use format::{Column, GroupId};
    use plan::action::{Command, Event};

    use super::*;
    use crate::fixture::{filled, settle, spec};
    use crate::{OutReason, Pool, PoolAction, Ticket};

    const KEY: Key = (GroupId(1), Column(2));

    /// Thirteen drives with a spare cell in each row, and a volume of four groups.
    fn open() -> Pool {
        filled(&spec("draid:4d:13c:1s", 13), 4)
    }

    /// Lanes do all that they are asked for. Returns the cells that they fill.
    fn carry_out(pool: &mut Pool) -> Vec<(Key, Cell)> {
        let mut filled = Vec::new();
        loop {
            let actions = settle(pool);
            if actions.is_empty() {
                pool.check(true);
                return filled;
            }
            for action in actions {
                let event = match action {
                    PoolAction::Lane(
                        _,
                        Command::Fill {
                            group,
                            column,
                            target,
                            ..
                        },
                    ) => {
                        filled.push(((group, column), target));
                        Event::Filled {
                            group,
                            column,
                            target,
                            copied_bytes: 0,
                        }
                    }
                    PoolAction::Lane(_, Command::Settle { group, column, .. }) => {
                        Event::Settled { group, column }
                    }
                    _ => continue,
                };
                pool.handle_event(Instant::ZERO, &event);
            }
        }
    }

    /// The column is to visit this cell, or none.
    fn name(pool: &mut Pool, cell: Option<Cell>) {
        let named: BTreeMap<Key, Cell> = cell.into_iter().map(|cell| (KEY, cell)).collect();
        pool.cx.placement.plan(VISIT, named);
        pool.requeue_fills();
        pool.pause_fills(Instant::ZERO, false);
    }

    #[test]
    fn a_column_moves_to_the_cell_that_was_named_for_it_stays_and_moves_home() {
        let mut pool = open();
        let home = pool.cx.placement.home(KEY);
        let cell = pool.cx.placement.spare_for(KEY).unwrap();
        name(&mut pool, Some(cell));
        assert_eq!(carry_out(&mut pool), [(KEY, cell)]);
        assert_eq!(pool.cx.placement.place(KEY), Some(cell));
        pool.requeue_fills();
        assert_eq!(carry_out(&mut pool), [], "it stays");
        name(&mut pool, None);
        assert_eq!(carry_out(&mut pool), [(KEY, home)]);
        assert_eq!(pool.cx.placement.place(KEY), Some(home));
        assert!(pool.is_idle());
    }

    #[test]
    fn a_visit_goes_on_when_the_drive_of_the_home_fails_and_ends_on_spare_space() {
        let mut pool = open();
        let home = pool.cx.placement.home(KEY);
        let cell = pool.cx.placement.spare_for(KEY).unwrap();
        name(&mut pool, Some(cell));
        carry_out(&mut pool);
        let failed = OutReason::FailedByAdministrator;
        let fails = |pool: &mut Pool, seat: Seat| {
            let fails = pool.fail_drive(Instant::ZERO, seat, failed, false, Ticket(1));
            fails.unwrap();
        };
        fails(&mut pool, home.seat);
        let rebuilt = carry_out(&mut pool);
        assert!(rebuilt.iter().all(|(key, _)| *key != KEY), "{rebuilt:?}");
        assert_eq!(pool.cx.placement.place(KEY), Some(cell));
        assert_eq!(pool.absent_columns(), 0);
    }
}
