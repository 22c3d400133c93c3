//! Where the kernel's requests are read into, in memory that outlives the process.
//!
//! A request that was read and is not answered exists only here: the kernel does not send it a second time. So a
//! process that takes up the file after this one (see [`super::kept`]) must find all of them. The kernel copies each
//! message into a slot of a file in memory (`memfd`), and there is no moment at which a killed process loses it.
//!
//! ```text
//!   free ──► landing ──► taken ──► decided ──► free
//!            read from    with the   the outcome    answered
//!            the kernel   device     is recorded
//! ```
//!
//! The next process asks the device again for what is *landing* with a message or *taken*: no client has seen an
//! outcome of these. What is *decided* it only answers. A write that was answered must not be done again: its block can have
//! been written again since. The kernel refuses an answer that it has already got.

#![expect(
    unsafe_code,
    reason = "a shared mapping; a slot's bytes are the reader's until the slot is taken, and no thread writes them after that"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use block::PAGE_BYTES;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The first bytes of the file: its form and version.
const MAGIC: [u8; 8] = *b"RAVELIN1";
/// Bytes of a slot before its message: state, outcome.
const SLOT_HEAD_BYTES: usize = 64;
/// As many requests as the kernel has in flight, and some that are not asynchronous. If all are taken, the reader waits.
const SLOTS: u32 = 320;
/// Slots above this one give the memory of long messages back: as many as the bytes in flight are limited to.
const KEEP_SLOTS: u32 = 40;
const LONG_MESSAGE_BYTES: usize = 64 << 10;

const FREE: u32 = 0;
const LANDING: u32 = 1;
const TAKEN: u32 = 2;
const DECIDED: u32 = 3;

/// Positions in the first page.
mod at {
    pub(super) const SLOTS: usize = 8;
    pub(super) const ROOM: usize = 12;
    pub(super) const DEVICE: usize = 16;
    pub(super) const SECONDS: usize = 24;
    pub(super) const NANOS: usize = 32;
    pub(super) const OPENS: usize = 36;
    pub(super) const PATH: usize = 64;
    pub(super) const WHAT: usize = 2048;
    pub(super) const END: usize = 4096;
}

/// What the next process must know of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    /// Bytes of the longest message.
    pub(super) room: usize,
    /// The mount's device number.
    pub(super) device: u64,
    /// All times of the file, since 1970.
    pub(super) since: Duration,
    /// Where it is mounted.
    pub(super) path: PathBuf,
    /// What is served: another thing must never be served to the same clients.
    pub(super) what: String,
}

/// A request that an earlier process has read and not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) slot: u32,
    pub(super) message: Vec<u8>,
    /// If the request is decided: bytes, or a negative error number.
    pub(super) outcome: Option<i32>,
}

/// See the module.
pub(super) struct Inbox {
    file: OwnedFd,
    start: NonNull<u8>,
    bytes: usize,
    slots: u32,
    slot_bytes: usize,
    room: usize,
    free: Mutex<Vec<u32>>,
    freed: Condvar,
}

// SAFETY: the mapping belongs to this value alone; the module's rule says which thread may touch which bytes.
unsafe impl Send for Inbox {}
// SAFETY: as above.
unsafe impl Sync for Inbox {}

impl Drop for Inbox {
    fn drop(&mut self) {
        // SAFETY: mapped with this size in `map`, and unmapped once.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::debug!("munmap: {error}");
        }
    }
}

fn put_text(page: &mut [u8], at: usize, end: usize, text: &[u8]) -> io::Result<()> {
    let room = end - at - 2;
    let Some(length) = u16::try_from(text.len())
        .ok()
        .filter(|_| text.len() <= room)
    else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a name is too long",
        ));
    };
    page[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    page[at + 2..at + 2 + text.len()].copy_from_slice(text);
    Ok(())
}

fn text(page: &[u8], at: usize, end: usize) -> Option<&[u8]> {
    let length = usize::from(u16::from_ne_bytes(page[at..at + 2].try_into().ok()?));
    page[at + 2..end].get(..length)
}

impl Inbox {
    /// A new one, empty.
    pub(super) fn create(about: &About) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let slot_bytes = slot_bytes(about.room);
        let bytes = PAGE_BYTES + SLOTS as usize * slot_bytes;
        let file = File::from(memfd_create("ravelin-requests", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes as u64)?;
        let mut page = [0; PAGE_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        let room = u32::try_from(about.room).map_err(io::Error::other)?;
        for (at, word) in [
            (at::SLOTS, SLOTS),
            (at::ROOM, room),
            (at::NANOS, about.since.subsec_nanos()),
        ] {
            page[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in [
            (at::DEVICE, about.device),
            (at::SECONDS, about.since.as_secs()),
        ] {
            page[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let path = about.path.as_os_str().as_bytes();
        put_text(&mut page, at::PATH, at::WHAT, path)?;
        put_text(&mut page, at::WHAT, at::END, about.what.as_bytes())?;
        file.write_all_at(&page, 0)?;
        Self::map(file.into(), SLOTS, about.room)
    }

    /// One of an earlier process. `Ok(None)` if it has a form that this program does not know.
    pub(super) fn open(file: OwnedFd) -> io::Result<Option<(Self, About)>> {
        let file = File::from(file);
        let Some((about, slots)) = about(&file)? else {
            return Ok(None);
        };
        let inbox = Self::map(file.into(), slots, about.room)?;
        Ok(Some((inbox, about)))
    }

    fn map(file: OwnedFd, slots: u32, room: usize) -> io::Result<Self> {
        let slot_bytes = slot_bytes(room);
        let bytes = PAGE_BYTES + slots as usize * slot_bytes;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses. The file has that many bytes, and this program
        // never makes it shorter.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // The last one is taken first: low slots are used as long as they are enough.
        let free = (0..slots).rev().collect();
        Ok(Self {
            file,
            start,
            bytes,
            slots,
            slot_bytes,
            room,
            free: Mutex::new(free),
            freed: Condvar::new(),
        })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes);
        // SAFETY: inside of the mapping and aligned; these words are only used through atomics while it is mapped.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    fn slot(&self, slot: u32) -> usize {
        assert!(slot < self.slots, "slot {slot}");
        PAGE_BYTES + slot as usize * self.slot_bytes
    }

    fn state(&self, slot: u32) -> &AtomicU32 {
        self.word(self.slot(slot))
    }

    fn outcome(&self, slot: u32) -> &AtomicU32 {
        self.word(self.slot(slot) + 4)
    }

    /// How often the file is open.
    pub(super) fn opens(&self) -> &AtomicU32 {
        self.word(at::OPENS)
    }

    /// A slot for the next message. Waits while none is free.
    pub(super) fn vacant(&self) -> u32 {
        let mut free = self.free.lock().expect("no holder of the lock panics");
        loop {
            if let Some(slot) = free.pop() {
                return slot;
            }
            let waited = self.freed.wait(free);
            free = waited.expect("no holder of the lock panics");
        }
    }

    /// The bytes of a slot that [`vacant`](Self::vacant) has returned, for the kernel to copy a message into.
    ///
    /// `reader` is the one reader of the file: it reads into one slot at a time.
    pub(super) fn landing<'a>(&'a self, slot: u32, reader: &'a mut Reader) -> &'a mut [u8] {
        let _ = reader;
        let at = self.slot(slot) + SLOT_HEAD_BYTES;
        // SAFETY: inside of the mapping. The slot is not free, so no other thread reads or writes its message, and
        // the reader is borrowed for as long as the bytes are.
        let message =
            unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), self.room) };
        // Without a message there is no number of a request.
        message[..16].fill(0);
        self.state(slot).store(LANDING, Ordering::Release);
        message
    }

    /// The message of a slot is whole.
    pub(super) fn taken(&self, slot: u32) {
        self.state(slot).store(TAKEN, Ordering::Release);
    }

    /// The request has this outcome, and the kernel is about to get it: bytes, or a negative error number.
    pub(super) fn decided(&self, slot: u32, outcome: i32) {
        self.outcome(slot)
            .store(outcome.cast_unsigned(), Ordering::Relaxed);
        self.state(slot).store(DECIDED, Ordering::Release);
    }

    /// The request is answered, or has no answer.
    pub(super) fn free(&self, slot: u32) {
        let at = self.slot(slot);
        let length = self.word(at + SLOT_HEAD_BYTES).load(Ordering::Relaxed);
        self.state(slot).store(FREE, Ordering::Release);
        if slot >= KEEP_SLOTS && length as usize > LONG_MESSAGE_BYTES {
            let (from, bytes) = (at + PAGE_BYTES, self.slot_bytes - PAGE_BYTES);
            // SAFETY: whole pages of a slot that is free and not in the list yet; they read as zeros from now on.
            let gone = unsafe {
                madvise(
                    self.start.as_ptr().add(from).cast(),
                    bytes,
                    Advice::LinuxRemove,
                )
            };
            if let Err(error) = gone {
                tracing::trace!("madvise: {error}");
            }
        }
        let mut free = self.free.lock().expect("no holder of the lock panics");
        free.push(slot);
        // The reader waits only while there is none, and a notification is a system call.
        if free.len() == 1 {
            self.freed.notify_one();
        }
    }

    /// The requests that an earlier process has left. Their slots are not free any more.
    pub(super) fn left(&self) -> Vec<Left> {
        let left: Vec<Left> = (0..self.slots)
            .filter_map(|slot| self.left_in(slot))
            .collect();
        let mut free = self.free.lock().expect("no holder of the lock panics");
        free.retain(|slot| !left.iter().any(|left| left.slot == *slot));
        left
    }

    fn left_in(&self, slot: u32) -> Option<Left> {
        let outcome = match self.state(slot).load(Ordering::Acquire) {
            LANDING | TAKEN => None,
            DECIDED => Some(self.outcome(slot).load(Ordering::Relaxed).cast_signed()),
            _ => return None,
        };
        let at = self.slot(slot) + SLOT_HEAD_BYTES;
        // SAFETY: inside of the mapping; no thread of this process has used the slot yet.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), self.room) };
        let length = u32::from_ne_bytes(bytes[..4].try_into().ok()?);
        let message = bytes.get(..length as usize)?;
        // Nothing has arrived.
        (!message.is_empty()).then(|| Left {
            slot,
            message: message.to_vec(),
            outcome,
        })
    }
}

/// The one reader of an inbox: a value that is borrowed with the bytes that are read into.
pub(super) struct Reader(());

impl Reader {
    pub(super) const fn new() -> Self {
        Self(())
    }
}

fn slot_bytes(room: usize) -> usize {
    (SLOT_HEAD_BYTES + room).next_multiple_of(PAGE_BYTES)
}

/// The first page of an inbox, and its number of slots. `None` if the file has another form.
fn about(file: &File) -> io::Result<Option<(About, u32)>> {
    let mut page = [0; PAGE_BYTES];
    if file.metadata()?.len() < page.len() as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut page, 0)?;
    let word = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_ne_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    let (slots, room) = (word(at::SLOTS), word(at::ROOM) as usize);
    let is_sane = page[..8] == MAGIC && (1..=1 << 16).contains(&slots) && room <= 1 << 26;
    let bytes = || PAGE_BYTES as u64 + u64::from(slots) * slot_bytes(room) as u64;
    if !is_sane || file.metadata()?.len() != bytes() {
        return Ok(None);
    }
    let (Some(path), Some(what)) = (
        text(&page, at::PATH, at::WHAT),
        text(&page, at::WHAT, at::END),
    ) else {
        return Ok(None);
    };
    let about = About {
        room,
        device: long(at::DEVICE),
        since: Duration::new(long(at::SECONDS), word(at::NANOS).min(999_999_999)),
        path: path_of(path),
        what: String::from_utf8_lossy(what).into_owned(),
    };
    Ok(Some((about, slots)))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            room: 8192,
            device: 77,
            since: Duration::new(5, 6),
            path: "/run/volume".into(),
            what: "tank/home".to_owned(),
        }
    }

    fn message(inbox: &Inbox, reader: &mut Reader, length: u32) -> u32 {
        let slot = inbox.vacant();
        let bytes = inbox.landing(slot, reader);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[8] = u8::try_from(slot).unwrap() + 1;
        slot
    }

    fn next(inbox: Inbox) -> (Inbox, About) {
        let file = inbox.file().try_clone_to_owned().unwrap();
        drop(inbox);
        Inbox::open(file).unwrap().unwrap()
    }

    #[test]
    fn the_next_process_finds_what_has_no_answer_in_each_state() {
        let inbox = Inbox::create(&about()).unwrap();
        let mut reader = Reader::new();
        let landing = message(&inbox, &mut reader, 40);
        let taken = message(&inbox, &mut reader, 48);
        inbox.taken(taken);
        let decided = message(&inbox, &mut reader, 56);
        inbox.taken(decided);
        inbox.decided(decided, -5);
        let answered = message(&inbox, &mut reader, 64);
        inbox.taken(answered);
        inbox.decided(answered, 0);
        inbox.free(answered);
        // The kernel has written nothing here.
        let empty = inbox.vacant();
        inbox.landing(empty, &mut reader);
        inbox.opens().store(2, Ordering::Relaxed);

        let (inbox, found) = next(inbox);
        assert_eq!(found, about());
        assert_eq!(inbox.opens().load(Ordering::Relaxed), 2);
        let left = inbox.left();
        let seen: Vec<_> = left
            .iter()
            .map(|left| (left.slot, left.message.len(), left.outcome))
            .collect();
        assert_eq!(
            seen,
            [
                (landing, 40, None),
                (taken, 48, None),
                (decided, 56, Some(-5))
            ]
        );
        // Their slots are free again when they are answered, and all others are now.
        let mut free: Vec<u32> = (0..SLOTS - 3).map(|_| inbox.vacant()).collect();
        free.sort_unstable();
        assert!(!free.contains(&landing) && !free.contains(&taken) && !free.contains(&decided));
        inbox.free(taken);
        assert_eq!(inbox.vacant(), taken);
    }

    #[test]
    fn a_reader_that_waits_for_a_slot_gets_the_first_that_is_free() {
        let inbox = Inbox::create(&about()).unwrap();
        let taken: Vec<u32> = (0..SLOTS).map(|_| inbox.vacant()).collect();
        std::thread::scope(|scope| {
            // One after the other: each time none is free.
            let reader = scope.spawn(|| [inbox.vacant(), inbox.vacant()]);
            inbox.free(taken[5]);
            while !inbox.free.lock().unwrap().is_empty() {
                std::thread::yield_now();
            }
            inbox.free(taken[7]);
            assert_eq!(reader.join().unwrap(), [taken[5], taken[7]]);
        });
    }

    #[test]
    fn a_file_of_another_form_is_not_taken_for_one() {
        let plain = |bytes: &[u8]| {
            let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
            file.write_all_at(bytes, 0).unwrap();
            Inbox::open(file.into()).unwrap().is_none()
        };
        assert!(plain(b""));
        assert!(plain(&[0; 9000]));
        let inbox = Inbox::create(&about()).unwrap();
        let mut page = [0; PAGE_BYTES];
        let file = File::from(inbox.file().try_clone_to_owned().unwrap());
        file.read_exact_at(&mut page, 0).unwrap();
        // It says how long it is, and is not.
        assert!(plain(&page));
        file.write_all_at(&u16::MAX.to_ne_bytes(), at::PATH as u64)
            .unwrap();
        let cut = inbox.file().try_clone_to_owned().unwrap();
        assert!(Inbox::open(cut).unwrap().is_none());
        // A message that says that it is longer than its slot.
        let inbox = Inbox::create(&about()).unwrap();
        let slot = message(&inbox, &mut Reader::new(), 9000);
        inbox.taken(slot);
        assert_eq!(inbox.left(), []);
    }

    #[test]
    fn the_memory_of_long_messages_in_high_slots_is_given_back() {
        let mut about = about();
        about.room = 1 << 20;
        let inbox = Inbox::create(&about).unwrap();
        let mut reader = Reader::new();
        let slots: Vec<u32> = (0..KEEP_SLOTS + 10)
            .map(|_| {
                let slot = inbox.vacant();
                let bytes = inbox.landing(slot, &mut reader);
                bytes.fill(1);
                bytes[..4].copy_from_slice(&(1_u32 << 20).to_ne_bytes());
                slot
            })
            .collect();
        let used = || rustix::fs::fstat(inbox.file()).unwrap().st_blocks * 512;
        let before = used();
        slots.iter().for_each(|&slot| inbox.free(slot));
        let given_back = before - used();
        assert!(
            (10 << 20..11 << 20).contains(&(given_back + (1 << 18))),
            "{given_back}"
        );
    }
}
