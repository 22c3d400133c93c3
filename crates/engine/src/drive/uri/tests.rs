use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::drive::KINDS;

#[test]
fn canonical_forms_are_what_people_type() {
    for (typed, canonical) in [
        ("/dev/sdb", "/dev/sdb"),
        ("file.img@shelf-1", "file.img@shelf-1"),
        ("file:/a/b.img", "/a/b.img"),
        ("file:odd:name", "file:odd:name"),
        ("./odd:name", "file:./odd:name"),
        ("/dev/disk@home/x", "/dev/disk%40home/x"),
        ("/a%3Fb%40c%25d", "/a%3Fb%40c%25d"),
        ("x%zz", "x%25zz"),
        ("f?backend=uring&direct=off", "f?backend=uring&direct=off"),
        ("f?direct=on&backend=auto", "f"),
        ("mem:1024M@h", "mem:1G@h"),
        ("zram:/dev/zram1", "zram:/dev/zram1"),
        (
            "slow:a.img?latency=2ms&bandwidth=8M&iops=500",
            "slow:a.img?bandwidth=8M&iops=500&latency=2ms",
        ),
        (
            "slow:file:a?direct=off?bandwidth=8MiB@d",
            "slow:a?direct=off?bandwidth=8M@d",
        ),
        ("slow:mem:1G?latency=0.5ms", "slow:mem:1G?latency=500us"),
        (
            "compress:a.img?exposed=4096M&physical=1G@d",
            "compress:a.img?physical=1G&exposed=4G@d",
        ),
        (
            "slow:compress:a?direct=off?physical=64K?iops=9",
            "slow:compress:a?direct=off?physical=64K?iops=9",
        ),
        ("volume:tank/a", "volume:tank/a"),
        ("part:a?to=1G&from=1024K", "part:a?from=1M&to=1G"),
        ("slow:part:a??iops=9", "slow:part:a??iops=9"),
        (
            "slow:volume:tank/a?iops=9@shelf",
            "slow:volume:tank/a?iops=9@shelf",
        ),
        ("faulty:mem:64M", "faulty:mem:64M?"),
        (
            "faulty:mem:64M?bad=1M+4K&fail=hang&on=write",
            "faulty:mem:64M?fail=hang&nth=1&times=1&on=write&bad=1M+4K",
        ),
        (
            "faulty:a?while=/tmp/x%26y&fail=gone&times=all",
            "faulty:a?fail=gone&nth=1&times=all&on=any&while=/tmp/x%26y",
        ),
    ] {
        let uri: DriveUri = typed
            .parse()
            .unwrap_or_else(|error| panic!("{typed}: {error}"));
        assert_eq!(uri.to_string(), canonical, "{typed}");
        assert_eq!(canonical.parse(), Ok(uri), "{typed}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    for (typed, message) in [
        ("", "names no drive"),
        ("slow:?bandwidth=8M", "names no drive"),
        ("nbd://host/export", "`nbd:` drives are not supported yet"),
        (
            "slow:nbd+unix:///x?iops=1",
            "`nbd+unix:` drives are not supported yet",
        ),
        ("quick:f", "not a kind of drive"),
        ("mem:", "cannot be read"),
        ("mem:0", "cannot be read"),
        ("mem:1G?size=2", "no option `size`"),
        ("f?size=2", "no option `size`"),
        ("volume:", "names no volume of a pool"),
        ("volume:tank", "`volume:tank` names no volume"),
        ("volume:tank/", "names no volume of a pool"),
        ("volume:/a", "names no volume of a pool"),
        ("volume:tank/a/b", "names no volume of a pool"),
        ("volume:tank/a?direct=off", "no option `direct`"),
        ("f?backend=spdk", "`backend=spdk`"),
        ("slow:f", "needs at least one"),
        ("slow:f?iops=0", "`iops=0`"),
        ("slow:f?bandwidth=fast", "`bandwidth=fast`"),
        ("slow:f?latency=2", "`latency=2`"),
        ("slow:f?latency=-2ms", "`latency=-2ms`"),
        ("slow:f?latency=1e9s", "`latency=1e9s`"),
        ("compress:f", "`compress:` needs physical="),
        ("compress:f?exposed=1G", "`compress:` needs physical="),
        ("compress:?physical=1G", "names no drive"),
        ("compress:f?physical=0", "`physical=0`"),
        ("compress:f?physical=much", "`physical=much`"),
        ("compress:f?physical=1G&exposed=0", "`exposed=0`"),
        ("compress:f?physical=1G&level=9", "no option `level`"),
        (
            "compress:f?physical=1G&exposed=512M",
            "exposed=512 MiB is less than physical=1 GiB",
        ),
        ("faulty:f?bad=1M", "`bad=1M`"),
        ("part:f?from=1M&to=1M", "ends behind its beginning"),
        ("part:f?from=512", "at multiples of 4K"),
        ("f@", "not a name for a failure domain"),
        ("f@rack 1", "not a name for a failure domain"),
        ("f@#3", "not a name for a failure domain"),
        ("f@left#", "`#` is not the number of a slot"),
        ("f@left#three", "`#three` is not the number of a slot"),
        ("f@left#+3", "`#+3` is not the number of a slot"),
        ("f@left#-1", "`#-1` is not the number of a slot"),
        ("f@left#3#4", "`#3#4` is not the number of a slot"),
        ("f@left#4294967296", "is not the number of a slot"),
    ] {
        let error = typed.parse::<DriveUri>().expect_err(typed);
        assert!(error.to_string().contains(message), "{typed}: {error}");
        assert!(error.hint().is_some(), "{typed}: {error}");
    }
    let deep = "slow:".repeat(100_000) + "f";
    assert!(deep.parse::<DriveUri>().is_err());
    let deep = "faulty:".repeat(NEST_MAX + 1) + "f";
    assert_eq!(deep.parse::<DriveUri>(), Err(ParseDriveUriError::TooDeep));
}

#[test]
fn absolute_names_keep_the_wrappers_the_domain_and_the_slot() {
    let uri: DriveUri = "slow:a.img?iops=9@d#07".parse().unwrap();
    let here = std::env::current_dir().unwrap();
    let absolute = uri.absolute();
    assert_eq!(absolute.spec.path(), Some(&*here.join("a.img")));
    assert_eq!(absolute.domain.as_deref(), Some("d"));
    assert_eq!(absolute.slot, Some(7));
    assert!(absolute.to_string().ends_with("@d#7"), "{absolute}");
    assert!(absolute.to_string().starts_with("slow:/"));
}

proptest! {
    #[test]
    fn parsing_never_panics_and_display_reads_back(
        text in "(file:|mem:|volume:|slow:|compress:|faulty:|zram:|nbd:)*[a-z0-9./%?@&=:+ \\PC]{0,40}(\\?(bandwidth=[0-9]{1,5}K?|latency=[0-9]{1,4}ms|iops=[0-9]{1,3}|bad=[0-9]M\\+4K|fail=(eio|hang)|direct=off|physical=[0-9]M)(&iops=7|&exposed=[0-9]M|&on=read|&times=all)?)?(@[a-z]{1,3}(#[0-9]{1,11})?)?"
    ) {
        if let Ok(uri) = text.parse::<DriveUri>() {
            let canonical = uri.to_string();
            prop_assert_eq!(canonical.parse::<DriveUri>(), Ok(uri), "{}", canonical);
        }
    }

    #[test]
    fn every_path_survives_the_round_trip(bytes in proptest::collection::vec(1_u8.., 1..30)) {
        let path = PathBuf::from(OsString::from_vec(bytes));
        let slow: DriveUri = "slow:f?iops=3".parse().unwrap();
        let uri = DriveUri { spec: slow.spec.with_path(&path), domain: None, slot: None };
        prop_assert_eq!(uri.spec.path(), Some(&*path));
        prop_assert_eq!(uri.to_string().parse::<DriveUri>(), Ok(uri));
    }
}

/// Paths in labels of earlier versions may end in what looks like a slot.
#[test]
fn a_slot_without_an_enclosure_is_refused_where_it_is_typed_and_part_of_a_path_in_a_label() {
    let stored: DriveUri = "/srv/disk#3".parse().unwrap();
    assert_eq!(stored.spec.path(), Some(Path::new("/srv/disk#3")));
    assert_eq!(stored.slot, None);
    let error = DriveUri::typed("/srv/disk#3").unwrap_err();
    assert!(error.to_string().contains("`#3` is a slot"), "{error}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("/srv/disk@ENCLOSURE#3"), "{hint}");
    // No number, or a file with this very name: no slot.
    assert!(DriveUri::typed("/srv/disk#old").is_ok());
    let directory = testing::Directory::new();
    for name in ["disk#3", "disk@left#3"] {
        let path = directory.join(name);
        std::fs::write(&path, "").unwrap();
        let uri = DriveUri::typed(path.to_str().unwrap()).unwrap();
        assert_eq!(uri.spec.path(), Some(&*path));
        assert_eq!((uri.domain, uri.slot), (None, None));
    }
}

/// The table is that of the help and of the errors.
#[test]
fn names_in_the_help_are_drives_of_their_kind() {
    for kind in KINDS {
        for name in kind.names {
            let uri: DriveUri = name
                .parse()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            // A file is the one kind that needs no word.
            let canonical = uri.to_string();
            let word = canonical.split_once(':').map_or("file", |(word, _)| word);
            assert_eq!(word, kind.word, "{name}");
        }
    }
    let error: ParseDriveUriError = "tape:x".parse::<DriveUri>().unwrap_err();
    for kind in KINDS {
        let word = format!("{}:", kind.word);
        assert!(
            error.hint().is_some_and(|hint| hint.contains(&word)),
            "{word}"
        );
    }
}
