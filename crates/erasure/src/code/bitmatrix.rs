//! Codes given by bit matrices: Liberation, Blaum-Roth, Cauchy Reed-Solomon.
//!
//! A column is a word of w bits whose bits are whole elements, and multiplying it by X_j is w sums:
//!
//! ```text
//!   D_0 … D_{k−1}  P  Q        P = Σ D_j         element by element
//!                              Q = Σ X_j · D_j   Q[r] = Σ_j Σ_{b in X_j[r]} D_j[b]
//! ```
//!
//! Two lost data columns are decodable if X_i + X_j is invertible for every pair; a lost data
//! column with P is decodable if X_j is invertible. Fewer ones in the matrices mean fewer
//! additions: an invertible w × w matrix has at least w ones, and pairwise invertible sums force
//! one more in all matrices but one. Liberation (any prime w) and the 1999 Blaum-Roth codes (w + 1
//! prime) reach it.
//!
//! * J. Plank, "The RAID-6 Liberation Codes", FAST 2008.
//! * M. Blaum, R. Roth, "On Lowest Density MDS Codes", IEEE Trans. Information Theory 45(1), 1999
//!   (`blaumroth`, the matrices that Jerasure has too).
//! * M. Blaum, R. Roth, "New Array Codes for Multiple Phased Burst Correction", IEEE Trans.
//!   Information Theory 39(1), 1993 (`blaumroth-ring`: X_j multiplies by x^j modulo
//!   1 + x + … + x^{p−1}; one column more, denser).
//! * J. Blömer et al., "An XOR-Based Erasure-Resilient Coding Scheme", ICSI TR-95-048, 1995, with
//!   the matrix improved as in J. Plank, L. Xu, "Optimizing Cauchy Reed-Solomon Codes", NCA 2006.

use crate::code::{
    Family, Parameter, block, data_columns, parameter, parity_rows, prime, prime_from,
};
use crate::element::Element;
use crate::equations::{Code, CodeError, Equation};

pub(super) const LIBERATION: Family = Family {
    name: "liberation",
    about: "Liberation: bit matrices of minimum density, prime words",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: |p| liberation(p, p),
    in_zfs_order: None,
    by_columns: |columns| {
        let k = data_columns("liberation", columns, 2)?;
        liberation(prime_from(k), k)
    },
};

pub(super) const BLAUMROTH: Family = Family {
    name: "blaumroth",
    about: "Blaum-Roth: minimum density, words of a prime less one",
    parameter: Parameter::Prime,
    in_schemes: true,
    by_parameter: |p| blaum_roth(p, p.saturating_sub(1)),
    in_zfs_order: None,
    by_columns: |columns| {
        let k = data_columns("blaumroth", columns, 2)?;
        blaum_roth(prime_from(k + 1), k)
    },
};

pub(super) const BLAUMROTH_RING: Family = Family {
    name: "blaumroth-ring",
    about: "Blaum-Roth in its ring form",
    parameter: Parameter::Prime,
    in_schemes: false,
    by_parameter: |p| blaum_roth_ring(p, p),
    in_zfs_order: None,
    by_columns: |columns| {
        let k = data_columns("blaumroth-ring", columns, 2)?;
        blaum_roth_ring(prime_from(k), k)
    },
};

pub(super) const CAUCHY: Family = Family {
    name: "cauchy",
    about: "Cauchy Reed-Solomon as bit matrices",
    parameter: Parameter::Data,
    in_schemes: true,
    by_parameter: cauchy,
    in_zfs_order: None,
    by_columns: |columns| cauchy(data_columns("cauchy", columns, 2)?),
};

/// The code of `k` matrices over words of `w` bits: `ones(j, r)` lists X_j[r].
fn code(
    name: &str,
    parameter: u16,
    w: u16,
    k: u16,
    ones: impl Fn(u16, u16) -> Vec<u16>,
) -> Result<Code, CodeError> {
    let mut equations = parity_rows(w, k, "P");
    for r in 0..w {
        let members = (0..k).flat_map(|j| ones(j, r).into_iter().map(move |b| Element::new(b, j)));
        equations.push(Equation::xor(Element::new(r, k + 1), "Q", members));
    }
    Code::proven(name, parameter, w, k + 2, block(w, k), equations, 2)
}

/// w = p; `k <= p` data columns. X_j is the cyclic shift by j, and for j > 0 one bit more.
fn liberation(p: u16, k: u16) -> Result<Code, CodeError> {
    prime("liberation", p, 3)?;
    code("liberation", p, p, k, |j, r| {
        let mut row = vec![(r + j) % p];
        let extra = wide(j, (p - 1) / 2) % u32::from(p);
        if j > 0 && u32::from(r) == extra {
            row.push((r + j - 1) % p);
        }
        row
    })
}

/// w = p − 1; `k <= p - 1` data columns. The lowest-density form of 1999.
fn blaum_roth(p: u16, k: u16) -> Result<Code, CodeError> {
    prime("blaumroth", p, 3)?;
    code("blaumroth", p, p - 1, k, |j, r| {
        // The paper counts rows and columns from 1.
        let l = r + 1;
        if j == 0 {
            return vec![r];
        }
        if l != p - j {
            return vec![(l + j) % p - 1];
        }
        let m = if j.is_multiple_of(2) {
            j / 2
        } else {
            (p - 1) / 2 + 1 + (j - 1) / 2
        };
        vec![j - 1, m - 1]
    })
}

/// w = p − 1; `k <= p` data columns. Multiplication by x^j in GF(2)[x]/(1 + x + … + x^{p−1}).
fn blaum_roth_ring(p: u16, k: u16) -> Result<Code, CodeError> {
    prime("blaumroth-ring", p, 3)?;
    code("blaumroth-ring", p, p - 1, k, |j, r| {
        // x^b · x^j is x^(b+j), and x^(p−1) has all powers below.
        let holds = |&b: &u16| matches!((b + j) % p, t if t == r || t == p - 1);
        (0..p - 1).filter(holds).collect()
    })
}

/// Irreducible polynomials of GF(2^w), w = 2 … 8, with their leading bit; those of Jerasure.
const POLYNOMIALS: [u32; 7] = [0o7, 0o13, 0o23, 0o45, 0o103, 0o211, 0o435];

/// `k` data columns, w the least for k + 2 ≤ 2^w.
fn cauchy(k: u16) -> Result<Code, CodeError> {
    parameter("cauchy", k, 1, 254)?;
    let w = (2..=8).find(|w| k + 2 <= 1 << w).expect("k <= 254");
    let field = Field {
        w,
        polynomial: POLYNOMIALS[usize::from(w) - 2],
    };
    let row = cauchy_row(field, k);
    code("cauchy", k, w, k, |j, r| {
        let element = row[usize::from(j)];
        let bit = |b: u16| field.multiply(element, 1 << b) >> r & 1;
        (0..w).filter(|&b| bit(b) == 1).collect()
    })
}

/// The matrix's second row; the first is all ones after dividing each column by its entry there.
fn cauchy_row(field: Field, k: u16) -> Vec<u32> {
    // m[i][j] = 1/(i ^ (2 + j)), so m[1][j]/m[0][j] = (2 + j)/(1 ^ (2 + j)).
    let y = (0..u32::from(k)).map(|j| j + 2);
    let row: Vec<u32> = y.map(|y| field.divide(y, y ^ 1)).collect();
    let total = |row: &[u32]| row.iter().map(|&e| field.ones(e)).sum::<u32>();
    let mut best = row.clone();
    for &by in &row {
        let scaled: Vec<u32> = row.iter().map(|&e| field.divide(e, by)).collect();
        if total(&scaled) < total(&best) {
            best = scaled;
        }
    }
    best
}

/// GF(2^w), small enough to search.
#[derive(Clone, Copy)]
struct Field {
    w: u16,
    polynomial: u32,
}

impl Field {
    fn multiply(self, a: u32, b: u32) -> u32 {
        let mut product = 0;
        for bit in (0..self.w).rev() {
            product <<= 1;
            if product >> self.w & 1 == 1 {
                product ^= self.polynomial;
            }
            if b >> bit & 1 == 1 {
                product ^= a;
            }
        }
        product
    }

    fn divide(self, a: u32, b: u32) -> u32 {
        let quotient = (0..1 << self.w).find(|&q| self.multiply(q, b) == a);
        quotient.expect("divisors are not zero")
    }

    /// Ones in the bit matrix of `e`, whose column x is e · 2^x.
    fn ones(self, e: u32) -> u32 {
        (0..self.w)
            .map(|x| self.multiply(e, 1 << x).count_ones())
            .sum()
    }
}

fn wide(a: u16, b: u16) -> u32 {
    u32::from(a) * u32::from(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liberation_matrices_have_the_fewest_ones_possible() {
        for p in [3, 5, 7, 11, 13] {
            let code = liberation(p, p).expect("prime");
            let q = code.equations().iter().filter(|e| e.kind == "Q");
            let ones: usize = q.map(|e| e.members.len()).sum();
            let p = usize::from(p);
            assert_eq!(ones, p * p + p - 1, "kw + k - 1");
        }
    }

    #[test]
    fn the_cauchy_row_for_five_columns_is_the_published_one() {
        let field = Field {
            w: 3,
            polynomial: 0o13,
        };
        assert_eq!(cauchy_row(field, 5), [2, 7, 5, 1, 4]);
    }
}
