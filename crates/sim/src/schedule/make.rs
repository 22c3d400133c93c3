//! Generates a schedule from a seed.

mod blink;
mod joining;
mod requests;
mod space;

use block::Seat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::joining::MISHAPS;
use self::requests::{MIXES, Mix, Stream};
use self::space::Space;
use super::{Event, PIECES, SEEDED, SETTINGS, Schedule, Scope, Setting};
use crate::drive::{Counted, DriveFault, Pieces, Region, Regions, Trigger};
use crate::world::CutSpec;

/// Minimum number of requests of a schedule.
const REQUESTS_MIN: usize = 100;

struct Maker {
    rng: ChaCha8Rng,
    mix: Mix,
    /// Sequential writes, in schedules that have them.
    stream: Option<Stream>,
    /// Space that is freed, in schedules that have this.
    space: Option<Space>,
    scope: Scope,
    setting: usize,
    depth: usize,
    volume_bytes: u64,
    tolerance: usize,
    /// Seats whose drive has had a fault and has not been replaced since.
    hurt: Vec<Seat>,
    /// Those of `hurt` whose drives have only gone away, and may return as they were.
    away: Vec<Seat>,
    /// Before this request a fresh drive is put into this seat.
    inserts: Vec<(usize, Seat)>,
    /// How many faults may still hit drives that have just taken their seats.
    mishaps: u32,
    /// Decides where drives are when they come back, apart from all other choices: so an old seed gives the same
    /// schedule as before, with events added.
    places: ChaCha8Rng,
    /// Decides what administrators set for fills and scrubs, in schedules in which they do; apart from other choices,
    /// too.
    steers: Option<ChaCha8Rng>,
    /// Decides when drives join the layout, in schedules in which they do; apart from other choices, too.
    grows: Option<ChaCha8Rng>,
    events: Vec<Event>,
}

impl Schedule {
    /// The schedule of a seed: at least 100 requests, one cut with recovery, and two further faults
    /// within what the geometry survives.
    #[must_use]
    pub fn from_seed(seed: u64, scope: Scope) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let own = rng.random_range(0..SEEDED);
        // Not drawn from `rng`, so that an old seed gives the same schedule as before, or the one in the twin setting.
        let lazy = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
        let free = seed.wrapping_mul(0xa24b_aed4_963e_e407) >> 63 == 1;
        let elastic = seed.wrapping_mul(0x94d0_49bb_1331_11eb) >> 63 == 1;
        let elastic =
            Setting::elastic_twin(own, free).filter(|_| elastic && scope != Scope::Orderly);
        let setting = match (free, lazy) {
            _ if elastic.is_some() => elastic.unwrap_or(own),
            (true, _) => Setting::free_twin(own),
            (false, true) => Setting::lazy_twin(own),
            (false, false) => own,
        };
        let full = seed.wrapping_mul(0x9e6c_63d0_676a_9a99) >> 61 == 0 && scope != Scope::Orderly;
        let setting = Setting::full_twin(own).filter(|_| full).unwrap_or(setting);
        let pieces = seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 61 == 0 && scope != Scope::Orderly;
        let setting = match pieces {
            true => PIECES.start + own % PIECES.len(),
            false => setting,
        };
        let grows = pieces && seed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 63 == 0;
        let streams = seed.wrapping_mul(0xd1b5_4a32_d192_ed03) >> 62 == 0;
        let blinks = seed.wrapping_mul(0xb492_b66f_be98_f273) >> 62 == 0;
        let steers = seed.wrapping_mul(0x9fb2_1c65_1e98_df25) >> 62 == 0;
        let depth = rng.random_range(1..=8);
        let of = SETTINGS[setting];
        let mix = MIXES[rng.random_range(0..MIXES.len())];
        let mut maker = Maker {
            rng,
            mix,
            stream: streams.then(Stream::default),
            space: Space::of_seed(seed).filter(|_| scope != Scope::Orderly),
            scope,
            setting,
            depth,
            volume_bytes: of.volume_bytes,
            tolerance: of.tolerance,
            hurt: Vec::new(),
            away: Vec::new(),
            inserts: Vec::new(),
            mishaps: MISHAPS,
            places: ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)),
            steers: (steers && scope != Scope::Orderly)
                .then(|| ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x8cb9_2ba7_2f3d_8dd7))),
            grows: grows
                .then(|| ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0xe703_7ed1_a0b4_28db))),
            events: Vec::new(),
        };
        maker.fill();
        // Mirrors can have all data although more drives are out than they promise to survive; then all copies of a page
        // may be away, and the end of a record of unwritten blocks with them (`docs/design/waiting.md`).
        let mirrors = of.scheme.starts_with("raid10");
        if blinks && scope != Scope::Orderly && !mirrors {
            maker.blink();
        }
        Self {
            seed,
            setting,
            depth,
            events: maker.events,
        }
    }
}

impl Schedule {
    /// True if the schedule has silent faults.
    pub(crate) fn is_silent(&self) -> bool {
        self.events.iter().any(|event| match event {
            Event::Fault { fault, .. } => fault.is_silent(),
            Event::Stale(_) | Event::SetBack { .. } => true,
            _ => false,
        })
    }

    /// True if at no time more drives are hurt than the geometry survives. A drive with a fault is hurt until it has
    /// been replaced and all work has ended. A drive with a silent fault counts like a lost one.
    #[must_use]
    pub fn is_within_budget(&self) -> bool {
        let tolerance = SETTINGS[self.setting].tolerance;
        let mut hurt: Vec<Seat> = Vec::new();
        let mut replaced = Vec::new();
        let mut joining = Vec::new();
        self.events.iter().all(|event| {
            match *event {
                Event::Fault { seat, .. }
                | Event::Fail(seat)
                | Event::Stale(seat)
                | Event::SetBack { seat, .. }
                    if !hurt.contains(&seat) =>
                {
                    hurt.push(seat);
                }
                Event::Replace(seat) => replaced.push(seat),
                Event::Insert(seat) | Event::Return { seat, .. } => joining.push(seat),
                // A drive whose label is not written yet at a kill or cut has not joined. The next opening finds the
                // drive of its seat missing, and the drive stays out.
                Event::Kill | Event::Cut(_) => joining.clear(),
                Event::Settle => {
                    replaced.append(&mut joining);
                    hurt.retain(|seat| !replaced.contains(seat));
                    replaced.clear();
                }
                _ => {}
            }
            // Drives that come back have lost nothing, but a hurt drive may have.
            let whole = hurt.is_empty() || !matches!(event, Event::Blink { .. });
            whole && hurt.len() <= tolerance
        })
    }
}

impl Maker {
    fn fill(&mut self) {
        let requests = REQUESTS_MIN + self.rng.random_range(0..8);
        let cut_at = self.rng.random_range(15..requests - 15);
        let faults = if self.rng.random_range(0..2) == 0 {
            3
        } else {
            2
        };
        let mut faults_at = [0; 3].map(|_| self.rng.random_range(5..requests - 25));
        faults_at[..faults].sort_unstable();
        let mut now_and_then = |one_in: u32| {
            let wanted = self.rng.random_range(0..one_in) == 0;
            wanted.then(|| self.rng.random_range(10..requests))
        };
        let scrub_at = now_and_then(8);
        let reopen_at = now_and_then(16);
        // A second cut soon after the first hits the state that the first recovery has left.
        let second = now_and_then(4).map(|at| cut_at + at % 12 + 1);
        if let Some(space) = &mut self.space {
            space.plan(requests, cut_at);
        }
        for number in 0..requests {
            for _ in faults_at[..faults].iter().filter(|&&at| at == number) {
                self.fault(number, 4);
            }
            while let Some(index) = self.inserts.iter().position(|&(at, _)| at == number) {
                let (_, seat) = self.inserts.swap_remove(index);
                self.joins(Event::Insert(seat), seat);
            }
            if let Some(space) = &mut self.space {
                let given_back = space.events_at(number, self.volume_bytes);
                self.events.extend(given_back);
            }
            if number == cut_at || second == Some(number) {
                self.cut(number);
            }
            if let Some(&seat) = self.away.first()
                && self.rng.random_range(0..12) == 0
            {
                let back = self.back(seat);
                self.joins(back, seat);
            }
            if SETTINGS[self.setting].is_elastic() && self.places.random_range(0..12) == 0 {
                let shares = [None, Some(0), Some(100), Some(50)];
                let share = shares[self.places.random_range(0..shares.len())];
                self.events.push(Event::Elastic(share));
            }
            if scrub_at == Some(number) {
                self.events.push(Event::Scrub);
            }
            if reopen_at == Some(number) {
                self.other_names();
                self.events.push(Event::Reopen);
            }
            self.steer();
            self.grow();
            let request = self.request();
            self.events.push(request);
            // With few requests in flight, steps let time pass until the pool's own work is due: add fewer steps.
            let short = if self.depth > 2 { 1..8 } else { 1..2 };
            match self.rng.random_range(0..64) {
                0 => self.events.push(Event::Steps(80)),
                turn if short.contains(&turn) => {
                    let steps = self.rng.random_range(1..20);
                    self.events.push(Event::Steps(steps));
                }
                _ => {}
            }
        }
    }

    /// Now and then an administrator sets something for fills and scrubs.
    fn steer(&mut self) {
        if let Some(rng) = &mut self.steers
            && rng.random_range(0..10) == 0
        {
            self.events.push(Event::Steer {
                priority: rng.random_range(0..3),
                megabytes: match rng.random_range(0..3) {
                    0 => rng.random_range(1..40),
                    _ => 0,
                },
                paused: rng.random_range(0..4) == 0,
            });
        }
    }

    /// Now and then drives join the layout, one leaves, or one is replaced.
    fn grow(&mut self) {
        let Some(rng) = &mut self.grows else {
            return;
        };
        let turn = rng.random_range(0..50);
        let mut seat = || Seat(rng.random_range(0..SETTINGS[self.setting].drives));
        match turn {
            2 | 3 => self.events.push(Event::Remove(seat())),
            4 | 5 => self.events.push(Event::Succeed(seat())),
            0 | 1 => {
                let drives = rng.random_range(1..=2);
                self.events.push(Event::Expand(drives));
            }
            _ => {}
        }
    }

    fn cut(&mut self, number: usize) {
        if self.places.random_range(0..8) == 0 {
            let number = self.places.random_range(0..1000);
            self.events.push(Event::Rename(number));
        }
        match self.scope {
            Scope::Orderly => {
                self.events.push(Event::Drain);
                self.other_names();
                let event = if self.rng.random_range(0..2) == 0 {
                    Event::Kill
                } else {
                    Event::Cut(CutSpec::None)
                };
                self.events.push(event);
            }
            Scope::Reported | Scope::Silent => {
                let most = if self.rng.random_range(0..2) == 0 {
                    60
                } else {
                    6
                };
                let steps = self.rng.random_range(0..most);
                self.events.push(Event::Steps(steps));
                self.fault_at_opening(number);
                self.power();
                // And a second time during the recovery.
                if self.rng.random_range(0..3) == 0 {
                    let steps = self.rng.random_range(0..120);
                    self.events.push(Event::Steps(steps));
                    self.fault_at_opening(number);
                    self.power();
                }
            }
        }
    }

    /// Sometimes adds a fault to one of the first operations of a drive when the pool is opened again.
    fn fault_at_opening(&mut self, number: usize) {
        if self.hurt.len() < self.hurt_max() && self.rng.random_range(0..4) == 0 {
            self.fault(number, 16);
        }
    }

    fn power(&mut self) {
        let event = match self.rng.random_range(0..8) {
            0 => Event::Kill,
            1 => Event::Cut(CutSpec::None),
            2 => Event::Cut(CutSpec::All),
            _ => Event::Cut(CutSpec::Seed(self.rng.random())),
        };
        self.other_names();
        self.events.push(event);
    }

    /// Before most openings the drives get other names.
    fn other_names(&mut self) {
        if self.places.random_range(0..4) > 0 {
            let seed = self.places.random();
            self.events.push(Event::Names(seed));
        }
    }

    /// How many drives may be hurt at once.
    const fn hurt_max(&self) -> usize {
        self.tolerance
    }

    /// A seat for the next fault, and true if its drive was not hurt before. If no further drive may be hurt, the drive
    /// is one that is hurt already.
    fn victim(&mut self) -> (Seat, bool) {
        let drives = SETTINGS[self.setting].drives;
        if self.hurt.len() >= self.hurt_max() {
            // First replace the hurt drives, or hurt one of them again.
            if self.rng.random_range(0..8) > 0 {
                self.mend();
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

    /// Replaces the hurt drives, or brings them back.
    fn mend(&mut self) {
        self.at_once();
        for seat in std::mem::take(&mut self.hurt) {
            // A drive that has only gone away may return as it is.
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
    }

    /// Adds a fault to a drive, mostly at one of its next `soon` operations.
    fn fault(&mut self, number: usize, soon: u64) {
        let (seat, fresh) = self.victim();
        // A rebuild onto a fresh drive begins while clients continue, and the cut may interrupt it.
        if self.rng.random_range(0..4) == 0 {
            let at = number + self.rng.random_range(2..20);
            self.inserts.push((at, seat));
        }
        if self.scope != Scope::Orderly && self.rng.random_range(0..8) == 0 {
            if fresh {
                self.away.push(seat);
            }
            self.events.push(Event::Fail(seat));
            return;
        }
        let kinds = match self.scope {
            Scope::Silent => -2..15,
            Scope::Reported | Scope::Orderly => 0..9,
        };
        let fault = match self.rng.random_range(kinds) {
            -2 => {
                self.away.retain(|&other| other != seat);
                let regions = self.regions();
                self.events.push(Event::SetBack { seat, regions });
                return;
            }
            -1 => {
                self.away.retain(|&other| other != seat);
                self.events.push(Event::Stale(seat));
                return;
            }
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
            6 => DriveFault::Hang { for_good: false },
            7 => DriveFault::Hang { for_good: true },
            // Late, past the deadline, or in between.
            8 => DriveFault::Stall {
                millis: self.rng.random_range(5..20_000),
            },
            9 | 10 => DriveFault::Flip {
                bit: self.rng.random_range(0..8 * 4096),
            },
            11 => DriveFault::Dropped,
            12 => DriveFault::Stray {
                blocks: self.astray(),
            },
            13 => {
                let end = self.rng.random_range(0..8);
                DriveFault::Shorn(Pieces::prefix(end))
            }
            _ => DriveFault::WrongRead {
                blocks: self.astray(),
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
        // In orderly schedules an unreadable block must not be in metadata: without checksums it cannot be repaired
        // there.
        let region = match fault {
            DriveFault::Lse if self.scope == Scope::Orderly => Some(Region::Data),
            _ => region,
        };
        let skip = match self.rng.random_range(0..8) {
            0 => self.rng.random_range(0..40),
            _ => self.rng.random_range(0..soon),
        };
        let counted = Counted::Any;
        let trigger = Trigger {
            counted,
            region,
            skip,
        };
        let event = Event::Fault {
            seat,
            trigger,
            fault,
        };
        self.events.push(event);
        let late = matches!(
            fault,
            DriveFault::Slow { .. }
                | DriveFault::Stall { .. }
                | DriveFault::Hang { for_good: false }
        );
        if fresh && late {
            self.is_taken_out_late(seat);
        }
    }

    /// The regions of a drive that are set back: mostly its data and its metadata, separately or together.
    fn regions(&mut self) -> Regions {
        match self.rng.random_range(0..8) {
            0 | 1 => Regions::of(&[Region::Metadata]),
            2 => Regions::of(&[Region::Data]),
            3 | 4 => Regions::of(&[Region::Metadata, Region::Data]),
            5 => Regions::of(&[Region::Journal]),
            6 => Regions::of(&[Region::Label]),
            _ => Regions::of(&[Region::CellTable]),
        }
    }

    /// How far from its place a write or read goes astray: to neighbouring blocks, which are of the same kind, or
    /// farther.
    fn astray(&mut self) -> i32 {
        let most = if self.rng.random_range(0..2) == 0 {
            4
        } else {
            40
        };
        let far = self.rng.random_range(1..=most);
        if self.rng.random_range(0..2) == 0 {
            far
        } else {
            -far
        }
    }
}
