//! Schedules as text: one event a line, for tests and reports.
//!
//! ```text
//! rdp seed 77 depth 3
//! write 4096 8192 fua
//! fault 2 shorn:0:3:9:16 writes journal 4
//! cut torn:3:5
//! ```

use std::fmt;
use std::str::FromStr;

use array::priority::PRIORITIES;
use block::Seat;

use super::{Back, Event, Leave, SETTINGS, Schedule, Seats, Setting};
use crate::drive::{Counted, DriveFault, Pieces, Region, Regions, Trigger};
use crate::world::CutSpec;

/// A line that is not an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseScheduleError {
    /// The line.
    pub line: String,
}

impl fmt::Display for ParseScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no line of a schedule", self.line)
    }
}

impl std::error::Error for ParseScheduleError {}

const REGIONS: [(&str, Option<Region>); 6] = [
    ("anywhere", None),
    ("label", Some(Region::Label)),
    ("cells", Some(Region::CellTable)),
    ("journal", Some(Region::Journal)),
    ("metadata", Some(Region::Metadata)),
    ("data", Some(Region::Data)),
];

const COUNTED: [(&str, Counted); 4] = [
    ("any", Counted::Any),
    ("reads", Counted::Reads),
    ("writes", Counted::Writes),
    ("flushes", Counted::Flushes),
];

/// Faults without numbers.
const PLAIN: [(&str, DriveFault); 10] = [
    ("gone", DriveFault::Gone),
    ("eio", DriveFault::Eio { for_good: false }),
    ("broken", DriveFault::Eio { for_good: true }),
    ("hang", DriveFault::Hang { for_good: false }),
    ("dead", DriveFault::Hang { for_good: true }),
    ("lse", DriveFault::Lse),
    ("dropped", DriveFault::Dropped),
    ("full", DriveFault::Full { for_good: false }),
    ("no-space", DriveFault::Full { for_good: true }),
    ("ignore-flush", DriveFault::IgnoreFlush),
];

fn name_of<T: PartialEq + Copy>(names: &[(&'static str, T)], value: T) -> Option<&'static str> {
    let found = names.iter().find(|(_, other)| *other == value);
    found.map(|&(name, _)| name)
}

fn value_of<T: Copy>(names: &[(&'static str, T)], name: &str) -> Option<T> {
    let found = names.iter().find(|(other, _)| *other == name);
    found.map(|&(_, value)| value)
}

impl fmt::Display for DriveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Slow { factor } => write!(f, "slow:{factor}"),
            Self::Stall { millis } => write!(f, "stall:{millis}"),
            Self::Flip { bit } => write!(f, "flip:{bit}"),
            Self::Stray { blocks } => write!(f, "stray:{blocks}"),
            Self::WrongRead { blocks } => write!(f, "wrong-read:{blocks}"),
            Self::Shorn(Pieces {
                runs: [(a, b), (c, d)],
            }) => write!(f, "shorn:{a}:{b}:{c}:{d}"),
            plain => f.write_str(name_of(&PLAIN, plain).expect("all others have a name")),
        }
    }
}

impl fmt::Display for CutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::Missing(number) => write!(f, "missing:{number}"),
            Self::Prefix(count) => write!(f, "prefix:{count}"),
            Self::Mask(mask) => write!(f, "mask:{mask}"),
            Self::TornAt(number, sectors) => write!(f, "torn:{number}:{sectors}"),
            Self::Seed(seed) => write!(f, "seed:{seed}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { offset, length } => write!(f, "read {offset} {length}"),
            Self::Write {
                offset,
                length,
                fua,
            } => {
                write!(f, "write {offset} {length}")?;
                f.write_str(if *fua { " fua" } else { "" })
            }
            Self::Zero {
                offset,
                length,
                trim,
            } => {
                f.write_str(if *trim { "trim" } else { "zero" })?;
                write!(f, " {offset} {length}")
            }
            Self::Flush => f.write_str("flush"),
            Self::Steps(count) => write!(f, "steps {count}"),
            Self::Fault {
                seat,
                trigger,
                fault,
            } => {
                let counted = name_of(&COUNTED, trigger.counted).expect("all have a name");
                let region = name_of(&REGIONS, trigger.region).expect("all have a name");
                write!(
                    f,
                    "fault {} {fault} {counted} {region} {}",
                    seat.0, trigger.skip
                )
            }
            Self::Drain => f.write_str("drain"),
            Self::Settle => f.write_str("settle"),
            Self::Kill => f.write_str("kill"),
            Self::Cut(spec) => write!(f, "cut {spec}"),
            Self::Reopen => f.write_str("reopen"),
            Self::Scrub => f.write_str("scrub"),
            Self::Elastic(None) => f.write_str("elastic auto"),
            Self::Elastic(Some(share)) => write!(f, "elastic {share}"),
            Self::Steer {
                priority,
                megabytes,
                paused,
            } => {
                let name = PRIORITIES[usize::from(*priority) % PRIORITIES.len()].name();
                write!(f, "steer {name} {megabytes}")?;
                f.write_str(if *paused { " paused" } else { "" })
            }
            Self::Neighbour => f.write_str("neighbour"),
            Self::Fail(seat) => write!(f, "fail {}", seat.0),
            Self::Insert(seat) => write!(f, "insert {}", seat.0),
            Self::Replace(seat) => write!(f, "replace {}", seat.0),
            Self::Return { seat, lost: None } => write!(f, "return {}", seat.0),
            Self::Return {
                seat,
                lost: Some(lost),
            } => write!(f, "return {} lost:{lost}", seat.0),
            Self::Blink {
                seats,
                leave,
                steps,
                back,
            } => {
                f.write_str(match leave {
                    Leave::Gone => "blink ",
                    Leave::Fails => "blink fails ",
                })?;
                for (index, seat) in seats.iter().enumerate() {
                    write!(f, "{}{}", if index > 0 { "+" } else { "" }, seat.0)?;
                }
                write!(f, " {steps} ")?;
                match back {
                    Back::Open => f.write_str("open"),
                    Back::Killed => f.write_str("killed"),
                    Back::Cut(spec) => write!(f, "{spec}"),
                }
            }
            Self::Moves(seat) => write!(f, "moves {}", seat.0),
            Self::Names(seed) => write!(f, "names {seed}"),
            Self::Rename(number) => write!(f, "rename {number}"),
            Self::Expand(drives) => write!(f, "expand {drives}"),
            Self::Remove(seat) => write!(f, "remove {seat}"),
            Self::Succeed(seat) => write!(f, "succeed {seat}"),
            Self::Stale(seat) => write!(f, "stale {}", seat.0),
            Self::SetBack { seat, regions } => {
                write!(f, "setback {} ", seat.0)?;
                for (index, region) in regions.iter().enumerate() {
                    let name = name_of(&REGIONS, Some(region)).expect("all have a name");
                    write!(f, "{}{name}", if index > 0 { "+" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SETTINGS[self.setting].name;
        writeln!(f, "{name} seed {} depth {}", self.seed, self.depth)?;
        self.events
            .iter()
            .try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let wrong = |line: &str| ParseScheduleError {
            line: line.to_owned(),
        };
        let head = lines.next().unwrap_or_default();
        let words: Vec<&str> = head.split_whitespace().collect();
        let ["seed", seed, "depth", depth] = words.get(1..).unwrap_or_default() else {
            return Err(wrong(head));
        };
        let setting = Setting::by_name(words[0]);
        Ok(Self {
            seed: seed.parse().map_err(|_| wrong(head))?,
            setting: setting.ok_or_else(|| wrong(head))?,
            depth: depth.parse().map_err(|_| wrong(head))?,
            events: lines
                .map(|line| parse_event(line).ok_or_else(|| wrong(line)))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn parse_event(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let seat = |word: &str| word.parse().ok().map(Seat);
    let event = match words[..] {
        ["read", offset, length] => Event::Read {
            offset: number(offset)?,
            length: number(length)?,
        },
        ["write", offset, length, ref rest @ ..] => Event::Write {
            offset: number(offset)?,
            length: number(length)?,
            fua: match rest {
                [] => false,
                ["fua"] => true,
                _ => return None,
            },
        },
        [kind @ ("zero" | "trim"), offset, length] => Event::Zero {
            offset: number(offset)?,
            length: number(length)?,
            trim: kind == "trim",
        },
        ["flush"] => Event::Flush,
        ["steps", count] => Event::Steps(count.parse().ok()?),
        ["fault", at, fault, counted, region, skip] => Event::Fault {
            seat: seat(at)?,
            trigger: Trigger {
                counted: value_of(&COUNTED, counted)?,
                region: value_of(&REGIONS, region)?,
                skip: number(skip)?,
            },
            fault: parse_fault(fault)?,
        },
        ["drain"] => Event::Drain,
        ["settle"] => Event::Settle,
        ["kill"] => Event::Kill,
        ["cut", spec] => Event::Cut(parse_cut(spec)?),
        ["reopen"] => Event::Reopen,
        ["scrub"] => Event::Scrub,
        ["elastic", "auto"] => Event::Elastic(None),
        ["elastic", share] => Event::Elastic(Some(share.parse().ok()?)),
        ["steer", name, megabytes, ref rest @ ..] => Event::Steer {
            priority: PRIORITIES
                .iter()
                .position(|priority| priority.name() == name)
                .and_then(|at| at.try_into().ok())?,
            megabytes: megabytes.parse().ok()?,
            paused: match rest {
                [] => false,
                ["paused"] => true,
                _ => return None,
            },
        },
        ["neighbour"] => Event::Neighbour,
        ["fail", at] => Event::Fail(seat(at)?),
        ["insert", at] => Event::Insert(seat(at)?),
        ["replace", at] => Event::Replace(seat(at)?),
        ["return", at] => Event::Return {
            seat: seat(at)?,
            lost: None,
        },
        ["return", at, lost] => Event::Return {
            seat: seat(at)?,
            lost: Some(number(lost.strip_prefix("lost:")?)?),
        },
        ["blink", "fails", seats, steps, back] => blink(Leave::Fails, seats, steps, back)?,
        ["blink", seats, steps, back] => blink(Leave::Gone, seats, steps, back)?,
        ["moves", at] => Event::Moves(seat(at)?),
        ["names", seed] => Event::Names(number(seed)?),
        ["rename", number] => Event::Rename(number.parse().ok()?),
        ["expand", drives] => Event::Expand(drives.parse().ok()?),
        ["remove", seat] => Event::Remove(Seat(seat.parse().ok()?)),
        ["succeed", seat] => Event::Succeed(Seat(seat.parse().ok()?)),
        ["stale", at] => Event::Stale(seat(at)?),
        ["setback", at, regions] => {
            let region = |name| value_of(&REGIONS, name).flatten();
            let regions: Option<Vec<Region>> = regions.split('+').map(region).collect();
            Event::SetBack {
                seat: seat(at)?,
                regions: Regions::of(&regions?),
            }
        }
        _ => return None,
    };
    Some(event)
}

/// Drives that leave for a while; their seats are joined by `+`.
fn blink(leave: Leave, seats: &str, steps: &str, back: &str) -> Option<Event> {
    let seat = |word: &str| word.parse().ok().map(Seat);
    let seats: Option<Vec<Seat>> = seats.split('+').map(seat).collect();
    Some(Event::Blink {
        seats: Seats::of(seats?.into_iter().filter(|seat| seat.0 < 32)),
        leave,
        steps: steps.parse().ok()?,
        back: match back {
            "open" => Back::Open,
            "killed" => Back::Killed,
            spec => Back::Cut(parse_cut(spec)?),
        },
    })
}

fn parse_fault(word: &str) -> Option<DriveFault> {
    let parts: Vec<&str> = word.split(':').collect();
    let number = |word: &str| word.parse::<u32>().ok();
    let fault = match parts[..] {
        ["stall", millis] => DriveFault::Stall {
            millis: millis.parse().ok()?,
        },
        ["slow", factor] => DriveFault::Slow {
            factor: number(factor)?,
        },
        ["flip", bit] => DriveFault::Flip { bit: number(bit)? },
        ["stray", blocks] => DriveFault::Stray {
            blocks: blocks.parse().ok()?,
        },
        ["wrong-read", blocks] => DriveFault::WrongRead {
            blocks: blocks.parse().ok()?,
        },
        ["shorn", a, b, c, d] => DriveFault::Shorn(Pieces {
            runs: [(number(a)?, number(b)?), (number(c)?, number(d)?)],
        }),
        [plain] => value_of(&PLAIN, plain)?,
        _ => return None,
    };
    Some(fault)
}

fn parse_cut(word: &str) -> Option<CutSpec> {
    let parts: Vec<&str> = word.split(':').collect();
    let spec = match parts[..] {
        ["none"] => CutSpec::None,
        ["all"] => CutSpec::All,
        ["missing", number] => CutSpec::Missing(number.parse().ok()?),
        ["prefix", count] => CutSpec::Prefix(count.parse().ok()?),
        ["mask", mask] => CutSpec::Mask(mask.parse().ok()?),
        ["torn", number, sectors] => CutSpec::TornAt(number.parse().ok()?, sectors.parse().ok()?),
        ["seed", seed] => CutSpec::Seed(seed.parse().ok()?),
        _ => return None,
    };
    Some(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Scope;

    #[test]
    fn every_schedule_reads_back_as_what_it_was() {
        for scope in [Scope::Orderly, Scope::Reported, Scope::Silent] {
            for seed in 0..200 {
                let schedule = Schedule::from_seed(seed, scope);
                assert_eq!(schedule.to_string().parse(), Ok(schedule));
            }
        }
        for (_, fault) in PLAIN {
            assert_eq!(parse_fault(&fault.to_string()), Some(fault));
        }
        assert!("raid6 seed 1 depth 2\nwrite 0".parse::<Schedule>().is_err());
        assert!("raid99 seed 1 depth 2".parse::<Schedule>().is_err());
    }
}
