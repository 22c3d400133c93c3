//! Whether and how well io_uring works here. Probed once, at the first drive.

use std::fmt;
use std::io;
use std::sync::OnceLock;

use io_uring::{Builder, IoUring, Probe, opcode};

/// The optional flags that the kernel supports, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// `SINGLE_ISSUER | DEFER_TASKRUN` (Linux 6.1): completion work runs only when the ring asks
    /// for it.
    Deferred,
    /// `COOP_TASKRUN` (Linux 5.19): completions do not interrupt the thread.
    Cooperative,
    /// None of them (Linux 5.11 and later).
    Plain,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deferred => "single issuer, deferred task work",
            Self::Cooperative => "cooperative task work",
            Self::Plain => "plain",
        })
    }
}

impl Support {
    /// A builder with this level's flags.
    pub(super) fn builder(self) -> Builder {
        let mut builder = IoUring::builder();
        match self {
            Self::Deferred => {
                builder
                    .setup_single_issuer()
                    .setup_defer_taskrun()
                    .setup_taskrun_flag();
            }
            Self::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            Self::Plain => {}
        }
        builder.setup_submit_all_if(self != Self::Plain);
        builder
    }
}

trait SubmitAll {
    fn setup_submit_all_if(&mut self, wanted: bool);
}

impl SubmitAll for Builder {
    /// Linux 5.18: one bad entry does not stop the rest of its batch.
    fn setup_submit_all_if(&mut self, wanted: bool) {
        if wanted {
            self.setup_submit_all();
        }
    }
}

/// The level that works here, or the reason why none does.
pub fn support() -> &'static Result<Support, String> {
    static SUPPORT: OnceLock<Result<Support, String>> = OnceLock::new();
    SUPPORT.get_or_init(|| {
        let levels = [Support::Deferred, Support::Cooperative, Support::Plain];
        let mut error = io::Error::from(io::ErrorKind::Unsupported);
        for level in levels {
            match level.builder().build(8) {
                Ok(ring) => return complete(&ring).map(|()| level),
                Err(refused) => error = refused,
            }
        }
        Err(reason(&error))
    })
}

/// Checks that the ring has everything that the back end relies on.
fn complete(ring: &IoUring) -> Result<(), String> {
    let lacks = |what: &str| Err(format!("this kernel's io_uring has no {what}"));
    if !ring.params().is_feature_nodrop() {
        return lacks("NODROP");
    }
    if !ring.params().is_feature_ext_arg() {
        return lacks("EXT_ARG");
    }
    let mut probe = Probe::new();
    if ring.submitter().register_probe(&mut probe).is_err() {
        return lacks("PROBE");
    }
    for (name, code) in [
        ("READ", opcode::Read::CODE),
        ("WRITE", opcode::Write::CODE),
        ("READ_FIXED", opcode::ReadFixed::CODE),
        ("WRITE_FIXED", opcode::WriteFixed::CODE),
        ("FSYNC", opcode::Fsync::CODE),
        ("POLL_ADD", opcode::PollAdd::CODE),
    ] {
        if !probe.is_supported(code) {
            return lacks(name);
        }
    }
    Ok(())
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is refused here (a seccomp filter, or sysctl kernel.io_uring_disabled)".into()
        }
        Some(libc::ENOSYS) => "this kernel has no io_uring".into(),
        Some(libc::ENOMEM) => "the limit of locked memory leaves no room for io_uring".into(),
        _ => format!("io_uring does not start here: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_explained() {
        let explained = |code| reason(&io::Error::from_raw_os_error(code));
        assert!(explained(libc::EPERM).contains("seccomp"));
        assert!(explained(libc::ENOSYS).contains("no io_uring"));
        assert!(explained(libc::EINVAL).contains("Invalid argument"));
    }

    #[test]
    fn asking_twice_gives_the_same_answer() {
        assert_eq!(support(), support());
    }
}
