use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, Completed, Fault, Limits, Memory, Request, RequestKind};

use super::{EXPORTS, ExportKind, Served, Serving, chosen};
use crate::KeptFiles;
use crate::api::Attach;

/// Bytes of the volume: not a multiple of the stream's read size.
const SIZE: u64 = (3 << 20) + 4096;

/// A volume whose bytes encode their own offset.
struct Numbers;

fn number(at: u64) -> u8 {
    u8::try_from(at / 4096 % 251).unwrap()
}

impl BlockDevice for Numbers {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: SIZE,
            block_bytes_min: 4096,
            block_bytes_preferred: 4096,
            request_bytes_max: 8 << 20,
            trims: false,
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        drop(memory);
        assert_eq!(request.kind, RequestKind::Read);
        let outside = request.offset + request.length > SIZE;
        let to = Arc::clone(to);
        std::thread::spawn(move || match outside {
            true => to.completed(token, Err(Fault::Medium)),
            false => {
                let range = request.offset..request.offset + request.length;
                let bytes: Vec<u8> = range.map(number).collect();
                to.completed_elsewhere(token, Memory::from_bytes(&bytes));
            }
        });
    }
}

fn attach(at: &[(&str, &str)]) -> Attach {
    let at = at.iter();
    Attach {
        at: at
            .map(|&(kind, place)| (kind.to_owned(), place.to_owned()))
            .collect(),
        ..Attach::default()
    }
}

#[test]
fn names_are_told_apart_and_help_says_something_of_each() {
    for (index, kind) in EXPORTS.iter().enumerate() {
        let plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(kind.name().chars().all(plain), "{}", kind.name());
        assert!(!kind.value_name().is_empty() && !kind.help().is_empty());
        let twice = EXPORTS[..index]
            .iter()
            .any(|other| other.name() == kind.name());
        assert!(!twice, "{} is there twice", kind.name());
    }
}

#[test]
fn one_kind_is_chosen_and_options_of_another_are_refused() {
    let found = attach(&[("nbd", "unix:/s")]);
    let (kind, place) = chosen(&found, "x")
        .map_err(|failure| failure.problem.why)
        .unwrap();
    assert_eq!((kind.name(), place), ("nbd", "unix:/s"));
    for at in [&[][..], &[("nbd", "unix:/s"), ("fuse", "/f")]] {
        let failure = chosen(&attach(at), "x").err().unwrap();
        assert!(
            failure
                .problem
                .why
                .starts_with("it takes one of `nbd` or `fuse`")
        );
        assert!(
            failure
                .problem
                .hint
                .starts_with("give --nbd ADDRESS or --fuse FILE")
        );
    }
    let with_loop = Attach {
        loop_device: true,
        ..attach(&[("nbd", "unix:/s")])
    };
    let failure = chosen(&with_loop, "x").err().unwrap();
    assert_eq!(failure.problem.why, "--loop does not go with --nbd");
    assert_eq!(
        failure.problem.hint,
        "give --fuse FILE, or leave --loop out"
    );
    let insecure = Attach {
        insecure: true,
        ..attach(&[("fuse", "/f")])
    };
    let failure = chosen(&insecure, "x").err().unwrap();
    assert_eq!(failure.problem.why, "--insecure does not go with --fuse");
}

#[test]
fn a_request_is_read_as_it_is_written_and_fields_that_are_not_known_are_errors() {
    let attach = Attach {
        read_only: true,
        ..attach(&[("fuse", "/run/v")])
    };
    let text = serde_json::to_string(&attach).unwrap();
    assert_eq!(text, r#"{"fuse":"/run/v","read_only":true}"#);
    assert_eq!(serde_json::from_str::<Attach>(&text).unwrap(), attach);
    for (text, why) in [
        (r#"{"fues":"/run/v"}"#, "unknown field `fues`"),
        (
            r#"{"nbd":"unix:/s","raed_only":true}"#,
            "unknown field `raed_only`",
        ),
        (r#"{"nbd":7}"#, "`nbd` is a string, and not 7"),
    ] {
        let error = serde_json::from_str::<Attach>(text).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let none = serde_json::from_str::<Attach>(r#"{"nbd":null,"fuse":"/f"}"#).unwrap();
    assert_eq!(none.at.len(), 1);
}

fn serve(kind: &dyn ExportKind, place: &Path) -> Box<dyn Served> {
    let served = kind.serve(
        place.to_str().unwrap(),
        &Serving {
            volume: ("tank", "home"),
            device: Arc::new(Numbers),
            attach: &Attach::default(),
            restored: false,
            what: "not served",
            served_at: &|_| None,
            identity: "tank/home".to_owned(),
            kept: &KeptFiles::default(),
            device_before: None,
        },
    );
    served.map_err(|failure| failure.problem.why).unwrap()
}

/// The example of `docs/howto/add-an-export.md`.
#[test]
fn a_stream_is_the_volume_from_beginning_to_end() {
    let directory = testing::Directory::new();
    let place = directory.join("stream");
    let served = serve(&super::stream::Stream, &place);
    assert_eq!(served.address(), format!("stream:{}", place.display()));
    let mut clients: Vec<UnixStream> = (0..2)
        .map(|_| UnixStream::connect(&place).unwrap())
        .collect();
    for client in &mut clients {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, SIZE);
        assert!((0..SIZE).zip(&bytes).all(|(at, &byte)| byte == number(at)));
    }
    // A client that does not read does not delay the end of the export.
    let silent = UnixStream::connect(&place).unwrap();
    while served.clients() == 0 {
        std::thread::yield_now();
    }
    drop(served);
    assert!(!place.exists());
    drop(silent);
}
