//! Descriptors that arrive by a socket, as a supervisor gets them.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// A message, and the descriptor that came with it.
pub(crate) fn receive(socket: &UnixDatagram) -> (String, Option<OwnedFd>) {
    let mut bytes = [0; 4096];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut rights,
        RecvFlags::CMSG_CLOEXEC,
    );
    let length = got.unwrap().bytes;
    let descriptor = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
    (text, descriptor)
}
