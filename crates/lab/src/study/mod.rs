//! The [`Study`] trait, and the table of all studies.
//!
//! A new study is a file and a line: implement [`Study`] and add it to [`STUDIES`].

mod context;
mod dcode;
mod ddp;
mod draid;
mod elastic;
mod runs;
mod shear;

pub use context::{Context, Stopped};

use std::borrow::Cow;

use block::{Hint, closest};

use crate::paper::Paper;
use crate::report::Report;

/// All studies, paper by paper.
pub static STUDIES: &[&dyn Study] = &[
    &dcode::Fig4,
    &dcode::Fig5,
    &dcode::Fig6,
    &dcode::Fig7,
    &dcode::Features,
    &draid::Fig1,
    &draid::Fig2,
    &draid::Sweep,
    &elastic::Table1,
    &ddp::Rebuild,
    &ddp::Dual,
    &ddp::Init,
    &ddp::Bandwidth,
    &ddp::Priority,
    &shear::FIG3,
    &shear::FIG5,
    &shear::FIG6,
    &shear::Fig7,
    &shear::FIG8,
    &shear::FIG9,
    &shear::FIG10,
    &shear::FIG11,
    &shear::FIG12,
    &shear::FIG13,
    &shear::Fig14,
    &shear::Fig15,
    &shear::Fig16,
    &shear::Fig17,
    &shear::Fig18,
    &shear::Fig19,
    &shear::Fig20,
];

/// One figure or table of a paper.
pub trait Study: Sync {
    /// Its name and its question.
    fn about(&self) -> &'static About;

    /// Runs the study. It calls [`Context::check`] regularly.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when the context is stopped.
    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped>;
}

/// Description of a study.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    /// The id on the command line: paper and figure.
    pub id: &'static str,
    /// The paper.
    pub paper: &'static Paper,
    /// What the figure shows.
    pub title: &'static str,
    /// The question, the runs, and what to compare: a few sentences for the page.
    pub question: &'static str,
}

/// No study has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no study '{name}': the lab has {}", names())]
pub struct UnknownStudy {
    /// The requested name.
    pub name: String,
}

impl Hint for UnknownStudy {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let names = STUDIES.iter().map(|study| study.about().id);
        Some(match closest(&self.name, names.chain(["all"])) {
            Some(name) => format!("there is `{name}`; `ravelin lab list` names all").into(),
            None => "`ravelin lab list` names all".into(),
        })
    }
}

fn names() -> String {
    let names: Vec<&str> = STUDIES.iter().map(|study| study.about().id).collect();
    names.join(", ")
}

/// The studies of these names, each once; `all` is all of them.
///
/// # Errors
///
/// [`UnknownStudy`] for the first unknown name.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static dyn Study>, UnknownStudy> {
    let mut chosen: Vec<&'static dyn Study> = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        let before = chosen.len();
        let mut found = false;
        for &study in STUDIES {
            let id = study.about().id;
            if name == "all" || name == id {
                found = true;
                if !chosen[..before].iter().any(|other| other.about().id == id) {
                    chosen.push(study);
                }
            }
        }
        if !found {
            return Err(UnknownStudy {
                name: name.to_owned(),
            });
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<&'static str> {
        let chosen = select(names).unwrap();
        chosen.iter().map(|study| study.about().id).collect()
    }

    #[test]
    fn each_study_is_chosen_once() {
        assert_eq!(ids(&["dcode-fig4", "dcode-fig4"]), ["dcode-fig4"]);
        assert_eq!(ids(&["all"]).len(), STUDIES.len());
        assert_eq!(ids(&["dcode-fig4", "all"]).len(), STUDIES.len());
        let error = select(&["dcode-fig4", "dcode-fig9"]).err().unwrap();
        assert!(error.to_string().contains("'dcode-fig9'"), "{error}");
    }

    #[test]
    fn names_are_their_papers_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for about in STUDIES.iter().map(|study| study.about()) {
            assert!(about.id.starts_with(about.paper.id), "{}", about.id);
            assert!(seen.insert(about.id), "{} twice", about.id);
        }
    }
}
