//! Invariants of any bytes that an NBD client or server may send. The fuzz targets call these
//! bodies, and so does an ordinary test, with the committed corpus and random mutations of it.

#![allow(dead_code, reason = "each target uses one of the bodies")]

use std::sync::Arc;

use block::{BlockDevice, Completed, Extent, Limits, Memory, Request, RequestKind};
use export::nbd::protocol::{
    Command, OPTION_REPLY_HEADER_BYTES, OptionReplyHeader, REQUEST_BYTES, REQUEST_BYTES_MAX,
    ReplyHeader, RequestHeader, Status, errno, export_flag, rep,
};
use export::nbd::{Decision, Exports, Handshake, HangUp, Session, Step, TlsPolicy, status_of};

/// A device without data: only limits and holes, which come from the input.
struct Described {
    limits: Limits,
    extents: Vec<Extent>,
}

impl BlockDevice for Described {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn submit(&self, _: Request, _: Memory, _: u64, _: &Arc<dyn Completed>) {
        unreachable!("handshakes and decisions submit nothing")
    }

    fn extents(&self, _: u64, _: u64) -> Vec<Extent> {
        self.extents.clone()
    }
}

struct Two;

impl Exports for Two {
    fn list(&self) -> Vec<String> {
        vec!["a".to_owned(), "tank/data".to_owned()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        let limits = Limits {
            size_bytes: 1 << 30,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            request_bytes_max: 1 << 20,
            trims: true,
        };
        let known = ["a", "tank/data"].contains(&name);
        known.then(|| {
            Arc::new(Described {
                limits,
                extents: vec![],
            }) as _
        })
    }
}

/// The first byte selects the TLS policy and the length of the pieces in which the rest, the
/// client's bytes, arrives. Answers are well formed, progress is made, and forced TLS reveals
/// nothing.
pub(crate) fn handshake(data: &[u8]) {
    client_parsers(data);
    let Some((&choice, sent)) = data.split_first() else {
        return;
    };
    let tls = match choice & 3 {
        0 => TlsPolicy::Off,
        1 => TlsPolicy::Optional,
        _ => TlsPolicy::Forced,
    };
    let step_bytes = 1 + usize::from(choice >> 2) * 7;
    let mut handshake = Handshake::new(Arc::new(Two), tls, choice & 0x80 != 0);
    let mut input: Vec<u8> = Vec::new();
    let mut secure = false;
    'pieces: for piece in sent.chunks(step_bytes) {
        input.extend(piece);
        loop {
            let mut out = Vec::new();
            let result = handshake.handle_input(&input, &mut out);
            assert!(out.len() <= 64 << 10, "one message has a bounded answer");
            let hidden = tls == TlsPolicy::Forced && !secure;
            let exported = matches!(result, Ok((_, Step::Transmit(_))));
            check_answers(&out, hidden, exported);
            match result {
                Err(HangUp::RequestMagic | HangUp::Slow) => panic!("not a handshake's reason"),
                Err(_) | Ok((_, Step::Close)) => return,
                Ok((used, Step::More)) => {
                    assert_eq!(used, 0, "an incomplete message stays");
                    continue 'pieces;
                }
                Ok((used, step)) => {
                    assert!(used > 0 && used <= input.len());
                    input.drain(..used);
                    match step {
                        Step::StartTls => {
                            assert!(tls != TlsPolicy::Off && !secure && input.is_empty());
                            handshake.secured();
                            secure = true;
                        }
                        Step::Transmit(session) => {
                            assert!(!hidden, "an export was given without TLS");
                            assert!(["a", "tank/data"].contains(&session.name.as_str()));
                            assert!(session.structured || !session.allocation);
                            assert_ne!(session.flags() & export_flag::HAS_FLAGS, 0);
                            return;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Answers to options parse to the last byte. Before TLS, where it is forced, they reveal nothing.
fn check_answers(out: &[u8], hidden: bool, exported: bool) {
    let mut rest = out;
    while let Some((header, tail)) = rest.split_first_chunk::<OPTION_REPLY_HEADER_BYTES>() {
        let Some(header) = OptionReplyHeader::parse(header) else {
            assert!(
                exported && !hidden,
                "only EXPORT_NAME is answered without a header"
            );
            return;
        };
        let harmless = [
            rep::ACK,
            rep::ERR_TLS_REQD,
            rep::ERR_INVALID,
            rep::ERR_TOO_BIG,
        ];
        assert!(
            !hidden || harmless.contains(&header.kind),
            "{header:?} without TLS"
        );
        rest = &tail[usize::try_from(header.length).unwrap()..];
    }
    assert!(rest.is_empty() || exported);
}

/// The client's parsers do not panic either.
fn client_parsers(data: &[u8]) {
    if let Some(magic) = data.first_chunk::<4>() {
        let length = ReplyHeader::bytes(*magic);
        let parsed = ReplyHeader::parse(data);
        assert_eq!(
            parsed.is_some(),
            length.is_some_and(|length| data.len() >= length)
        );
    }
    if let Some(extents) = Status::parse_all(data) {
        assert_eq!(extents.len() * 8 + 4, data.len());
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(uri) = text.parse::<export::nbd::Uri>()
    {
        assert_eq!(uri.to_string().parse(), Ok(uri));
    }
}

/// The first bytes describe a device and its client's session, the rest are requests. Requests that
/// reach the device are inside it, aligned and not too long.
pub(crate) fn request(data: &[u8]) {
    let Some((&[choice, size, extents, ..], requests)) = data.split_first_chunk::<4>() else {
        return;
    };
    let block_bytes_min = [1, 512, 4096, 65536][usize::from(choice & 3)];
    let limits = Limits {
        size_bytes: (u64::from(size) << [0, 12, 20, 55][usize::from(choice >> 2 & 3)])
            & !(u64::from(block_bytes_min) - 1),
        block_bytes_min,
        block_bytes_preferred: 65536,
        request_bytes_max: 1 << 20,
        trims: choice & 16 != 0,
    };
    let extents = (0..extents)
        .map(|index| Extent {
            length: 1 << (index % 40),
            hole: index & 1 == choice >> 5 & 1,
        })
        .collect();
    let session = Session {
        device: Arc::new(Described { limits, extents }),
        name: String::new(),
        structured: choice & 64 != 0,
        allocation: choice & 64 != 0,
        read_only: choice & 128 != 0,
    };
    for bytes in requests.chunks_exact(REQUEST_BYTES) {
        let bytes = bytes.first_chunk().unwrap();
        let Some(header) = RequestHeader::parse(bytes) else {
            continue;
        };
        assert_eq!(header.encode(), *bytes);
        let command = Command::from_number(header.command);
        match session.decide(&header, &limits) {
            Decision::Submit(request) => check_submitted(&request, &header, &limits),
            Decision::Refuse(error, reason) => {
                let known = [errno::EPERM, errno::EINVAL, errno::ENOSPC, errno::ENOTSUP];
                assert!(known.contains(&error) && !reason.is_empty());
            }
            Decision::Status {
                offset,
                length,
                one,
            } => {
                assert_eq!((offset, length), (header.offset, header.length));
                let said = session.device.extents(offset, length.into());
                let extents = status_of(&said, length, one);
                assert!(!one || extents.len() == 1);
                assert_eq!(command, Some(Command::BlockStatus));
                assert!(session.allocation && !extents.is_empty());
                assert!(extents.iter().all(|extent| extent.0 > 0));
                let total: u64 = extents.iter().map(|extent| u64::from(extent.0)).sum();
                assert!(total <= u64::from(header.length));
            }
            Decision::Done => {
                assert!(header.length == 0 || command == Some(Command::Cache));
                assert!(header.offset <= limits.size_bytes);
            }
            Decision::Disconnect => assert_eq!(command, Some(Command::Disconnect)),
        }
        if session.read_only
            && let Decision::Submit(request) = session.decide(&header, &limits)
        {
            assert!(!request.kind.mutates());
        }
    }
}

fn check_submitted(request: &Request, header: &RequestHeader, limits: &Limits) {
    if request.kind == RequestKind::Flush {
        return;
    }
    assert_eq!(
        (request.offset, request.length),
        (header.offset, u64::from(header.length))
    );
    assert!(request.length > 0);
    assert!(request.offset.checked_add(request.length).unwrap() <= limits.size_bytes);
    let min = u64::from(limits.block_bytes_min);
    assert!(request.offset.is_multiple_of(min) && request.length.is_multiple_of(min));
    if matches!(request.kind, RequestKind::Read | RequestKind::Write) {
        assert!(request.length <= u64::from(REQUEST_BYTES_MAX));
    }
}
