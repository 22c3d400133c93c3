//! The label: the identity of a drive, and the pool's facts.
//!
//! Two copies per drive, written alternately, so that a torn write leaves the older one intact. A copy is one page of
//! fixed fields and a payload of JSON behind it: the facts are small, change rarely, and can be read with `strings`
//! when everything else fails.

use std::borrow::Cow;

use block::{Hint, Seat};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::facts::PoolFacts;
use super::ids::Generation;

/// The first eight bytes of every label.
pub const LABEL_MAGIC: [u8; 8] = *b"RAVELIN\0";
/// The first eight bytes instead, after a command has taken the label from its drive and could give it back.
pub const RETIRED_MAGIC: [u8; 8] = *b"RVGONE\0\0";
/// The format that this code writes.
pub const FORMAT: u32 = 1;
/// Features that this code supports: name in the label's payload, bit in its header.
pub const FEATURES: [(&str, u64); 7] = [
    (PAGE_COPIES, 1),
    (LAZY_INITIALIZATION, 2),
    (DIRECT_WRITES, 4),
    (INTERLEAVED_VOLUMES, 8),
    (DERIVED_PARITY, 16),
    (FREE_STRIPES, 32),
    (ELASTIC, 64),
];
/// One more copy of each metadata page than the losses that the code survives, on as many drives; and the checksums of
/// blocks that were written while their column had no cell.
pub const PAGE_COPIES: &str = "page-copies";
/// Groups of volumes are made blank when they are first written, and the label lists those that are not yet.
pub const LAZY_INITIALIZATION: &str = "lazy-initialization";
/// Whole stripes onto space without valid data go in place at once; the journal has their checksums.
pub const DIRECT_WRITES: &str = "direct-writes";
/// Volumes are interleaved over several groups, so that a stream uses all drives of a declustered pool.
pub const INTERLEAVED_VOLUMES: &str = "interleaved-volumes";
/// For whole rows of a stripe the journal has the data, but only the checksums of the parity: parity follows from the
/// data.
pub const DERIVED_PARITY: &str = "derived-parity";
/// Each group has a few more stripes than it has data for, and a map from the data to stripes: a whole stripe that is
/// overwritten goes to a free one.
pub const FREE_STRIPES: &str = "free-stripes";
/// Stripes are kept as parity or as copies: cells have a plane for each copy, and maps name the form of each stripe.
pub const ELASTIC: &str = "elastic";
/// Where the copies begin on a drive.
pub const LABEL_OFFSETS: [u64; 2] = [4 << 10, 512 << 10];
/// Bytes of a copy, at most.
pub const LABEL_SLOT_BYTES: usize = 504 << 10;
/// Bytes at the end of a drive of which no region takes any.
const TAIL_BYTES: u64 = 8 << 20;
/// The ends of drives are rounded down to this.
const END_BYTES: u64 = 1 << 20;
/// The fixed fields take one page; the payload begins behind it.
const HEADER_BYTES: usize = 4096;

/// Where a drive of this size has its labels a second time, in the order of [`LABEL_OFFSETS`]: in the reserve at its end,
/// for a drive whose beginning is overwritten. `None` if the drive has no reserve behind its first `used_bytes`.
#[must_use]
pub fn label_copies(size_bytes: u64, used_bytes: u64) -> Option<[u64; 2]> {
    let tail = (size_bytes / END_BYTES * END_BYTES).checked_sub(TAIL_BYTES)?;
    let is_free = tail >= used_bytes && tail >= END_BYTES;
    is_free.then(|| LABEL_OFFSETS.map(|offset| tail + offset))
}

/// The fixed fields. Little-endian; the rest of the page is zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    format: U32,
    /// Bits of features that a reader must support to open the pool at all.
    features_incompatible: U64,
    /// Bits of features that a reader must support to write to the pool.
    features_read_only: U64,
    pool: [u8; 16],
    drive: [u8; 16],
    seat: U16,
    reserved: U16,
    generation: U64,
    payload_bytes: U32,
    payload_crc32c: U32,
    /// Over the fields before this one.
    header_crc32c: U32,
}

const HEADER_FIELDS_BYTES: usize = size_of::<Header>();
const _: () = assert!(
    HEADER_FIELDS_BYTES == 84,
    "docs/format.md gives the offsets"
);

/// A label, read or to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Identity of the drive.
    pub drive: Uuid,
    /// Its seat when this label was written.
    pub seat: Seat,
    /// Grows by one with every change of the pool's facts.
    pub generation: Generation,
    /// The pool's facts.
    pub facts: PoolFacts,
}

/// Why bytes are not a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No magic: this is something else, or empty.
    #[error("there is no Ravelin label")]
    Absent,
    /// The magic is there, but the rest does not match it.
    #[error("the label is damaged: {what}")]
    Damaged {
        /// The part that does not match.
        what: &'static str,
    },
    /// Format 0, whose regions were in other places.
    #[error("the label has format 0, of an early version whose format was never promised")]
    EarlyFormat,
    /// A later or unknown format.
    #[error("the label has format {format}, this program knows format {FORMAT} only")]
    Format {
        /// The format in the label.
        format: u32,
    },
    /// A feature that this program does not support.
    #[error(
        "the pool uses a feature that this program does not know ({names}, bits {features:#x})"
    )]
    Features {
        /// The unknown bits.
        features: u64,
        /// The names of these features in the label.
        names: String,
    },
}

impl Hint for LabelError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Absent | Self::Damaged { .. } => None,
            Self::EarlyFormat => Some("create the pool anew".into()),
            Self::Format { .. } | Self::Features { .. } => Some("use a newer Ravelin".into()),
        }
    }
}

/// The facts as the bytes at the end of every drive's label: made once for all drives.
#[derive(Clone, Debug)]
pub struct Payload {
    bytes: Vec<u8>,
    crc32c: u32,
    pool: Uuid,
    features: u64,
}

impl Payload {
    /// The facts' bytes.
    ///
    /// # Panics
    /// When they exceed the slot; `pool create` and `volume create` keep them below.
    #[must_use]
    pub fn new(facts: &PoolFacts) -> Self {
        let bytes = serde_json::to_vec(facts).expect("facts have string keys only");
        assert!(
            HEADER_BYTES + bytes.len() <= LABEL_SLOT_BYTES,
            "facts of {} bytes fit into a label",
            bytes.len()
        );
        Self {
            crc32c: block::crc32c(&bytes),
            bytes,
            pool: facts.uuid,
            features: bits_of(&facts.features),
        }
    }

    /// The label of a drive in a seat, a whole number of pages, to be written at one of
    /// [`LABEL_OFFSETS`].
    #[must_use]
    pub fn label(&self, drive: Uuid, seat: Seat, generation: Generation) -> Vec<u8> {
        let mut header = Header {
            magic: LABEL_MAGIC,
            format: FORMAT.into(),
            features_incompatible: self.features.into(),
            features_read_only: 0.into(),
            pool: self.pool.into_bytes(),
            drive: drive.into_bytes(),
            seat: seat.0.into(),
            reserved: 0.into(),
            generation: generation.0.into(),
            payload_bytes: u32::try_from(self.bytes.len())
                .expect("below the slot's size")
                .into(),
            payload_crc32c: self.crc32c.into(),
            header_crc32c: 0.into(),
        };
        header.header_crc32c = header_crc(&header).into();
        let end = HEADER_BYTES + self.bytes.len();
        let mut bytes = vec![0; end.next_multiple_of(HEADER_BYTES)];
        bytes[..HEADER_FIELDS_BYTES].copy_from_slice(header.as_bytes());
        bytes[HEADER_BYTES..end].copy_from_slice(&self.bytes);
        bytes
    }
}

impl Label {
    /// The label as bytes, a whole number of pages, to be written at one of [`LABEL_OFFSETS`].
    ///
    /// # Panics
    /// As [`Payload::new`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Payload::new(&self.facts).label(self.drive, self.seat, self.generation)
    }

    /// Reads a label from the bytes of a slot (longer is fine).
    ///
    /// # Errors
    /// [`LabelError`]; never panics, whatever the bytes are.
    pub fn parse(bytes: &[u8]) -> Result<Self, LabelError> {
        LabelReader::default().label(&Whole::of(bytes)?)
    }
}

const fn damaged(what: &'static str) -> LabelError {
    LabelError::Damaged { what }
}

/// A slot that holds an intact label, whose payload has not been parsed.
struct Whole<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> Whole<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, LabelError> {
        if bytes.get(..8) != Some(&LABEL_MAGIC) {
            return Err(LabelError::Absent);
        }
        let (header, _) =
            Header::read_from_prefix(bytes).map_err(|_| damaged("it is cut short"))?;
        if header.header_crc32c.get() != header_crc(&header) {
            return Err(damaged("its header's checksum does not match"));
        }
        let format = header.format.get();
        if format == 0 {
            return Err(LabelError::EarlyFormat);
        }
        if format != FORMAT {
            return Err(LabelError::Format { format });
        }
        let features = header.features_incompatible.get() | header.features_read_only.get();
        let unknown = FEATURES.iter().fold(features, |all, (_, bit)| all & !bit);
        if unknown != 0 {
            return Err(LabelError::Features {
                features: unknown,
                names: unknown_names(bytes),
            });
        }
        let payload_bytes = header.payload_bytes.get() as usize;
        let payload = HEADER_BYTES
            .checked_add(payload_bytes)
            .and_then(|end| bytes.get(HEADER_BYTES..end))
            .ok_or(damaged("its payload is cut short"))?;
        if header.payload_crc32c.get() != block::crc32c(payload) {
            return Err(damaged("its payload's checksum does not match"));
        }
        Ok(Self { header, payload })
    }
}

/// Reads labels, of one drive or of many: facts that are equal byte by byte are parsed once.
#[derive(Clone, Debug, Default)]
pub struct LabelReader {
    last: Option<(Vec<u8>, PoolFacts)>,
}

impl LabelReader {
    /// The newer intact copy of a drive's two, and the slot that holds it.
    ///
    /// # Errors
    /// The error of the copy that came closest to being a label when neither is one.
    pub fn newest(&mut self, slots: [&[u8]; 2]) -> Result<(usize, Label), LabelError> {
        let wholes = slots.map(Whole::of);
        let second = match &wholes {
            [Ok(a), Ok(b)] => b.header.generation.get() > a.header.generation.get(),
            [first, _] => first.is_err(),
        };
        let mut label = |slot: usize| match &wholes[slot] {
            Ok(whole) => self.label(whole),
            Err(error) => Err(error.clone()),
        };
        let first_choice = usize::from(second);
        let errors = match label(first_choice) {
            Ok(label) => return Ok((first_choice, label)),
            Err(error) => match label(1 - first_choice) {
                Ok(label) => return Ok((1 - first_choice, label)),
                Err(other) if second => [other, error],
                Err(other) => [error, other],
            },
        };
        match errors {
            [LabelError::Absent, error] | [error, _] => Err(error),
        }
    }

    fn label(&mut self, whole: &Whole<'_>) -> Result<Label, LabelError> {
        let (header, payload) = (&whole.header, whole.payload);
        let known = self.last.as_ref().filter(|(bytes, _)| bytes == payload);
        let facts = match known {
            Some((_, facts)) => facts.clone(),
            None => {
                let facts: PoolFacts = serde_json::from_slice(payload)
                    .map_err(|_| damaged("its payload does not parse"))?;
                self.last = Some((payload.to_vec(), facts.clone()));
                facts
            }
        };
        if facts.uuid.into_bytes() != header.pool {
            return Err(damaged("header and payload name different pools"));
        }
        let bits = header.features_incompatible.get() | header.features_read_only.get();
        let copies = facts
            .regions
            .is_some_and(|regions| regions.page_copies.is_some());
        let mut volumes = facts.volumes.iter();
        let interleaved = volumes.any(|volume| volume.interleave.is_some());
        if bits != bits_of(&facts.features)
            || copies != facts.has(PAGE_COPIES)
            || interleaved && !facts.has(INTERLEAVED_VOLUMES)
        {
            return Err(damaged("header and payload name different features"));
        }
        Ok(Label {
            drive: Uuid::from_bytes(header.drive),
            seat: Seat(header.seat.get()),
            generation: Generation(header.generation.get()),
            facts,
        })
    }
}

/// As [`LabelReader::newest`], of one drive.
///
/// # Errors
/// As there.
pub fn newest_label(slots: [&[u8]; 2]) -> Result<(usize, Label), LabelError> {
    LabelReader::default().newest(slots)
}

/// The bits of known features.
fn bits_of(names: &[String]) -> u64 {
    let known = FEATURES
        .iter()
        .filter(|(name, _)| names.iter().any(|is| is == name));
    known.fold(0, |all, (_, bit)| all | bit)
}

/// The label's names of the features that this code does not support. The payload may be of any shape.
fn unknown_names(bytes: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Named {
        #[serde(default)]
        features: Vec<String>,
    }
    let header = Header::read_from_prefix(bytes).ok();
    let payload_bytes = header.map_or(0, |(header, _)| header.payload_bytes.get() as usize);
    let end = HEADER_BYTES.saturating_add(payload_bytes);
    let payload = bytes.get(HEADER_BYTES..end).unwrap_or_default();
    let named = serde_json::from_slice(payload).unwrap_or(Named {
        features: Vec::new(),
    });
    let known = |name: &String| FEATURES.iter().any(|(other, _)| other == name);
    let unknown: Vec<String> = named
        .features
        .into_iter()
        .filter(|name| !known(name))
        .collect();
    match unknown.is_empty() {
        true => "without a name".to_owned(),
        false => unknown.join(", "),
    }
}

fn header_crc(header: &Header) -> u32 {
    block::crc32c(&header.as_bytes()[..HEADER_FIELDS_BYTES - 4])
}
