//! TLS: a server's certificate or keys, and the certificates that a client trusts.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::Hint;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};

use super::psk;
use super::transport::Transport;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or contains nothing of this kind.
    #[error("{} holds no usable {what}: {reason}", path.display())]
    File {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The parser's error.
        reason: String,
    },
    /// A file of pre-shared keys cannot be used.
    #[error("{} holds no usable keys: {reason}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The program was built without the feature `tls-psk`.
    #[error("this program was built without keys for TLS")]
    NoKeys,
    /// Certificate and key do not match, or are of a kind that is not supported.
    #[error("certificate and key cannot be used together: {source}")]
    Pair {
        /// The library's error.
        source: rustls::Error,
    },
}

impl Hint for TlsError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::File { .. } => "give a PEM file",
            Self::Keys { .. } => "make one with `psktool -u NAME -p FILE`",
            Self::NoKeys => {
                "build it with `make` where OpenSSL's headers are (libssl-dev, pkg-config), or use certificates"
            }
            Self::Pair { .. } => "make a new pair",
        };
        Some(hint.into())
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// How server and clients authenticate each other.
#[derive(Clone)]
enum Proof {
    Certificates(Arc<ServerConfig>),
    Keys(psk::Context),
}

/// A server's certificate or keys, and whether clients must use them.
#[derive(Clone)]
pub struct ServerTls {
    proof: Proof,
    forced: bool,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("forced", &self.forced)
            .finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads a certificate chain and its private key from PEM files. With `forced`, a client without TLS is not
    /// served.
    ///
    /// # Errors
    /// If a file cannot be used, or certificate and key do not match.
    pub fn from_files(certificates: &Path, key: &Path, forced: bool) -> Result<Self, TlsError> {
        Self::for_clients(certificates, key, None, forced)
    }

    /// The same. With `authorities`, only clients that present a certificate of one of these are served.
    ///
    /// # Errors
    /// As [`ServerTls::from_files`].
    pub fn for_clients(
        certificates: &Path,
        key: &Path,
        authorities: Option<&Path>,
        forced: bool,
    ) -> Result<Self, TlsError> {
        let chain = read_certificates(certificates)?;
        let provider = Arc::new(ring::default_provider());
        let verifier = match authorities {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(authorities) => {
                let unusable = |reason: String| TlsError::File {
                    what: "certificate of an authority",
                    path: authorities.into(),
                    reason,
                };
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(authorities)? {
                    roots
                        .add(certificate)
                        .map_err(|error| unusable(error.to_string()))?;
                }
                let roots = Arc::new(roots);
                let provider = Arc::clone(&provider);
                WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| unusable(error.to_string()))?
            }
        };
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
            what: "private key",
            path: key.into(),
            reason: error.to_string(),
        })?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(verifier);
                builder.with_single_cert(chain, key)
            })
            .map_err(|source| TlsError::Pair { source })?;
        Ok(Self {
            proof: Proof::Certificates(Arc::new(config)),
            forced,
        })
    }

    /// Reads pre-shared keys: lines of `NAME:KEY`, the key in hexadecimal. Only clients that have one of them are
    /// served.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn from_keys(file: &Path, forced: bool) -> Result<Self, TlsError> {
        let proof = Proof::Keys(psk::context(file)?);
        Ok(Self { proof, forced })
    }

    pub(super) const fn forced(&self) -> bool {
        self.forced
    }

    /// Begins TLS: from here on all data of the connection goes through TLS.
    pub(super) fn begin(&self, transport: &mut Transport) -> io::Result<()> {
        match &self.proof {
            Proof::Certificates(config) => {
                let session =
                    ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                transport.begin_tls(session.into());
                Ok(())
            }
            Proof::Keys(context) => transport.begin_psk(context),
        }
    }
}

/// The certificates that a client trusts.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

impl ClientTls {
    /// Trusts only the authorities (or self-signed certificates) in a PEM file.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn from_file(authorities: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(authorities)? {
            roots
                .add(certificate)
                .map_err(|source| TlsError::Pair { source })?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Pair { source })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            config: Arc::new(config),
        })
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let error = |reason: String| TlsError::File {
        what: "certificate",
        path: path.into(),
        reason,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|failure| error(failure.to_string()))?;
    if certificates.is_empty() {
        return Err(error("no certificate in it".to_owned()));
    }
    Ok(certificates)
}
