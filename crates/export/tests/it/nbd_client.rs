//! The server as seen by this crate's own client.

#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]

use std::collections::HashMap;
use std::sync::Arc;

use crate::support::{Fixture, MemoryDevice, Pace, Table, limits};
use block::{Fault, SplitMix64};
use export::nbd::protocol::{chunk, command_flag, errno, export_flag};
use export::nbd::{
    Client, ClientError, CopyOptions, Listen, Operation, Options, Server, copy_in, copy_out,
};

const SHUFFLED: Pace = Pace::Shuffled {
    seed: 7,
    delay_us_max: 200,
};

#[track_caller]
fn assert_errno(result: Result<impl std::fmt::Debug, ClientError>, expected: u32) {
    match result {
        Err(ClientError::Remote { errno }) if errno == expected => {}
        other => panic!("{other:?} instead of error {expected}"),
    }
}

/// Mixed requests of every size and alignment in random order at depth 32. The ranges in flight are
/// disjoint, so the oracle knows every byte in whatever order the requests complete.
#[test]
fn mixed_requests_in_random_order_leave_what_the_oracle_expects() {
    const SIZE: u64 = 8 << 20;
    for seed in 1..4 {
        let device = MemoryDevice::new(
            limits(SIZE),
            Pace::Shuffled {
                seed,
                delay_us_max: 100,
            },
        );
        let fixture = Fixture::of(&device);
        let mut client = Client::connect(&fixture.uri("tank/data"), None).unwrap();
        let mut random = SplitMix64::new(seed);
        let mut oracle = vec![0_u8; SIZE as usize];
        // What each read must return. This is known when the read is submitted, because no request
        // in flight overlaps it.
        let mut expected: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut busy: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut submitted = 0;
        while submitted < 3000 || client.in_flight() > 0 {
            if submitted < 3000 && client.in_flight() < 32 {
                let longest = [64, 4096, 65536, 1 << 20][random.below(4) as usize];
                let length = 1 + random.below(longest);
                let offset = random.below(SIZE - length);
                let overlaps =
                    |&(start, len): &(u64, u64)| start < offset + length && offset < start + len;
                if !busy.values().any(overlaps) {
                    let range = offset as usize..(offset + length) as usize;
                    let length32 = length as u32;
                    let read = random.below(2) == 0;
                    let operation = match random.below(8) {
                        _ if read => Operation::Read {
                            offset,
                            buffer: vec![0; length as usize],
                        },
                        0 => {
                            oracle[range.clone()].fill(0);
                            Operation::Trim {
                                offset,
                                length: length32,
                                fua: false,
                            }
                        }
                        1 => {
                            oracle[range.clone()].fill(0);
                            Operation::WriteZeroes {
                                offset,
                                length: length32,
                                flags: 0,
                            }
                        }
                        _ => {
                            let buffer = random.bytes(length as usize);
                            oracle[range.clone()].copy_from_slice(&buffer);
                            Operation::Write {
                                offset,
                                buffer,
                                fua: random.below(10) == 0,
                            }
                        }
                    };
                    let cookie = client.submit(operation).unwrap();
                    if read {
                        expected.insert(cookie, oracle[range].to_vec());
                    }
                    busy.insert(cookie, (offset, length));
                    submitted += 1;
                    continue;
                }
            }
            let reply = client.wait().unwrap().unwrap().ok().unwrap();
            busy.remove(&reply.cookie).unwrap();
            if let Some(bytes) = expected.remove(&reply.cookie) {
                assert!(
                    reply.buffer == bytes,
                    "seed {seed}, request {}",
                    reply.cookie
                );
            }
        }
        client.disconnect().unwrap();
        assert!(device.bytes() == oracle, "seed {seed}");
    }
}

#[test]
fn exports_are_listed_and_the_only_one_needs_no_name() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let table = Table::of(&[("tank/a", Arc::clone(&device))]);
    let fixture = Fixture::serve(Arc::clone(&table) as _, &Options::default());
    assert_eq!(Client::list(&fixture.uri(""), None).unwrap(), ["tank/a"]);
    let client = Client::connect(&fixture.uri(""), None).unwrap();
    assert_eq!(client.info().name, "tank/a");
    assert_eq!(client.info().size_bytes, 1 << 20);
    assert_eq!(client.info().block_sizes, (1, 4096, 32 << 20));

    table
        .0
        .lock()
        .unwrap()
        .insert("tank/b".to_owned(), device as _);
    assert_eq!(
        Client::list(&fixture.uri(""), None).unwrap(),
        ["tank/a", "tank/b"]
    );
    for name in ["", "tank", "tank/c"] {
        let refused = Client::connect(&fixture.uri(name), None).err();
        assert!(
            matches!(refused, Some(ClientError::NoSuchExport { .. })),
            "`{name}`"
        );
    }
    Client::connect(&fixture.uri("tank/b"), None).unwrap();
}

/// CAN_MULTI_CONN: a flush on one connection covers acknowledged writes of another connection.
#[test]
fn a_flush_on_one_connection_covers_writes_acknowledged_on_another() {
    let device = MemoryDevice::new(limits(1 << 20), SHUFFLED);
    let options = Options {
        workers: 2,
        ..Options::default()
    };
    let fixture = Fixture::serve(Table::of(&[("v", Arc::clone(&device))]), &options);
    let mut writer = Client::connect(&fixture.uri("v"), None).unwrap();
    let mut flusher = Client::connect(&fixture.uri("v"), None).unwrap();
    assert_ne!(writer.info().flags & export_flag::CAN_MULTI_CONN, 0);
    for round in 0..50 {
        writer.write(round * 512, &[1; 512], false).unwrap();
        assert!(device.unflushed());
        flusher.flush().unwrap();
        assert!(!device.unflushed(), "round {round}");
    }
    assert_eq!(device.flushes(), 50);
    // FUA needs no flush.
    writer.write(0, &[2; 512], true).unwrap();
    assert!(!device.unflushed());
}

#[test]
fn faults_below_become_the_error_numbers_of_the_protocol() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri("tank/data"), None).unwrap();
    for (fault, expected) in [
        (Fault::Medium, errno::EIO),
        (Fault::Gone, errno::EIO),
        (Fault::Lost, errno::EIO),
        (Fault::Full, errno::ENOSPC),
        (Fault::Invalid, errno::EINVAL),
        (Fault::Shutdown, errno::ESHUTDOWN),
    ] {
        device.set_fault(Some((8192..8193, fault)));
        assert_errno(client.read(8000, 1000), expected);
        assert_errno(client.write(8192, &[1], false), expected);
        assert_errno(client.trim(4096, 8192), expected);
    }
    client.read(8193, 1000).unwrap();
    device.set_fault(None);
    client.read(8000, 1000).unwrap();
    // Past the end: the protocol asks for these error numbers; no request reaches the device.
    let before = device.requests();
    assert_errno(client.write((1 << 20) - 1, &[1, 2], false), errno::ENOSPC);
    assert_errno(client.write_zeroes(1 << 20, 1, 0), errno::ENOSPC);
    assert_errno(client.read(1 << 20, 1), errno::EINVAL);
    assert_errno(client.trim(u64::MAX, 1), errno::EINVAL);
    assert_eq!(device.requests(), before);
    // The connection still works.
    client.write(0, &[7], false).unwrap();
    assert_eq!(client.read(0, 1).unwrap(), [7]);
}

#[test]
fn a_request_longer_than_the_device_takes_is_served_in_pieces() {
    let device = MemoryDevice::new(limits(40 << 20), SHUFFLED);
    let fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    let bytes = SplitMix64::new(3).bytes(32 << 20);
    client.write(12_345, &bytes, false).unwrap();
    assert!(
        device.requests() >= 32,
        "the device takes at most 1 MiB at once"
    );
    assert!(client.read(12_345, bytes.len()).unwrap() == bytes);
    device.set_fault(Some((20 << 20..(20 << 20) + 1, Fault::Medium)));
    assert_errno(client.read(12_345, bytes.len()), errno::EIO);
    // One byte more than the longest request: the server refuses it, skips the payload, and goes
    // on.
    assert_errno(
        client.write(0, &vec![1; (32 << 20) + 1], false),
        errno::EINVAL,
    );
    assert_errno(client.read(0, (32 << 20) + 1), errno::EINVAL);
    assert_eq!(
        client.read(1 << 20, 16).unwrap(),
        bytes[(1 << 20) - 12_345..][..16]
    );
}

#[test]
fn block_status_shows_holes_and_trims_make_them() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    assert!(client.info().allocation);
    client.write(8192, &[1; 12_288], false).unwrap();
    client.trim(12_288, 4096).unwrap();
    let hole = chunk::STATE_HOLE | chunk::STATE_ZERO;
    let status = client.block_status(4096, 1 << 19).unwrap();
    let found: Vec<_> = status
        .iter()
        .map(|extent| (extent.length, extent.state))
        .collect();
    let rest = (1 << 19) - 4 * 4096;
    assert_eq!(
        found,
        [
            (4096, hole),
            (4096, 0),
            (4096, hole),
            (4096, 0),
            (rest, hole)
        ]
    );
    assert_errno(client.block_status(0, 0), errno::EINVAL);
}

#[test]
fn fast_zeroing_is_a_trim_and_the_cache_hint_is_accepted() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    client.write(0, &[9; 8192], false).unwrap();
    client
        .write_zeroes(0, 4096, command_flag::FAST_ZERO)
        .unwrap();
    assert_eq!(client.read(0, 4097).unwrap()[4095..], [0, 9]);
    let flags = command_flag::FAST_ZERO | command_flag::NO_HOLE;
    assert_errno(client.write_zeroes(0, 4096, flags), errno::ENOTSUP);
    client.cache(0, 1 << 20).unwrap();
    assert_errno(client.cache(1, 1 << 20), errno::EINVAL);
    // Requests of length 0 have no effect.
    client.write(5, &[], false).unwrap();
    assert_eq!(client.read(5, 0).unwrap(), []);
    client.trim(0, 0).unwrap();
}

#[test]
fn a_device_that_grows_serves_its_new_range_on_old_connections() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    assert_errno(client.write(1 << 20, &[1], false), errno::ENOSPC);
    device.resize(2 << 20);
    client.write(1 << 20, &[1], false).unwrap();
    assert_eq!(
        Client::connect(&fixture.uri(""), None)
            .unwrap()
            .info()
            .size_bytes,
        2 << 20
    );
}

#[test]
fn a_read_only_server_says_so_and_refuses_changes() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let fixture = Fixture::serve(Table::of(&[("v", Arc::clone(&device))]), &options);
    let mut client = Client::connect(&fixture.uri("v"), None).unwrap();
    assert_ne!(client.info().flags & export_flag::READ_ONLY, 0);
    assert_errno(client.write(0, &[1; 100], false), errno::EPERM);
    assert_errno(client.trim(0, 100), errno::EPERM);
    assert_eq!(client.read(0, 1).unwrap(), [0]);
    client.flush().unwrap();
}

#[test]
fn copies_in_and_out_are_equal_whatever_the_depth_and_length() {
    let device = MemoryDevice::new(limits(10 << 20), SHUFFLED);
    let fixture = Fixture::of(&device);
    for (depth, request_bytes, length) in [
        (1, 65536, 300_000),
        (16, 1 << 20, 9_999_999),
        (64, 4096, 1 << 20),
        (7, 12_345, 4_000_000),
    ] {
        let options = CopyOptions {
            request_bytes,
            depth,
        };
        let bytes = SplitMix64::new(length as u64).bytes(length);
        let mut client = Client::connect(&fixture.uri(""), None).unwrap();
        let mut told = Vec::new();
        let copied = copy_in(&mut &bytes[..], &mut client, options, &mut |done| {
            told.push(done);
        });
        assert_eq!(copied.unwrap(), length as u64);
        assert!(told.is_sorted() && told.last() == Some(&(length as u64)));
        assert!(!device.unflushed(), "a copy ends with a flush");
        let mut out = Vec::new();
        copy_out(&mut client, length as u64, &mut out, options, &mut |_| {}).unwrap();
        assert!(
            out == bytes,
            "depth {depth}, {request_bytes} bytes a request"
        );
        client.disconnect().unwrap();
    }
    let too_long = vec![1; (10 << 20) + 1];
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    let result = copy_in(
        &mut &too_long[..],
        &mut client,
        CopyOptions::default(),
        &mut |_| {},
    );
    assert_errno(result, errno::ENOSPC);
}

#[test]
fn tcp_works_like_a_unix_socket() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let listen = "tcp:127.0.0.1:0".parse().unwrap();
    let table = Table::of(&[("v", Arc::clone(&device))]);
    let server = Server::bind(&listen, table, &Options::default()).unwrap();
    let Listen::Tcp(address) = server.address() else {
        panic!("{:?}", server.address())
    };
    let uri = format!("nbd://{address}/v").parse().unwrap();
    let mut client = Client::connect(&uri, None).unwrap();
    client.write(100, b"over tcp", true).unwrap();
    assert_eq!(client.read(100, 8).unwrap(), b"over tcp");
    client.disconnect().unwrap();
    server.shutdown();
    assert!(matches!(
        Client::connect(&uri, None),
        Err(ClientError::Connect { .. })
    ));
}

#[test]
fn shutdown_answers_what_is_in_flight_and_removes_the_socket() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let mut fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    let held = device.hold();
    for index in 0..16 {
        let buffer = vec![index + 1; 4096];
        client
            .submit(Operation::Write {
                offset: u64::from(index) * 4096,
                buffer,
                fua: false,
            })
            .unwrap();
    }
    client.send().unwrap();
    testing::eventually("all requests are with the device", || {
        device.waiting() == 16
    });
    let server = fixture.server.take().unwrap();
    let stopper = std::thread::spawn(move || server.shutdown());
    testing::eventually("the socket is removed", || !fixture.socket.exists());
    assert!(!stopper.is_finished(), "requests are still with the device");
    drop(held);
    for _ in 0..16 {
        client.wait().unwrap().unwrap().ok().unwrap();
    }
    stopper.join().unwrap();
    assert!(matches!(
        client.read(0, 1),
        Err(ClientError::Closed | ClientError::Io(_))
    ));
    for index in 0..16 {
        assert_eq!(
            device.bytes()[index * 4096],
            u8::try_from(index).unwrap() + 1
        );
    }
}

#[test]
fn a_client_finds_a_restarted_server_at_the_same_path() {
    let device = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let mut fixture = Fixture::of(&device);
    let mut client = Client::connect(&fixture.uri(""), None).unwrap();
    client.write(0, b"before", true).unwrap();
    let busy = Server::bind(
        &Listen::Unix(fixture.socket.clone()),
        Table::of(&[]),
        &Options::default(),
    );
    let busy = busy.unwrap_err();
    assert!(
        busy.to_string().contains(fixture.socket.to_str().unwrap()),
        "{busy}"
    );
    assert_eq!(
        client.read(0, 6).unwrap(),
        b"before",
        "the first server was not disturbed"
    );

    fixture.server.take().unwrap().shutdown();
    let table = Table::of(&[("tank/data", Arc::clone(&device))]);
    let listen = Listen::Unix(fixture.socket.clone());
    fixture.server = Some(Server::bind(&listen, table, &Options::default()).unwrap());
    assert!(client.read(0, 6).is_err());
    let mut client = Client::connect(&fixture.uri("tank/data"), None).unwrap();
    assert_eq!(client.read(0, 6).unwrap(), b"before");
}
