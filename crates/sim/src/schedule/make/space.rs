//! Space that is freed: long trims of clients, and a volume that is created and deleted.

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::schedule::Event;

/// The planned events, by the request before which they happen.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Not the schedule's own generator, so that apart from these events a seed gives the same schedule as before.
    rng: ChaCha8Rng,
    /// A trim, in half of the cases followed by some steps and a write to the trimmed range.
    trims: Vec<usize>,
    neighbours: Vec<usize>,
}

impl Space {
    /// One seed in four has such events.
    pub(super) fn of_seed(seed: u64) -> Option<Self> {
        let has = seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 62 == 0;
        has.then(|| Self {
            rng: ChaCha8Rng::seed_from_u64(seed ^ 0x7370_6163_6521),
            trims: Vec::new(),
            neighbours: Vec::new(),
        })
    }

    /// Plans the events for this number of requests, with a cut before number `cut_at`.
    pub(super) fn plan(&mut self, requests: usize, cut_at: usize) {
        let rng = &mut self.rng;
        self.trims = (0..3).map(|_| rng.random_range(0..requests)).collect();
        // One volume is deleted shortly before the cut.
        let before = rng.random_range(1..6);
        let deleted = cut_at.saturating_sub(before);
        let created = deleted.saturating_sub(rng.random_range(1..8));
        self.neighbours = vec![created, deleted];
        let again = rng.random_range(0..requests);
        self.neighbours
            .extend([again, again + rng.random_range(1..10)]);
    }

    /// The events before request `number`.
    pub(super) fn events_at(&mut self, number: usize, volume_bytes: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..self.neighbours.iter().filter(|&&at| at == number).count() {
            events.push(Event::Neighbour);
        }
        for _ in 0..self.trims.iter().filter(|&&at| at == number).count() {
            self.trim(&mut events, volume_bytes / 4096);
        }
        events
    }

    fn trim(&mut self, events: &mut Vec<Event>, blocks: u64) {
        let length = self.rng.random_range(blocks / 4..=blocks);
        let offset = self.rng.random_range(0..=blocks - length);
        let (offset, length) = (offset * 4096, length * 4096);
        events.push(Event::Zero {
            offset,
            length,
            trim: true,
        });
        if self.rng.random_range(0..2) == 0 {
            // Run until a checkpoint, or the work after it, is in progress.
            events.push(Event::Drain);
            events.push(Event::Steps(self.rng.random_range(1..120)));
            events.push(Event::Write {
                offset,
                length,
                fua: false,
            });
        }
    }
}
