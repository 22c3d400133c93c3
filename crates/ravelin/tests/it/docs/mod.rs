//! The documents agree with the program: examples of the manual pages, transcripts in `docs/`, and completion in
//! shells.

mod manual;
pub(crate) mod pages;
mod shells;
mod stage;
mod terminal;
mod words;
