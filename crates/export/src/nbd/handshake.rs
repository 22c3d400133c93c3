//! The handshake as a state machine: bytes in, bytes out, and at the end a session.
//!
//! ```text
//!  greeting out ─► client flags ─► options ─┬─ GO, EXPORT_NAME ─► Transmit(session)
//!                                   ▲   │   ├─ ABORT ─► Close
//!                                   └───┤   └─ violation ─► HangUp
//!                                 StartTls   (the caller runs TLS, then options go on)
//! ```
//!
//! Everything negotiated in plain text is discarded when TLS begins: a man in the middle may have injected it
//! (CVE-2021-3716 and similar ones in other servers).

use std::fmt;
use std::sync::Arc;

use block::BlockDevice;

use super::protocol::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, IHAVEOPT,
    InfoRequest, MetaRequest, NBDMAGIC, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OPTIONS_MAX,
    OptionHeader, OptionProblem, OptionRequest, encode_info_block_size, encode_info_export,
    encode_option_reply, info, opt, rep,
};
use super::server::Exports;
use super::session::{Session, block_sizes};

/// The server's TLS policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TlsPolicy {
    /// No TLS.
    #[default]
    Off,
    /// TLS if the client requests it.
    Optional,
    /// TLS is required: without it a client gets no information and no export.
    Forced,
}

/// Why the server ends a connection without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HangUp {
    /// The client's flags contain one that this server did not offer.
    #[error("the client asked for handshake flags {flags:#x}, which were not offered")]
    ClientFlags {
        /// What it sent.
        flags: u32,
    },
    /// The input does not begin with an option.
    #[error("an option did not begin with IHAVEOPT")]
    OptionMagic,
    /// An option is longer than this server reads.
    #[error("option {code} has {length} bytes, more than {OPTION_BYTES_MAX}")]
    OptionTooLong {
        /// Which option.
        code: u32,
        /// Its length in bytes.
        length: u32,
    },
    /// The client sent more than [`OPTIONS_MAX`] options.
    #[error("no export was chosen within {OPTIONS_MAX} options")]
    TooManyOptions,
    /// The export in `EXPORT_NAME` does not exist. That option has no error reply.
    #[error("the export asked for by EXPORT_NAME is not served")]
    UnknownExport,
    /// TLS is required, and the client chose an export without it.
    #[error("TLS is required, and the client did not begin it")]
    TlsRequired,
    /// Bytes followed STARTTLS before it was answered.
    #[error("the client sent plain text behind STARTTLS")]
    PlaintextAfterStartTls,
    /// A request did not begin with the magic number, so the rest of the stream cannot be parsed.
    #[error("a request did not begin with its magic number")]
    RequestMagic,
    /// The handshake took too long.
    #[error("the handshake was not finished in time")]
    Slow,
}

/// The next step after some input.
#[derive(Debug)]
pub enum Step {
    /// The input is incomplete.
    More,
    /// One message was handled; the input may contain another one.
    Next,
    /// Send the output, then begin TLS on the socket, then go on.
    StartTls,
    /// Send the output, then serve.
    Transmit(Session),
    /// Send the output, then close.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    Options,
}

/// One connection's handshake. Send [`Handshake::greeting`] first, then call [`Handshake::handle_input`] with the
/// client's input until it returns a [`Step`] that ends the handshake.
pub struct Handshake {
    exports: Arc<dyn Exports>,
    tls: TlsPolicy,
    read_only: bool,
    phase: Phase,
    secure: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was chosen.
    allocation_for: Option<String>,
    options_seen: u32,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("phase", &self.phase)
            .field("secure", &self.secure)
            .field("options_seen", &self.options_seen)
            .finish_non_exhaustive()
    }
}

impl Handshake {
    /// A handshake that has sent and seen nothing.
    #[must_use]
    pub fn new(exports: Arc<dyn Exports>, tls: TlsPolicy, read_only: bool) -> Self {
        Self {
            exports,
            tls,
            read_only,
            phase: Phase::ClientFlags,
            secure: false,
            no_zeroes: false,
            structured: false,
            allocation_for: None,
            options_seen: 0,
        }
    }

    /// The server's first message.
    #[must_use]
    pub fn greeting() -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0..8].copy_from_slice(&NBDMAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&IHAVEOPT.to_be_bytes());
        bytes[16..18].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        bytes
    }

    /// Handles at most one message at the front of `input`, appends answers to `out`, and returns
    /// how many bytes it has used and what comes next.
    ///
    /// # Errors
    /// The caller must hang up. `out` may contain a last answer, to be sent before.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), HangUp> {
        match self.phase {
            Phase::ClientFlags => {
                let Some((flags, _)) = input.split_first_chunk::<4>() else {
                    return Ok((0, Step::More));
                };
                self.take_client_flags(u32::from_be_bytes(*flags))?;
                Ok((4, Step::Next))
            }
            Phase::Options => {
                let Some((header, rest)) = input.split_first_chunk::<OPTION_HEADER_BYTES>() else {
                    return Ok((0, Step::More));
                };
                let header = OptionHeader::parse(header).ok_or(HangUp::OptionMagic)?;
                if header.length > OPTION_BYTES_MAX {
                    encode_option_reply(out, header.code, rep::ERR_TOO_BIG, b"option too long");
                    return Err(HangUp::OptionTooLong {
                        code: header.code,
                        length: header.length,
                    });
                }
                let length = header.length as usize;
                let Some(data) = rest.get(..length) else {
                    return Ok((0, Step::More));
                };
                self.options_seen += 1;
                if self.options_seen > OPTIONS_MAX {
                    return Err(HangUp::TooManyOptions);
                }
                let step = self.handle_option(header.code, data, out)?;
                if matches!(step, Step::StartTls) && rest.len() > length {
                    return Err(HangUp::PlaintextAfterStartTls);
                }
                Ok((OPTION_HEADER_BYTES + length, step))
            }
        }
    }

    /// Call this when TLS has begun. Discards what was negotiated before.
    pub fn secured(&mut self) {
        self.secure = true;
        self.structured = false;
        self.allocation_for = None;
    }

    fn take_client_flags(&mut self, flags: u32) -> Result<(), HangUp> {
        let offered = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        // A client without FIXED_NEWSTYLE may only send EXPORT_NAME. It needs no special handling.
        if flags & !offered != 0 {
            return Err(HangUp::ClientFlags { flags });
        }
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.phase = Phase::Options;
        Ok(())
    }

    fn handle_option(&mut self, code: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Step, HangUp> {
        if self.tls == TlsPolicy::Forced && !self.secure {
            match code {
                opt::STARTTLS | opt::ABORT => {}
                opt::EXPORT_NAME => return Err(HangUp::TlsRequired),
                _ => {
                    encode_option_reply(out, code, rep::ERR_TLS_REQD, b"use TLS");
                    return Ok(Step::Next);
                }
            }
        }
        let request = match OptionRequest::parse(code, data) {
            Ok(request) => request,
            // EXPORT_NAME has no answer that could carry an error.
            Err(_) if code == opt::EXPORT_NAME => return Err(HangUp::UnknownExport),
            Err(problem) => {
                let (kind, message) = match problem {
                    OptionProblem::Malformed => (rep::ERR_INVALID, "malformed option"),
                    OptionProblem::TooBig => (rep::ERR_TOO_BIG, "string too long"),
                    OptionProblem::Unsupported => (rep::ERR_UNSUP, "unknown option"),
                };
                encode_option_reply(out, code, kind, message.as_bytes());
                return Ok(Step::Next);
            }
        };
        match request {
            OptionRequest::ExportName(name) => return self.export_name(name, out),
            OptionRequest::Abort => {
                encode_option_reply(out, code, rep::ACK, &[]);
                return Ok(Step::Close);
            }
            OptionRequest::StartTls => return Ok(self.start_tls(out)),
            OptionRequest::Go(request) => {
                if let Some(session) = self.describe(code, &request, out) {
                    return Ok(Step::Transmit(session));
                }
            }
            OptionRequest::Info(request) => {
                self.describe(code, &request, out);
            }
            OptionRequest::List => {
                for name in self.exports.list() {
                    let mut data = Vec::with_capacity(4 + name.len());
                    data.extend(u32::try_from(name.len()).unwrap_or(0).to_be_bytes());
                    data.extend(name.as_bytes());
                    encode_option_reply(out, code, rep::SERVER, &data);
                }
                encode_option_reply(out, code, rep::ACK, &[]);
            }
            OptionRequest::StructuredReply => {
                self.structured = true;
                encode_option_reply(out, code, rep::ACK, &[]);
            }
            OptionRequest::ListMetaContext(request) => self.meta_context(code, &request, out),
            OptionRequest::SetMetaContext(request) => {
                self.allocation_for = None;
                self.meta_context(code, &request, out);
            }
        }
        Ok(Step::Next)
    }

    fn start_tls(&self, out: &mut Vec<u8>) -> Step {
        let (kind, message): (_, &[u8]) = match self.tls {
            TlsPolicy::Off => (rep::ERR_POLICY, b"this server has no certificate"),
            _ if self.secure => (rep::ERR_INVALID, b"TLS is already in use"),
            TlsPolicy::Optional | TlsPolicy::Forced => {
                encode_option_reply(out, opt::STARTTLS, rep::ACK, &[]);
                return Step::StartTls;
            }
        };
        encode_option_reply(out, opt::STARTTLS, kind, message);
        Step::Next
    }

    fn export_name(&self, name: &str, out: &mut Vec<u8>) -> Result<Step, HangUp> {
        let session = self.session(name).ok_or(HangUp::UnknownExport)?;
        out.extend(session.device.limits().size_bytes.to_be_bytes());
        out.extend(session.flags().to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Ok(Step::Transmit(session))
    }

    /// Answers `INFO` or `GO`. Returns the session if the export exists.
    fn describe(&self, code: u32, request: &InfoRequest<'_>, out: &mut Vec<u8>) -> Option<Session> {
        let Some(session) = self.session(request.name) else {
            encode_option_reply(out, code, rep::ERR_UNKNOWN, b"no such export");
            return None;
        };
        let limits = session.device.limits();
        let export = encode_info_export(limits.size_bytes, session.flags());
        encode_option_reply(out, code, rep::INFO, &export);
        // Sent even if not requested, so that clients that never request it can see the alignment.
        let (min, preferred, max) = block_sizes(&limits);
        let sizes = encode_info_block_size(min, preferred, max);
        encode_option_reply(out, code, rep::INFO, &sizes);
        if request.wanted.contains(&info::NAME) {
            let mut data = info::NAME.to_be_bytes().to_vec();
            data.extend(session.name.as_bytes());
            encode_option_reply(out, code, rep::INFO, &data);
        }
        encode_option_reply(out, code, rep::ACK, &[]);
        Some(session)
    }

    /// Answers `LIST_META_CONTEXT` or `SET_META_CONTEXT`. The server has one context.
    fn meta_context(&mut self, code: u32, request: &MetaRequest<'_>, out: &mut Vec<u8>) {
        if !self.structured {
            let message = b"ask for structured replies first";
            return encode_option_reply(out, code, rep::ERR_INVALID, message);
        }
        if self.open(request.name).is_none() {
            return encode_option_reply(out, code, rep::ERR_UNKNOWN, b"no such export");
        }
        let listing = code == opt::LIST_META_CONTEXT;
        let found = request.queries.iter().any(|&query| {
            // "base:" is a pattern; only `LIST_META_CONTEXT` accepts patterns.
            query == BASE_ALLOCATION || (listing && query == "base:")
        }) || (listing && request.queries.is_empty());
        if found {
            // When listing, the number has no meaning and is zero.
            let id = if listing { 0 } else { BASE_ALLOCATION_ID };
            let mut data = id.to_be_bytes().to_vec();
            data.extend(BASE_ALLOCATION.as_bytes());
            encode_option_reply(out, code, rep::META_CONTEXT, &data);
            if !listing {
                self.allocation_for = Some(request.name.to_owned());
            }
        }
        encode_option_reply(out, code, rep::ACK, &[]);
    }

    fn session(&self, name: &str) -> Option<Session> {
        let (name, device) = self.open(name)?;
        // A context applies only to the export for which it was chosen.
        let allocation = self.structured
            && self
                .allocation_for
                .as_ref()
                .is_some_and(|chosen| self.open(chosen).is_some_and(|(chosen, _)| chosen == name));
        Some(Session {
            device,
            name,
            structured: self.structured,
            allocation,
            read_only: self.read_only,
        })
    }

    /// The export and its full name. The empty name selects the only export, if there is exactly one.
    fn open(&self, name: &str) -> Option<(String, Arc<dyn BlockDevice>)> {
        if let Some(device) = self.exports.open(name) {
            return Some((name.to_owned(), device));
        }
        if !name.is_empty() {
            return None;
        }
        let [only] = <[String; 1]>::try_from(self.exports.list()).ok()?;
        let device = self.exports.open(&only)?;
        Some((only, device))
    }
}
