//! The tests, for a client that connects in the way that the module above names.

#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use super::WAY;
use crate::MEMORY;
use crate::support::tunnel::Way;
use crate::support::{Fixture, MemoryDevice, Pace, Table, limits};
use block::SplitMix64;
use export::nbd::protocol::{
    Command, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, InfoRequest, MetaRequest, OPTION_BYTES_MAX,
    OPTIONS_MAX, OptionReplyHeader, RequestHeader, command_flag, encode_option, errno, opt, rep,
};
use export::nbd::{Client, Options};
use testing::{Directory, eventually};

const SIZE: u64 = 8 << 20;

fn shared() -> RwLockReadGuard<'static, ()> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    MEMORY.write().unwrap_or_else(PoisonError::into_inner)
}

fn hostile_fixture(options: &Options) -> (Arc<MemoryDevice>, Fixture) {
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let dir = Directory::new();
    let options = Options {
        tls: WAY.server(&dir),
        ..options.clone()
    };
    let table = Table::of(&[("tank/data", Arc::clone(&device))]);
    (device, Fixture::serve_in(dir, table, &options))
}

/// A connection that has received the greeting, and over TLS has sent its flags.
fn raw(fixture: &Fixture) -> UnixStream {
    WAY.connect(&fixture.socket, &fixture.dir)
}

/// The bytes that a client sends before its first option.
fn client_flags() -> Vec<u8> {
    if WAY != Way::Plain {
        return Vec::new();
    }
    u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES)
        .to_be_bytes()
        .to_vec()
}

fn go(out: &mut Vec<u8>) {
    let mut data = Vec::new();
    InfoRequest {
        name: "tank/data",
        wanted: vec![],
    }
    .encode(&mut data);
    encode_option(out, opt::GO, &data);
}

fn request(command: Command, offset: u64, length: u32) -> RequestHeader {
    RequestHeader {
        flags: 0,
        command: command.number(),
        cookie: offset ^ 0x55,
        offset,
        length,
    }
}

/// A raw connection in its transmission phase, simple replies.
fn transmitting(fixture: &Fixture) -> UnixStream {
    let mut stream = raw(fixture);
    let mut bytes = client_flags();
    go(&mut bytes);
    stream.write_all(&bytes).unwrap();
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header).unwrap();
        let header = OptionReplyHeader::parse(&header).unwrap();
        let mut data = vec![0; header.length as usize];
        stream.read_exact(&mut data).unwrap();
        if header.kind == rep::ACK {
            return stream;
        }
    }
}

/// All messages of a well-behaved client with a short session.
fn conversation() -> Vec<u8> {
    let mut bytes = client_flags();
    encode_option(&mut bytes, opt::LIST, &[]);
    encode_option(&mut bytes, opt::STRUCTURED_REPLY, &[]);
    let mut data = Vec::new();
    MetaRequest {
        name: "tank/data",
        queries: vec!["base:allocation"],
    }
    .encode(&mut data);
    encode_option(&mut bytes, opt::SET_META_CONTEXT, &data);
    go(&mut bytes);
    bytes.extend(request(Command::Write, 4096, 700).encode());
    bytes.extend([0x5a; 700]);
    bytes.extend(request(Command::Read, 0, 8192).encode());
    bytes.extend(request(Command::Flush, 0, 0).encode());
    bytes.extend(request(Command::Trim, 65536, 4096).encode());
    bytes.extend(request(Command::WriteZeroes, 0, 4096).encode());
    // One extent only, so that the answer's length does not depend on the earlier write.
    let status = RequestHeader {
        flags: command_flag::REQ_ONE,
        ..request(Command::BlockStatus, 0, 1 << 20)
    };
    bytes.extend(status.encode());
    bytes.extend(request(Command::Cache, 0, 4096).encode());
    bytes.extend(request(Command::Disconnect, 0, 0).encode());
    bytes
}

/// Reads until the server closes. A reset counts as closed.
#[track_caller]
fn read_to_hang_up(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server did not hang up: {error}"),
    }
    bytes
}

/// A client that must not notice what other clients do.
struct Bystander {
    client: Client,
    round: u64,
}

impl Bystander {
    fn new(fixture: &Fixture) -> Self {
        let mut client = Client::connect(&fixture.uri("tank/data"), None).unwrap();
        client.set_timeout(Some(Duration::from_secs(10)));
        Self { client, round: 0 }
    }

    #[track_caller]
    fn check(&mut self) {
        self.round += 1;
        let bytes = SplitMix64::new(self.round).bytes(5000);
        let offset = SIZE - 8192 + self.round % 100;
        self.client.write(offset, &bytes, false).unwrap();
        assert!(self.client.read(offset, 5000).unwrap() == bytes);
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 4096
}

#[test]
fn nonsense_in_the_handshake_is_hung_up_on() {
    let _guard = shared();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let mut too_long = client_flags();
    too_long.extend(0x4948_4156_454f_5054_u64.to_be_bytes());
    too_long.extend(opt::GO.to_be_bytes());
    too_long.extend((OPTION_BYTES_MAX + 1).to_be_bytes());
    let mut no_export = client_flags();
    encode_option(&mut no_export, opt::EXPORT_NAME, b"tank/other");
    let mut bad_magic = client_flags();
    bad_magic.extend([0x41; 16]);
    let mut not_utf8 = client_flags();
    encode_option(&mut not_utf8, opt::EXPORT_NAME, &[0xff; 30]);
    for (what, bytes) in [
        ("unknown client flags, or no option", vec![0xff; 16]),
        (
            "an HTTP client",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ),
        ("an option without magic", bad_magic),
        ("an option of more than 32 KiB", too_long),
        ("an export that is not served", no_export),
        ("a name that is not text", not_utf8),
    ] {
        let mut stream = raw(&fixture);
        stream.write_all(&bytes).unwrap();
        let start = Instant::now();
        read_to_hang_up(&mut stream);
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        bystander.check();
    }
}

#[test]
fn a_flood_of_options_is_cut_off_and_never_piles_up_answers() {
    let _guard = alone();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    // A client that reads the answers: the server closes the connection after the limit.
    let mut stream = raw(&fixture);
    let mut bytes = client_flags();
    for _ in 0..=OPTIONS_MAX {
        encode_option(&mut bytes, opt::LIST, &[]);
    }
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&bytes));
    let answers = read_to_hang_up(&mut stream);
    let _ = sender.join().unwrap();
    let per_list = 20 + 4 + "tank/data".len() + 20;
    let lists = OPTIONS_MAX as usize - WAY.options();
    assert_eq!(answers.len(), per_list * lists);
    // A client that does not read: the memory that it costs the server is bounded, so its own
    // sending must block.
    let mut deaf = raw(&fixture);
    deaf.set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let before = resident_bytes();
    deaf.write_all(&client_flags()).unwrap();
    let mut option = Vec::new();
    encode_option(&mut option, 99, &[0; 20_000]);
    let mut sent = 0_usize;
    while sent < 64 << 20 {
        match deaf.write(&option) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
        if sent.is_multiple_of(100 * option.len()) {
            bystander.check();
        }
    }
    assert!(resident_bytes() < before + (16 << 20));
    bystander.check();
}

#[test]
fn malformed_options_are_refused_and_the_handshake_goes_on() {
    let _guard = shared();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut stream = raw(&fixture);
    let mut bytes = client_flags();
    let mut expected = Vec::new();
    let tls_again = if WAY == Way::Plain {
        rep::ERR_POLICY
    } else {
        rep::ERR_INVALID
    };
    for (code, data, kind) in [
        (opt::GO, vec![], rep::ERR_INVALID),
        (opt::GO, vec![0xff; 6], rep::ERR_INVALID),
        (opt::INFO, vec![0, 0, 0, 0, 0xff, 0xff], rep::ERR_INVALID),
        (opt::LIST, vec![1], rep::ERR_INVALID),
        (opt::STRUCTURED_REPLY, vec![0; 4], rep::ERR_INVALID),
        (opt::SET_META_CONTEXT, vec![0; 8], rep::ERR_INVALID),
        (opt::STARTTLS, vec![], tls_again),
        (4, vec![], rep::ERR_UNSUP),
        (11, vec![], rep::ERR_UNSUP),
        (u32::MAX, vec![7; 100], rep::ERR_UNSUP),
    ] {
        encode_option(&mut bytes, code, &data);
        expected.push((code, kind));
    }
    let mut unknown = Vec::new();
    InfoRequest {
        name: "nowhere",
        wanted: vec![],
    }
    .encode(&mut unknown);
    encode_option(&mut bytes, opt::GO, &unknown);
    expected.push((opt::GO, rep::ERR_UNKNOWN));
    encode_option(&mut bytes, opt::ABORT, &[]);
    expected.push((opt::ABORT, rep::ACK));
    stream.write_all(&bytes).unwrap();
    let answers = read_to_hang_up(&mut stream);
    let mut rest = &answers[..];
    let mut found = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<20>() {
        let header = OptionReplyHeader::parse(header).unwrap();
        rest = &tail[header.length as usize..];
        found.push((header.code, header.kind));
    }
    assert_eq!(found, expected);
}

#[test]
fn a_request_without_magic_ends_the_connection_and_only_that() {
    let _guard = shared();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let mut stream = transmitting(&fixture);
    let mut bytes = request(Command::Write, 0, 4096).encode().to_vec();
    bytes.extend([1; 4095]);
    bytes.extend(request(Command::Read, 0, 4096).encode());
    bytes.extend(request(Command::Read, 0, 4096).encode());
    stream.write_all(&bytes).unwrap();
    // One byte of the payload is missing, so the server took the first read's first byte for it.
    let answer = read_to_hang_up(&mut stream);
    assert!(answer.len() <= 16, "at most the write was answered");
    bystander.check();
}

#[test]
fn huge_lengths_are_refused_and_their_payload_is_not_kept() {
    let _guard = alone();
    let (device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let mut stream = transmitting(&fixture);
    let before = resident_bytes();
    for (command, offset, length, expected) in [
        (Command::Read, 0, u32::MAX, errno::EINVAL),
        (Command::Read, u64::MAX, u32::MAX, errno::EINVAL),
        (Command::Trim, u64::MAX - 1, 1, errno::EINVAL),
        (Command::Cache, 0, u32::MAX, errno::EINVAL),
        (Command::WriteZeroes, 0, u32::MAX, errno::ENOSPC),
        (Command::Write, 0, 100 << 20, errno::EINVAL),
        (Command::Write, SIZE, 10 << 20, errno::ENOSPC),
    ] {
        stream
            .write_all(&request(command, offset, length).encode())
            .unwrap();
        if command == Command::Write {
            let chunk = vec![0xaa; 1 << 20];
            for _ in 0..length >> 20 {
                stream.write_all(&chunk).unwrap();
            }
        }
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(
            reply[4..8],
            expected.to_be_bytes(),
            "{command:?} {offset} {length}"
        );
        bystander.check();
    }
    assert!(resident_bytes() < before + (16 << 20));
    assert!(!device.bytes()[..1 << 20].contains(&0xaa));
    // An unknown command and unknown flags are refused, too.
    let mut odd = request(Command::Read, 0, 1);
    odd.command = 99;
    stream.write_all(&odd.encode()).unwrap();
    let mut odd = request(Command::Read, 0, 1);
    odd.flags = 1 << 12;
    stream.write_all(&odd.encode()).unwrap();
    let mut replies = [0; 32];
    stream.read_exact(&mut replies).unwrap();
    assert_eq!(replies[4..8], errno::EINVAL.to_be_bytes());
    assert_eq!(replies[20..24], errno::EINVAL.to_be_bytes());
}

#[test]
fn a_disconnect_after_any_byte_of_a_conversation_leaves_nothing_behind() {
    let _guard = shared();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let bytes = conversation();
    for cut in 0..bytes.len() {
        let mut stream = raw(&fixture);
        stream.write_all(&bytes[..cut]).unwrap();
        match cut % 4 {
            // Four ends: closed at once; half closed; closed after the answers, or with the rest of them unread.
            0 => {}
            1 => stream.shutdown(std::net::Shutdown::Write).unwrap(),
            2 => {
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                read_to_hang_up(&mut stream);
            }
            _ => {
                let soon = Some(Duration::from_millis(5));
                stream.set_read_timeout(soon).unwrap();
                let _ = stream.read(&mut [0]);
            }
        }
        drop(stream);
        if cut % 50 == 0 {
            bystander.check();
        }
    }
    eventually("only the bystander is left", || {
        fixture.server.as_ref().unwrap().connections() == 1
    });
    bystander.check();
}

#[test]
fn a_conversation_byte_by_byte_is_answered_like_one_in_one_piece() {
    let _guard = shared();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let bytes = conversation();
    let mut whole = raw(&fixture);
    whole.write_all(&bytes).unwrap();
    let expected = read_to_hang_up(&mut whole);
    assert!(expected.len() > 8192);
    let mut slow = raw(&fixture);
    for byte in &bytes {
        slow.write_all(&[*byte]).unwrap();
    }
    // Replies may come in another order; their total length is the same.
    assert_eq!(read_to_hang_up(&mut slow).len(), expected.len());
}

/// Mutated conversations: bytes are flipped, cut out or repeated, numbers are made extreme.
#[test]
fn mutated_conversations_harm_nobody() {
    let _guard = shared();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let original = conversation();
    let rounds = if std::env::var_os("RAVELIN_LONG").is_some() {
        100_000
    } else {
        1500
    };
    let mut random = SplitMix64::new(99);
    for round in 0..rounds {
        let mut bytes = original.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => {
                    let end = (at + 1 + random.below(64) as usize).min(bytes.len());
                    bytes[at..end].fill(if random.below(2) == 0 { 0xff } else { 0 });
                }
                2 => {
                    let end = (at + random.below(64) as usize).min(bytes.len());
                    bytes.drain(at..end);
                }
                _ => {
                    let end = (at + random.below(64) as usize).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        let mut stream = raw(&fixture);
        // The server may close the connection in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        if random.below(2) == 0 {
            read_to_hang_up(&mut stream);
        }
        if round % 100 == 0 {
            bystander.check();
        }
    }
    drop(bystander);
    eventually("all connections are gone", || {
        fixture.server.as_ref().unwrap().connections() == 0
    });
}

#[test]
fn a_client_that_never_reads_its_replies_is_not_read_on_and_harms_nobody() {
    let _guard = alone();
    let (device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let mut deaf = transmitting(&fixture);
    deaf.set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let before = resident_bytes();
    // All replies together would take 128 GiB.
    let mut bytes = Vec::new();
    for index in 0..1 << 17 {
        bytes.extend(request(Command::Read, index % 4, 1 << 20).encode());
    }
    let blocked = deaf.write_all(&bytes).unwrap_err();
    assert!(
        matches!(blocked.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{blocked}"
    );
    assert!(
        device.held_bytes_max() <= 33 << 20,
        "{} bytes",
        device.held_bytes_max()
    );
    assert!(resident_bytes() < before + (80 << 20));
    for _ in 0..20 {
        bystander.check();
    }
    drop(deaf);
    eventually("the deaf one is gone", || {
        fixture.server.as_ref().unwrap().connections() == 1
    });
}

#[test]
fn refused_requests_without_a_reader_do_not_pile_up_either() {
    let _guard = alone();
    let (_device, fixture) = hostile_fixture(&Options::default());
    let mut bystander = Bystander::new(&fixture);
    let mut deaf = transmitting(&fixture);
    deaf.set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let bytes: Vec<u8> = (0..4096)
        .flat_map(|_| request(Command::Read, SIZE, 1).encode())
        .collect();
    let before = resident_bytes();
    let mut rounds = 0;
    while deaf.write_all(&bytes).is_ok() {
        rounds += 1;
        assert!(rounds < 1000, "the server keeps reading");
    }
    assert!(resident_bytes() < before + (16 << 20));
    bystander.check();
}

#[test]
fn writes_to_a_blocked_device_wait_in_the_socket_and_survive() {
    let _guard = shared();
    let (device, fixture) = hostile_fixture(&Options::default());
    let mut stream = transmitting(&fixture);
    let held = device.hold();
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let payload = vec![3; 1 << 20];
        for index in 0..80_u64 {
            writer
                .write_all(&request(Command::Write, (index % 8) << 20, 1 << 20).encode())
                .unwrap();
            writer.write_all(&payload).unwrap();
        }
    });
    eventually("the limit is reached", || {
        device.held_bytes_max() >= 32 << 20
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!sender.is_finished());
    assert_eq!(device.held_bytes_max(), 32 << 20);
    drop(held);
    // The server delays and returns no error: all eighty requests succeed.
    let mut replies = vec![0; 80 * 16];
    stream.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(16).all(|reply| reply[4..8] == [0; 4]));
    sender.join().unwrap();
}

#[test]
fn coming_again_and_again_to_a_blocked_device_waits_until_others_have_gone() {
    let _guard = shared();
    let options = Options {
        connections_max: 4,
        ..Options::default()
    };
    let (device, fixture) = hostile_fixture(&options);
    let held = device.hold();
    for _ in 0..4 {
        let mut stream = transmitting(&fixture);
        stream
            .write_all(&request(Command::Read, 0, 1 << 20).encode())
            .unwrap();
        let waiting = device.waiting();
        eventually("the device has it", || {
            device.waiting() > waiting.saturating_sub(1)
        });
        drop(stream);
    }
    eventually("four requests of gone clients", || device.waiting() == 4);
    // Regression: this client was dropped, and a host that connects again does so before the server has noticed that its
    // old connections are gone.
    let mut waits = UnixStream::connect(&fixture.socket).unwrap();
    let timeout = |duration| waits.set_read_timeout(Some(duration)).unwrap();
    timeout(Duration::from_millis(300));
    let unread = (&waits).read(&mut [0; 18]).unwrap_err();
    assert_eq!(unread.kind(), std::io::ErrorKind::WouldBlock, "no greeting");
    assert_eq!(fixture.server.as_ref().unwrap().connections(), 4);
    drop(held);
    timeout(Duration::from_secs(10));
    waits.read_exact(&mut [0; 18]).unwrap();
    drop(waits);
    eventually("the places are free again", || {
        fixture.server.as_ref().unwrap().connections() == 0
    });
    Bystander::new(&fixture).check();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended_and_an_idle_client_is_not() {
    let _guard = shared();
    let options = Options {
        handshake_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    let (_device, fixture) = hostile_fixture(&options);
    let mut bystander = Bystander::new(&fixture);
    let mut silent = raw(&fixture);
    let mut half = raw(&fixture);
    let mut bytes = client_flags();
    go(&mut bytes);
    half.write_all(&bytes[..bytes.len() - 1]).unwrap();
    let start = Instant::now();
    read_to_hang_up(&mut silent);
    read_to_hang_up(&mut half);
    assert!(start.elapsed() < Duration::from_secs(15));
    bystander.check();
}
