//! NBD URIs: where an export is.
//!
//! The form is the one of libnbd and qemu
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>).

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use block::Hint;

/// The protocol's registered port.
const PORT_DEFAULT: u16 = 10809;

/// `nbd://HOST[:PORT]/NAME` or `nbd+unix:///NAME?socket=PATH`, with `nbds` instead of `nbd` for
/// TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Where the server is.
    pub place: Place,
    /// The export; empty for the server's default.
    pub name: String,
    /// True if the URI requests TLS.
    pub tls: bool,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A socket file.
    Unix(PathBuf),
    /// A host's name or address, and a port.
    Tcp(String, u16),
}

/// Why a text is not an NBD URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an NBD URI: {reason}")]
pub struct UriError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Hint for UriError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some("write nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH".into())
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| UriError {
            text: text.to_owned(),
            reason,
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| error("no scheme"))?;
        let (tls, unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(error("unknown scheme")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = decode(name).ok_or_else(|| error("a % is not followed by two hex digits"))?;
        let place = if unix {
            if !authority.is_empty() {
                return Err(error("a host does not go with a socket"));
            }
            let socket = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("socket="))
                .and_then(decode)
                .filter(|path| !path.is_empty())
                .ok_or_else(|| error("no socket is given"))?;
            Place::Unix(socket.into())
        } else {
            let (host, port) = split_authority(authority).ok_or_else(|| error("no valid port"))?;
            if host.is_empty() {
                return Err(error("no host is given"));
            }
            let plain = |c: char| c.is_alphanumeric() || "-._:%".contains(c);
            if !host.chars().all(plain) {
                return Err(error("the host has characters that no host has"));
            }
            Place::Tcp(host.to_owned(), port)
        };
        Ok(Self { place, name, tls })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        let name = encode(&self.name);
        match &self.place {
            Place::Unix(path) => {
                let path = encode(&path.to_string_lossy());
                write!(f, "{scheme}+unix:///{name}?socket={path}")
            }
            Place::Tcp(host, port) if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}/{name}")
            }
            Place::Tcp(host, port) => write!(f, "{scheme}://{host}:{port}/{name}"),
        }
    }
}

/// Host and port, without the brackets around an IPv6 address.
fn split_authority(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (
                host,
                if port.is_empty() {
                    None
                } else {
                    Some(port.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Ok(PORT_DEFAULT), str::parse).ok()?;
    Some((host, port))
}

/// Decodes percent encoding. `None` if it is invalid or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>()?;
        rest = tail;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes characters with a meaning in URIs, except slashes: export names are paths here.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_as_libnbd_reads_them() {
        let uri: Uri = "nbd+unix:///tank/data?socket=/run/x%20y.sock"
            .parse()
            .unwrap();
        assert_eq!(uri.place, Place::Unix("/run/x y.sock".into()));
        assert_eq!(uri.name, "tank/data");
        let uri: Uri = "nbds://example.org".parse().unwrap();
        assert_eq!(uri.place, Place::Tcp("example.org".into(), 10809));
        assert!(uri.tls && uri.name.is_empty());
        let uri: Uri = "nbd://[::1]:1234/a%2Fb".parse().unwrap();
        assert_eq!(uri.place, Place::Tcp("::1".into(), 1234));
        assert_eq!(uri.name, "a/b");
    }

    #[test]
    fn what_is_printed_reads_back() {
        for text in [
            "nbd+unix:///tank/data?socket=/run/a%3Fb",
            "nbd://[::1]:10809/",
            "nbds://127.0.0.1:1/x%25y",
        ] {
            let uri: Uri = text.parse().unwrap();
            assert_eq!(uri.to_string().parse::<Uri>().unwrap(), uri);
        }
    }

    #[test]
    fn broken_uris_say_what_is_wrong() {
        for (text, reason) in [
            ("/dev/sda", "no scheme"),
            ("http://x/", "unknown scheme"),
            ("nbd+unix:///x", "no socket is given"),
            (
                "nbd+unix://host/x?socket=/s",
                "a host does not go with a socket",
            ),
            ("nbd://h:99999/x", "no valid port"),
            ("nbd:///x", "no host is given"),
            ("nbd://[[]/", "the host has characters that no host has"),
            ("nbd://user@h/", "the host has characters that no host has"),
            ("nbd://h/%zz", "a % is not followed by two hex digits"),
        ] {
            assert_eq!(text.parse::<Uri>().unwrap_err().reason, reason, "{text}");
        }
    }
}
