//! Volumes served by TLS, with certificates or with keys.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::MIB;
use crate::support::bench::Bench;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate signed by an authority, its key and the trusted authority's certificate, under the file names
/// of GnuTLS programs.
pub(crate) fn certificate(dir: &Path, name: &str, by: &Authority, trusts: &Authority) {
    std::fs::create_dir_all(dir).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, by)
        .unwrap();
    std::fs::write(dir.join("ca-cert.pem"), trusts.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}-cert.pem")), signed.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
}

/// The size of the volume as another implementation's client (nbdinfo) sees it, or its error.
fn seen(uri: &str, certificates: Option<PathBuf>) -> Result<String, String> {
    let mut uri = uri.replace("127.0.0.1", "localhost");
    if let Some(dir) = certificates {
        uri = format!("{uri}?tls-certificates={}", dir.display());
    }
    let told = Command::new("nbdinfo")
        .args(["--size", &uri])
        .output()
        .unwrap();
    match told.status.success() {
        true => Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&told.stderr).into_owned()),
    }
}

/// Regression: the README promised TLS, but the daemon had no option for a certificate.
#[test]
fn a_volume_is_served_by_tls_to_those_who_show_a_certificate() {
    let bench = Bench::new("tls");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let (ours, others) = (authority(), authority());
    certificate(&bench.path("server"), "server", &ours, &ours);
    certificate(&bench.path("known"), "client", &ours, &ours);
    certificate(&bench.path("stranger"), "client", &others, &ours);
    certificate(&bench.path("mistrusts"), "client", &ours, &others);
    std::fs::create_dir(bench.path("nothing")).unwrap();
    std::fs::write(bench.path("nothing/ca-cert.pem"), ours.pem()).unwrap();

    let attach = ["volume", "attach", "tank/v", "--nbd", "tcp:127.0.0.1:0"];
    let (cert, key) = ("server/server-cert.pem", "server/server-key.pem");
    let tls = ["--tls-cert", cert, "--tls-key", key];
    let export = bench.json(&[&attach[..], &tls].concat());
    let uri = export["uri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("nbds://127.0.0.1:"), "{uri}");
    if Command::new("nbdinfo").arg("--version").output().is_err() {
        eprintln!("skipped: there is no nbdinfo");
        return;
    }
    let size = Ok((4 * MIB).to_string());
    assert_eq!(seen(&uri, Some(bench.path("nothing"))), size);
    seen(&uri.replace("nbds", "nbd"), None).unwrap_err();
    seen(&uri, Some(bench.path("mistrusts"))).unwrap_err();
    bench.ok(&["volume", "detach", "tank/v"]);

    let known = [&tls[..], &["--tls-client-ca", "server/ca-cert.pem"]].concat();
    let export = bench.json(&[&attach[..], &known].concat());
    let uri = export["uri"].as_str().unwrap().to_owned();
    assert_eq!(seen(&uri, Some(bench.path("known"))), size);
    seen(&uri, Some(bench.path("stranger"))).unwrap_err();
    seen(&uri, Some(bench.path("nothing"))).unwrap_err();
    seen(&uri.replace("nbds", "nbd"), None).unwrap_err();
    bench.ok(&["volume", "detach", "tank/v"]);
}

/// Pre-shared keys, for users without certificates.
#[test]
fn a_volume_is_served_by_tls_to_those_who_have_a_key() {
    let mut bench = Bench::new("psk");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let keys = |name: &str, byte: &str| {
        let line = format!("alice:{}\n", byte.repeat(32));
        std::fs::write(bench.path(name), line).unwrap();
    };
    keys("keys", "5a");
    keys("wrong", "a5");
    std::fs::write(bench.path("short"), "alice:5a5a\n").unwrap();
    let attach = |file: &str| {
        let to = ["volume", "attach", "tank/v", "--nbd", "tcp:127.0.0.1:0"];
        [&to[..], &["--tls-psk", file]].concat().join(" ")
    };
    if !cfg!(feature = "tls-psk") {
        eprintln!(
            "skipped: OpenSSL's headers (libssl-dev, pkg-config) were not there for the build"
        );
        let line = attach("keys");
        let line: Vec<&str> = line.split(' ').collect();
        bench.run(&line).refused(2, &["built without keys"]);
        return;
    }
    let line = attach("short");
    let line: Vec<&str> = line.split(' ').collect();
    bench
        .run(&line)
        .refused(2, &["short holds no usable keys", "less than 128 bits"]);
    let line = attach("keys");
    let line: Vec<&str> = line.split(' ').collect();
    bench
        .run(&[&line[..], &["--tls-cert", "c", "--tls-key", "k"]].concat())
        .refused(2, &["--tls-psk"]);
    let export = bench.json(&line);
    let uri = export["uri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("nbds://127.0.0.1:"), "{uri}");
    if Command::new("nbdinfo").arg("--version").output().is_err() {
        eprintln!("skipped: there is no nbdinfo");
        return;
    }
    let whose = |name: &str, file: &str| {
        let uri = uri.replace("nbds://", &format!("nbds://{name}@"));
        format!("{uri}?tls-psk-file={}", bench.path(file).display())
    };
    let size = Ok((4 * MIB).to_string());
    assert_eq!(seen(&whose("alice", "keys"), None), size);
    seen(&whose("alice", "wrong"), None).unwrap_err();
    std::fs::write(bench.path("eve"), format!("eve:{}\n", "5a".repeat(32))).unwrap();
    seen(&whose("eve", "eve"), None).unwrap_err();
    // Refused: TLS without a key, and plain text.
    std::fs::create_dir(bench.path("nothing")).unwrap();
    std::fs::write(bench.path("nothing/ca-cert.pem"), authority().pem()).unwrap();
    seen(&uri, Some(bench.path("nothing"))).unwrap_err();
    seen(&uri.replace("nbds", "nbd"), None).unwrap_err();
    assert_eq!(seen(&whose("alice", "keys"), None), size);
    // After a restart the daemon serves the volume with the same settings.
    let (with_key, plain) = (whose("alice", "keys"), uri.replace("nbds", "nbd"));
    bench.terminate();
    bench.start();
    assert_eq!(seen(&with_key, None), size);
    seen(&plain, None).unwrap_err();
}

#[test]
fn tcp_that_others_reach_needs_tls_or_the_word_that_it_is_meant() {
    let mut bench = Bench::new("insecure");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "tcp:0.0.0.0:0"];
    bench.run(&attach).refused(
        2,
        &["reached from other machines", "--tls-cert", "--insecure"],
    );
    let absent = [
        &attach[..],
        &["--tls-cert", "no.pem", "--tls-key", "no.pem"],
    ]
    .concat();
    bench
        .run(&absent)
        .refused(2, &["no.pem holds no usable certificate"]);
    bench
        .run(&[&attach[..], &["--tls-cert", "no.pem"]].concat())
        .refused(2, &["--tls-key"]);
    bench.ok(&[&attach[..], &["--insecure"]].concat());
    // After a restart the daemon serves the volume with the same settings.
    bench.terminate();
    bench.start();
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["exports"].as_array().unwrap().len(), 1);
}
