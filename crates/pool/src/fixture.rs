//! What unit tests of the pool's machines share: the context of a small pool, and what the machines ask for.

use block::{Instant, Seat};
use format::{GroupId, LABEL_OFFSETS, VolumeFacts};
use layout::Cell;
use plan::action::{Command, Event};
use testing::walk::Changes;
use uuid::Uuid;

use super::context::Context;
use super::context::writes::{PoolWrite, WriteEnd};
use super::placement::Key;
use super::{NewDrive, OnDurable, Pool, PoolAction, PoolSpec, Report, Ticket, create};

/// A drive of 64 MiB.
pub(crate) fn drive(number: u128) -> NewDrive {
    NewDrive::new(Uuid::from_u128(number), format!("drive:{number}"), 64 << 20)
}

/// A drive for the elastic pool.
pub(crate) fn elastic_drive(number: u128) -> NewDrive {
    NewDrive {
        physical_bytes: Some(20 << 20),
        ..drive(number)
    }
}

/// A pool of so many drives. Its first labels are written, and its lanes have read their journals.
pub(crate) fn pool(scheme: &str, drives: u16) -> Pool {
    opened(&spec(scheme, drives))
}

/// An elastic pool of four drives.
pub(crate) fn elastic_pool() -> Pool {
    opened(&elastic_spec())
}

fn elastic_spec() -> PoolSpec {
    PoolSpec {
        drives: (0..4).map(elastic_drive).collect(),
        ..spec("elastic5", 0)
    }
}

/// What such a pool is created from.
pub(crate) fn spec(scheme: &str, drives: u16) -> PoolSpec {
    PoolSpec {
        name: "p".to_owned(),
        uuid: Uuid::from_u128(99),
        scheme: scheme.parse().unwrap(),
        chunk_bytes: None,
        cell_bytes: None,
        journal: true,
        lazy: false,
        interleave: false,
        free_stripes: Some(0),
        drives: (0..u128::from(drives)).map(drive).collect(),
        spares: Vec::new(),
    }
}

/// The pool of a specification, as [`pool`].
pub(crate) fn opened(spec: &PoolSpec) -> Pool {
    let mut pool = create(spec, Ticket(0)).unwrap();
    for _ in 0..2 {
        settle(&mut pool);
        for lane in 0..pool.geometry().lanes() {
            let recovered = plan::action::Event::Recovered {
                lane,
                batches: 0,
                outcome: Ok(()),
            };
            pool.handle_event(Instant::ZERO, &recovered);
        }
    }
    settle(&mut pool);
    pool
}

/// Answers all writes of the pool, until it asks for none; returns its other actions.
pub(crate) fn settle(pool: &mut Pool) -> Vec<PoolAction> {
    let mut others = Vec::new();
    while let Some(action) = pool.poll_action() {
        match action {
            PoolAction::WriteDurably { id, .. } => {
                pool.handle_completion(Instant::ZERO, id, super::Half::Flush, Ok(()));
            }
            other => others.push(other),
        }
    }
    others
}

/// A pool of so many drives, with a volume `v` of the first `groups` groups, all of which have content.
pub(crate) fn filled(spec: &PoolSpec, groups: u64) -> Pool {
    let mut pool = opened(spec);
    let volume = volume("v", vec![(0, groups)], &pool.cx);
    pool.cx.facts.volumes.push(volume);
    pool.cx.groups_changed();
    pool
}

/// Takes the pool's next action. Drives and lanes answer at once: writes end, cells are filled and settle, and no journal
/// needs a drive.
pub(crate) fn step(pool: &mut Pool) -> Option<PoolAction> {
    let action = pool.poll_action()?;
    match &action {
        PoolAction::WriteDurably { id, .. } => {
            pool.handle_completion(Instant::ZERO, *id, super::Half::Flush, Ok(()));
        }
        PoolAction::Lane(lane, command) => {
            for event in answers(*lane, command) {
                pool.handle_event(Instant::ZERO, &event);
            }
        }
        _ => {}
    }
    Some(action)
}

fn answers(lane: u16, command: &Command) -> Vec<Event> {
    match *command {
        Command::Settle { group, column, .. } => vec![Event::Settled { group, column }],
        Command::Fill {
            group,
            column,
            target,
            ..
        } => vec![Event::Filled {
            group,
            column,
            target,
            copied_bytes: 0,
        }],
        Command::Leave(Some(seat)) => vec![Event::JournalLeft { lane, seat }],
        Command::SeatOut(seat) => vec![
            Event::SeatDrained { lane, seat },
            Event::JournalLeft { lane, seat },
        ],
        _ => Vec::new(),
    }
}

/// The changes of a machine's state, as the drawing in the head of its file has them.
pub(crate) struct Walk {
    state: fn(&Pool) -> &'static str,
    changes: Changes,
}

impl Walk {
    pub(crate) fn new(state: fn(&Pool) -> &'static str) -> Self {
        let changes = Changes::default();
        Self { state, changes }
    }

    /// An input, whatever follows from it at once.
    pub(crate) fn input<R>(
        &mut self,
        pool: &mut Pool,
        event: &str,
        input: impl FnOnce(&mut Pool) -> R,
    ) -> R {
        let from = (self.state)(pool);
        let result = input(pool);
        self.changes.note(from, event, (self.state)(pool));
        result
    }

    /// Answers actions up to a state; returns them.
    pub(crate) fn until(&mut self, pool: &mut Pool, state: &str) -> Vec<PoolAction> {
        let mut actions = Vec::new();
        while (self.state)(pool) != state {
            let from = (self.state)(pool);
            let action = step(pool).unwrap_or_else(|| panic!("it stays {from}, not {state}"));
            let event = match &action {
                PoolAction::WriteDurably { offset, .. } if LABEL_OFFSETS.contains(offset) => {
                    "label"
                }
                PoolAction::WriteDurably { .. } => "entry",
                PoolAction::Lane(_, Command::Settle { .. }) => "settled",
                PoolAction::Lane(_, Command::Fill { .. }) => "filled",
                PoolAction::Lane(_, Command::Leave(_)) => "journal_left",
                _ => "other",
            };
            self.changes.note(from, event, (self.state)(pool));
            actions.push(action);
        }
        actions
    }

    /// The drawing of a file is what has been seen.
    pub(crate) fn assert_drawn_in(self, file: &str) {
        self.changes.assert_drawn_in(file);
    }
}

/// The context of such a pool, with a volume `v` of the first `groups` groups, all of which have content.
pub(crate) fn context(scheme: &str, drives: u16, groups: u64) -> Context {
    filled(&spec(scheme, drives), groups).cx
}

/// The same of the elastic pool.
pub(crate) fn elastic_context(groups: u64) -> Context {
    filled(&elastic_spec(), groups).cx
}

/// A volume of these runs of groups.
pub(crate) fn volume(name: &str, extents: Vec<(u64, u64)>, cx: &Context) -> VolumeFacts {
    let groups: u64 = extents.iter().map(|&(_, count)| count).sum();
    VolumeFacts {
        name: name.to_owned(),
        uuid: Uuid::from_u128(7),
        size_bytes: groups * cx.geometry.group_data_bytes(),
        extents,
        interleave: None,
    }
}

/// The commands to lanes that machines have asked for since the last call, with their lanes.
pub(crate) fn commands(cx: &mut Context) -> Vec<(u16, Command)> {
    let actions = std::mem::take(&mut cx.actions);
    let (lanes, others): (Vec<_>, Vec<_>) = actions
        .into_iter()
        .partition(|action| matches!(action, PoolAction::Lane(..)));
    cx.actions = others.into();
    let commands = lanes.into_iter().filter_map(|action| match action {
        PoolAction::Lane(lane, command) => Some((lane, command)),
        _ => None,
    });
    commands.collect()
}

/// The reports since the last call.
pub(crate) fn reports(cx: &mut Context) -> Vec<Report> {
    let actions = std::mem::take(&mut cx.actions);
    let (reports, others): (Vec<_>, Vec<_>) = actions
        .into_iter()
        .partition(|action| matches!(action, PoolAction::Report(_)));
    cx.actions = others.into();
    let reports = reports.into_iter().filter_map(|action| match action {
        PoolAction::Report(report) => Some(report),
        _ => None,
    });
    reports.collect()
}

/// The administrators' commands that have ended since the last call.
pub(crate) fn done(cx: &mut Context) -> Vec<(Ticket, Result<(), super::PoolError>)> {
    let actions = std::mem::take(&mut cx.actions).into_iter();
    let (done, others): (Vec<_>, Vec<_>) =
        actions.partition(|action| matches!(action, PoolAction::Done(..)));
    cx.actions = others.into();
    let done = done.into_iter().filter_map(|action| match action {
        PoolAction::Done(ticket, outcome) => Some((ticket, outcome)),
        _ => None,
    });
    done.collect()
}

/// A drive is out, by the facts.
pub(crate) fn is_out(cx: &mut Context, seat: Seat, reason: super::OutReason) {
    let since = cx.labels.next_generation();
    cx.facts.seats[seat.index()].state = super::SeatState::Out { since, reason };
    cx.labels.leave(seat);
    cx.seats_changed();
}

/// All drives take the facts; returns what waited for that.
pub(crate) fn durable(cx: &mut Context) -> Vec<OnDurable> {
    let mut effects = Vec::new();
    while !cx.labels.is_settled() {
        let actions = std::mem::take(&mut cx.actions);
        for action in actions {
            let PoolAction::WriteDurably { id, .. } = action else {
                cx.actions.push_back(action);
                continue;
            };
            let written = cx.writes.ended(cx.now, id, super::Half::Flush, Ok(()));
            if let WriteEnd::Over(PoolWrite::Label { seat }) = written {
                cx.label_written(seat, Ok(()));
            }
        }
        effects.extend(cx.take_written().into_iter().flatten());
    }
    effects
}

/// A column has been filled into this cell, and is used there.
pub(crate) fn record(cx: &mut Context, key: Key, cell: Cell) {
    cx.placement.claim(key, cell);
    let page = { cx.placement.record(key, cell) }.expect("nothing else is being recorded");
    let records = cx.placement.page_written(page.seat, page.first_row);
    for record in records.unwrap() {
        cx.placement.settle(record);
    }
    _ = cx.placement.settled(key);
}

mod tests {
    use super::*;

    #[test]
    fn the_pool_of_unit_tests_is_open_and_idle() {
        let mut cx = context("raid6", 6, 3);
        assert!(cx.recovered && cx.labels.is_settled());
        assert_eq!(
            cx.placement.groups().all().collect::<Vec<_>>(),
            [GroupId(0), GroupId(1), GroupId(2)]
        );
        assert_eq!(commands(&mut cx), []);
        assert_eq!(reports(&mut cx), []);
    }

    #[test]
    fn the_columns_of_a_drive_that_is_out_are_absent() {
        let mut cx = context("raid6", 6, 3);
        is_out(&mut cx, Seat(2), crate::OutReason::Hung);
        assert_eq!(cx.placement.absent().count(), 3);
        assert_eq!(cx.seats_gone().collect::<Vec<_>>(), [Seat(2)]);
    }
}
