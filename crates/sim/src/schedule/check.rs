//! Checks that the contents of the drives agree when nothing is in flight (I5).

use std::collections::BTreeMap;

use array::Geometry;
use array::format::{
    BlockName, Column, DataStripe, Entry, Form, GroupId, HeldIn, MetaPage, StripeId,
};
use block::BLOCK_BYTES;
use erasure::Code;
use layout::Cell;
use uuid::Uuid;

use super::run::Violation;
use crate::buffer::add;
use crate::content::{Block, SECTORS};
use crate::world::World;

/// Checks the contents of the drives themselves: every block matches all copies of its checksum, and every parity
/// satisfies the code's equations. A block that was never written counts as zeros, whatever the drive holds there.
pub(super) fn drives_agree(world: &World) -> Result<(), Violation> {
    let pool = world.pool();
    let geometry = pool.geometry();
    for group in pool.facts().allocated_groups() {
        let columns: Vec<Vec<Block>> = { geometry.columns() }
            .map(|column| column_of(world, geometry, pool.facts().uuid, group, column))
            .collect::<Result<_, _>>()
            .map_err(|what| Violation::new("I5", what))?;
        parities_agree(world, geometry, group, &columns)
            .map_err(|what| Violation::new("I5", what))?;
    }
    Ok(())
}

fn block_at(world: &World, cell: Cell, offset: u64) -> Result<&Block, String> {
    let drive = world.drive_at(cell.seat);
    let drive = drive.ok_or_else(|| format!("no drive sits in seat {}", cell.seat))?;
    Ok(drive.block(offset / BLOCK_BYTES))
}

/// True if the block at a byte of a column's cell was ever written, by its metadata entry. The pool must have settled,
/// with every column in its home cell.
pub(super) fn is_written(world: &World, group: GroupId, column: Column, byte: u64) -> bool {
    let pool = world.pool();
    let geometry = pool.geometry();
    let Ok(block) = u32::try_from(byte / BLOCK_BYTES) else {
        return true;
    };
    let name = BlockName {
        group,
        column,
        block,
    };
    entry_at(world, geometry, name).map_or(true, |entry| entry.generation != 0)
}

/// The entry of a block in its column's own page.
fn entry_at(world: &World, geometry: &Geometry, name: BlockName) -> Result<Entry, String> {
    let regions = geometry.regions().ok_or("a pool without pages")?;
    let cell = geometry.home(name.group, name.column);
    let at = geometry.page_offset(regions, cell, name.page().index.into(), 0);
    let copy = block_at(world, cell, at)?.to_bytes();
    let (page, _) = MetaPage::merge(world.pool().facts().uuid, name.page(), &[&copy]);
    Ok(page.get(name.entry()))
}

/// The blocks of a column's cell, checked against its checksums.
fn column_of(
    world: &World,
    geometry: &Geometry,
    pool: Uuid,
    group: GroupId,
    column: Column,
) -> Result<Vec<Block>, String> {
    let columns = geometry.layout().columns();
    let cell = geometry.home(group, column);
    let blocks = geometry.cell_bytes() / BLOCK_BYTES;
    // If the code's rows do not divide the cell, the end of the cell is unused, and its content is not defined.
    let rows = u64::from(geometry.code().rows());
    let chunks = geometry.cell_bytes() / geometry.chunk_bytes() / rows * rows;
    let used = chunks * geometry.chunk_bytes() / BLOCK_BYTES;
    let mut page: Option<(u32, MetaPage)> = None;
    (0..u32::try_from(blocks).expect("cells are small"))
        .map(|block| {
            let content = block_at(world, cell, geometry.block_offset(cell, block.into()))?;
            let Some(regions) = geometry.regions() else {
                return Ok(content.clone());
            };
            let name = BlockName {
                group,
                column,
                block,
            };
            let page_name = name.page();
            if page
                .as_ref()
                .is_none_or(|(index, _)| *index != page_name.index)
            {
                let copies: Vec<Vec<u8>> = (0..geometry.page_copies())
                    .map(|distance| {
                        let holder = (u64::from(column.0) + distance) % u64::from(columns);
                        let holder = u16::try_from(holder).expect("below the number of columns");
                        let cell = geometry.home(group, Column(holder));
                        let index = u64::from(page_name.index);
                        let at = geometry.page_offset(regions, cell, index, distance);
                        block_at(world, cell, at).map(|block| block.to_bytes().to_vec())
                    })
                    .collect::<Result<_, _>>()?;
                let copies: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
                let (merged, how) = MetaPage::merge(pool, page_name, &copies);
                if how.differ || how.lost > 0 {
                    return Err(format!("the copies of {page_name:?} do not agree: {how:?}"));
                }
                page = Some((page_name.index, merged));
            }
            let (_, page) = page.as_ref().expect("just put there");
            let entry = page.get(name.entry());
            if entry.generation == 0 || u64::from(block) >= used {
                return Ok(Block::ZERO);
            }
            if !entry.matches(pool, name, content.crc()) {
                return Err(format!("{name:?} is not what its checksum says: {entry:?}"));
            }
            Ok(content.clone())
        })
        .collect()
}

/// Checks that every parity of every stripe of a group is the sum of its equation.
fn parities_agree(
    world: &World,
    geometry: &Geometry,
    group: GroupId,
    columns: &[Vec<Block>],
) -> Result<(), String> {
    let blocks = geometry.chunk_bytes() / BLOCK_BYTES;
    let index = |value: u64| usize::try_from(value).expect("cells are small");
    let forms = forms_of(world, geometry, group)?;
    for stripe in StripeId::each(StripeId::range(0..geometry.stripes_per_group())) {
        let form = forms.get(&stripe).copied().unwrap_or_default();
        let code = geometry.code_of(form);
        if geometry.is_elastic() {
            let mut others = geometry.blocks_only_of(group, stripe, form.other());
            let written = |name: &BlockName| {
                let at = u64::from(name.block) * BLOCK_BYTES;
                is_written(world, group, name.column, at)
            };
            if let Some(name) = others.find(written) {
                return Err(format!(
                    "{name:?} counts, and stripe {stripe} is in the form of {form:?}"
                ));
            }
        }
        for block in 0..blocks {
            let stripe_blocks: Vec<&Block> = (0..code.elements())
                .map(|slot| {
                    let (column, chunk) = geometry.place(group, stripe, form, slot);
                    &columns[column.index()][index(chunk * blocks + block)]
                })
                .collect();
            if let Some(slot) = disagrees(code, &stripe_blocks) {
                return Err(format!(
                    "group {group} stripe {stripe} block {block}: parity in slot {slot} is not what the data says"
                ));
            }
        }
    }
    Ok(())
}

/// The forms of a group's stripes by the latest entries of its maps on the drives. Stripes without an entry are parity.
fn forms_of(
    world: &World,
    geometry: &Geometry,
    group: GroupId,
) -> Result<BTreeMap<StripeId, Form>, String> {
    let mut forms = BTreeMap::new();
    if !geometry.is_elastic() {
        return Ok(forms);
    }
    for data in DataStripe::each(DataStripe::range(0..geometry.data_stripes())) {
        let mut latest = Entry::UNWRITTEN;
        for column in geometry.columns() {
            let entry = entry_at(world, geometry, geometry.map_name(group, column, data))?;
            if entry != Entry::UNKNOWN && entry.generation > latest.generation {
                latest = entry;
            }
        }
        if latest != Entry::UNWRITTEN {
            let held =
                HeldIn::decode(latest.crc).ok_or("a map entry with a form that there is not")?;
            forms.insert(held.stripe(), held.form);
        }
    }
    Ok(forms)
}

/// The slot of a parity that is not the sum of its equation, if there is one.
fn disagrees(code: &Code, blocks: &[&Block]) -> Option<usize> {
    let mut sum = [0; SECTORS];
    code.equations().iter().find_map(|equation| {
        let slot = code.index(equation.parity);
        sum.fill(0);
        let members = equation.members.iter();
        let terms = members.map(|&(member, by)| (code.index(member), by));
        let known = terms.chain([(slot, 1)]).all(|(slot, by)| {
            let Block::Sectors(values) = blocks[slot] else {
                return false;
            };
            add(&mut sum, values, by);
            true
        });
        // A block of `Bytes` is neither data of a client of the simulator nor a sum of such data.
        (!known || sum != [0; SECTORS]).then_some(slot)
    })
}
