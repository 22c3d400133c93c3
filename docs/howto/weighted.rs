//! Weighted parity: one parity column that knows its columns' order.
//!
//! ```text
//! D0 D1 D2 D3 P        P = Σ 2^i · D_i over GF(2^8)
//! ```
//!
//! It survives one lost column, as plain parity does, for no coefficient is zero. The coefficients differ for i < 255,
//! so two columns that were swapped are noticed, which a plain sum does not.

use crate::code::{Family, Parameter, data_columns, data_row, parameter};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};
use crate::gf;

pub(super) const FAMILY: Family = Family {
    name: "weighted",
    about: "single parity that notices swapped columns",
    parameter: Parameter::Data,
    in_schemes: false,
    by_parameter: code,
    in_zfs_order: None,
    by_columns: |columns| code(data_columns("weighted", columns, 1)?),
};

fn code(data: u16) -> Result<Code, CodeError> {
    parameter("weighted", data, 1, 255)?;
    let member = |i| (Element::new(0, i), gf::power_of_two(i));
    let parity = Equation {
        parity: Element::new(0, data),
        kind: "P",
        members: (0..data).map(member).collect(),
    };
    Code::proven(
        "weighted",
        data,
        1,
        data + 1,
        data_row(data),
        vec![parity],
        1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_comes_back_on_every_kernel_and_two_are_refused() {
        for data in 1..20 {
            crate::verify(&code(data).unwrap(), 67).unwrap();
        }
    }

    #[test]
    fn swapped_columns_give_another_parity() {
        let code = code(4).unwrap();
        let mut stripe = crate::example(&code, 1);
        let parity = stripe[4].clone();
        stripe.swap(0, 1);
        code.encode().run(crate::kernel::best(), &mut stripe);
        assert_ne!(stripe[4], parity);
    }
}
