//! The pool's log: which reports are logged one by one, which are logged together, and which events are kept.
//!
//! A failing drive makes thousands of reports in a second. The first of a kind is logged at once. Those that follow
//! are gathered and logged as one event: after a second, and then after twice as long each time, up to a minute,
//! until none of the kind has come for that long. Before any other report is logged, all gathered reports are.
//!
//! ```text
//!   reports   x x x x x x x x x x        y        x
//!   logged    x       xxxx       xxxxx   y        x        (x: comes in floods; y: does not)
//! ```
//!
//! The list is bounded. When it is full, the oldest event of the most frequent kind is dropped: a flood of one kind
//! only pushes out itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use array::pool::Report;
use block::Instant;

use crate::status::LoggedEvent;

/// Events kept for `pool events`.
const EVENTS_MAX: usize = 1000;
/// How long the second report of a kind waits, and the longest that any report waits.
const GATHER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Reports of one kind about one seat.
#[derive(Debug)]
struct Flood {
    /// The reports since the last event of the kind, joined into one.
    gathered: Option<Report>,
    /// When that report is logged; without one, the flood is over then.
    due: Instant,
    wait: Duration,
}

/// Gathers reports of the kinds that come in floods.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// By the name of the event and its seat.
    floods: BTreeMap<(String, Option<u16>), Flood>,
}

impl Gather {
    /// Takes a report; returns the reports to log now.
    pub(super) fn push(&mut self, now: Instant, report: Report) -> Vec<Report> {
        if !report.comes_in_floods() {
            let mut told = self.take(|_| true);
            told.push(report);
            return told;
        }
        let key = LoggedEvent::key(&report);
        let Some(flood) = self.floods.get_mut(&key) else {
            let (wait, _) = GATHER;
            let flood = Flood {
                gathered: None,
                due: now + wait,
                wait,
            };
            self.floods.insert(key, flood);
            return vec![report];
        };
        match &mut flood.gathered {
            None => flood.gathered = Some(report),
            Some(gathered) => {
                if !gathered.absorb(&report) {
                    return flood.gathered.replace(report).into_iter().collect();
                }
            }
        }
        Vec::new()
    }

    /// The reports that have been gathered long enough.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Report> {
        self.floods
            .retain(|_, flood| flood.gathered.is_some() || flood.due > now);
        let told = self.take(|flood| flood.due <= now);
        for flood in self.floods.values_mut().filter(|flood| flood.due <= now) {
            flood.wait = GATHER.1.min(flood.wait * 2);
            flood.due = now + flood.wait;
        }
        told
    }

    /// All gathered reports.
    pub(super) fn all(&mut self) -> Vec<Report> {
        self.take(|_| true)
    }

    fn take(&mut self, which: impl Fn(&Flood) -> bool) -> Vec<Report> {
        let floods = self.floods.values_mut().filter(|flood| which(flood));
        floods.filter_map(|flood| flood.gathered.take()).collect()
    }

    /// When [`due`](Self::due) has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.floods.values().map(|flood| flood.due).min()
    }
}

/// The last events of a pool.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<LoggedEvent>,
    last: u64,
}

impl EventLog {
    /// Adds a report; returns the event made of it.
    pub(super) fn add(&mut self, report: &Report, path: Option<String>) -> LoggedEvent {
        self.last += 1;
        let event = LoggedEvent::new(self.last, report, path);
        if self.events.len() >= EVENTS_MAX {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for event in &self.events {
                *counts.entry(&event.event).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|&(_, count)| count);
            let most = most.map(|(kind, _)| kind.to_owned());
            let oldest = self
                .events
                .iter()
                .position(|event| Some(&event.event) == most.as_ref());
            self.events.remove(oldest.unwrap_or(0));
        }
        self.events.push_back(event.clone());
        event
    }

    /// Numbers events as those that follow the one with number `last`, from an earlier run of the pool.
    pub(super) fn number_after(&mut self, last: u64) {
        self.last += last;
        for event in &mut self.events {
            event.number += last;
        }
    }

    /// The events that are kept, oldest first.
    pub(super) const fn events(&self) -> &VecDeque<LoggedEvent> {
        &self.events
    }
}

#[cfg(test)]
mod tests {
    use array::format::{Column, Generation, GroupId};
    use array::pool::OutReason;
    use block::Seat;

    use super::*;

    fn bad(seat: u16, block: u64) -> Report {
        Report::BlockBad {
            seat: Seat(seat),
            blocks: 1,
            offset: block * 4096,
            end: (block + 1) * 4096,
        }
    }

    fn out(seat: u16) -> Report {
        Report::DriveOut {
            seat: Seat(seat),
            reason: OutReason::FailedByAdministrator,
            since: Generation(1),
        }
    }

    /// 9,364 bad blocks were 9,364 events: they pushed the failure of another drive out of the list, and hooks
    /// missed it.
    #[test]
    fn a_flood_is_a_few_events_and_loses_no_block() {
        let (mut gather, mut told) = (Gather::default(), Vec::new());
        let mut now = Instant::ZERO;
        for block in 0..9364 {
            now += Duration::from_millis(10);
            told.extend(gather.due(now));
            told.extend(gather.push(now, bad(1, block)));
        }
        told.extend(gather.push(now, out(3)));
        assert!(told.len() < 12, "{} events", told.len());
        let blocks = told.iter().map(|report| match report {
            Report::BlockBad { blocks, .. } => *blocks,
            _ => 0,
        });
        assert_eq!(blocks.sum::<u64>(), 9364);
        assert_eq!(told[0], bad(1, 0), "the first is told at once");
        assert_eq!(told.last(), Some(&out(3)), "after what came before it");
        assert_eq!(gather.all(), []);
    }

    #[test]
    fn drives_are_told_apart_and_a_flood_ends() {
        let mut gather = Gather::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert_eq!(gather.push(at(0), bad(1, 0)), [bad(1, 0)]);
        assert_eq!(gather.push(at(0), bad(2, 0)), [bad(2, 0)]);
        assert_eq!(gather.push(at(0), bad(1, 1)), []);
        assert_eq!(gather.poll_timeout(), Some(at(1)));
        assert_eq!(gather.due(at(1)), [bad(1, 1)]);
        assert_eq!(
            gather.push(at(2), bad(2, 9)),
            [bad(2, 9)],
            "that one was over"
        );
        assert_eq!(gather.push(at(2), bad(1, 7)), [], "this one was not");
        assert_eq!(gather.due(at(3)), [bad(1, 7),]);
        assert_eq!(gather.due(at(100)), []);
        assert_eq!(gather.poll_timeout(), None);
    }

    /// Two drives that fail together can cost thousands of cells.
    #[test]
    fn cells_that_cannot_be_rebuilt_are_told_together() {
        let lost = |group, cells| Report::CellLost {
            group: GroupId(group),
            column: Column(2),
            cells,
            fault: block::Fault::Lost,
        };
        let mut gather = Gather::default();
        let told: Vec<Report> = (0..5000)
            .flat_map(|group| gather.push(Instant::ZERO, lost(group, 1)))
            .collect();
        assert_eq!(told, [lost(0, 1)]);
        assert_eq!(gather.all(), [lost(1, 4999)]);
    }

    #[test]
    fn a_flood_pushes_out_itself() {
        let mut log = EventLog::default();
        log.add(&out(3), None);
        for block in 0..5000 {
            log.add(&bad(1, block), None);
        }
        log.add(&out(4), None);
        assert_eq!(log.events().len(), EVENTS_MAX);
        let outs = log
            .events()
            .iter()
            .filter(|event| event.event == "drive_out");
        assert_eq!(
            outs.map(|event| event.number).collect::<Vec<_>>(),
            [1, 5002]
        );
    }
}
