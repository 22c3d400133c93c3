//! State that few operations ever have: a separate allocation that is made when something is first written to it.
//!
//! An operation is created and dropped for every request. The state of the search for stale blocks would be a seventh of
//! its size.

use std::ops::{Deref, DerefMut};

/// The value that is read while nothing has been written.
pub(super) trait Blank: Default + 'static {
    /// The same value as the default.
    fn blank() -> &'static Self;
}

/// A value that is blank at first. Reading it costs no memory; the first `DerefMut` allocates it.
#[derive(Clone, Debug)]
pub(super) struct Rare<T>(Option<Box<T>>);

impl<T> Rare<T> {
    pub(super) const BLANK: Self = Self(None);

    /// True if nothing has been written to it.
    pub(super) const fn is_blank(&self) -> bool {
        self.0.is_none()
    }

    /// The value, if something has been written to it.
    pub(super) fn written(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self::BLANK
    }
}

impl<T: Blank> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::blank())
    }
}

impl<T: Blank> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Blank for Vec<u8> {
        fn blank() -> &'static Self {
            static BLANK: Vec<u8> = Vec::new();
            &BLANK
        }
    }

    #[test]
    fn it_is_blank_until_it_is_written_and_keeps_what_was_written() {
        let mut rare: Rare<Vec<u8>> = Rare::BLANK;
        assert!(rare.is_empty());
        assert!(rare.is_blank(), "reading makes nothing");
        assert!(rare.written().is_none());
        rare.push(7);
        assert_eq!(rare.clone()[..], [7]);
        rare.written().expect("it was written").clear();
        assert!(rare.is_empty());
    }
}
