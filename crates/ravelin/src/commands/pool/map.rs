//! The map of `ravelin pool status --map`: the drives of a pool in their enclosures and slots.
//!
//! ```text
//! left: 3 drives, 1 out
//! +------------+------------+------------+------------+
//! | 0: seat 0  | 1: seat 2  | 2: -       | 3: seat 4  |
//! | layout     | layout     |            | spare      |
//! | online     | OUT failed |            | ready      |
//! +------------+------------+------------+------------+
//! ```
//!
//! An enclosure is a failure domain as an administrator has named it, or an enclosure of the machine. A domain whose
//! drives are in several enclosures of the machine, such as a host, has a box for each of them. Without any of these,
//! the pool is one box, and drives without a slot come in the order of their seats.
//!
//! Words in capitals need attention, with or without colours. Rows of slots without a drive of the pool are left out.

use std::collections::BTreeMap;
use std::fmt;

use array::pool::OutReason;
use engine::status::{SeatStatus, Severity};

use crate::commands::common::count;

/// Columns where the output is no terminal.
const WIDTH: usize = 80;
/// Columns of a cell, at least: six cells are 79 columns wide.
const CELL: usize = 12;
/// More cells in a row are hard to count.
const ROW_MAX: usize = 12;

/// A cell of an enclosure.
struct Cell {
    lines: [String; 3],
    severity: Severity,
}

impl Cell {
    fn empty(slot: u32) -> Self {
        Self {
            lines: [format!("{slot}: -"), String::new(), String::new()],
            severity: Severity::Info,
        }
    }

    fn of(seat: &SeatStatus) -> Self {
        let number = seat.seat;
        let place = match seat.slot {
            Some(slot) => format!("{slot}: seat {number}"),
            None => format!("seat {number}"),
        };
        let (state, severity) = state(seat);
        Self {
            lines: [place, role(seat), state.to_owned()],
            severity,
        }
    }
}

fn role(seat: &SeatStatus) -> String {
    if let Some(spare) = seat.place_taken_by {
        return format!("given to {spare}");
    }
    if let Some(place) = seat.takes_place_of {
        return format!("spare in {place}");
    }
    if let Some(old) = seat.replaces {
        return format!("replaces {old}");
    }
    let role = if seat.state == "waiting" {
        "spare"
    } else {
        "layout"
    };
    role.to_owned()
}

fn state(seat: &SeatStatus) -> (&'static str, Severity) {
    if let Some(reason) = seat.reason {
        let word = match reason {
            OutReason::IoErrors => "OUT errors",
            OutReason::FailedByAdministrator => "OUT failed",
            OutReason::Offline => "OUT offline",
            OutReason::Missing => "OUT missing",
            OutReason::Stale => "OUT stale",
            OutReason::Hung => "OUT hung",
            OutReason::Slow => "OUT slow",
        };
        return (word, Severity::Error);
    }
    match seat {
        SeatStatus { hangs: true, .. } => ("NO ANSWER", Severity::Error),
        SeatStatus { fails: true, .. } => ("ONLY ERRORS", Severity::Error),
        SeatStatus { slow: true, .. } => ("SLOW", Severity::Warning),
        SeatStatus { joins: true, .. } => ("joining", Severity::Info),
        SeatStatus { leaves: true, .. } => ("leaving", Severity::Info),
        _ => match &*seat.state {
            "filling" => ("rebuilding", Severity::Warning),
            "waiting" => ("ready", Severity::Info),
            _ => ("online", Severity::Info),
        },
    }
}

/// A name in an order in which `drawer 10` follows `drawer 9`.
type Natural = Vec<(String, u64)>;

fn natural(name: &str) -> Natural {
    let mut parts: Natural = vec![(String::new(), 0)];
    let mut in_digits = false;
    for sign in name.chars() {
        match sign.to_digit(10) {
            Some(digit) => {
                let (_, number) = parts.last_mut().expect("there is always one");
                *number = number.saturating_mul(10).saturating_add(digit.into());
            }
            None if in_digits => parts.push((sign.to_string(), 0)),
            None => parts.last_mut().expect("there is always one").0.push(sign),
        }
        in_digits = sign.is_ascii_digit();
    }
    parts
}

/// An enclosure with its drives.
struct Enclosure<'a> {
    title: String,
    seats: Vec<&'a SeatStatus>,
}

/// The enclosures of a pool: named ones in the order of their names, then those of the machine, then the rest.
fn enclosures<'a>(pool: &str, seats: &'a [SeatStatus]) -> Vec<Enclosure<'a>> {
    let of_machine = |domain: &Option<String>| {
        let mut known: Vec<&String> = { seats.iter() }
            .filter(|seat| seat.domain == *domain)
            .filter_map(|seat| seat.enclosure.as_ref())
            .collect();
        known.sort_unstable();
        known.dedup();
        known.len()
    };
    let is_known = |seat: &SeatStatus| seat.domain.is_some() || seat.enclosure.is_some();
    let any_known = seats.iter().any(is_known);
    let mut all: BTreeMap<(bool, Natural, bool, Natural, String), Enclosure<'_>> = BTreeMap::new();
    for seat in seats {
        let domain = seat.domain.as_deref();
        // A domain that is one enclosure of the machine has only its own name.
        let split = domain.is_none() || of_machine(&seat.domain) > 1;
        let enclosure = seat.enclosure.as_deref().filter(|_| split);
        let title = match (domain, enclosure) {
            (Some(domain), Some(enclosure)) => format!("{domain}, enclosure {enclosure}"),
            (Some(domain), None) => domain.to_owned(),
            (None, Some(enclosure)) => format!("enclosure {enclosure}"),
            (None, None) if any_known => "in no known enclosure".to_owned(),
            (None, None) => format!("pool {pool}"),
        };
        let key = (
            domain.is_none(),
            natural(domain.unwrap_or_default()),
            enclosure.is_none(),
            natural(enclosure.unwrap_or_default()),
            title.clone(),
        );
        let own = all.entry(key).or_insert_with(|| Enclosure {
            title,
            seats: Vec::new(),
        });
        own.seats.push(seat);
    }
    all.into_values().collect()
}

impl Enclosure<'_> {
    fn head(&self) -> String {
        let drives = count(self.seats.len(), "a drive", "drives");
        let named = |has: fn(&SeatStatus) -> bool, what: &str| {
            let number = self.seats.iter().filter(|seat| has(seat)).count();
            match number {
                0 => String::new(),
                _ => format!(", {number} {what}"),
            }
        };
        let out = named(|seat| seat.state == "out", "out");
        let is_rebuilt = |seat: &SeatStatus| seat.state == "filling" && !seat.joins && !seat.leaves;
        let filling = named(is_rebuilt, "rebuilding");
        let joining = named(|seat| seat.joins, "joining");
        let leaving = named(|seat| seat.leaves, "leaving");
        format!("{}: {drives}{out}{filling}{joining}{leaving}", self.title)
    }

    /// The cells in rows of `width` cells: a place for each slot, then the drives that have none.
    fn rows(&self, width: usize) -> Vec<Vec<Cell>> {
        let slots = || self.seats.iter().filter_map(|seat| seat.slot);
        let first = slots().min().unwrap_or(0);
        let wide = u32::try_from(width).unwrap_or(u32::MAX);
        let mut by_slot: BTreeMap<u32, &SeatStatus> = BTreeMap::new();
        let mut rest = Vec::new();
        for &seat in &self.seats {
            match seat.slot {
                Some(slot) if !by_slot.contains_key(&slot) => {
                    by_slot.insert(slot, seat);
                }
                _ => rest.push(Cell::of(seat)),
            }
        }
        let mut rows: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
        for (&slot, seat) in &by_slot {
            let row = rows.entry((slot - first) / wide).or_default();
            let begin = slot - (slot - first) % wide;
            let have = u32::try_from(row.len()).unwrap_or(u32::MAX);
            row.extend((begin + have..slot).map(Cell::empty));
            row.push(Cell::of(seat));
        }
        let mut rows: Vec<Vec<Cell>> = rows.into_values().collect();
        while !rest.is_empty() {
            let more = rest.split_off(width.min(rest.len()));
            rows.push(std::mem::replace(&mut rest, more));
        }
        rows
    }
}

/// The map of a pool.
pub(super) struct Map<'a> {
    enclosures: Vec<Enclosure<'a>>,
    width: usize,
    colour: bool,
}

impl<'a> Map<'a> {
    /// The map of a pool with these drives, for so many columns.
    pub(super) fn new(
        pool: &str,
        seats: &'a [SeatStatus],
        width: Option<usize>,
        colour: bool,
    ) -> Self {
        Self {
            enclosures: enclosures(pool, seats),
            width: width.unwrap_or(WIDTH),
            colour,
        }
    }

    fn line(&self, cell: &Cell, line: usize, width: usize) -> String {
        // One space before the text, and another one behind it where there is room.
        let text = format!(" {:1$}", cell.lines[line], width - 1);
        match cell.severity {
            Severity::Warning if self.colour && line == 2 => format!("\x1b[33m{text}\x1b[0m"),
            Severity::Error if self.colour && line == 2 => format!("\x1b[31m{text}\x1b[0m"),
            _ => text,
        }
    }
}

impl fmt::Display for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seats = self.enclosures.iter().flat_map(|own| &own.seats);
        let lines = seats.flat_map(|seat| Cell::of(seat).lines);
        let longest = lines.map(|line| line.chars().count()).max().unwrap_or(0);
        let cell = CELL.max(longest + 1);
        let row = (self.width.saturating_sub(1) / (cell + 1)).clamp(1, ROW_MAX);
        for (index, enclosure) in self.enclosures.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{}", enclosure.head())?;
            let rows = enclosure.rows(row);
            let mut above = 0;
            for cells in &rows {
                let edge = "-".repeat(cell) + "+";
                writeln!(f, "+{}", edge.repeat(cells.len().max(above)))?;
                above = cells.len();
                for line in 0..3 {
                    let texts: Vec<String> = { cells.iter() }
                        .map(|own| self.line(own, line, cell))
                        .collect();
                    writeln!(f, "|{}|", texts.join("|"))?;
                }
            }
            writeln!(f, "+{}", ("-".repeat(cell) + "+").repeat(above))?;
        }
        let any_slot = { self.enclosures.iter() }
            .flat_map(|own| &own.seats)
            .any(|seat| seat.slot.is_some());
        match any_slot {
            true => write!(
                f,
                "\nslot: seat, role, state; `-` is a slot without a drive of this pool"
            ),
            false => write!(f, "\nseat, role, state; no slots are known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A drive in a place: domain, enclosure and slot.
    fn seat(number: u16, place: (Option<&str>, Option<&str>, Option<u32>)) -> SeatStatus {
        let (domain, enclosure, slot) = place;
        let traffic = engine::status::DriveTraffic::default();
        serde_json::from_value(json!({
            "seat": number, "path": format!("/dev/d{number}"), "drive": "", "size_bytes": 1,
            "domain": domain, "enclosure": enclosure, "slot": slot, "state": "current",
            "reason": null, "traffic": traffic, "bad_blocks": 0,
            "rebuild_read_bytes": 0, "rebuild_write_bytes": 0,
        }))
        .unwrap()
    }

    fn map(seats: &[SeatStatus], width: usize) -> String {
        Map::new("tank", seats, Some(width), false).to_string()
    }

    #[test]
    fn a_slot_shows_seat_role_and_state_and_slots_without_a_drive_stay_empty() {
        let at = |slot| (Some("left"), None, Some(slot));
        let mut seats = [
            seat(0, at(0)),
            seat(1, at(1)),
            seat(2, at(3)),
            seat(3, at(8)),
        ];
        (seats[1].state, seats[1].reason) = ("out".to_owned(), Some(OutReason::Missing));
        seats[1].place_taken_by = Some(3);
        seats[2].state = "filling".to_owned();
        seats[3].takes_place_of = Some(1);
        seats[3].slow = true;
        insta::assert_snapshot!(map(&seats, 80), @"
        left: 4 drives, 1 out, 1 rebuilding
        +------------+------------+------------+------------+
        | 0: seat 0  | 1: seat 1  | 2: -       | 3: seat 2  |
        | layout     | given to 3 |            | layout     |
        | online     | OUT missing|            | rebuilding |
        +------------+------------+------------+------------+
        | 6: -       | 7: -       | 8: seat 3  |
        |            |            | spare in 1 |
        |            |            | SLOW       |
        +------------+------------+------------+

        slot: seat, role, state; `-` is a slot without a drive of this pool
        ");
    }

    #[test]
    fn a_pool_without_domains_is_one_enclosure() {
        let seats = [0, 1, 2].map(|number| seat(number, (None, None, None)));
        insta::assert_snapshot!(map(&seats, 80), @"
        pool tank: 3 drives
        +------------+------------+------------+
        | seat 0     | seat 1     | seat 2     |
        | layout     | layout     | layout     |
        | online     | online     | online     |
        +------------+------------+------------+

        seat, role, state; no slots are known
        ");
    }

    #[test]
    fn domains_come_in_natural_order_and_a_domain_in_two_enclosures_has_two_boxes() {
        let seats = [
            seat(0, (Some("drawer10"), None, Some(0))),
            seat(1, (Some("drawer9"), Some("0x1"), Some(0))),
            seat(2, (Some("host"), Some("0x1"), Some(0))),
            seat(3, (Some("host"), Some("0x2"), Some(0))),
            seat(4, (None, Some("0x3"), Some(0))),
            seat(5, (None, None, None)),
        ];
        let text = map(&seats, 80);
        let heads: Vec<&str> = { text.lines() }
            .filter(|line| line.contains(": a drive"))
            .collect();
        let expected = [
            "drawer9: a drive",
            "drawer10: a drive",
            "host, enclosure 0x1: a drive",
            "host, enclosure 0x2: a drive",
            "enclosure 0x3: a drive",
            "in no known enclosure: a drive",
        ];
        assert_eq!(heads, expected);
    }

    #[test]
    fn every_drive_is_in_the_map_once_whatever_the_width_and_no_line_is_wider() {
        let mut seats: Vec<SeatStatus> = (0..60)
            .map(|number| {
                let drawer = format!("drawer{}", number / 12 + 1);
                seat(number, (Some(&drawer), None, Some(u32::from(number) % 12)))
            })
            .collect();
        // Slots that are the same, far apart, and unknown.
        seats[7].slot = Some(3);
        seats[8].slot = Some(u32::MAX);
        seats[9].slot = None;
        for width in [1, 14, 15, 40, 79, 80, 81, 132, 1000] {
            let text = map(&seats, width);
            for number in 0..60 {
                let cell = format!("seat {number} ");
                let whole =
                    text.matches(&cell).count() + text.matches(&format!("seat {number}|")).count();
                assert_eq!(whole, 1, "seat {number} at {width}:\n{text}");
            }
            let drawn = text.lines().filter(|line| line.starts_with(['+', '|']));
            let widest = drawn.map(str::len).max().unwrap();
            assert!(
                widest <= width.max(24),
                "{widest} columns of {width}:\n{text}"
            );
        }
        assert_eq!(
            Map::new("tank", &seats, None, false).to_string(),
            map(&seats, 80)
        );
    }
}
