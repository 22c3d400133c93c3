//! TLS: optional and forced, with this crate's client and with widely used clients.

#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Fixture, MemoryDevice, Pace, Table, installed, limits, run};
use block::SplitMix64;
use export::nbd::protocol::{InfoRequest, MetaRequest, OptionReplyHeader, encode_option, opt, rep};
use export::nbd::{
    Client, ClientError, ClientTls, CopyOptions, Listen, Options, Server, ServerTls, TlsError, Uri,
    copy_in, copy_out,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testing::Directory;

const SIZE: u64 = 16 << 20;

/// Writes an authority and a server certificate for localhost, under the file names of GnuTLS
/// programs.
fn certificates(dir: &Path) {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    std::fs::write(dir.join("ca-cert.pem"), authority.pem()).unwrap();
    std::fs::write(dir.join("server-cert.pem"), server.pem()).unwrap();
    std::fs::write(dir.join("server-key.pem"), key.serialize_pem()).unwrap();
}

struct Secure {
    device: Arc<MemoryDevice>,
    fixture: Fixture,
    trust: ClientTls,
    certificates: Directory,
}

fn secure(forced: bool, options: &Options) -> Secure {
    let dir = Directory::new();
    certificates(&dir);
    let pair = (dir.join("server-cert.pem"), dir.join("server-key.pem"));
    let tls = Some(ServerTls::from_files(&pair.0, &pair.1, forced).unwrap());
    let device = MemoryDevice::new(
        limits(SIZE),
        Pace::Shuffled {
            seed: 1,
            delay_us_max: 50,
        },
    );
    let table = Table::of(&[("tank/data", Arc::clone(&device))]);
    let fixture = Fixture::serve(
        table,
        &Options {
            tls,
            ..options.clone()
        },
    );
    let trust = ClientTls::from_file(&dir.join("ca-cert.pem")).unwrap();
    Secure {
        device,
        fixture,
        trust,
        certificates: dir,
    }
}

fn tls(mut uri: Uri) -> Uri {
    uri.tls = true;
    uri
}

/// Sends options in plain text; returns the kinds of the answers until the server closes the
/// connection or sends no more.
fn plain_answers(socket: &Path, options: &[u8]) -> (Vec<(u32, u32)>, Vec<u8>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    stream.write_all(options).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let mut kinds = Vec::new();
    let mut rest = &bytes[..];
    while let Some((header, tail)) = rest.split_first_chunk::<20>() {
        let Some(header) = OptionReplyHeader::parse(header) else {
            break;
        };
        kinds.push((header.code, header.kind));
        rest = &tail[header.length as usize..];
    }
    (kinds, bytes)
}

#[test]
fn bytes_survive_tls_in_every_size() {
    let secure = secure(false, &Options::default());
    let uri = tls(secure.fixture.uri("tank/data"));
    let mut client = Client::connect(&uri, Some(&secure.trust)).unwrap();
    assert!(
        client.info().allocation,
        "structured replies are negotiated inside TLS"
    );
    let mut random = SplitMix64::new(4);
    for length in [1, 511, 4096, 16_384, 100_001, 1 << 20, 5 << 20] {
        let bytes = random.bytes(length);
        let offset = random.below(SIZE - length as u64);
        client.write(offset, &bytes, false).unwrap();
        assert!(
            client.read(offset, length).unwrap() == bytes,
            "{length} bytes"
        );
    }
    let bytes = random.bytes(SIZE as usize);
    let options = CopyOptions {
        request_bytes: 1 << 20,
        depth: 32,
    };
    copy_in(&mut &bytes[..], &mut client, options, &mut |_| {}).unwrap();
    assert!(secure.device.bytes() == bytes);
    let mut out = Vec::new();
    copy_out(&mut client, SIZE, &mut out, options, &mut |_| {}).unwrap();
    assert!(out == bytes);
    client.disconnect().unwrap();
    // With optional TLS, plain text works.
    let mut plain = Client::connect(&secure.fixture.uri("tank/data"), None).unwrap();
    assert!(plain.read(0, 4096).unwrap() == bytes[..4096]);
    assert_eq!(
        Client::list(&uri, Some(&secure.trust)).unwrap(),
        ["tank/data"]
    );
}

#[test]
fn forced_tls_tells_a_plain_client_nothing() {
    let secure = secure(true, &Options::default());
    for uri in [secure.fixture.uri("tank/data"), secure.fixture.uri("")] {
        assert!(matches!(
            Client::connect(&uri, None),
            Err(ClientError::TlsRequired)
        ));
        assert!(matches!(
            Client::list(&uri, None),
            Err(ClientError::TlsRequired)
        ));
    }
    let mut options = Vec::new();
    let mut data = Vec::new();
    InfoRequest {
        name: "tank/data",
        wanted: vec![],
    }
    .encode(&mut data);
    let mut meta = Vec::new();
    MetaRequest {
        name: "tank/data",
        queries: vec![],
    }
    .encode(&mut meta);
    let asked = [
        (opt::LIST, &[][..]),
        (opt::INFO, &data),
        (opt::GO, &data),
        (opt::STRUCTURED_REPLY, &[]),
        (opt::SET_META_CONTEXT, &meta),
        (opt::LIST_META_CONTEXT, &meta),
        (77, b"what is this"),
    ];
    for (code, data) in asked {
        encode_option(&mut options, code, data);
    }
    encode_option(&mut options, opt::EXPORT_NAME, b"tank/data");
    let (kinds, bytes) = plain_answers(&secure.fixture.socket, &options);
    let expected: Vec<_> = asked
        .iter()
        .map(|&(code, _)| (code, rep::ERR_TLS_REQD))
        .collect();
    assert_eq!(kinds, expected, "and EXPORT_NAME was hung up on");
    assert!(
        !bytes.windows(4).any(|bytes| bytes == b"tank"),
        "no name leaked"
    );
    let mut client =
        Client::connect(&tls(secure.fixture.uri("tank/data")), Some(&secure.trust)).unwrap();
    assert_eq!(client.read(0, 3).unwrap(), [0; 3]);
}

#[test]
fn plain_text_behind_starttls_is_hung_up_on() {
    let options = Options {
        handshake_timeout: Duration::from_millis(400),
        ..Options::default()
    };
    let secure = secure(true, &options);
    // Injected in the same packet as STARTTLS: the server would have to discard the option, so no
    // honest client sends one.
    let mut injected = Vec::new();
    encode_option(&mut injected, opt::STARTTLS, &[]);
    encode_option(&mut injected, opt::LIST, &[]);
    let (kinds, _) = plain_answers(&secure.fixture.socket, &injected);
    assert!(
        !kinds.iter().any(|&(code, _)| code == opt::LIST),
        "{kinds:?}"
    );
    // After the answer: the bytes are no TLS record, so TLS refuses them. A client that sends nothing
    // runs into the time limit.
    for tail in [
        &b"IHAVEOPT\0\0\0\x03\0\0\0\0"[..],
        &[0x16, 3, 1, 0xff, 0xff],
        &[],
    ] {
        let mut stream = UnixStream::connect(&secure.fixture.socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        encode_option(&mut bytes, opt::STARTTLS, &[]);
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut [0; 20]).unwrap();
        stream.write_all(tail).unwrap();
        let start = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(rest.len() < 64, "at most an alert");
    }
    testing::eventually("no connection is left", || {
        secure.fixture.server.as_ref().unwrap().connections() == 0
    });
}

#[test]
fn a_client_refuses_a_server_that_it_has_no_reason_to_trust() {
    let secure = secure(true, &Options::default());
    let others = Directory::new();
    certificates(&others);
    let stranger = ClientTls::from_file(&others.join("ca-cert.pem")).unwrap();
    let uri = tls(secure.fixture.uri("tank/data"));
    let error = Client::connect(&uri, Some(&stranger)).err().unwrap();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(matches!(
        Client::connect(&uri, None),
        Err(ClientError::NoTrust)
    ));
    // A server without a certificate refuses TLS with a reason.
    let device = MemoryDevice::new(limits(SIZE), Pace::Fast);
    let plain = Fixture::of(&device);
    let error = Client::connect(&tls(plain.uri("")), Some(&stranger))
        .err()
        .unwrap();
    assert!(
        matches!(error, ClientError::Refused { what: "TLS", .. }),
        "{error}"
    );
    // Certificate and key of two servers do not match; a missing file is named.
    let (cert, key) = (
        others.join("server-cert.pem"),
        secure.certificates.join("server-key.pem"),
    );
    assert!(matches!(
        ServerTls::from_files(&cert, &key, true),
        Err(TlsError::Pair { .. })
    ));
    let error = ServerTls::from_files(&cert, Path::new("/nonexistent.pem"), true).unwrap_err();
    assert!(error.to_string().contains("/nonexistent.pem"), "{error}");
}

#[test]
fn libnbd_and_qemu_speak_tls_with_us() {
    let secure = secure(true, &Options::default());
    let listen: Listen = "tcp:127.0.0.1:0".parse().unwrap();
    let dir = &secure.certificates;
    let pair = (dir.join("server-cert.pem"), dir.join("server-key.pem"));
    let options = Options {
        tls: Some(ServerTls::from_files(&pair.0, &pair.1, true).unwrap()),
        ..Options::default()
    };
    let table = Table::of(&[("tank/data", Arc::clone(&secure.device))]);
    let server = Server::bind(&listen, table, &options).unwrap();
    let Listen::Tcp(address) = server.address() else {
        panic!("{:?}", server.address())
    };
    let port = address.port();
    let bytes = SplitMix64::new(8).bytes(SIZE as usize);
    let source = dir.join("source.raw");
    std::fs::write(&source, &bytes).unwrap();
    let (source, dir) = (source.to_str().unwrap(), dir.to_str().unwrap());
    if installed("nbdinfo") && installed("nbdcopy") {
        let uri = format!("nbds://localhost:{port}/tank/data?tls-certificates={dir}");
        let text = run("nbdinfo", &[&uri]);
        assert!(
            text.contains("newstyle-fixed with TLS, using structured packets"),
            "{text}"
        );
        run("nbdcopy", &["--flush", source, &uri]);
        assert!(secure.device.bytes() == bytes);
        secure.device.fill(&[0; SIZE as usize]);
    }
    if installed("qemu-img") {
        let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={dir}");
        let target =
            format!("driver=nbd,host=localhost,port={port},export=tank/data,tls-creds=tls0");
        let arguments = [
            "convert",
            "-n",
            "--object",
            &object,
            "-f",
            "raw",
            "--target-image-opts",
        ];
        run("qemu-img", &[&arguments[..], &[source, &target]].concat());
        assert!(secure.device.bytes() == bytes);
    }
}
