//! Tools of tests, benchmarks and examples: a dev-dependency of other crates, and never more.

pub mod walk;

use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A long test as several, which run side by side: `name { part => expression, ... }` is a module with a test for each
/// part.
#[macro_export]
macro_rules! parts {
    ($name:ident { $($part:ident => $run:expr,)+ }) => {
        mod $name {
            $(
                #[test]
                fn $part() {
                    use super::*;
                    $run;
                }
            )+
        }
    };
}
/// A directory of its own for a test. It is removed when this is dropped, also after a failure.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// In the system's directory for temporary files, which has room and is usually a disk.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each one is another directory")]
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// In the directory `parent`.
    ///
    /// # Panics
    /// If the directory cannot be made.
    #[must_use]
    pub fn under(parent: &Path) -> Self {
        // Short: paths of sockets have 108 bytes.
        let made = tempfile::Builder::new().prefix("rv-").tempdir_in(parent);
        Self(made.expect("a test can make a directory"))
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

/// Waits until `condition` is true.
///
/// # Panics
/// After a minute.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// CPU time of this thread so far.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
