//! A flash drive.
//!
//! ```text
//!   host ══ interface ══ buffer ══╦══ channel 0 ══ die 0, die 8, …     a die reads, programs or erases: one at a time
//!                                 ╠══ channel 1 ══ die 1, die 9, …     a channel moves one page at a time
//!                                 ╚══ …
//! ```
//!
//! - *Read.* Each page is sensed by its die, then moved over the channel. Unwritten units are zeros at once.
//! - *Write.* Answered when its units are in the buffer. The buffer survives a loss of power, as in data-centre drives,
//!   so a flush costs nothing. Units are gathered into pages, and pages go to the dies in turn. If the buffer is full,
//!   writes wait for programs.
//! - *Cleaning.* Greedy, by die, when a die's free blocks run out (`flash`). Its time comes before the time of the page
//!   itself, so reads behind it wait. Write amplification is not a parameter; it results from the cleaning.
//!
//! A drive that compresses would put more units into a page. [`SsdOptions::page_bytes`] ÷ 4 KiB is the only place where
//! units become pages, and so the place for compression.
//!
//! The end of an operation is computed when the operation is accepted, because dies and channels serve in order of
//! arrival.

mod flash;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use block::Instant;

use self::flash::{BLOCKS_APART, Flash, FlashOptions, Programmed, UNIT_BYTES, UnitPlace};
use super::server::transfer_ns;
use super::{IoKind, Model, Operation, Work};

/// The parameters of a flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsdOptions {
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Additional space, in thousandths of the capacity.
    pub over_provisioning_thousandths: u64,
    /// Channels.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Bytes that a die senses or programs at once (of all its planes together).
    pub page_bytes: u64,
    /// Pages that are erased together.
    pub pages_per_block: u32,
    /// Time to sense a page.
    pub read_ns: u64,
    /// Time to program a page.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// Rate of a channel.
    pub channel_bytes_per_second: u64,
    /// Time per command.
    pub overhead_ns: u64,
    /// Rate of the interface; 0 stands for no limit.
    pub interface_bytes_per_second: u64,
    /// Bytes of the write buffer, at least a page per die.
    pub buffer_bytes: u64,
    /// Share of the drive that counts as written, from its beginning, in percent.
    pub filled_percent: u64,
}

/// A flash drive.
#[derive(Clone, Debug)]
pub struct Ssd {
    options: SsdOptions,
    flash: Flash,
    die_free: Vec<u64>,
    channel_free: Vec<u64>,
    interface_free: u64,
    /// Units in the buffer; when programs make room, and for how many units.
    buffered: u64,
    releases: BinaryHeap<Reverse<(u64, u64)>>,
    /// Done at, order of arrival, token.
    in_flight: BinaryHeap<Reverse<(u64, u64, u64)>>,
    taken: u64,
    done: VecDeque<u64>,
    busy_until: u64,
    work: Work,
}

impl Ssd {
    /// A drive at rest.
    ///
    /// # Panics
    /// When the options do not make a drive: presets are valid, and files are checked before.
    #[must_use]
    pub fn new(options: SsdOptions) -> Self {
        let dies = options.channels * options.dies_per_channel;
        let units = options.capacity_bytes / UNIT_BYTES;
        let units_per_page = u32::try_from(options.page_bytes / UNIT_BYTES).expect("small pages");
        assert!(dies > 0 && units_per_page > 0, "a drive has dies and pages");
        let raw = units + units * options.over_provisioning_thousandths / 1000;
        let per_block = u64::from(options.pages_per_block) * u64::from(units_per_page);
        let blocks = raw.div_ceil(per_block * u64::from(dies)) + u64::from(BLOCKS_APART) + 1;
        let flash = Flash::new(FlashOptions {
            dies,
            blocks_per_die: u32::try_from(blocks).expect("few blocks"),
            pages_per_block: options.pages_per_block,
            units_per_page,
            units,
            filled_units: units * options.filled_percent.min(100) / 100,
        });
        Self {
            flash,
            die_free: vec![0; dies as usize],
            channel_free: vec![0; options.channels as usize],
            interface_free: 0,
            buffered: 0,
            releases: BinaryHeap::new(),
            in_flight: BinaryHeap::new(),
            taken: 0,
            done: VecDeque::new(),
            busy_until: 0,
            work: Work::default(),
            options,
        }
    }

    /// Bytes that the host sees.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.options.capacity_bytes
    }

    fn channel_of(&self, die: u32) -> usize {
        (die % self.options.channels) as usize
    }

    /// Moves `bytes` through the interface from `at` on, one operation after the other. Returns the time at which that
    /// is done.
    fn through_interface(&mut self, at: u64, bytes: u64) -> u64 {
        let moving = transfer_ns(bytes, self.options.interface_bytes_per_second);
        if moving == 0 {
            return at;
        }
        self.interface_free = at.max(self.interface_free) + moving;
        self.interface_free
    }

    fn read(&mut self, now: u64, first: u64, end: u64) -> u64 {
        let mut at = now;
        let mut last = None;
        for unit in first..end {
            let UnitPlace::Page { die, page } = self.flash.place(unit) else {
                continue;
            };
            let channel = self.channel_of(die);
            let moving = transfer_ns(UNIT_BYTES, self.options.channel_bytes_per_second);
            if last != Some((die, page)) {
                last = Some((die, page));
                let die = &mut self.die_free[die as usize];
                *die = now.max(*die) + self.options.read_ns;
            }
            let sensed = self.die_free[die as usize];
            let free = &mut self.channel_free[channel];
            *free = sensed.max(*free) + moving;
            at = at.max(*free);
        }
        at
    }

    /// Puts the units into the buffer. Returns the time at which all of them are there.
    fn write(&mut self, now: u64, first: u64, end: u64) -> u64 {
        let room = self.options.buffer_bytes / UNIT_BYTES;
        let mut at = now;
        for unit in first..end {
            self.buffered += 1;
            while let Some(&Reverse((release, units))) = self.releases.peek()
                && (release <= at || self.buffered > room)
            {
                self.releases.pop();
                self.buffered -= units;
                at = at.max(release);
            }
            if let Some(programmed) = self.flash.write(unit) {
                let done = self.program(at, programmed);
                let units = self.options.page_bytes / UNIT_BYTES;
                self.releases.push(Reverse((done, units)));
            }
        }
        at
    }

    fn program(&mut self, at: u64, programmed: Programmed) -> u64 {
        let options = &self.options;
        let cleaning = programmed.cleaning;
        let moving = transfer_ns(options.page_bytes, options.channel_bytes_per_second);
        let channel = self.channel_of(programmed.die);
        let free = &mut self.channel_free[channel];
        *free = at.max(*free) + moving;
        let there = *free;
        let cleaned = cleaning.reads * options.read_ns
            + cleaning.programs * options.program_ns
            + cleaning.erases * options.erase_ns;
        let die = &mut self.die_free[programmed.die as usize];
        *die = there.max(*die) + cleaned + options.program_ns;
        self.work.programs += 1 + cleaning.programs;
        self.work.moves += cleaning.programs;
        self.work.erases += cleaning.erases;
        *die
    }
}

impl Model for Ssd {
    fn handle_operation(&mut self, now: Instant, operation: Operation) {
        self.work.count(&operation);
        let begin = now.0 + self.options.overhead_ns;
        let first = operation.offset / UNIT_BYTES;
        let end = (operation.offset + operation.length).div_ceil(UNIT_BYTES);
        assert!(
            end <= self.options.capacity_bytes.div_ceil(UNIT_BYTES),
            "an operation lies on the drive"
        );
        let done = match operation.kind {
            IoKind::Read => {
                let read = self.read(begin, first, end);
                self.through_interface(read, operation.length)
            }
            IoKind::Write => {
                let here = self.through_interface(begin, operation.length);
                self.write(here, first, end)
            }
            IoKind::WriteZeroes | IoKind::Discard => {
                (first..end).for_each(|unit| self.flash.trim(unit));
                begin
            }
            IoKind::Flush => begin,
        };
        self.work.busy_ns += done - now.0.max(self.busy_until).min(done);
        self.busy_until = self.busy_until.max(done);
        self.taken += 1;
        self.in_flight
            .push(Reverse((done, self.taken, operation.token)));
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&Reverse((at, _, token))) = self.in_flight.peek()
            && at <= now.0
        {
            self.in_flight.pop();
            self.done.push_back(token);
        }
    }

    fn poll_done(&mut self) -> Option<u64> {
        self.done.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.peek().map(|&Reverse((at, ..))| Instant(at))
    }

    fn queued(&self) -> usize {
        self.in_flight.len()
    }

    fn work(&self) -> Work {
        self.work
    }

    fn boxed(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SsdOptions {
        SsdOptions {
            capacity_bytes: 64 << 20,
            over_provisioning_thousandths: 70,
            channels: 2,
            dies_per_channel: 2,
            page_bytes: 16384,
            pages_per_block: 64,
            read_ns: 50_000,
            program_ns: 500_000,
            erase_ns: 3_000_000,
            channel_bytes_per_second: 400_000_000,
            overhead_ns: 5_000,
            interface_bytes_per_second: 0,
            buffer_bytes: 1 << 20,
            filled_percent: 100,
        }
    }

    fn run(ssd: &mut Ssd, now: u64, kind: IoKind, offset: u64, length: u64) -> u64 {
        let operation = Operation {
            token: 0,
            kind,
            offset,
            length,
        };
        ssd.handle_operation(Instant(now), operation);
        let due = ssd.poll_timeout().expect("in flight");
        ssd.handle_timeout(due);
        assert_eq!(ssd.poll_done(), Some(0));
        due.0 - now
    }

    #[test]
    fn a_read_is_sensed_then_moved_and_neighbours_share_a_page() {
        let mut ssd = Ssd::new(options());
        let moved = 4096 * 1_000_000_000 / 400_000_000;
        assert_eq!(
            run(&mut ssd, 0, IoKind::Read, 0, 4096),
            5_000 + 50_000 + moved
        );
        let page = run(&mut ssd, 1_000_000, IoKind::Read, 0, 16384);
        assert_eq!(page, 5_000 + 50_000 + 4 * moved, "sensed once");
        let two = run(&mut ssd, 2_000_000, IoKind::Read, 0, 32768);
        assert_eq!(
            two, page,
            "the next page is in another die on another channel"
        );
    }

    #[test]
    fn writes_are_answered_from_the_buffer_until_it_is_full() {
        let mut ssd = Ssd::new(options());
        assert_eq!(run(&mut ssd, 0, IoKind::Write, 0, 4096), 5_000);
        let long = run(&mut ssd, 0, IoKind::Write, 0, 32 << 20);
        // 4 dies program 16 KiB each in 0.5 ms: 128 MiB/s, besides what cleaning takes.
        let programs = (31 << 20) / 16384 / 4 * 500_000;
        assert!(long > programs, "{long} against {programs}");
    }

    #[test]
    fn overwriting_at_random_costs_what_cleaning_costs() {
        let mut ssd = Ssd::new(options());
        let units = (64 << 20) / 4096;
        let mut at = 7_u64;
        let mut now = 0;
        for round in 0..40_000_u64 {
            at = block::mix(at + round);
            now += run(&mut ssd, now, IoKind::Write, at % units * 4096, 4096);
        }
        let work = ssd.work();
        let host = work.programs - work.moves;
        let amplification = |part: u64| part * 100 / host;
        // Greedy cleaning at some 80 % of valid space moves about as many pages as the host writes, or more.
        let found = amplification(work.programs);
        assert!((150..400).contains(&found), "{found} % for {work:?}");
        assert!(work.erases > 0);
    }
}
