//! Shrinks a failing schedule.

use super::{Event, Runner, Schedule};

/// The smallest schedule found that still fails in the same way: parts of the list are dropped,
/// halves first, single events last, until nothing more can be dropped; then ranges and steps
/// are made shorter.
pub fn shrink(runner: &mut Runner, schedule: &Schedule) -> Schedule {
    let broken = |runner: &mut Runner, schedule: &Schedule| {
        let violation = runner.run(schedule).violation;
        violation.map(|violation| violation.signature())
    };
    let Some(signature) = broken(runner, schedule) else {
        return schedule.clone();
    };
    // A schedule beyond the budget may fail, which proves nothing.
    let mut fails = |candidate: &Schedule| {
        candidate.is_within_budget() && broken(runner, candidate) == Some(signature.clone())
    };
    let mut best = schedule.clone();
    let mut part = best.events.len().div_ceil(2);
    loop {
        let before = best.events.len();
        let mut at = 0;
        while at < best.events.len() {
            let mut candidate = best.clone();
            let end = (at + part).min(candidate.events.len());
            candidate.events.drain(at..end);
            if fails(&candidate) {
                best = candidate;
            } else {
                at = end;
            }
        }
        if part > 1 {
            part = part.div_ceil(2);
        } else if best.events.len() == before {
            break;
        }
    }
    for at in 0..best.events.len() {
        while let Some(smaller) = smaller(best.events[at]) {
            let mut candidate = best.clone();
            candidate.events[at] = smaller;
            if !fails(&candidate) {
                break;
            }
            best = candidate;
        }
    }
    let shallow = Schedule {
        depth: 1,
        ..best.clone()
    };
    if fails(&shallow) { shallow } else { best }
}

/// The same event with half of its length or steps.
const fn smaller(event: Event) -> Option<Event> {
    match event {
        Event::Read { offset, length } if length >= 8192 => Some(Event::Read {
            offset,
            length: length / 8192 * 4096,
        }),
        Event::Write {
            offset,
            length,
            fua,
        } if length >= 8192 => Some(Event::Write {
            offset,
            length: length / 8192 * 4096,
            fua,
        }),
        Event::Steps(count) if count > 1 => Some(Event::Steps(count / 2)),
        Event::Blink {
            seats,
            leave,
            steps,
            back,
        } if steps > 1 => Some(Event::Blink {
            seats,
            leave,
            steps: steps / 2,
            back,
        }),
        _ => None,
    }
}
