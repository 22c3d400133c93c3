//! Files of volumes that outlive the daemon: a supervisor keeps their descriptors, and the next daemon serves them again.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use export::fuse::kept::{Keeper, Kept, Retention};

/// How long a file waits for its volume after a start. Whatever uses the file waits as long; then it gets errors. A pool
/// whose drives are not there would make every process hang that looks at a file system on it.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(120);

/// See the module.
#[derive(Default)]
pub struct KeptFiles {
    keeper: Option<Arc<dyn Keeper>>,
    /// Of the daemon before, until they are served again.
    waiting: Mutex<Vec<Kept>>,
}

impl fmt::Debug for KeptFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptFiles")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl KeptFiles {
    /// Files that the daemon before has served, and who keeps files.
    pub(crate) fn new(keeper: Arc<dyn Keeper>, waiting: Vec<Kept>) -> Self {
        Self {
            keeper: Some(keeper),
            waiting: Mutex::new(waiting),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if files are kept at all.
    pub(crate) const fn are_kept(&self) -> bool {
        self.keeper.is_some()
    }

    /// How a file of this volume is kept, if it is.
    pub(crate) fn retention(&self, what: &str) -> Option<Retention> {
        Some(Retention {
            keeper: Arc::clone(self.keeper.as_ref()?),
            what: what.to_owned(),
        })
    }

    /// The file that waits at this path, to serve it again.
    pub(crate) fn take(&self, path: &Path) -> Option<Kept> {
        let mut waiting = self.waiting();
        let at = waiting.iter().position(|file| file.is_at(path))?;
        Some(waiting.swap_remove(at))
    }

    /// True if a file waits at this path. It must be left as it is until then.
    pub(crate) fn waits(&self, path: &Path) -> bool {
        self.waiting().iter().any(|file| file.is_at(path))
    }

    /// Ends the files of volumes that are not served again. Whoever uses them gets errors from now on.
    pub(crate) fn end_waiting(&self) {
        for file in self.waiting().drain(..) {
            tracing::error!(
                file = %file.path().display(),
                "its volume is not served again: what uses it gets errors from now on"
            );
            if let Some(keeper) = &self.keeper {
                file.names().iter().for_each(|name| keeper.release(name));
            }
        }
    }
}
