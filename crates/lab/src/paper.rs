//! The papers.

/// A paper whose figures are reproduced.
#[derive(Debug, PartialEq, Eq)]
pub struct Paper {
    /// Its short name, in ids and file names.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The authors.
    pub authors: &'static str,
    /// Affiliation of the authors: the texts at hand do not name a venue.
    pub from: &'static str,
}

/// D-Code, an array code for RAID-6.
pub(crate) static DCODE: Paper = Paper {
    id: "dcode",
    title: "D-Code: An Efficient RAID-6 Code to Optimize I/O Loads and Read Performance",
    authors: "Yingxun Fu, Jiwu Shu",
    from: "Tsinghua University",
};

/// Declustered RAID in ZFS. The text at hand begins with the abstract: it has neither title nor names.
pub(crate) static DRAID: Paper = Paper {
    id: "draid",
    title: "Declustered RAID (dRAID) in ZFS: performance of I/O and recovery",
    authors: "the text at hand does not name its authors",
    from: "storage test platform at Los Alamos National Laboratory",
};

/// Shear, which infers an array's layout from the times of requests.
pub(crate) static SHEAR: Paper = Paper {
    id: "shear",
    title: "Deconstructing Storage Arrays",
    authors: "Timothy E. Denehy, John Bent, Florentina I. Popovici, Andrea C. Arpaci-Dusseau, Remzi H. Arpaci-Dusseau",
    from: "University of Wisconsin, Madison",
};

/// Elastic RAID, on drives that compress.
pub(crate) static ELASTIC: Paper = Paper {
    id: "elastic",
    title: "Elastic RAID: When RAID Meets SSDs with Built-in Transparent Compression",
    authors: "Zheng Gu, Jiangpeng Li, Yong Peng, Yang Liu, Tong Zhang",
    from: "ScaleFlux; Rensselaer Polytechnic Institute",
};

/// Dynamic Disk Pools. The text at hand begins with the abstract: it has neither title nor names.
pub(crate) static DDP_PAPER: Paper = Paper {
    id: "ddp",
    title: "Dynamic Disk Pools (DDP) against RAID-6: bandwidth, failure and reconstruction",
    authors: "the text at hand does not name its authors",
    from: "SGI",
};
