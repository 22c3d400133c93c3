//! What must agree when everything is quiet (I5).

use erasure::Code;

use super::run::Violation;
use crate::buffer::{Buffer, Sectors};
use crate::content::{BLOCK, Block, SECTORS};
use crate::world::World;

/// Every parity of every stripe is what the code's equations say, on the drives themselves.
pub(super) fn stripes_agree(world: &World) -> Result<(), Violation> {
    let pool = world.pool();
    let geometry = pool.geometry();
    let code = geometry.code();
    let blocks = geometry.chunk_bytes() / BLOCK as u64;
    let mut stripe_blocks = vec![Block::ZERO; code.elements()];
    for group in pool.facts().allocated_groups() {
        for stripe in 0..geometry.stripes_per_group() {
            for block in 0..blocks {
                for (slot, content) in stripe_blocks.iter_mut().enumerate() {
                    let (column, chunk) = geometry.place(group, stripe, slot);
                    let cell = geometry.layout().cell(group, column);
                    let offset = geometry.drive_offset(cell, chunk) / BLOCK as u64 + block;
                    let Some(drive) = world.drive_at(cell.seat) else {
                        let what = format!("no drive sits in seat {}", cell.seat);
                        return Err(Violation::new("I5", what));
                    };
                    content.clone_from(drive.block(offset));
                }
                if let Some(slot) = disagrees(code, &stripe_blocks) {
                    let what = format!(
                        "group {group} stripe {stripe} block {block}: parity in slot {slot} is not what the data says"
                    );
                    return Err(Violation::new("I5", what));
                }
            }
        }
    }
    Ok(())
}

/// A parity that is not the sum that its equation says.
fn disagrees(code: &Code, blocks: &[Block]) -> Option<usize> {
    let mut sum = vec![0; SECTORS];
    code.equations().iter().find_map(|equation| {
        let slot = code.index(equation.parity);
        sum.fill(0);
        let terms = equation
            .members
            .iter()
            .map(|&(member, by)| (code.index(member), by));
        let known = terms.chain([(slot, 1)]).all(|(slot, by)| {
            let Block::Sectors(values) = blocks[slot] else {
                return false;
            };
            Buffer::Sectors(Sectors::new(values.to_vec())).add_to(0, &mut sum, by)
        });
        // A block of bytes is nothing that a client of the simulator has written, nor a sum of it.
        (!known || sum.iter().any(|&value| value != 0)).then_some(slot)
    })
}
