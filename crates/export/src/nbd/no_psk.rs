//! Replaces `psk.rs` if the program is built without the feature `tls-psk`: no connection has a key, and requesting
//! keys is an error. None of these types has a value.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::tls::TlsError;

/// A server's configuration for clients with keys.
#[derive(Clone)]
pub(super) enum Context {}

pub(super) const fn context(_file: &Path) -> Result<Context, TlsError> {
    Err(TlsError::NoKeys)
}

/// A server's side of a connection.
pub(super) enum PskStream {}

impl PskStream {
    pub(super) fn accept(context: &Context, _socket: Arc<OwnedFd>) -> io::Result<Self> {
        match *context {}
    }

    pub(super) fn receive(&mut self, _buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn send(&mut self, _buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match *self {}
    }

    pub(super) const fn wants_write(&self) -> bool {
        match *self {}
    }

    pub(super) fn close_notify(&mut self) {
        match *self {}
    }
}
