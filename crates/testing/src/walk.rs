//! What tests share that walk through all states of a machine, and compare the changes that they see with the drawing
//! in the head of the machine's file.

use std::collections::{BTreeSet, VecDeque};

/// A machine that is walked through, with its small surroundings.
pub trait Machine: Clone {
    /// Its state, as the drawing names it.
    fn state(&self) -> &'static str;

    /// What it differs in from others: the walk goes on from one of the machines with the same key.
    fn key(&self) -> String;

    /// The inputs that may come now, each with the machine after it.
    fn after(&self) -> Vec<(&'static str, Self)>;
}

/// The changes of state that have been seen, as lines of a drawing.
#[derive(Debug, Default)]
pub struct Changes(BTreeSet<String>);

impl Changes {
    /// All changes of these machines, and of those that they become: every input, in every state in which it may come.
    pub fn of<M: Machine>(machines: impl IntoIterator<Item = M>) -> Self {
        let mut changes = Self::default();
        let mut known = BTreeSet::new();
        let mut left: VecDeque<M> = machines.into_iter().collect();
        known.extend(left.iter().map(Machine::key));
        while let Some(machine) = left.pop_front() {
            for (event, after) in machine.after() {
                changes.note(machine.state(), event, after.state());
                if known.insert(after.key()) {
                    left.push_back(after);
                }
            }
        }
        changes
    }

    /// An input has come. A machine that stays in its state has no line.
    pub fn note(&mut self, from: &str, event: &str, to: &str) {
        if from != to {
            self.0.insert(format!("//! {from} ── {event} ──► {to}"));
        }
    }

    /// The drawing in the head of a file is what has been seen.
    ///
    /// # Panics
    /// If a change that has been seen is not drawn, or one that is drawn has not been seen.
    #[track_caller]
    pub fn assert_drawn_in(&self, file: &str) {
        let head = file.lines().take_while(|line| line.starts_with("//!"));
        let drawn: BTreeSet<String> = head
            .filter(|line| line.contains(" ──► "))
            .map(str::to_owned)
            .collect();
        let seen: Vec<&String> = self.0.difference(&drawn).collect();
        let unseen: Vec<&String> = drawn.difference(&self.0).collect();
        assert!(
            seen.is_empty() && unseen.is_empty(),
            "not drawn: {seen:#?}\nnever seen: {unseen:#?}"
        );
    }
}
