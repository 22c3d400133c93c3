//! From a seed to a schedule.

use block::Seat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Event, SEEDED, SETTINGS, Schedule, Scope};
use crate::drive::{Counted, DriveFault, Pieces, Region, Trigger};
use crate::world::CutSpec;

/// Requests of a schedule at least.
const REQUESTS_MIN: usize = 100;

struct Maker {
    rng: ChaCha8Rng,
    scope: Scope,
    setting: usize,
    volume_bytes: u64,
    tolerance: usize,
    /// Seats that have been hurt and not been replaced since.
    hurt: Vec<Seat>,
    /// Of those, whose drives have only gone away, and may come back as they were.
    away: Vec<Seat>,
    events: Vec<Event>,
}

impl Schedule {
    /// The schedule of a seed: at least 100 requests, one cut with recovery, and two further faults
    /// within what the geometry survives.
    #[must_use]
    pub fn from_seed(seed: u64, scope: Scope) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let setting = rng.random_range(0..SEEDED);
        let depth = rng.random_range(1..=8);
        let of = SETTINGS[setting];
        let mut maker = Maker {
            rng,
            scope,
            setting,
            volume_bytes: of.volume_bytes,
            tolerance: of.tolerance,
            hurt: Vec::new(),
            away: Vec::new(),
            events: Vec::new(),
        };
        maker.fill();
        Self {
            seed,
            setting,
            depth,
            events: maker.events,
        }
    }
}

impl Schedule {
    /// Whether never more drives are hurt than the geometry survives. A drive is good again when it
    /// has been replaced and everything under way has ended.
    #[must_use]
    pub fn is_within_budget(&self) -> bool {
        let tolerance = SETTINGS[self.setting].tolerance;
        let mut hurt: Vec<Seat> = Vec::new();
        let mut replaced = Vec::new();
        self.events.iter().all(|event| {
            match *event {
                Event::Fault { seat, .. } | Event::Fail(seat) | Event::Stale(seat)
                    if !hurt.contains(&seat) =>
                {
                    hurt.push(seat);
                }
                Event::Replace(seat) | Event::Insert(seat) | Event::Return { seat, .. } => {
                    replaced.push(seat);
                }
                Event::Settle => {
                    hurt.retain(|seat| !replaced.contains(seat));
                    replaced.clear();
                }
                _ => {}
            }
            hurt.len() <= tolerance
        })
    }
}

impl Maker {
    fn fill(&mut self) {
        let requests = REQUESTS_MIN + self.rng.random_range(0..16);
        let cut_at = self.rng.random_range(15..requests - 15);
        let mut faults_at = [0; 2].map(|_| self.rng.random_range(5..requests - 5));
        faults_at.sort_unstable();
        for number in 0..requests {
            for _ in faults_at.iter().filter(|&&at| at == number) {
                self.fault();
            }
            if number == cut_at {
                self.cut();
            }
            if let Some(&seat) = self.away.first()
                && self.rng.random_range(0..12) == 0
            {
                let back = self.back(seat);
                self.events.push(back);
            }
            let request = self.request();
            self.events.push(request);
            if self.rng.random_range(0..4) == 0 {
                let steps = self.rng.random_range(1..30);
                self.events.push(Event::Steps(steps));
            }
        }
    }

    fn cut(&mut self) {
        match self.scope {
            Scope::Orderly => {
                self.events.push(Event::Drain);
                let event = if self.rng.random_range(0..2) == 0 {
                    Event::Kill
                } else {
                    Event::Cut(CutSpec::None)
                };
                self.events.push(event);
            }
            Scope::Said | Scope::Silent => {
                let steps = self.rng.random_range(0..60);
                self.events.push(Event::Steps(steps));
                self.power();
                // And again while it recovers.
                if self.rng.random_range(0..3) == 0 {
                    let steps = self.rng.random_range(0..120);
                    self.events.push(Event::Steps(steps));
                    self.power();
                }
            }
        }
    }

    fn power(&mut self) {
        let event = match self.rng.random_range(0..8) {
            0 => Event::Kill,
            1 => Event::Cut(CutSpec::None),
            2 => Event::Cut(CutSpec::All),
            _ => Event::Cut(CutSpec::Seed(self.rng.random())),
        };
        self.events.push(event);
    }

    /// A seat that may be hurt, and whether it has not been so far: one that is hurt already when no
    /// other can be spared.
    fn victim(&mut self) -> (Seat, bool) {
        let drives = SETTINGS[self.setting].drives;
        if self.hurt.len() >= self.tolerance {
            // First make good what is broken, or hurt the same drive again.
            if self.rng.random_range(0..2) == 0 {
                for seat in std::mem::take(&mut self.hurt) {
                    // One that has only gone away may come back as it is.
                    let returns = self.away.contains(&seat) && self.rng.random_range(0..3) > 0;
                    let event = if returns {
                        self.back(seat)
                    } else {
                        Event::Replace(seat)
                    };
                    self.events.push(event);
                }
                self.away.clear();
                self.events.push(Event::Settle);
            } else {
                let index = self.rng.random_range(0..self.hurt.len());
                return (self.hurt[index], false);
            }
        }
        let seat = Seat(self.rng.random_range(0..drives));
        let fresh = !self.hurt.contains(&seat);
        if fresh {
            self.hurt.push(seat);
        }
        (seat, fresh)
    }

    fn fault(&mut self) {
        let (seat, fresh) = self.victim();
        let kinds = if self.scope == Scope::Silent { 12 } else { 6 };
        let fault = match self.rng.random_range(0..kinds) {
            0 | 1 => DriveFault::Gone,
            2 => DriveFault::Eio { for_good: false },
            3 => DriveFault::Eio { for_good: true },
            4 => DriveFault::Slow {
                factor: if self.rng.random_range(0..2) == 0 {
                    10
                } else {
                    1000
                },
            },
            5 => DriveFault::Lse,
            6 | 7 => DriveFault::Flip {
                bit: self.rng.random_range(0..8 * 4096),
            },
            8 => DriveFault::Dropped,
            9 => DriveFault::Stray {
                blocks: self.rng.random_range(-40..40),
            },
            10 => {
                let end = self.rng.random_range(0..8);
                DriveFault::Shorn(Pieces::prefix(end))
            }
            _ => DriveFault::WrongRead {
                blocks: self.rng.random_range(-40..40),
            },
        };
        if fault != DriveFault::Gone {
            self.away.retain(|&other| other != seat);
        } else if fresh {
            self.away.push(seat);
        }
        let region = match self.rng.random_range(0..4) {
            0 => Some(Region::Journal),
            1 => Some(Region::Metadata),
            2 => Some(Region::Data),
            _ => None,
        };
        let region = region.filter(|_| self.scope == Scope::Silent);
        // What is damaged and cannot be made good before checksums must not be metadata.
        let region = match fault {
            DriveFault::Lse if self.scope == Scope::Orderly => Some(Region::Data),
            _ => region,
        };
        let skip = self.rng.random_range(0..40);
        let counted = Counted::Any;
        let trigger = Trigger {
            counted,
            region,
            skip,
        };
        self.events.push(Event::Fault {
            seat,
            trigger,
            fault,
        });
    }

    /// A drive comes back, having lost power or not.
    fn back(&mut self, seat: Seat) -> Event {
        let lost = (self.rng.random_range(0..2) == 0).then(|| self.rng.random());
        Event::Return { seat, lost }
    }

    fn range(&mut self) -> (u64, u64) {
        let length = match self.rng.random_range(0..16) {
            0..9 => 4096,
            9..12 => 512 * self.rng.random_range(1..12),
            12..15 => 4096 * self.rng.random_range(1..5),
            // Some are long: whole stripes, several groups.
            _ if self.rng.random_range(0..6) > 0 => 4096 * self.rng.random_range(1..12),
            _ => 512 * self.rng.random_range(1..=256),
        };
        let length = length.min(self.volume_bytes);
        let unit = if length.is_multiple_of(4096) {
            4096
        } else {
            512
        };
        // Half of all requests meet in a small part, where they get into each other's way.
        let end = if self.rng.random_range(0..2) == 0 {
            self.volume_bytes.min(length + (64 << 10))
        } else {
            self.volume_bytes
        };
        let offset = self.rng.random_range(0..=(end - length) / unit) * unit;
        (offset, length)
    }

    fn request(&mut self) -> Event {
        let (offset, length) = self.range();
        match self.rng.random_range(0..20) {
            0..6 => Event::Read { offset, length },
            6..16 => Event::Write {
                offset,
                length,
                fua: self.rng.random_range(0..6) == 0,
            },
            16 => Event::Zero {
                offset,
                length,
                trim: self.rng.random_range(0..2) == 0,
            },
            _ => Event::Flush,
        }
    }
}
