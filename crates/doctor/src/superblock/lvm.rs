//! LVM2: where a physical volume's data begins, and which extents a logical volume has.
//!
//! A label in one of the first four sectors leads to a header with a list of data areas and a list of metadata areas. A
//! metadata area is a ring; its header has the offset of the current text. The text consists of sections of
//! `name = value` and `name { … }`, with sizes in sectors of 512 bytes.

use std::collections::BTreeMap;

use super::{More, array};

const SECTOR_BYTES: u64 = 512;
/// The longest metadata text that is read, in bytes; the default area is 1 MiB.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Sections nest four deep; a text that nests deeper is not LVM's.
const DEPTH_MAX: usize = 16;

/// A physical volume as its own drive describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalVolume {
    /// Its identity, 32 letters without dashes.
    pub(crate) id: String,
    /// Where extents begin, in bytes.
    pub(crate) data_bytes: u64,
    /// The volume group's description; `None` if this drive has no copy of it.
    pub(crate) group: Option<Section>,
}

/// Where a logical volume's first extent lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstSegment {
    /// Identity of the physical volume of its first stripe.
    pub(crate) physical: String,
    /// Byte on that physical volume.
    pub(crate) offset_bytes: u64,
    /// Number of stripes; 1 is linear.
    pub(crate) stripes: u64,
    /// Bytes of a stripe's chunk; 0 for linear.
    pub(crate) stripe_bytes: u64,
}

impl PhysicalVolume {
    pub(crate) fn parse(head: &[u8], more: More<'_>) -> Option<Self> {
        let label = (0..4).map(|sector| sector * 512).find(|&at| {
            head.get(at..at + 8) == Some(b"LABELONE")
                && head.get(at + 24..at + 32) == Some(b"LVM2 001")
        })?;
        let header = label + usize::try_from(u32::from_le_bytes(array(head, label + 20)?)).ok()?;
        let id = String::from_utf8(head.get(header..header.checked_add(32)?)?.to_vec()).ok()?;
        let mut at = header + 40;
        let mut area = || {
            let offset = u64::from_le_bytes(array(head, at)?);
            let length = u64::from_le_bytes(array(head, at + 8)?);
            at += 16;
            Some((offset, length))
        };
        let data_bytes = area()?.0;
        while area()?.0 != 0 {}
        let group = area().and_then(|(offset, length)| current_text(offset, length, more));
        Some(Self {
            id,
            data_bytes,
            group: group.as_deref().and_then(Section::parse),
        })
    }
}

/// The current description in the metadata area of `length` bytes at `offset`.
fn current_text(offset: u64, length: u64, more: More<'_>) -> Option<Vec<u8>> {
    let header = more(offset, 512)?;
    if header.get(4..20)? != b"\x20LVM2\x20x[5A%r0N*>" {
        return None;
    }
    let start = u64::from_le_bytes(array(&header, 40)?);
    let size = u64::from_le_bytes(array(&header, 48)?).min(TEXT_BYTES_MAX);
    // The text may wrap at the end of the area, and then continues behind the header.
    let before_end = size.min(length.checked_sub(start)?);
    let mut text = more(
        offset.checked_add(start)?,
        usize::try_from(before_end).ok()?,
    )?;
    if before_end < size {
        let rest = usize::try_from(size - before_end).ok()?;
        text.extend(more(offset.checked_add(512)?, rest)?);
    }
    Some(text)
}

/// One `name { … }` of the text, or the whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    values: BTreeMap<String, Vec<String>>,
    sections: BTreeMap<String, Self>,
}

impl Section {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let mut tokens = tokens(&text).into_iter();
        Self::body(&mut tokens, 0)
    }

    fn body(tokens: &mut impl Iterator<Item = String>, depth: usize) -> Option<Self> {
        let mut section = Self::default();
        if depth > DEPTH_MAX {
            return None;
        }
        while let Some(name) = tokens.next() {
            if name == "}" {
                return Some(section);
            }
            match tokens.next()?.as_str() {
                "{" => {
                    let inner = Self::body(tokens, depth + 1)?;
                    section.sections.insert(name, inner);
                }
                "=" => {
                    let first = tokens.next()?;
                    let values = if first == "[" {
                        tokens
                            .by_ref()
                            .take_while(|token| token != "]")
                            .filter(|token| token != ",")
                            .collect()
                    } else {
                        vec![first]
                    };
                    section.values.insert(name, values);
                }
                _ => return None,
            }
        }
        Some(section)
    }

    fn section(&self, name: &str) -> Option<&Self> {
        self.sections.get(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.first().map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn id(&self) -> Option<String> {
        Some(self.text("id")?.replace('-', ""))
    }

    /// The first segment of the logical volume whose device-mapper UUID is `LVM-<group id><volume id>`.
    pub(crate) fn first_segment(&self, dm_uuid: &str) -> Option<FirstSegment> {
        let ids = dm_uuid.strip_prefix("LVM-")?;
        let (group_id, rest) = ids.split_at_checked(32)?;
        // Hidden volumes have a suffix such as `-real`: users put no data on them.
        let volume_id = (rest.len() == 32).then_some(rest)?;
        let group = self
            .sections
            .values()
            .find(|group| group.id().as_deref() == Some(group_id))?;
        let volume = group
            .section("logical_volumes")?
            .sections
            .values()
            .find(|volume| volume.id().as_deref() == Some(volume_id))?;
        let segment = volume
            .sections
            .values()
            .find(|segment| segment.number("start_extent") == Some(0))?;
        if segment.text("type") != Some("striped") {
            return None;
        }
        let stripes = segment.values.get("stripes")?;
        let physical = group
            .section("physical_volumes")?
            .section(stripes.first()?)?;
        let extent: u64 = stripes.get(1)?.parse().ok()?;
        let sectors = extent
            .checked_mul(group.number("extent_size")?)?
            .checked_add(physical.number("pe_start")?)?;
        Some(FirstSegment {
            physical: physical.id()?,
            offset_bytes: sectors.checked_mul(SECTOR_BYTES)?,
            stripes: segment.number("stripe_count").unwrap_or(1),
            stripe_bytes: segment
                .number("stripe_size")
                .unwrap_or(0)
                .checked_mul(SECTOR_BYTES)?,
        })
    }
}

/// Names, numbers and punctuation; strings without their quotes; no comments.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\0' => break,
            '#' => while letters.next_if(|&c| c != '\n').is_some() {},
            '"' => {
                let mut string = String::new();
                while let Some(next) = letters.next() {
                    match next {
                        '"' => break,
                        '\\' => string.extend(letters.next()),
                        other => string.push(other),
                    }
                }
                tokens.push(string);
            }
            '{' | '}' | '[' | ']' | '=' | ',' => tokens.push(letter.to_string()),
            c if c.is_whitespace() => {}
            c => {
                let mut word = c.to_string();
                while let Some(next) =
                    letters.next_if(|&c| !c.is_whitespace() && !"{}[]=,\"#\0".contains(c))
                {
                    word.push(next);
                }
                tokens.push(word);
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        tank { # a group
            id = "aaaaaa-bbbb-bbbb-bbbb-bbbb-bbbb-cccccc"
            status = ["RESIZEABLE", "READ", "WRITE"]
            extent_size = 8192
            physical_volumes { pv0 { id = "PPPPPP-QQQQ-QQQQ-QQQQ-QQQQ-QQQQ-RRRRRR" pe_start = 2048 } }
            logical_volumes {
                data {
                    id = "LLLLLL-MMMM-MMMM-MMMM-MMMM-MMMM-NNNNNN"
                    segment1 {
                        start_extent = 0
                        type = "striped"
                        stripe_count = 1
                        stripes = [ "pv0", 3 ]
                    }
                }
            }
        }
    "#;

    #[test]
    fn a_volumes_first_byte_is_its_extent_and_the_start_of_extents() {
        let group = Section::parse(TEXT.as_bytes()).unwrap();
        let uuid = "LVM-aaaaaabbbbbbbbbbbbbbbbbbbbccccccLLLLLLMMMMMMMMMMMMMMMMMMMMNNNNNN";
        let first = group.first_segment(uuid).unwrap();
        assert_eq!(first.offset_bytes, (3 * 8192 + 2048) * 512);
        assert_eq!(first.physical, "PPPPPPQQQQQQQQQQQQQQQQQQQQRRRRRR");
        assert_eq!((first.stripes, first.stripe_bytes), (1, 0));
        assert_eq!(group.first_segment(&format!("{uuid}-real")), None);
    }

    #[test]
    fn a_text_that_nests_without_end_is_refused() {
        let deep = "a {".repeat(10_000);
        assert_eq!(Section::parse(deep.as_bytes()), None);
    }
}
