//! The arithmetic: from a scheme and a number of drives to a layout.

use std::sync::Arc;

use super::{CodeSpec, Field, Geometry, GeometryError};
use crate::Layout;
use crate::classic::{Islands, Rotation};
use crate::declustered::Kind;
use crate::developed::Shape;
use crate::mirror::{Far, Near, Offset};
use crate::rotated::Rotated;
use crate::scheme::{Family, Raid10Form, Scheme};
use crate::striping::Striping;

/// Most columns of a stripe: journals and the codes over GF(2^8) number its units in a byte.
const COLUMNS_MAX: u32 = 255;

pub(super) fn geometry(
    scheme: &Scheme,
    given: Option<u16>,
    rows: u64,
    stored: Option<&[u8]>,
) -> Result<Geometry, GeometryError> {
    let drives = match (scheme.drives, given) {
        (Some(said), Some(given)) if said != given => {
            return Err(GeometryError::DrivesDiffer { said, given });
        }
        (Some(drives), _) | (None, Some(drives)) => drives,
        (None, None) => {
            return Err(GeometryError::DriveCountMissing {
                scheme: scheme.to_string(),
                least: drives_min(scheme),
            });
        }
    };
    let spares = scheme.spares.unwrap_or(match scheme.family.is_pool() {
        true => drives.div_ceil(20),
        false => 0,
    });
    let ask = Ask {
        scheme,
        drives,
        spares,
        rows,
        stored,
    };
    match scheme.family {
        Family::Raid0 => ask.striped(false),
        Family::Zigzag => ask.striped(true),
        Family::Raid1 => ask.mirrored(Raid10Form::Near),
        Family::Raid10(form) => ask.mirrored(form),
        Family::Chained => ask.mirrored(Raid10Form::Offset),
        Family::Raid5(form) => ask.islands(|width| Rotated::raid5(form, width)),
        Family::Raid6(form) => ask.islands(|width| Rotated::raid6(form, width)),
        Family::Raid7 => ask.islands(Rotated::raid7),
        Family::Declustered(kind) => ask.declustered(kind),
    }
}

/// The least number of drives that could work, for hints.
fn drives_min(scheme: &Scheme) -> u16 {
    let width = match scheme.family {
        Family::Raid0 | Family::Zigzag => 1,
        Family::Raid1 | Family::Raid10(_) | Family::Chained => scheme.copies.unwrap_or(2),
        family if family.is_pool() => scheme.data.unwrap_or(8).saturating_add(scheme.parity),
        _ => scheme.data.unwrap_or(1).saturating_add(scheme.parity),
    };
    width.saturating_add(scheme.spares.unwrap_or(0))
}

/// A request with its defaults filled in.
pub(crate) struct Ask<'a> {
    pub(crate) scheme: &'a Scheme,
    /// n: seats.
    pub(crate) drives: u16,
    /// s.
    pub(crate) spares: u16,
    /// Cells of a drive.
    pub(crate) rows: u64,
    /// The bytes stored with the pool, for a pool that exists.
    pub(crate) stored: Option<&'a [u8]>,
}

impl Ask<'_> {
    fn answer(&self, data: u16, parity: u16, code: &str, layout: Arc<dyn Layout>) -> Geometry {
        Geometry {
            scheme: self.scheme.clone(),
            drives: self.drives,
            data,
            parity,
            spares: self.spares,
            code: CodeSpec {
                name: code.to_owned(),
                columns: data + parity,
                parity,
            },
            layout,
        }
    }

    /// n − s, or an error if a group of `width` columns does not fit into it.
    fn left(&self, width: u32) -> Result<u16, GeometryError> {
        let (drives, spares) = (self.drives, self.spares);
        let left = drives.saturating_sub(spares);
        if u32::from(left) >= width {
            return Ok(left);
        }
        if u32::from(drives) < width {
            return Err(GeometryError::TooFewDrives {
                drives,
                said: self.scheme.drives.is_some(),
                why: match spares {
                    0 => format!("a group takes {width}"),
                    _ => format!("a group takes {width} and spares {spares}"),
                },
                least: width + u32::from(spares),
            });
        }
        Err(GeometryError::TooManySpares {
            spares,
            drives,
            left,
            width,
            nearest: format!("{}s", u32::from(drives) - width),
        })
    }

    fn striped(&self, zigzag: bool) -> Result<Geometry, GeometryError> {
        let width = self.left(1)?;
        let rotation = Striping::new(width, zigzag);
        let layout = Islands::new(width, 1, self.spares, rotation);
        Ok(self.answer(1, 0, "none", Arc::new(layout)))
    }

    fn mirrored(&self, form: Raid10Form) -> Result<Geometry, GeometryError> {
        let copies = self.scheme.copies.unwrap_or(2);
        if copies < 2 {
            return Err(GeometryError::Impossible {
                field: Field::Copies,
                why: "one copy is no redundancy".to_owned(),
                nearest: "2r".to_owned(),
            });
        }
        if u32::from(copies) > COLUMNS_MAX {
            return Err(GeometryError::TooManyColumns {
                field: Field::Copies,
                columns: copies.into(),
                nearest: format!("{COLUMNS_MAX}r"),
            });
        }
        let left = self.left(copies.into())?;
        let hot = self.spares;
        let layout: Arc<dyn Layout> = match form {
            Raid10Form::Near => Arc::new(Islands::new(left, 1, hot, Near::new(left, copies))),
            Raid10Form::Offset => Arc::new(Islands::new(left, 1, hot, Offset::new(left, copies))),
            Raid10Form::Far => {
                if left.checked_mul(copies).is_none() {
                    return Err(GeometryError::TooManyDrives {
                        drives: self.drives,
                        why: format!("a far group has {left} cells for each of {copies} copies"),
                        nearest: format!("{}c", u16::MAX / copies + hot),
                    });
                }
                if self.rows < copies.into() {
                    return Err(GeometryError::Impossible {
                        field: Field::Rows,
                        why: format!(
                            "{} cells cannot be cut into a part for each of {copies} copies",
                            self.rows
                        ),
                        nearest: format!("drives of at least {copies} cells"),
                    });
                }
                Arc::new(Far::new(left, copies, hot, self.rows))
            }
        };
        self.check_domains(copies.into(), copies - 1)?;
        let geometry = self.answer(1, copies - 1, "mirror", layout);
        self.check_stripes(&geometry)?;
        Ok(geometry)
    }

    fn islands<R: Rotation + 'static>(
        &self,
        rotation: impl Fn(u16) -> R,
    ) -> Result<Geometry, GeometryError> {
        let parity = self.scheme.parity;
        let width = match self.scheme.data {
            Some(data) => u32::from(data) + u32::from(parity),
            None => u32::from(self.left(u32::from(parity) + 1)?),
        };
        if width > COLUMNS_MAX {
            let (field, nearest) = match self.scheme.data {
                Some(_) => (Field::Data, format!("{}d", COLUMNS_MAX - u32::from(parity))),
                None => (
                    Field::Drives,
                    format!("{}c", COLUMNS_MAX + u32::from(self.spares)),
                ),
            };
            return Err(GeometryError::TooManyColumns {
                field,
                columns: width,
                nearest,
            });
        }
        let left = self.fits(width)?;
        let width = crate::classic::small(width.into());
        let rest = left % width;
        if rest != 0 {
            return Err(GeometryError::IslandsUneven {
                drives: self.drives,
                spares: self.spares,
                left,
                width,
                nearest: format!("{}s", self.spares + rest),
            });
        }
        self.check_domains(width.into(), parity)?;
        let layout = Islands::new(width, left / width, self.spares, rotation(width));
        let geometry = self.answer(width - parity, parity, self.code(), Arc::new(layout));
        self.check_stripes(&geometry)?;
        Ok(geometry)
    }

    /// As `left`, but where `d` is given and too wide for the drives, the error names `d`.
    fn fits(&self, width: u32) -> Result<u16, GeometryError> {
        let left = self.drives.saturating_sub(self.spares);
        let parity = self.scheme.parity;
        match self.scheme.data {
            Some(data) if width > left.into() && left > parity => Err(GeometryError::TooWide {
                data,
                parity,
                needed: width,
                drives: self.drives,
                spares: self.spares,
                left,
                nearest: format!("{}d", left - parity),
            }),
            _ => self.left(width),
        }
    }

    fn declustered(&self, kind: &Kind) -> Result<Geometry, GeometryError> {
        let parity = self.scheme.parity;
        let left = self.left(u32::from(parity) + 1)?;
        let data = self.scheme.data.unwrap_or_else(|| (left - parity).min(8));
        let width = u32::from(data) + u32::from(parity);
        if width > COLUMNS_MAX {
            return Err(GeometryError::TooManyColumns {
                field: Field::Data,
                columns: width,
                nearest: format!("{}d", COLUMNS_MAX - u32::from(parity)),
            });
        }
        self.fits(width)?;
        self.check_domains(width, parity)?;
        let shape = Shape {
            drives: self.drives,
            width: crate::classic::small(width.into()),
            parity,
            spares: self.spares,
        };
        let layout = (kind.make)(self, shape)?;
        let geometry = self.answer(data, parity, self.code(), layout);
        self.check_stripes(&geometry)?;
        Ok(geometry)
    }

    /// Checks that a stripe of `width` columns can have at most `parity` columns in each domain.
    fn check_domains(&self, width: u32, parity: u16) -> Result<(), GeometryError> {
        let Some(domains) = self.scheme.domains else {
            return Ok(());
        };
        let least = width.div_ceil(parity.max(1).into());
        if u32::from(domains) < least {
            return Err(GeometryError::Impossible {
                field: Field::Domains,
                why: format!(
                    "{width} columns over {domains} domains put {} into one, and {parity} may be \
                     lost",
                    width.div_ceil(domains.into())
                ),
                nearest: format!("{least}f"),
            });
        }
        Ok(())
    }

    /// Checks a pattern of the layout: no domain holds more units of a stripe than may be lost.
    fn check_stripes(&self, geometry: &Geometry) -> Result<(), GeometryError> {
        let Some(domains) = self.scheme.domains else {
            return Ok(());
        };
        let layout = geometry.layout.as_ref();
        // More slots than any classic rotation's period.
        let slots = 4 * u64::from(geometry.drives) * u64::from(geometry.code.columns);
        let rows = layout.pattern_rows().min(self.rows.max(1));
        let mut held = vec![0; domains.into()];
        for group in 0..layout.groups(rows).max(1).min(layout.groups(self.rows)) {
            let stripes = layout.stripes_per_group(slots);
            for index in 0..stripes.min(slots) {
                held.fill(0_u16);
                for unit in 0..geometry.code.columns {
                    let place = layout.place(group * stripes + index, index, unit);
                    let seat = layout.cell(group, place.column).seat;
                    held[usize::from(seat.0 % domains)] += 1;
                }
                let most = held.iter().copied().max().unwrap_or(0);
                if most > geometry.parity {
                    return Err(GeometryError::Impossible {
                        field: Field::Domains,
                        why: format!(
                            "a stripe of group {group} has {most} columns in one of {domains} \
                             domains, and {} may be lost",
                            geometry.parity
                        ),
                        nearest: format!("pddl{}", geometry.parity.clamp(1, 3)),
                    });
                }
                if geometry.scheme.family.is_declustered() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn code(&self) -> &str {
        match (&self.scheme.code, self.scheme.parity) {
            (Some(code), _) => code,
            (None, 1) => "parity",
            (None, 2) => "pq",
            (None, _) => "pqr",
        }
    }
}
