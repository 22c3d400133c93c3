//! From an input to devices, with the steps of Ceph's `mapper.c`.

use super::hash::{hash2, hash3_each};
use super::ln::STRAWS;
use super::{Bucket, Item, Map, Mode, ONE, Rule, Step};

/// `choose_total_tries` (50) plus one: in Ceph, 50 retries are 51 tries.
const TRIES: u32 = 51;

/// Not chosen yet.
const UNDEFINED: Item = 0x7fff_fffe;

/// The only hash whose straw is longer than that of the next hash.
const FALLS: u32 = 65_534;

/// No device found.
const NONE: Item = 0x7fff_ffff;

impl Map {
    /// The items that `rule` chooses for input `x`, `positions` at most. `reweights` holds a factor
    /// for each device in units of [`ONE`]; devices beyond its end have 1.0. A device is refused
    /// with probability 1 − factor. `None` is a position of an `indep` step that stayed empty;
    /// `firstn` returns fewer items instead.
    #[must_use]
    pub fn place(
        &self,
        rule: &Rule,
        x: u32,
        positions: usize,
        reweights: &[u32],
    ) -> Vec<Option<Item>> {
        let mut tries = TRIES;
        let mut leaf_tries = None;
        let mut working: Vec<Item> = Vec::new();
        let mut result: Vec<Item> = Vec::new();
        for step in &rule.steps {
            match *step {
                Step::Take(item) => working = vec![item],
                Step::SetChooseTries(n) if n > 0 => tries = n,
                Step::SetChooseleafTries(n) if n > 0 => leaf_tries = Some(n),
                Step::SetChooseTries(_) | Step::SetChooseleafTries(_) => {}
                Step::Emit => {
                    let room = positions.saturating_sub(result.len());
                    result.extend(working.drain(..).take(room));
                }
                Step::Choose {
                    mode,
                    number,
                    kind,
                    leaf,
                } => {
                    let asked = i64::from(number)
                        + if number > 0 {
                            0
                        } else {
                            i64::try_from(positions).unwrap_or(0)
                        };
                    let Ok(asked) = u32::try_from(asked) else {
                        continue;
                    };
                    let search = Search {
                        map: self,
                        x,
                        reweights,
                        kind,
                        leaf,
                        // firstn descends once below a bucket: `chooseleaf_descend_once`.
                        leaf_tries: leaf_tries.unwrap_or(1),
                    };
                    let mut next = Vec::new();
                    for bucket in working.iter().filter_map(|&item| self.bucket(item)) {
                        let room = positions.saturating_sub(next.len());
                        let chosen = match mode {
                            Mode::FirstN => search.firstn(bucket, asked, room, tries, 0, &[]),
                            Mode::Indep => {
                                let count = room.min(asked as usize);
                                search.indep(bucket, 0..count, asked, tries, 0)
                            }
                        };
                        next.extend(chosen.into_iter().map(
                            |(item, device)| {
                                if leaf { device } else { item }
                            },
                        ));
                    }
                    working = next;
                }
            }
        }
        result
            .into_iter()
            .map(|item| (item != NONE).then_some(item))
            .collect()
    }
}

/// What stays the same during one choose step.
#[derive(Clone, Copy)]
struct Search<'a> {
    map: &'a Map,
    x: u32,
    reweights: &'a [u32],
    kind: u16,
    leaf: bool,
    leaf_tries: u32,
}

impl Search<'_> {
    /// The same search for one device.
    const fn below(self) -> Self {
        Self {
            kind: 0,
            leaf: false,
            ..self
        }
    }

    /// (item, device below it) for each position found. `taken` are devices that must not be chosen
    /// again.
    fn firstn(
        &self,
        bucket: &Bucket,
        asked: u32,
        room: usize,
        tries: u32,
        parent_r: u32,
        taken: &[Item],
    ) -> Vec<(Item, Item)> {
        let mut chosen: Vec<(Item, Item)> = Vec::new();
        for position in 0..asked {
            if chosen.len() >= room {
                break;
            }
            for failures in 0..tries {
                let r = position.wrapping_add(parent_r).wrapping_add(failures);
                let item = match self.descend(bucket, r) {
                    Descent::Found(item) => item,
                    Descent::Empty => continue,
                    Descent::Wrong => break,
                };
                if chosen.iter().any(|&(other, _)| other == item) || taken.contains(&item) {
                    continue;
                }
                let mut device = item;
                if self.leaf
                    && let Some(inner) = self.map.bucket(item)
                {
                    // vary_r = 1 passes r on; stable = 1 begins at position 0 below.
                    let devices: Vec<Item> = chosen.iter().map(|&(_, device)| device).collect();
                    let found = self
                        .below()
                        .firstn(inner, 1, 1, self.leaf_tries, r, &devices);
                    let Some(&(found, _)) = found.first() else {
                        continue;
                    };
                    device = found;
                }
                if self.kind == 0 && self.is_out(item) {
                    continue;
                }
                chosen.push((item, device));
                break;
            }
        }
        chosen
    }

    /// (item, device below it) for each of `positions`, `NONE` where nothing was found.
    fn indep(
        &self,
        bucket: &Bucket,
        positions: std::ops::Range<usize>,
        asked: u32,
        tries: u32,
        parent_r: u32,
    ) -> Vec<(Item, Item)> {
        let start = positions.start;
        let mut chosen = vec![(UNDEFINED, UNDEFINED); positions.len()];
        let mut left = positions.len();
        for failures in 0..tries {
            if left == 0 {
                break;
            }
            for at in 0..chosen.len() {
                if chosen[at].0 != UNDEFINED {
                    continue;
                }
                let position = u32::try_from(start + at).unwrap_or(u32::MAX);
                let r = position
                    .wrapping_add(parent_r)
                    .wrapping_add(asked.wrapping_mul(failures));
                let item = match self.descend(bucket, r) {
                    Descent::Found(item) => item,
                    Descent::Empty => continue,
                    Descent::Wrong => {
                        chosen[at] = (NONE, NONE);
                        left -= 1;
                        continue;
                    }
                };
                if chosen.iter().any(|&(other, _)| other == item) {
                    continue;
                }
                let mut device = item;
                if self.leaf
                    && let Some(inner) = self.map.bucket(item)
                {
                    let range = start + at..start + at + 1;
                    let found = self.below().indep(inner, range, asked, self.leaf_tries, r);
                    device = found[0].0;
                }
                // The device below stays with the position even if the item is refused.
                if self.leaf {
                    chosen[at].1 = device;
                }
                if device == NONE {
                    continue;
                }
                if self.kind == 0 && self.is_out(item) {
                    continue;
                }
                chosen[at] = (item, device);
                left -= 1;
            }
        }
        for (item, device) in &mut chosen {
            if *item == UNDEFINED {
                *item = NONE;
            }
            if *device == UNDEFINED {
                *device = NONE;
            }
        }
        chosen
    }

    /// From `bucket` down to an item of the wanted type.
    fn descend(&self, bucket: &Bucket, r: u32) -> Descent {
        let mut bucket = bucket;
        loop {
            let Some(item) = draw(bucket, self.x, r) else {
                return Descent::Empty;
            };
            if self.map.kind(item) == self.kind {
                return Descent::Found(item);
            }
            match self.map.bucket(item) {
                Some(inner) => bucket = inner,
                None => return Descent::Wrong,
            }
        }
    }

    /// True if a device's reweight refuses it for this input.
    fn is_out(&self, item: Item) -> bool {
        let device = item.cast_unsigned();
        let reweight = self.reweights.get(device as usize).copied().unwrap_or(ONE);
        match reweight {
            ONE.. => false,
            0 => true,
            _ => hash2(self.x, device) & 0xffff >= reweight,
        }
    }
}

enum Descent {
    Found(Item),
    /// A bucket without children.
    Empty,
    /// A device where a bucket was expected.
    Wrong,
}

/// Straw2: the child whose straw is longest, the first of equals.
fn draw(bucket: &Bucket, x: u32, r: u32) -> Option<Item> {
    const AT_ONCE: usize = 64;
    let straws = &**STRAWS;
    // (child, its straw, hash, weight)
    let mut best: Option<(Item, i64, u32, u32)> = None;
    for children in bucket.items.chunks(AT_ONCE) {
        let mut hashes = [0_u32; AT_ONCE];
        for (id, &(item, _)) in hashes.iter_mut().zip(children) {
            *id = item.cast_unsigned();
        }
        let hashes = &mut hashes[..children.len()];
        hash3_each(x, hashes, r);
        for (&(item, weight), &hash) in children.iter().zip(&*hashes) {
            let hash = hash & 0xffff;
            // Of two children of one weight, the child with the smaller hash cannot win: the
            // logarithm decreases only from 65,534 to 65,535. This saves most of the work.
            let cannot_win =
                |best: &(Item, i64, u32, u32)| weight == best.3 && hash <= best.2 && hash != FALLS;
            if best.as_ref().is_some_and(cannot_win) {
                continue;
            }
            let straw = match weight {
                0 => i64::MIN,
                // Towards zero, as C divides.
                _ => straws[hash as usize] / i64::from(weight),
            };
            if best.is_none_or(|(_, longest, ..)| straw > longest) {
                best = Some((item, straw, hash, weight));
            }
        }
    }
    best.map(|(item, ..)| item)
}
