//! The blocks of a drive as a value that is cheap to copy.
//!
//! Enumerations copy the image of a drive thousands of times and change a few blocks of each copy. Blocks are stored in
//! leaves; copies share a leaf until one of them writes to it. A hash of the whole image is updated with every block,
//! so equal images are recognised without a comparison of blocks. The swarm never compares images, and does without the
//! hash.

use std::sync::Arc;

use crate::content::Block;

/// Blocks of a leaf: copying a leaf should cost no more than a few writes do.
const LEAF: usize = 32;

type Leaf = [Block; LEAF];

/// Blocks by number; those never written are zeros.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    leaves: Vec<Option<Arc<Leaf>>>,
    /// `None` if no hash is needed.
    digest: Option<u64>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            leaves: Vec::new(),
            digest: Some(0),
        }
    }
}

fn split(at: u64) -> (usize, usize) {
    let at = usize::try_from(at).expect("fits into memory");
    (at / LEAF, at % LEAF)
}

impl Image {
    /// Zeros, without a hash.
    pub(crate) fn without_digest() -> Self {
        Self {
            digest: None,
            ..Self::default()
        }
    }

    pub(crate) const fn keeps_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// A block.
    pub(crate) fn get(&self, at: u64) -> &Block {
        let (leaf, index) = split(at);
        match self.leaves.get(leaf) {
            Some(Some(leaf)) => &leaf[index],
            _ => &Block::ZERO,
        }
    }

    /// Replaces a block.
    pub(crate) fn set(&mut self, at: u64, block: Block) {
        let (leaf, index) = split(at);
        if leaf >= self.leaves.len() {
            if block.is_zero() {
                return;
            }
            self.leaves.resize(leaf + 1, None);
        }
        let slot = &mut self.leaves[leaf];
        if slot.is_none() && block.is_zero() {
            return;
        }
        let leaf = slot.get_or_insert_with(|| Arc::new([const { Block::ZERO }; LEAF]));
        if leaf[index] == block {
            return;
        }
        if let Some(digest) = &mut self.digest {
            let old = leaf[index].digest(at);
            *digest = digest.wrapping_sub(old).wrapping_add(block.digest(at));
        }
        Arc::make_mut(leaf)[index] = block;
    }

    /// A hash of all blocks: equal for equal images, in whatever order their blocks were written.
    ///
    /// # Panics
    /// After [`Image::forgo_digest`].
    pub(crate) const fn digest(&self) -> u64 {
        self.digest.expect("images that are compared keep it")
    }

    /// Stops updating the hash.
    pub(crate) const fn forgo_digest(&mut self) {
        self.digest = None;
    }

    /// Number of blocks from `first` to the last one before `end` that is not zero.
    pub(crate) fn used(&self, first: u64, end: u64) -> u64 {
        let (last_leaf, _) = split(end - 1);
        let mut leaf = last_leaf.min(self.leaves.len().wrapping_sub(1));
        if self.leaves.is_empty() {
            return 0;
        }
        let (first_leaf, _) = split(first);
        while leaf > first_leaf && self.leaves[leaf].is_none() {
            leaf -= 1;
        }
        let mut at = end.min((leaf as u64 + 1) * LEAF as u64);
        while at > first && self.get(at - 1).is_zero() {
            at -= 1;
        }
        at.saturating_sub(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_what_is_there_and_not_on_how_it_came() {
        let (mut one, mut other) = (Image::default(), Image::default());
        for at in 0..200 {
            one.set(at * 7 % 200, Block::Sectors([at as u8; 8]));
        }
        let before = one.clone();
        for at in (0..200).rev() {
            other.set(at * 7 % 200, Block::Sectors([9; 8]));
            other.set(at * 7 % 200, Block::Sectors([at as u8; 8]));
        }
        assert_eq!(one.digest(), other.digest());
        one.set(77, Block::Sectors([1, 0, 0, 0, 0, 0, 0, 0]));
        assert_ne!(one.digest(), other.digest());
        assert_eq!(before.digest(), other.digest(), "a copy is not changed");
        for at in 0..200 {
            one.set(at, Block::ZERO);
        }
        assert_eq!(one.digest(), Image::default().digest());
    }

    #[test]
    fn used_blocks_end_at_the_last_that_is_not_zero() {
        let mut image = Image::default();
        assert_eq!(image.used(3, 1000), 0);
        image.set(70, Block::Sectors([1; 8]));
        image.set(500, Block::Sectors([1; 8]));
        assert_eq!(image.used(3, 1000), 498);
        assert_eq!(image.used(3, 400), 68);
        assert_eq!(image.used(71, 400), 0);
    }
}
