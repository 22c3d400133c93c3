//! Malicious or faulty clients: the server answers with an error or closes the connection, other
//! clients notice nothing, and memory stays bounded. In plain text, and by both kinds of TLS.

#![expect(
    clippy::duplicate_mod,
    reason = "the same tests run once for each way in which a client comes"
)]

mod support;

use std::sync::RwLock;

/// Write-locked by tests that measure this process's memory.
static MEMORY: RwLock<()> = RwLock::new(());

#[path = "."]
mod plain {
    pub(super) const WAY: crate::support::tunnel::Way = crate::support::tunnel::Way::Plain;
    #[path = "hostile/tests.rs"]
    mod tests;
}

#[path = "."]
mod by_certificates {
    pub(super) const WAY: crate::support::tunnel::Way = crate::support::tunnel::Way::Certificates;
    #[path = "hostile/tests.rs"]
    mod tests;
}

#[cfg(feature = "tls-psk")]
#[path = "."]
mod by_keys {
    pub(super) const WAY: crate::support::tunnel::Way = crate::support::tunnel::Way::Keys;
    #[path = "hostile/tests.rs"]
    mod tests;
}
