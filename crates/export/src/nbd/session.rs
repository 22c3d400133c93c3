//! The transmission phase without I/O: maps each request to one decision.

use std::fmt;
use std::sync::Arc;

use block::{BlockDevice, Extent, Fault, Limits, Request, RequestKind};

use super::protocol::{
    Command, REQUEST_BYTES_MAX, RequestHeader, chunk, command_flag, errno, export_flag,
};

/// Maximum number of extents in one block status reply; the client queries the rest again.
pub(super) const EXTENTS_MAX: usize = 1024;

/// The extents of a block status reply about `length` bytes, (bytes, state) each.
#[must_use]
pub fn status_of(extents: &[Extent], length: u32, one: bool) -> Vec<(u32, u32)> {
    let mut left = length;
    let mut status: Vec<(u32, u32)> = Vec::new();
    for extent in extents {
        let length = u32::try_from(extent.length).unwrap_or(u32::MAX).min(left);
        let state = if extent.hole {
            chunk::STATE_HOLE | chunk::STATE_ZERO
        } else {
            0
        };
        if length == 0 {
            continue;
        }
        let full = status.len() == if one { 1 } else { EXTENTS_MAX };
        match status.last_mut() {
            Some(last) if last.1 == state => last.0 += length,
            _ if full => break,
            _ => status.push((length, state)),
        }
        left -= length;
    }
    if status.is_empty() {
        // The device reports no extents: treat the range as data.
        status.push((length, 0));
    }
    status
}

/// The parameters of one connection's transmission phase, from its handshake and export.
#[derive(Clone)]
pub struct Session {
    /// The export.
    pub device: Arc<dyn BlockDevice>,
    /// Its name, for messages.
    pub name: String,
    /// True if replies to reads are structured.
    pub structured: bool,
    /// True if `base:allocation` was chosen.
    pub allocation: bool,
    /// True if requests that change the device are refused.
    pub read_only: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("name", &self.name)
            .field("structured", &self.structured)
            .field("allocation", &self.allocation)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// How to handle a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Pass this to the device and reply when the device has completed it.
    Submit(Request),
    /// Reply at once: success.
    Done,
    /// Reply at once: an error number and the reason.
    Refuse(u32, &'static str),
    /// Query the device's extents in the range, and reply with these.
    Status {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
        /// One extent is enough.
        one: bool,
    },
    /// Finish requests in flight, then close.
    Disconnect,
}

impl Session {
    /// Decides about the request `header`. `limits` are the device's current ones: existing connections can use the
    /// new range of a volume that has grown.
    #[must_use]
    pub fn decide(&self, header: &RequestHeader, limits: &Limits) -> Decision {
        let Some(command) = Command::from_number(header.command) else {
            return Decision::Refuse(errno::EINVAL, "unknown command");
        };
        if command == Command::Disconnect {
            return Decision::Disconnect;
        }
        if header.flags & !command_flag::KNOWN != 0 {
            return Decision::Refuse(errno::EINVAL, "unknown command flag");
        }
        let mutates = matches!(
            command,
            Command::Write | Command::Trim | Command::WriteZeroes
        );
        if mutates && self.read_only {
            return Decision::Refuse(errno::EPERM, "the export is read-only");
        }
        if command == Command::Flush {
            return Decision::Submit(Request {
                kind: RequestKind::Flush,
                offset: 0,
                length: 0,
                fua: false,
            });
        }
        if let Some(refusal) = refuse_range(command, header, limits) {
            return refusal;
        }
        let submit = |kind| {
            if header.length == 0 {
                return Decision::Done;
            }
            Decision::Submit(Request {
                kind,
                offset: header.offset,
                length: u64::from(header.length),
                fua: header.flags & command_flag::FUA != 0 && mutates,
            })
        };
        match command {
            Command::Read => submit(RequestKind::Read),
            Command::Write => submit(RequestKind::Write),
            Command::Trim => submit(RequestKind::Trim),
            Command::WriteZeroes if header.flags & command_flag::FAST_ZERO != 0 => {
                // Trimmed ranges read as zeros, and only a trim is known to be fast. But a trim leaves a hole.
                if limits.trims && header.flags & command_flag::NO_HOLE == 0 {
                    submit(RequestKind::Trim)
                } else {
                    Decision::Refuse(errno::ENOTSUP, "zeroing this range would not be fast")
                }
            }
            Command::WriteZeroes => submit(RequestKind::WriteZeroes),
            // Only a hint. The array's own cache decides what stays resident.
            Command::Cache => Decision::Done,
            Command::BlockStatus => self.block_status(header),
            Command::Flush | Command::Disconnect => Decision::Disconnect,
        }
    }

    fn block_status(&self, header: &RequestHeader) -> Decision {
        if !self.allocation {
            return Decision::Refuse(errno::EINVAL, "no metadata context was negotiated");
        }
        if header.length == 0 {
            return Decision::Refuse(errno::EINVAL, "block status of no bytes");
        }
        Decision::Status {
            offset: header.offset,
            length: header.length,
            one: header.flags & command_flag::REQ_ONE != 0,
        }
    }

    /// The export's transmission flags for the client.
    #[must_use]
    pub fn flags(&self) -> u16 {
        let mut flags = export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_TRIM
            | export_flag::SEND_WRITE_ZEROES
            | export_flag::SEND_CACHE
            | export_flag::SEND_FAST_ZERO
            // A flush goes to the device, which all connections share.
            | export_flag::CAN_MULTI_CONN;
        if self.structured {
            flags |= export_flag::SEND_DF;
        }
        if self.read_only {
            flags |= export_flag::READ_ONLY;
        }
        flags
    }
}

/// Refuses a range that is too long, outside of the device, or not aligned. The section "Error values" defines the
/// error numbers.
fn refuse_range(command: Command, header: &RequestHeader, limits: &Limits) -> Option<Decision> {
    let transfers = matches!(command, Command::Read | Command::Write);
    if transfers && header.length > REQUEST_BYTES_MAX {
        return Some(Decision::Refuse(errno::EINVAL, "longer than 32 MiB"));
    }
    let end = header.offset.checked_add(u64::from(header.length));
    if end.is_none_or(|end| end > limits.size_bytes) {
        let error = match command {
            Command::Write | Command::WriteZeroes => errno::ENOSPC,
            _ => errno::EINVAL,
        };
        return Some(Decision::Refuse(error, "past the end of the export"));
    }
    let mask = u64::from(limits.block_bytes_min.max(1)) - 1;
    // Hints and queries need no alignment.
    let aligned = (header.offset | u64::from(header.length)) & mask == 0;
    if !aligned && !matches!(command, Command::Cache | Command::BlockStatus) {
        return Some(Decision::Refuse(
            errno::EINVAL,
            "not aligned to the minimum block size",
        ));
    }
    None
}

/// The protocol's error number for a fault of the device.
#[must_use]
pub(super) const fn fault_errno(fault: Fault) -> u32 {
    match fault {
        // The protocol has no ENODEV; clients treat both as a failed device.
        Fault::Medium | Fault::Gone | Fault::Lost => errno::EIO,
        Fault::Full => errno::ENOSPC,
        Fault::Invalid => errno::EINVAL,
        Fault::Shutdown => errno::ESHUTDOWN,
    }
}

/// Minimum, preferred and maximum request size for the client, within the protocol's rules: powers of two, 1 ≤
/// minimum ≤ 64 KiB, preferred at least 512 and the minimum.
#[must_use]
pub(super) fn block_sizes(limits: &Limits) -> (u32, u32, u32) {
    let min = limits.block_bytes_min.clamp(1, 64 << 10);
    let preferred = limits
        .block_bytes_preferred
        .clamp(512.max(min), REQUEST_BYTES_MAX);
    // Requests that are longer than the device's limit are split here.
    (min, preferred, REQUEST_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Completed, Memory};

    struct Holes(Vec<Extent>, Limits);

    impl BlockDevice for Holes {
        fn limits(&self) -> Limits {
            self.1
        }
        fn submit(&self, _: Request, _: Memory, _: u64, _: &Arc<dyn Completed>) {
            unreachable!("decisions do not submit")
        }
        fn extents(&self, _: u64, _: u64) -> Vec<Extent> {
            self.0.clone()
        }
    }

    const LIMITS: Limits = Limits {
        size_bytes: 1 << 20,
        block_bytes_min: 512,
        block_bytes_preferred: 4096,
        request_bytes_max: 1 << 20,
        trims: true,
    };

    fn session(extents: &[Extent]) -> Session {
        Session {
            device: Arc::new(Holes(extents.to_vec(), LIMITS)),
            name: String::new(),
            structured: true,
            allocation: true,
            read_only: false,
        }
    }

    fn header(command: Command, offset: u64, length: u32, flags: u16) -> RequestHeader {
        RequestHeader {
            flags,
            command: command.number(),
            cookie: 1,
            offset,
            length,
        }
    }

    #[track_caller]
    fn assert_refused(decision: &Decision, error: u32) {
        assert!(
            matches!(decision, Decision::Refuse(found, _) if *found == error),
            "{decision:?} instead of error {error}"
        );
    }

    #[test]
    fn past_the_end_is_enospc_for_writers_and_einval_for_others() {
        let session = session(&[]);
        let decide = |command| session.decide(&header(command, (1 << 20) - 512, 1024, 0), &LIMITS);
        assert_refused(&decide(Command::Write), errno::ENOSPC);
        assert_refused(&decide(Command::WriteZeroes), errno::ENOSPC);
        for command in [
            Command::Read,
            Command::Trim,
            Command::Cache,
            Command::BlockStatus,
        ] {
            assert_refused(&decide(command), errno::EINVAL);
        }
        let wrapped = session.decide(&header(Command::Read, u64::MAX - 511, 1024, 0), &LIMITS);
        assert_refused(&wrapped, errno::EINVAL);
    }

    #[test]
    fn a_grown_device_serves_its_new_range() {
        let session = session(&[]);
        let request = header(Command::Read, 1 << 20, 512, 0);
        assert_refused(&session.decide(&request, &LIMITS), errno::EINVAL);
        let grown = Limits {
            size_bytes: 2 << 20,
            ..LIMITS
        };
        assert!(matches!(
            session.decide(&request, &grown),
            Decision::Submit(_)
        ));
    }

    #[test]
    fn misaligned_requests_are_refused_only_where_the_device_cannot() {
        let session = session(&[]);
        let request = header(Command::Write, 1, 3, 0);
        assert_refused(&session.decide(&request, &LIMITS), errno::EINVAL);
        let bytewise = Limits {
            block_bytes_min: 1,
            ..LIMITS
        };
        assert!(matches!(
            session.decide(&request, &bytewise),
            Decision::Submit(_)
        ));
    }

    #[test]
    fn fua_reaches_the_device_for_what_mutates_and_only_there() {
        let session = session(&[]);
        for (command, expected) in [
            (Command::Read, false),
            (Command::Write, true),
            (Command::Trim, true),
            (Command::WriteZeroes, true),
        ] {
            let decision = session.decide(&header(command, 0, 4096, command_flag::FUA), &LIMITS);
            let Decision::Submit(request) = decision else {
                panic!("{decision:?}")
            };
            assert_eq!(request.fua, expected, "{command:?}");
        }
    }

    #[test]
    fn fast_zero_becomes_a_trim_or_is_refused() {
        let session = session(&[]);
        let fast = command_flag::FAST_ZERO;
        let decision = session.decide(&header(Command::WriteZeroes, 0, 4096, fast), &LIMITS);
        assert!(matches!(decision, Decision::Submit(request) if request.kind == RequestKind::Trim));
        let flags = fast | command_flag::NO_HOLE;
        let decision = session.decide(&header(Command::WriteZeroes, 0, 4096, flags), &LIMITS);
        assert_refused(&decision, errno::ENOTSUP);
        let no_trim = Limits {
            trims: false,
            ..LIMITS
        };
        let decision = session.decide(&header(Command::WriteZeroes, 0, 4096, fast), &no_trim);
        assert_refused(&decision, errno::ENOTSUP);
    }

    #[test]
    fn extents_are_joined_clipped_and_cut_to_one_on_request() {
        let extents = [(4096, false), (4096, false), (8192, true), (1 << 40, false)]
            .map(|(length, hole)| Extent { length, hole });
        let hole = chunk::STATE_HOLE | chunk::STATE_ZERO;
        assert_eq!(
            status_of(&extents, 20480, false),
            [(8192, 0), (8192, hole), (4096, 0)]
        );
        assert_eq!(status_of(&extents, 20480, true), [(8192, 0)]);
        assert_eq!(status_of(&[], 20480, false), [(20480, 0)]);
        let session = session(&extents);
        let header = header(Command::BlockStatus, 4096, 8192, command_flag::REQ_ONE);
        assert_eq!(
            session.decide(&header, &LIMITS),
            Decision::Status {
                offset: 4096,
                length: 8192,
                one: true,
            }
        );
    }

    #[test]
    fn a_read_only_export_refuses_every_change_and_allows_a_flush() {
        let session = Session {
            read_only: true,
            ..session(&[])
        };
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            assert_refused(
                &session.decide(&header(command, 0, 4096, 0), &LIMITS),
                errno::EPERM,
            );
        }
        let flush = session.decide(&header(Command::Flush, 0, 0, 0), &LIMITS);
        assert!(matches!(flush, Decision::Submit(_)));
        assert_ne!(session.flags() & export_flag::READ_ONLY, 0);
    }
}
