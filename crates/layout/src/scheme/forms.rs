//! Words for the forms of the classic levels, ours and mdadm's.

/// How `raid10` places the copies of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Raid10Form {
    /// Side by side.
    #[default]
    Near,
    /// In the next chunk row, one drive further on.
    Offset,
    /// In the next part of the drive, one drive further on.
    Far,
}

impl Raid10Form {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Near, Self::Offset, Self::Far];

    /// The scheme's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Offset => "offset",
            Self::Far => "far",
        }
    }
}

/// Where `raid5` puts parity and how data follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Raid5Form {
    /// Parity moves left, data begins after it (md's default).
    #[default]
    Ls,
    /// Parity moves left, data begins at drive 0.
    La,
    /// Parity moves right, data begins after it.
    Rs,
    /// Parity moves right, data begins at drive 0.
    Ra,
    /// Parity on the first drive.
    P0,
    /// Parity on the last drive (RAID-4).
    Pn,
}

impl Raid5Form {
    /// Every form.
    pub const ALL: [Self; 6] = [Self::Ls, Self::La, Self::Rs, Self::Ra, Self::P0, Self::Pn];

    /// The scheme's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ls => "ls",
            Self::La => "la",
            Self::Rs => "rs",
            Self::Ra => "ra",
            Self::P0 => "p0",
            Self::Pn => "pn",
        }
    }

    /// mdadm's word.
    pub(super) const fn long(self) -> &'static str {
        match self {
            Self::Ls => "left-symmetric",
            Self::La => "left-asymmetric",
            Self::Rs => "right-symmetric",
            Self::Ra => "right-asymmetric",
            Self::P0 => "parity-first",
            Self::Pn => "parity-last",
        }
    }
}

/// Where `raid6` puts P and Q: md's fourteen forms and the Shear paper's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Raid6Form {
    /// P moves left, Q after it, data after Q (md's default).
    #[default]
    Ls,
    /// P moves left, data begins at drive 0.
    La,
    /// P moves right, data after Q.
    Rs,
    /// P moves right, data begins at drive 0.
    Ra,
    /// P and Q on the first two drives.
    P0,
    /// P and Q on the last two drives. An array code's columns in their own order.
    Pn,
    /// DDF zero restart.
    Zr,
    /// DDF N restart.
    Nr,
    /// DDF N continue.
    Nc,
    /// `raid5:la` and Q on the last drive.
    La6,
    /// `raid5:ra` and Q on the last drive.
    Ra6,
    /// `raid5:ls` and Q on the last drive.
    Ls6,
    /// `raid5:rs` and Q on the last drive.
    Rs6,
    /// P on the first drive, Q on the last.
    P06,
    /// Data as in RAID-0, P and Q in the gaps (Shear paper, section 3).
    Shear,
}

impl Raid6Form {
    /// Every form.
    pub const ALL: [Self; 15] = [
        Self::Ls,
        Self::La,
        Self::Rs,
        Self::Ra,
        Self::P0,
        Self::Pn,
        Self::Zr,
        Self::Nr,
        Self::Nc,
        Self::La6,
        Self::Ra6,
        Self::Ls6,
        Self::Rs6,
        Self::P06,
        Self::Shear,
    ];

    /// The form if the scheme has no word for one: left-symmetric for P+Q. Array codes spread their
    /// parity inside the code or not at all; their columns stay in order unless a word selects
    /// rotation.
    #[must_use]
    pub const fn default_with(code: Option<&str>) -> Self {
        if code.is_some() { Self::Pn } else { Self::Ls }
    }

    /// The scheme's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ls => "ls",
            Self::La => "la",
            Self::Rs => "rs",
            Self::Ra => "ra",
            Self::P0 => "p0",
            Self::Pn => "pn",
            Self::Zr => "zr",
            Self::Nr => "nr",
            Self::Nc => "nc",
            Self::La6 => "la6",
            Self::Ra6 => "ra6",
            Self::Ls6 => "ls6",
            Self::Rs6 => "rs6",
            Self::P06 => "p06",
            Self::Shear => "shear",
        }
    }

    /// mdadm's word.
    pub(super) const fn long(self) -> &'static str {
        match self {
            Self::Ls => "left-symmetric",
            Self::La => "left-asymmetric",
            Self::Rs => "right-symmetric",
            Self::Ra => "right-asymmetric",
            Self::P0 => "parity-first",
            Self::Pn => "parity-last",
            Self::Zr => "ddf-zero-restart",
            Self::Nr => "ddf-n-restart",
            Self::Nc => "ddf-n-continue",
            Self::La6 => "left-asymmetric-6",
            Self::Ra6 => "right-asymmetric-6",
            Self::Ls6 => "left-symmetric-6",
            Self::Rs6 => "right-symmetric-6",
            Self::P06 => "parity-first-6",
            Self::Shear => "pq-shear",
        }
    }
}
