//! Rules: the steps from a tree to devices.

use std::borrow::Cow;

use block::Hint;

use super::Item;

/// How positions are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Copies: later positions close up when one is refused.
    FirstN,
    /// Columns of a code: each position is independent and may stay empty.
    Indep,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begin at an item.
    Take(Item),
    /// Choose distinct items of a type below the items taken.
    Choose {
        /// How refusals affect later positions.
        mode: Mode,
        /// How many; 0 is the number of positions requested, −k is k fewer.
        number: i32,
        /// Their type.
        kind: u16,
        /// Whether to go on to one device below each.
        leaf: bool,
    },
    /// Tries for each position of the following steps.
    SetChooseTries(u32),
    /// Tries below a chosen bucket.
    SetChooseleafTries(u32),
    /// Append what was chosen to the result.
    Emit,
}

/// A list of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The steps.
    pub steps: Vec<Step>,
}

/// Why a rule's text could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{step}` is not a step: {why}")]
pub struct RuleError {
    /// The step.
    pub step: String,
    /// What is wrong with it.
    pub why: String,
}

impl Hint for RuleError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some("`take root0`, `choose indep 0 type osd` or `emit`".into())
    }
}

impl Rule {
    /// Devices below `root`, one step.
    #[must_use]
    pub fn flat(root: Item, mode: Mode) -> Self {
        Self {
            steps: vec![
                Step::Take(root),
                Step::Choose {
                    mode,
                    number: 0,
                    kind: 0,
                    leaf: false,
                },
                Step::Emit,
            ],
        }
    }

    /// From crushtool's words: `take NAME`, `choose|chooseleaf indep|firstn N type TYPE`,
    /// `set_choose_tries N`, `set_chooseleaf_tries N`, `emit`. `bucket` finds a bucket by name and
    /// `kind` a type by its name.
    ///
    /// # Errors
    /// At the first step that is none of these or has an unknown name.
    pub fn parse<'a>(
        steps: impl IntoIterator<Item = &'a str>,
        bucket: impl Fn(&str) -> Option<Item>,
        kind: impl Fn(&str) -> Option<u16>,
    ) -> Result<Self, RuleError> {
        let mut parsed = Vec::new();
        for text in steps {
            let error = |why: &str| RuleError {
                step: text.to_owned(),
                why: why.to_owned(),
            };
            let words: Vec<&str> = text
                .split_whitespace()
                .skip_while(|word| *word == "step")
                .collect();
            let number = |word: &str| word.parse::<i32>().map_err(|_| error("a number is wanted"));
            let count = |word: &str| word.parse::<u32>().map_err(|_| error("a count is wanted"));
            parsed.push(match words.as_slice() {
                ["take", name, ..] => {
                    Step::Take(bucket(name).ok_or_else(|| error("the map has no such bucket"))?)
                }
                [
                    choose @ ("choose" | "chooseleaf"),
                    mode @ ("indep" | "firstn"),
                    n,
                    "type",
                    name,
                ] => Step::Choose {
                    mode: if *mode == "indep" {
                        Mode::Indep
                    } else {
                        Mode::FirstN
                    },
                    number: number(n)?,
                    kind: kind(name).ok_or_else(|| error("the map has no such type"))?,
                    leaf: *choose == "chooseleaf",
                },
                ["set_choose_tries", n] => Step::SetChooseTries(count(n)?),
                ["set_chooseleaf_tries", n] => Step::SetChooseleafTries(count(n)?),
                ["emit"] => Step::Emit,
                _ => return Err(error("no step has these words")),
            });
        }
        Ok(Self { steps: parsed })
    }
}
