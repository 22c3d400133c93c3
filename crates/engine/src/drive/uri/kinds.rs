//! What a kind of drive says of itself, and names that a kind has read.
//!
//! The parser knows kinds only by [`KINDS`], everything else only by [`DriveSpec`]. A new kind is a file beside
//! `drive/mod.rs`, its `mod` line and its line in the table there (`docs/howto/add-a-drive-kind.md`).

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::super::{KINDS, OpenDriveError, Opened, Opening, file};
use super::{NameText, ParseDriveUriError, Place};

/// A kind of drive, as a name says it.
pub struct DriveKind {
    /// The word before the colon.
    pub word: &'static str,
    /// Names of such drives.
    pub names: &'static [&'static str],
    /// What such a drive is.
    pub what: &'static str,
    /// The options that may follow a `?`.
    pub options: &'static str,
    /// Reads a name of this kind. Names are stored in labels: what was a name once stays one.
    pub(crate) parse: fn(&NameText<'_>) -> Result<DriveSpec, ParseDriveUriError>,
}

impl DriveKind {
    /// The error of a drive of this kind that the system has no memory or thread for.
    pub(crate) fn start_error(&self) -> impl Fn(io::Error) -> OpenDriveError + use<> {
        let kind = self.word;
        move |source| OpenDriveError::Start { kind, source }
    }
}

/// The words of all kinds: `file:, zram: or mem:`.
pub(super) fn words() -> String {
    let words: Vec<String> = KINDS.iter().map(|kind| format!("{}:", kind.word)).collect();
    match words.split_last() {
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// A name that a kind of drive has read. It is displayed in its canonical form, which reads as the same name.
pub(crate) trait Named: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens the drive.
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, OpenDriveError>;

    /// The drive's size, found without a claim to the drive.
    fn size_bytes(&self) -> io::Result<u64>;

    /// The file or device that holds the bytes.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The same name with another path. `None` if it has no path.
    fn with_path(&self, path: &Path) -> Option<DriveSpec> {
        let _ = path;
        None
    }

    /// The pool and the volume that holds the bytes.
    fn volume(&self) -> Option<(&str, &str)> {
        None
    }

    /// Whether a short operation may wait in the drive behind long ones.
    fn has_queue(&self) -> bool {
        true
    }
}

/// A kind of drive that wraps another drive: its options.
pub(crate) trait Wrapper: fmt::Debug + fmt::Display + Clone + Send + Sync + 'static {
    /// Reads the options.
    fn parse(text: &NameText<'_>) -> Result<Self, ParseDriveUriError>;

    /// Opens the inner drive, and the wrapper over it.
    fn open(&self, inner: &DriveSpec, opening: &Opening<'_>) -> Result<Opened, OpenDriveError>;

    /// The size, as [`Named::size_bytes`].
    fn size_bytes(&self, inner: &DriveSpec) -> io::Result<u64> {
        inner.size_bytes()
    }
}

/// Reads the name of a wrapped drive: [`DriveKind::parse`] of all wrappers.
pub(crate) fn wrapped<W: Wrapper>(text: &NameText<'_>) -> Result<DriveSpec, ParseDriveUriError> {
    Ok(DriveSpec::new(Wrapped {
        word: text.kind.word,
        wrapper: W::parse(text)?,
        inner: text.inner()?,
    }))
}

#[derive(Clone, Debug)]
struct Wrapped<W> {
    word: &'static str,
    wrapper: W,
    inner: DriveSpec,
}

impl<W: Wrapper> fmt::Display for Wrapped<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.word, self.inner, self.wrapper)
    }
}

impl<W: Wrapper> Named for Wrapped<W> {
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        self.wrapper.open(&self.inner, opening)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.wrapper.size_bytes(&self.inner)
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn with_path(&self, path: &Path) -> Option<DriveSpec> {
        Some(DriveSpec::new(Self {
            inner: self.inner.with_path(path),
            ..self.clone()
        }))
    }

    fn volume(&self) -> Option<(&str, &str)> {
        self.inner.volume()
    }
}

/// What a drive is: a name of one of the [`KINDS`], without domain and slot.
#[derive(Clone, Debug)]
pub struct DriveSpec(Arc<dyn Named>);

impl DriveSpec {
    pub(crate) fn new(name: impl Named + 'static) -> Self {
        Self(Arc::new(name))
    }

    /// The file or device at a path, without options.
    #[must_use]
    pub fn plain(path: &Path) -> Self {
        Self::new(file::FileName::plain(path))
    }

    pub(crate) fn open(&self, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        self.0.open(opening)
    }

    pub(super) fn absolute(&self) -> Self {
        let absolute = self.path().map(std::path::absolute);
        match absolute {
            Some(Ok(path)) => self.with_path(&path),
            Some(Err(_)) | None => self.clone(),
        }
    }

    /// The same drive, with the same wrappers, under another path.
    #[must_use]
    pub fn with_path(&self, path: &Path) -> Self {
        self.0.with_path(path).unwrap_or_else(|| self.clone())
    }

    /// The file or device that holds the bytes, under all wrappers.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path()
    }

    /// The pool and the volume that holds the bytes, under all wrappers.
    #[must_use]
    pub fn volume(&self) -> Option<(&str, &str)> {
        self.0.volume()
    }

    /// Where the bytes are; `None` for memory, which is gone with the daemon.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let volume = |(pool, volume): (&str, &str)| Place::Volume {
            pool: pool.to_owned(),
            volume: volume.to_owned(),
        };
        let path = self.path().map(|path| Place::Path(path.to_owned()));
        path.or_else(|| self.volume().map(volume))
    }

    /// The drive's size, without any claim to the drive.
    ///
    /// # Errors
    /// Those of opening a file. The daemon alone knows the size of a volume.
    pub fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }

    /// Whether a short operation may wait in the drive behind long ones.
    pub(crate) fn has_queue(&self) -> bool {
        self.0.has_queue()
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names are equal if they are of one kind and their fields are equal: these are what the derived text shows.
impl PartialEq for DriveSpec {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Eq for DriveSpec {}
