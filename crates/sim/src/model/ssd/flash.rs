//! The place of a logical unit in flash, and greedy cleaning.
//!
//! ```text
//!   unit    4 KiB, what the mapping table maps          page    several units, programmed at once
//!   block   pages that are erased together              die     blocks; one operation at a time
//! ```
//!
//! Flash is not overwritten: a unit goes to the open page of some die, and its old place becomes invalid. When a die runs
//! out of free blocks, the block with the fewest valid units is cleaned: these are moved to the die's other open block,
//! and the block is erased. (Greedy cleaning: Bux and Iliadis, "Performance of greedy garbage collection in flash-based
//! solid-state drives", Performance Evaluation 67(11), 2010.)
//!
//! A drive that counts as filled needs no memory before it is written: the first place of unit u is a formula of u, and
//! only units that have moved since are in the table.

/// Bytes of a unit.
pub(super) const UNIT_BYTES: u64 = 4096;

/// The unit has not been written since the drive was filled.
const INITIAL: u32 = u32::MAX;
/// The unit is nowhere: never written, or trimmed.
const NOWHERE: u32 = u32::MAX - 1;

/// Units per piece of the mapping table; pieces that were never written are absent.
const PIECE: usize = 4096;

/// Free blocks that a die keeps: one for further host writes, one for the cleaning itself.
const FREE_BLOCKS_MIN: usize = 2;

/// Blocks of a die beyond those for data: these free ones, the two open ones, and one that makes sure that the cleaning
/// of some block gains space.
pub(super) const BLOCKS_APART: u32 = 4;

/// The parameters of the flash.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlashOptions {
    pub(super) dies: u32,
    pub(super) blocks_per_die: u32,
    pub(super) pages_per_block: u32,
    pub(super) units_per_page: u32,
    /// Units that the host sees.
    pub(super) units: u64,
    /// The first units have all been written once, in order.
    pub(super) filled_units: u64,
}

/// Additional work of a die before a page can be programmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cleaning {
    /// Pages read to move their units.
    pub(super) reads: u64,
    /// Pages programmed with moved units.
    pub(super) programs: u64,
    /// Blocks erased.
    pub(super) erases: u64,
}

/// A page to be programmed: its die, and the work that comes before it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Programmed {
    pub(super) die: u32,
    pub(super) cleaning: Cleaning,
}

/// The place of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitPlace {
    /// Nowhere: it reads as zeros without flash.
    Nowhere,
    /// In the drive's buffer: its page is not full yet.
    Buffered,
    /// In this page of this die.
    Page { die: u32, page: u32 },
}

#[derive(Clone, Debug)]
struct FlashBlock {
    valid: u32,
    /// By place, the logical unit; absent while the block has its initial content, and when it is free.
    owners: Option<Box<[u32]>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Full,
}

/// A block that is being filled, and how many of its units are filled.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    block: u32,
    used: u32,
}

#[derive(Clone, Debug)]
struct FlashDie {
    blocks: Vec<FlashBlock>,
    free: Vec<u32>,
    host: Option<OpenBlock>,
    moved: Option<OpenBlock>,
    /// Valid units of all blocks.
    valid: u64,
    /// Cleaning before the open block's first page, not returned to the caller yet.
    pending: Cleaning,
}

/// The flash of a drive and its mapping table.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    options: FlashOptions,
    table: Vec<Option<Box<[u32; PIECE]>>>,
    dies: Vec<FlashDie>,
    /// Die of the page that is being gathered.
    turn: u32,
}

fn index(value: u32) -> usize {
    value as usize
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("a drive has fewer than 2^32 units of 4 KiB")
}

impl Flash {
    pub(super) fn new(options: FlashOptions) -> Self {
        let mut dies = Vec::with_capacity(index(options.dies));
        for die in 0..options.dies {
            let blocks = (0..options.blocks_per_die).map(|block| {
                // Blocks that the fill has reached, even in part, count as full.
                let valid = (0..options.pages_per_block)
                    .map(|page| {
                        let first = initial_unit(&options, die, block, page);
                        options
                            .filled_units
                            .saturating_sub(first)
                            .min(options.units_per_page.into())
                    })
                    .sum();
                FlashBlock {
                    valid: narrow(valid),
                    owners: None,
                    state: if valid > 0 { State::Full } else { State::Free },
                }
            });
            let blocks: Vec<FlashBlock> = blocks.collect();
            let free = (0..options.blocks_per_die)
                .rev()
                .filter(|&block| blocks[index(block)].state == State::Free)
                .collect();
            dies.push(FlashDie {
                valid: blocks.iter().map(|block| u64::from(block.valid)).sum(),
                blocks,
                free,
                host: None,
                moved: None,
                pending: Cleaning::default(),
            });
        }
        let pieces = options.units.div_ceil(PIECE as u64);
        Self {
            options,
            table: vec![None; usize::try_from(pieces).expect("fits into memory")],
            dies,
            turn: 0,
        }
    }

    fn units_per_block(&self) -> u32 {
        self.options.pages_per_block * self.options.units_per_page
    }

    // --- the table ---------------------------------------------------------------------------

    fn entry(&self, unit: u64) -> u32 {
        let unit = usize::try_from(unit).expect("fits into memory");
        self.table[unit / PIECE]
            .as_ref()
            .map_or(INITIAL, |piece| piece[unit % PIECE])
    }

    fn set_entry(&mut self, unit: u64, entry: u32) {
        let unit = usize::try_from(unit).expect("fits into memory");
        let piece = self.table[unit / PIECE].get_or_insert_with(|| Box::new([INITIAL; PIECE]));
        piece[unit % PIECE] = entry;
    }

    /// Die, block, and place in the block of a unit.
    fn location(&self, unit: u64) -> Option<(u32, u32, u32)> {
        let options = &self.options;
        match self.entry(unit) {
            NOWHERE => None,
            INITIAL if unit >= options.filled_units => None,
            INITIAL => {
                let page = unit / u64::from(options.units_per_page);
                let die = page % u64::from(options.dies);
                let in_die = page / u64::from(options.dies);
                let block = in_die / u64::from(options.pages_per_block);
                let place = in_die % u64::from(options.pages_per_block)
                    * u64::from(options.units_per_page)
                    + unit % u64::from(options.units_per_page);
                Some((narrow(die), narrow(block), narrow(place)))
            }
            place => {
                let per_block = self.units_per_block();
                let block = place / per_block;
                let per_die = options.blocks_per_die;
                Some((block / per_die, block % per_die, place % per_block))
            }
        }
    }

    /// The place from which a unit is read.
    pub(super) fn place(&self, unit: u64) -> UnitPlace {
        let Some((die, block, place)) = self.location(unit) else {
            return UnitPlace::Nowhere;
        };
        let per_page = self.options.units_per_page;
        let open = self.dies[index(die)].host;
        if open.is_some_and(|open| open.block == block && open.used / per_page == place / per_page)
        {
            return UnitPlace::Buffered;
        }
        let page = block * self.options.pages_per_block + place / per_page;
        UnitPlace::Page { die, page }
    }

    // --- writing -----------------------------------------------------------------------------

    /// The unit is not needed any more.
    pub(super) fn trim(&mut self, unit: u64) {
        self.invalidate(unit);
        self.set_entry(unit, NOWHERE);
    }

    fn invalidate(&mut self, unit: u64) {
        if let Some((die, block, _)) = self.location(unit) {
            let die = &mut self.dies[index(die)];
            die.blocks[index(block)].valid -= 1;
            die.valid -= 1;
        }
    }

    /// The die of the next page: the dies take turns, except those that hold all they can. Overwriting moves units from
    /// die to die, and without a limit one die would fill up.
    fn next_die(&self, after: u32) -> u32 {
        let most = u64::from(self.options.blocks_per_die - BLOCKS_APART)
            * u64::from(self.units_per_block());
        let most = most - u64::from(self.options.units_per_page);
        let turns = (1..=self.options.dies).map(|step| (after + step) % self.options.dies);
        let mut able = turns.filter(|&die| self.dies[index(die)].valid <= most);
        able.next()
            .expect("the dies together have more room than the host sees")
    }

    /// Writes a unit. Returns the page if the unit fills it: the page is to be programmed now.
    pub(super) fn write(&mut self, unit: u64) -> Option<Programmed> {
        // The cleaning must not move the unit that is about to be replaced.
        self.trim(unit);
        let die = self.turn;
        if self.dies[index(die)].host.is_none() {
            let cleaning = self.clean(die);
            self.dies[index(die)].pending.add(cleaning);
            let block = self.open(die);
            self.dies[index(die)].host = Some(block);
        }
        let mut open = self.dies[index(die)].host.expect("just opened");
        self.put(die, open.block, open.used, unit);
        open.used += 1;
        let full = open.used == self.units_per_block();
        self.dies[index(die)].host = (!full).then_some(open);
        if full {
            self.dies[index(die)].blocks[index(open.block)].state = State::Full;
        }
        if !open.used.is_multiple_of(self.options.units_per_page) {
            return None;
        }
        let cleaning = std::mem::take(&mut self.dies[index(die)].pending);
        self.turn = self.next_die(die);
        Some(Programmed { die, cleaning })
    }

    fn open(&mut self, die: u32) -> OpenBlock {
        let per_block = index(self.units_per_block());
        let die = &mut self.dies[index(die)];
        let block = die.free.pop().expect("cleaning leaves a free block");
        let opened = &mut die.blocks[index(block)];
        opened.state = State::Open;
        opened.owners = Some(vec![INITIAL; per_block].into_boxed_slice());
        OpenBlock { block, used: 0 }
    }

    fn put(&mut self, die: u32, block: u32, place: u32, unit: u64) {
        let target = &mut self.dies[index(die)].blocks[index(block)];
        target.valid += 1;
        let owners = target.owners.as_mut().expect("an open block has owners");
        owners[index(place)] = narrow(unit);
        self.dies[index(die)].valid += 1;
        let entry = (die * self.options.blocks_per_die + block) * self.units_per_block() + place;
        self.set_entry(unit, entry);
    }

    // --- cleaning ----------------------------------------------------------------------------

    /// Frees blocks of a die until it has enough.
    fn clean(&mut self, die: u32) -> Cleaning {
        let mut cleaning = Cleaning::default();
        while self.dies[index(die)].free.len() < FREE_BLOCKS_MIN {
            let blocks = self.dies[index(die)].blocks.iter().enumerate();
            let full = blocks.filter(|(_, block)| block.state == State::Full);
            let (victim, _) = full
                .min_by_key(|(_, block)| block.valid)
                .expect("a die without free blocks has full ones");
            let victim = u32::try_from(victim).expect("few blocks");
            cleaning.add(self.clean_block(die, victim));
        }
        cleaning
    }

    fn clean_block(&mut self, die: u32, victim: u32) -> Cleaning {
        let mut cleaning = Cleaning {
            erases: 1,
            ..Cleaning::default()
        };
        let per_page = self.options.units_per_page;
        let mut units = Vec::new();
        for page in 0..self.options.pages_per_block {
            let before = units.len();
            for place in page * per_page..(page + 1) * per_page {
                let owners = &self.dies[index(die)].blocks[index(victim)].owners;
                let unit = match owners {
                    Some(owners) => u64::from(owners[index(place)]),
                    None => {
                        initial_unit(&self.options, die, victim, page) + u64::from(place % per_page)
                    }
                };
                let here = Some((die, victim, place));
                if unit < self.options.units && self.location(unit) == here {
                    units.push(unit);
                }
            }
            cleaning.reads += u64::from(units.len() > before);
        }
        for unit in units {
            if self.dies[index(die)].moved.is_none() {
                let block = self.open(die);
                self.dies[index(die)].moved = Some(block);
            }
            let mut open = self.dies[index(die)].moved.expect("just opened");
            self.invalidate(unit);
            self.put(die, open.block, open.used, unit);
            open.used += 1;
            cleaning.programs += u64::from(open.used.is_multiple_of(per_page));
            let full = open.used == self.units_per_block();
            self.dies[index(die)].moved = (!full).then_some(open);
            if full {
                self.dies[index(die)].blocks[index(open.block)].state = State::Full;
            }
        }
        let die = &mut self.dies[index(die)];
        let erased = &mut die.blocks[index(victim)];
        assert_eq!(erased.valid, 0, "only what is valid nowhere else is moved");
        erased.state = State::Free;
        erased.owners = None;
        die.free.push(victim);
        cleaning
    }
}

impl Cleaning {
    const fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.programs += other.programs;
        self.erases += other.erases;
    }
}

/// The first unit of a page in the drive as it was filled.
fn initial_unit(options: &FlashOptions, die: u32, block: u32, page: u32) -> u64 {
    let in_die = u64::from(block) * u64::from(options.pages_per_block) + u64::from(page);
    (in_die * u64::from(options.dies) + u64::from(die)) * u64::from(options.units_per_page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(filled_units: u64) -> FlashOptions {
        FlashOptions {
            dies: 2,
            blocks_per_die: 12,
            pages_per_block: 8,
            units_per_page: 4,
            units: 2 * 7 * 8 * 4,
            filled_units,
        }
    }

    /// Checks the table against a plain list.
    fn check(flash: &Flash, written: &[bool]) {
        let mut seen = std::collections::BTreeSet::new();
        for (unit, &written) in (0..).zip(written) {
            let place = flash.location(unit);
            assert_eq!(place.is_some(), written, "unit {unit}");
            if let Some(place) = place {
                assert!(seen.insert(place), "two units at {place:?}");
            }
        }
        for (die, blocks) in flash.dies.iter().enumerate() {
            for (block, state) in blocks.blocks.iter().enumerate() {
                let here = seen
                    .iter()
                    .filter(|place| (index(place.0), index(place.1)) == (die, block));
                assert_eq!(
                    here.count(),
                    index(state.valid),
                    "valid units of {die}.{block}"
                );
            }
        }
    }

    #[test]
    fn every_unit_is_in_one_place_whatever_is_overwritten() {
        for filled in [0, 100, 2 * 7 * 8 * 4] {
            let mut flash = Flash::new(options(filled));
            let units = usize::try_from(options(filled).units).unwrap();
            let mut written: Vec<bool> = (0..).map(|unit| unit < filled).take(units).collect();
            check(&flash, &written);
            let mut at = 1_u64;
            let mut cleaned = Cleaning::default();
            for round in 0..5000_u64 {
                at = block::mix(at + round);
                let unit = at % options(filled).units;
                if round % 37 == 36 {
                    flash.trim(unit);
                    written[usize::try_from(unit).unwrap()] = false;
                    continue;
                }
                written[usize::try_from(unit).unwrap()] = true;
                if let Some(programmed) = flash.write(unit) {
                    cleaned.add(programmed.cleaning);
                }
                if round % 500 == 0 {
                    check(&flash, &written);
                }
            }
            check(&flash, &written);
            assert!(cleaned.erases > 50, "{cleaned:?}");
            assert!(cleaned.programs > 0, "{cleaned:?}");
        }
    }
}
