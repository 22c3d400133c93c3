//! A table whose keys do not match later entries in the same place.

/// The key of an entry: its place, and how often the place was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// As one number, for epoll and for tokens of requests.
    pub(crate) const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Back from [`Key::to_u64`].
    pub(crate) const fn from_u64(number: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        Self {
            index: number as u32,
            generation: (number >> 32) as u32,
        }
    }
}

struct Place<T> {
    generation: u32,
    entry: Option<T>,
}

/// The table.
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, entry: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                generation: 0,
                entry: None,
            });
            u32::try_from(self.places.len() - 1).expect("fewer entries than 2^32")
        });
        let place = &mut self.places[index as usize];
        place.entry = Some(entry);
        Key {
            index,
            generation: place.generation,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation {
            place.entry.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let entry = place.entry.take()?;
        // The highest bit is never set, so `u64::MAX` and its neighbours are free for other purposes.
        place.generation = (place.generation + 1) & 0x7fff_ffff;
        self.free.push(key.index);
        Some(entry)
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Keys of all entries.
    pub(crate) fn keys(&self) -> Vec<Key> {
        (0_u32..)
            .zip(&self.places)
            .filter(|(_, place)| place.entry.is_some())
            .map(|(index, place)| Key {
                index,
                generation: place.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_does_not_find_the_next_entry_in_its_place() {
        let mut slab = Slab::new();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert_eq!(slab.get_mut(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get_mut(Key::from_u64(new.to_u64())), Some(&mut "new"));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.keys(), [new]);
    }
}
