use super::*;

fn record(at_ns: u64, kind: RequestKind, offset: u64, length: u64) -> Record {
    Record {
        at_ns,
        kind,
        offset,
        length,
    }
}

#[test]
fn each_form_gives_its_requests() {
    let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
               128166372016382155,usr,0,Write,2517696512,4096,1963\n";
    assert_eq!(
        parse(msr).unwrap(),
        [
            record(0, RequestKind::Read, 7_014_609_920, 24576),
            record(1_332_052_600, RequestKind::Write, 2_517_696_512, 4096),
        ]
    );
    let blkparse = "  8,0    3        1     0.000000000   697  G   R 223490 + 8 [kjournald]\n  \
                      8,0    3        2     0.000001829   697  Q   R 223490 + 8 [kjournald]\n  \
                      8,0    1        3     0.5           697  Q  WS 100 + 16 [fio]\n  \
                      8,0    1        4     0.600000000   697  Q FWS [fio]\n\
                    CPU0 (8,0):\n Reads Queued: 1, 4KiB\n";
    let error = parse(blkparse).unwrap_err();
    assert_eq!(
        (error.line, error.what.as_str()),
        (4, "the number of sectors is missing")
    );
    let blkparse = blkparse.replace("FWS", "F");
    assert_eq!(
        parse(&blkparse).unwrap(),
        [
            record(1829, RequestKind::Read, 223_490 * 512, 4096),
            record(500_000_000, RequestKind::Write, 51_200, 8192),
            record(600_000_000, RequestKind::Flush, 0, 0),
        ]
    );
    let two = "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda read 8192 4096\n\
               /dev/sda wait 500\n/dev/sda write 0 512\n/dev/sda sync\n/dev/sda close\n";
    assert_eq!(
        parse(two).unwrap(),
        [
            record(0, RequestKind::Read, 8192, 4096),
            record(500_000, RequestKind::Write, 0, 512),
            record(500_000, RequestKind::Flush, 0, 0),
        ]
    );
    let three = "fio version 3 iolog\n0 /dev/sda add\n3 /dev/sda trim 4096 4096\n";
    assert_eq!(
        parse(three).unwrap(),
        [record(3_000_000, RequestKind::Trim, 4096, 4096)]
    );
}

#[test]
fn a_line_that_does_not_parse_is_named() {
    for (text, said) in [
        ("", "line 1, column 1: the recording is empty"),
        (
            "1,a,0,Read,0,512,1\n1,a,0,Raed,0,512,1\n",
            "line 2, column 7: `raed` is neither Read nor Write",
        ),
        (
            "1,a,0,Read,x,512,1\n",
            "line 1, column 12: `x` is not a number for the offset",
        ),
        (
            "1,a,0,Read,0,512\n2,a\n",
            "line 2, column 4: the type is missing",
        ),
        (
            "fio version 4 iolog\n",
            "line 1, column 13: version `4` of the iolog is neither 2 nor 3",
        ),
        (
            "fio version 2 iolog\nf read 0\n",
            "line 2, column 9: the length is missing",
        ),
        (
            "8,0 1 1 1.x 6 Q R 1 + 8\n",
            "line 1, column 9: `1.x` is not a time in seconds",
        ),
        (
            "8,0 1 1 0.0 6 C R 1 + 8\n",
            "line 1, column 1: the recording has no read and no write",
        ),
        (
            "8,0 1 1 0.0 6 Q R 99999999999999999 + 8\n",
            "line 1, column 19: `99999999999999999` is too large for the sector",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), said);
    }
    let said = parse("hello\n").unwrap_err().to_string();
    assert!(
        said.starts_with("line 1, column 1: `hello` is not a device"),
        "{said}"
    );
}

#[test]
fn no_text_makes_the_parsers_panic() {
    let parts = [
        "8,0",
        "1",
        "fio version 2 iolog\n",
        ",",
        "\n",
        "Q",
        "R",
        "é",
        "18446744073709551615",
        " ",
        "read",
        "+",
        "Write",
        "0.5",
    ];
    for seed in 0..5000_u64 {
        let mut at = seed;
        let text: String = (0..12)
            .map(|_| {
                at = block::mix(at + 1);
                parts[usize::try_from(at % parts.len() as u64).unwrap()]
            })
            .collect();
        let _ = parse(&text);
    }
}
