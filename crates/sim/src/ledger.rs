//! Which values a client may read while many requests are in flight and the power may fail.
//!
//! For each sector (512 bytes) there is a set of legal values. Without concurrency and cuts it has one element. A write
//! is *superseded* in a sector once another write that began after its end has ended. A read may return any write that
//! was not superseded before the read began. After a cut, a sector may hold any write that was not superseded by a
//! *durable* one (its end was reported before a flush began that has ended, or it was FUA). The value that the first
//! read after a cut returns is the value of the sector from then on.
//!
//! Values distinguish writes: the value of a write in a sector depends on the write and on the sector, and of any 255
//! successive writes no two have the same value in a sector.

use block::mix;
use std::fmt;

/// Names a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u64);

#[derive(Clone, Copy, Debug)]
struct Write {
    /// First sector, and the sector behind the last.
    low: usize,
    high: usize,
    /// `None`: zeros.
    stamp: Option<u8>,
    begun: u64,
    /// `u64::MAX` while the write is in flight, or if it failed: then it may take effect at any time.
    ended: u64,
    fua: bool,
}

/// A read that returned an illegal value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Illegal {
    /// Which sector of the volume.
    pub(crate) sector: usize,
    /// The value that was read.
    pub(crate) got: u8,
    /// The legal values.
    pub(crate) legal: Vec<u8>,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sector, got, legal } = self;
        write!(f, "sector {sector} is {got:#04x}, legal is {legal:02x?}")
    }
}

/// In `Ledger::uncertain`: the value of the sector is certain.
const CERTAIN: u32 = u32::MAX;

/// The oracle of concurrent clients.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// Values from before the first of `writes`, where they are certain.
    base: Vec<u8>,
    /// By sector: index into `choices`, or `CERTAIN`.
    uncertain: Vec<u32>,
    choices: Vec<Vec<u8>>,
    /// By sector, the latest write begun: its index plus one; 0 for none.
    latest: Vec<u16>,
    /// Writes since the last cut.
    writes: Vec<Write>,
    /// Writes that ended before this tick are durable.
    flushed: u64,
    clock: u64,
    stamps: u64,
}

/// The value of write `stamp` in a sector of the volume.
pub(crate) fn value_of(stamp: u8, sector: usize) -> u8 {
    let place = mix(sector as u64 ^ 0x5bd1_e995).to_le_bytes()[0];
    stamp.wrapping_mul(37).wrapping_add(place)
}

impl Ledger {
    /// A fresh volume: zeros.
    #[must_use]
    pub(crate) fn new(sectors: usize) -> Self {
        Self {
            base: vec![0; sectors],
            uncertain: vec![CERTAIN; sectors],
            choices: Vec::new(),
            latest: vec![0; sectors],
            writes: Vec::new(),
            flushed: 0,
            clock: 0,
            stamps: 0,
        }
    }

    /// Sectors of the volume.
    #[must_use]
    pub(crate) const fn sectors(&self) -> usize {
        self.base.len()
    }

    const fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Begins a write (or, with `zeros`, a trim) of these sectors. Returns its index and its values.
    pub(crate) fn write_begins(
        &mut self,
        low: usize,
        high: usize,
        fua: bool,
        zeros: bool,
    ) -> (usize, Vec<u8>) {
        let begun = self.tick();
        self.stamps += 1;
        let stamp = (!zeros).then_some((self.stamps % 255 + 1).to_le_bytes()[0]);
        self.writes.push(Write {
            low,
            high,
            stamp,
            begun,
            ended: u64::MAX,
            fua,
        });
        let number = u16::try_from(self.writes.len()).expect("schedules are short");
        self.latest[low..high].fill(number);
        let values = stamp.map_or_else(Vec::new, |stamp| {
            (low..high).map(|sector| value_of(stamp, sector)).collect()
        });
        (self.writes.len() - 1, values)
    }

    /// A write was acknowledged. (A write that failed never ends: some of it may be there.)
    pub(crate) fn write_ends(&mut self, index: usize) {
        self.writes[index].ended = self.tick();
    }

    /// Begins a flush.
    pub(crate) const fn flush_begins(&mut self) -> Tick {
        Tick(self.tick())
    }

    /// A flush was acknowledged.
    pub(crate) fn flush_ends(&mut self, begun: Tick) {
        self.flushed = self.flushed.max(begun.0);
    }

    /// Begins a read.
    pub(crate) const fn read_begins(&mut self) -> Tick {
        Tick(self.tick())
    }

    /// A read that began at `begun` returned `values` from sector `low` on.
    pub(crate) fn read_ends(
        &mut self,
        begun: Tick,
        low: usize,
        values: &[u8],
    ) -> Result<(), Illegal> {
        for (sector, &got) in (low..).zip(values) {
            let latest = self.latest[sector];
            if latest == 0 {
                if self.uncertain[sector] == CERTAIN {
                    if self.base[sector] == got {
                        continue;
                    }
                } else if self.choices_of(sector).contains(&got) {
                    // The sector has had this value since the cut.
                    self.base[sector] = got;
                    self.uncertain[sector] = CERTAIN;
                    continue;
                }
            } else if self.writes[usize::from(latest) - 1].value(sector) == got {
                continue;
            }
            let legal = self.legal(sector, |write, by| {
                write.ended < by.begun && by.ended < begun.0
            });
            if !legal.contains(&got) {
                return Err(Illegal { sector, got, legal });
            }
        }
        Ok(())
    }

    /// A hash of the legal values, if no request has begun since the last cut.
    pub(crate) fn digest(&self) -> u64 {
        let mut all = 0;
        for sector in 0..self.base.len() {
            for &choice in self.choices_of(sector) {
                all = mix(all ^ u64::from(choice));
            }
            all = mix(all ^ 0x100);
        }
        all
    }

    fn choices_of(&self, sector: usize) -> &[u8] {
        match self.uncertain[sector] {
            CERTAIN => &self.base[sector..=sector],
            index => &self.choices[index as usize],
        }
    }

    /// The legal values of a sector: those that no other write has superseded in the sense of `superseded`.
    fn legal(&self, sector: usize, superseded: impl Fn(&Write, &Write) -> bool) -> Vec<u8> {
        let (before, writes) = self.survivors(sector, superseded);
        self.values(sector, before, &writes)
    }

    fn values(&self, sector: usize, before: bool, writes: &[Write]) -> Vec<u8> {
        let mut values: Vec<u8> = writes.iter().map(|write| write.value(sector)).collect();
        if before {
            values.extend_from_slice(self.choices_of(sector));
        }
        values.sort_unstable();
        values.dedup();
        values
    }

    /// What no other write has superseded in a sector: whether this is the value from before the first write, and which
    /// writes.
    fn survivors(
        &self,
        sector: usize,
        superseded: impl Fn(&Write, &Write) -> bool,
    ) -> (bool, Vec<Write>) {
        let here: Vec<Write> = self
            .writes
            .iter()
            .filter(|write| (write.low..write.high).contains(&sector))
            .copied()
            .collect();
        // The value from before counts as a write that ended before all others began.
        let before = Write {
            low: 0,
            high: 0,
            stamp: None,
            begun: 0,
            ended: 0,
            fua: true,
        };
        let survives = |write: &Write| !here.iter().any(|by| superseded(write, by));
        let writes = here.iter().filter(|write| survives(write)).copied();
        (survives(&before), writes.collect())
    }

    /// The power fails: writes that are not durable may be there or not. With `kept` only the daemon was killed and the
    /// drives keep their caches: then acknowledged writes are there.
    pub(crate) fn cut(&mut self, kept: bool) {
        let flushed = self.flushed;
        let durable =
            |write: &Write| write.ended != u64::MAX && (kept || write.fua || write.ended < flushed);
        let mut choices = Vec::new();
        // All sectors between two neighbouring ends have the same writes.
        let ends = self.writes.iter().flat_map(|write| [write.low, write.high]);
        let mut ends: Vec<usize> = ends.collect();
        ends.sort_unstable();
        ends.dedup();
        let mut after: Vec<(usize, Vec<u8>)> = Vec::new();
        for pair in ends.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            let (before, writes) =
                self.survivors(low, |write, by| write.ended < by.begun && durable(by));
            if writes.is_empty() {
                continue;
            }
            for sector in low..high {
                if let ([only], false) = (&writes[..], before) {
                    self.base[sector] = only.value(sector);
                    self.uncertain[sector] = CERTAIN;
                    continue;
                }
                after.push((sector, self.values(sector, before, &writes)));
            }
        }
        // Sectors that were uncertain before and have not been written since stay uncertain.
        for (sector, index) in self.uncertain.iter_mut().enumerate() {
            if *index != CERTAIN && self.latest[sector] == 0 {
                choices.push(std::mem::take(&mut self.choices[*index as usize]));
                *index = u32::try_from(choices.len() - 1).expect("sectors are few");
            }
        }
        for (sector, legal) in after {
            if let [value] = legal[..] {
                self.base[sector] = value;
                self.uncertain[sector] = CERTAIN;
            } else {
                self.uncertain[sector] = u32::try_from(choices.len()).expect("sectors are few");
                choices.push(legal);
            }
        }
        self.choices = choices;
        self.writes.clear();
        self.latest.fill(0);
        self.flushed = 0;
    }
}

impl Write {
    fn value(&self, sector: usize) -> u8 {
        self.stamp.map_or(0, |stamp| value_of(stamp, sector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(ledger: &mut Ledger, fua: bool) -> (usize, u8) {
        let (index, values) = ledger.write_begins(0, 1, fua, false);
        (index, values[0])
    }

    fn read(ledger: &mut Ledger, value: u8) -> bool {
        let begun = ledger.read_begins();
        ledger.read_ends(begun, 0, &[value]).is_ok()
    }

    #[test]
    fn while_two_writes_are_in_flight_either_or_neither_may_be_read() {
        let mut ledger = Ledger::new(1);
        let ((one, a), (two, b)) = (write(&mut ledger, false), write(&mut ledger, false));
        for value in [0, a, b] {
            assert!(read(&mut ledger, value));
        }
        ledger.write_ends(one);
        assert!(!read(&mut ledger, 0), "one of them has ended");
        ledger.write_ends(two);
        assert!(read(&mut ledger, a) && read(&mut ledger, b), "in any order");
        let (three, c) = write(&mut ledger, false);
        let begun = ledger.read_begins();
        ledger.write_ends(three);
        assert!(!read(&mut ledger, a) && read(&mut ledger, c));
        assert!(ledger.read_ends(begun, 0, &[a]).is_ok(), "it began before");
    }

    #[test]
    fn a_cut_leaves_old_or_new_and_the_first_read_settles_which() {
        let mut ledger = Ledger::new(1);
        let (one, a) = write(&mut ledger, false);
        ledger.write_ends(one);
        let flush = ledger.flush_begins();
        ledger.flush_ends(flush);
        let (two, b) = write(&mut ledger, false);
        ledger.write_ends(two);
        let (_, c) = write(&mut ledger, false);
        ledger.cut(false);
        assert!(!read(&mut ledger.clone(), 0), "the flushed write survives");
        for value in [a, b, c] {
            assert!(read(&mut ledger.clone(), value));
        }
        ledger.cut(false);
        assert!(read(&mut ledger, b), "a second cut changes nothing");
        assert!(!read(&mut ledger, a) && read(&mut ledger, b), "now it is b");
    }

    #[test]
    fn fua_survives_and_a_kill_keeps_what_was_acknowledged() {
        let mut ledger = Ledger::new(1);
        let (one, a) = write(&mut ledger, true);
        ledger.write_ends(one);
        let mut cut = ledger.clone();
        cut.cut(false);
        assert!(!read(&mut cut, 0) && read(&mut cut, a));
        let (two, b) = write(&mut ledger, false);
        ledger.write_ends(two);
        ledger.cut(true);
        assert!(!read(&mut ledger, a) && read(&mut ledger, b));
    }

    #[test]
    fn a_flush_covers_nothing_that_ended_after_it_began() {
        let mut ledger = Ledger::new(1);
        let (one, a) = write(&mut ledger, false);
        let flush = ledger.flush_begins();
        ledger.write_ends(one);
        ledger.flush_ends(flush);
        ledger.cut(false);
        assert!(read(&mut ledger.clone(), 0) && read(&mut ledger, a));
    }
}
