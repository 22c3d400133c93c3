//! A code, checked once: its equations, and the generator matrix that they expand to.

use crate::decode::Unrecoverable;
use crate::element::{Element, ElementSet};
use crate::encode;
use crate::gf;
use crate::recovery::ColumnRecovery;
use crate::schedule::Schedule;
use std::borrow::Cow;
use std::sync::OnceLock;

/// `parity = Σ coefficient · member` over GF(2^8), polynomial 0x11d.
///
/// Members may be parities of earlier equations (RDP's diagonals contain row parities).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    /// The element that the equation defines.
    pub parity: Element,
    /// The literature's name of this parity: "horizontal", "diagonal", "P", …
    pub kind: &'static str,
    /// The elements of the sum, with nonzero coefficients.
    pub members: Vec<(Element, u8)>,
}

impl Equation {
    /// An equation whose coefficients are all 1, members in row-major order.
    pub(crate) fn xor(
        parity: Element,
        kind: &'static str,
        members: impl IntoIterator<Item = Element>,
    ) -> Self {
        let mut members: Vec<_> = members.into_iter().map(|member| (member, 1)).collect();
        members.sort_unstable();
        Self {
            parity,
            kind,
            members,
        }
    }
}

/// Why a code cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// No code has this name.
    #[error("there is no code named '{name}'")]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The construction needs a prime.
    #[error(
        "{name} needs a prime, and {parameter} = {factor} × {}: over a composite number some pairs of lost columns cannot be decoded",
        parameter / factor
    )]
    NotPrime {
        /// The code's name.
        name: String,
        /// The composite number.
        parameter: u16,
        /// Its smallest factor.
        factor: u16,
    },
    /// The parameter is below the minimum.
    #[error("{name} does not exist for {parameter}: the least is {least}")]
    TooSmall {
        /// The code's name.
        name: String,
        /// The requested parameter.
        parameter: u16,
        /// The least parameter.
        least: u16,
    },
    /// A vertical code does not exist in this width.
    #[error("{name} has no stripe of {columns} columns, because its width follows from a prime")]
    NoSuchWidth {
        /// The code's name.
        name: String,
        /// The requested width.
        columns: u16,
        /// The nearest narrower width, if there is one.
        below: Option<u16>,
        /// The nearest wider width.
        above: u16,
    },
    /// Fewer columns than the parities and one data column.
    #[error("{name} needs at least {least} columns, and {columns} were asked for")]
    TooNarrow {
        /// The code's name.
        name: String,
        /// The requested width.
        columns: u16,
        /// The least width.
        least: u16,
    },
    /// Larger than the code, or this crate, supports.
    #[error("{name} reaches up to {most}, and {asked} was asked for")]
    TooLarge {
        /// The code's name.
        name: String,
        /// The requested value, in the unit of the call (columns or parameter).
        asked: u16,
        /// The largest possible.
        most: u16,
    },
    /// The code has only one order of coefficients.
    #[error(
        "{name} has no ZFS order of coefficients: only {} have two",
        crate::code::with_two_orders()
    )]
    NoOrder {
        /// The code's name.
        name: String,
    },
    /// The equations given do not make a code.
    #[error("these equations are no code: {what}")]
    Malformed {
        /// What is wrong with them.
        what: String,
    },
}

impl CodeError {
    /// One thing to try, in small letters and without a full stop.
    pub fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::Unknown { .. } => format!("the codes are {}", crate::code::NAMES.join(", ")),
            Self::NotPrime { parameter, .. } => crate::code::nearest_primes(*parameter),
            Self::TooSmall { name, least, .. } => format!("{name}:{least}"),
            Self::NoSuchWidth { below, above, .. } => match below {
                Some(below) => format!("{below} or {above} columns"),
                None => format!("{above} columns"),
            },
            Self::TooNarrow { least, .. } => least.to_string(),
            Self::TooLarge { most, .. } => format!("{most} or less"),
            Self::NoOrder { .. } => return Some("leave the word out".into()),
            Self::Malformed { .. } => return Some("check them against the stripe's shape".into()),
        };
        Some(hint.into())
    }
}

/// A code: its stripe's shape, its equations, and what is derived from them. Immutable.
///
/// Elements are numbered by *slot*, `row * columns + column`. Every slot holds data or a parity.
#[derive(Debug)]
pub struct Code {
    name: String,
    parameter: u16,
    rows: u16,
    columns: u16,
    data: Vec<Element>,
    equations: Vec<Equation>,
    tolerance: u16,
    /// Per slot: its number in data order, or its equation's number.
    role: Vec<Role>,
    /// Expanded: `generator[equation * data + i]` is the coefficient of data element `i`.
    generator: Vec<u8>,
    /// Expanded, per slot; empty for parities.
    parities_of: Vec<Vec<usize>>,
    /// Each equation as a sum that is zero: its parity with coefficient 1, then its members.
    checks: Vec<Vec<(u16, u8)>>,
    /// Per slot, the checks that contain it.
    checks_of: Vec<Vec<u16>>,
    encode: OnceLock<Schedule>,
    /// Per column, computed on first use.
    pub(crate) columns_recovery: Vec<OnceLock<Result<ColumnRecovery, Unrecoverable>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Data(usize),
    Parity(usize),
}

/// Slots and temporaries are numbered by 16 bits; this leaves half of them for temporaries.
pub(crate) const ELEMENTS_MAX: usize = 1 << 15;

impl Code {
    /// A code from its equations, in evaluation order; `data` is the logical order.
    ///
    /// The number of columns that the code survives is found by trying all sets of columns, which
    /// takes seconds for stripes of thousands of elements.
    ///
    /// # Errors
    ///
    /// [`CodeError::Malformed`] when an element is outside of the stripe, defined twice or not at
    /// all, or when an equation is empty or has a parity that is not evaluated yet, a member twice,
    /// or a coefficient 0.
    pub fn new(
        name: &str,
        parameter: u16,
        rows: u16,
        columns: u16,
        data: Vec<Element>,
        equations: Vec<Equation>,
    ) -> Result<Self, CodeError> {
        let mut code = Self::proven(name, parameter, rows, columns, data, equations, 0)?;
        code.tolerance = code.measure_tolerance();
        Ok(code)
    }

    /// A code whose tolerance is a theorem of its construction (the tests check it too).
    pub(crate) fn proven(
        name: &str,
        parameter: u16,
        rows: u16,
        columns: u16,
        data: Vec<Element>,
        equations: Vec<Equation>,
        tolerance: u16,
    ) -> Result<Self, CodeError> {
        let elements = usize::from(rows) * usize::from(columns);
        let malformed = |what: String| Err(CodeError::Malformed { what });
        if elements == 0 || elements > ELEMENTS_MAX {
            return malformed(format!("{rows} rows of {columns} columns"));
        }
        let index = |e: Element| usize::from(e.row) * usize::from(columns) + usize::from(e.column);
        let inside = |e: Element| e.row < rows && e.column < columns;

        let mut role: Vec<Option<Role>> = vec![None; elements];
        for (i, &e) in data.iter().enumerate() {
            if !inside(e) {
                return malformed(format!("data element {e} is outside of the stripe"));
            }
            if role[index(e)].replace(Role::Data(i)).is_some() {
                return malformed(format!("element {e} is listed twice"));
            }
        }
        let width = data.len();
        let mut generator = vec![0; equations.len() * width];
        let mut checks = Vec::with_capacity(equations.len());
        for (i, equation) in equations.iter().enumerate() {
            let parity = equation.parity;
            if !inside(parity) {
                return malformed(format!("parity {parity} is outside of the stripe"));
            }
            let mut check = vec![(slot(index(parity)), 1)];
            for &(member, coefficient) in &equation.members {
                if !inside(member) || coefficient == 0 {
                    return malformed(format!("member {member} of parity {parity} is nothing"));
                }
                if check.iter().any(|&(s, _)| usize::from(s) == index(member)) {
                    return malformed(format!("member {member} of parity {parity} is there twice"));
                }
                match role[index(member)] {
                    Some(Role::Data(d)) => generator[i * width + d] ^= coefficient,
                    Some(Role::Parity(q)) => {
                        let (before, here) = generator.split_at_mut(i * width);
                        let other = &before[q * width..(q + 1) * width];
                        for (g, &o) in here.iter_mut().zip(other) {
                            *g ^= gf::multiply(coefficient, o);
                        }
                    }
                    None => {
                        return malformed(format!(
                            "member {member} of parity {parity} is not yet evaluated"
                        ));
                    }
                }
                check.push((slot(index(member)), coefficient));
            }
            if generator[i * width..(i + 1) * width]
                .iter()
                .all(|&g| g == 0)
            {
                return malformed(format!("parity {parity} is always zero"));
            }
            if role[index(parity)].replace(Role::Parity(i)).is_some() {
                return malformed(format!("element {parity} is listed twice"));
            }
            checks.push(check);
        }
        let Some(role) = role.into_iter().collect::<Option<Vec<_>>>() else {
            return malformed("some elements are neither data nor parity".to_owned());
        };

        let mut parities_of = vec![Vec::new(); elements];
        for (i, equation) in equations.iter().enumerate() {
            for (d, &e) in data.iter().enumerate() {
                if generator[i * width + d] != 0 {
                    parities_of[index(e)].push(index(equation.parity));
                }
            }
        }
        let mut checks_of = vec![Vec::new(); elements];
        for (i, check) in checks.iter().enumerate() {
            for &(s, _) in check {
                checks_of[usize::from(s)].push(slot(i));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            parameter,
            rows,
            columns,
            data,
            equations,
            tolerance,
            role,
            generator,
            parities_of,
            checks,
            checks_of,
            encode: OnceLock::new(),
            columns_recovery: (0..columns).map(|_| OnceLock::new()).collect(),
        })
    }

    /// The name of the code in [`by_parameter`](crate::by_parameter).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The prime of an array code, the number of data columns of the others.
    pub fn parameter(&self) -> u16 {
        self.parameter
    }

    /// Rows of elements in a stripe.
    pub fn rows(&self) -> u16 {
        self.rows
    }

    /// Columns of a stripe.
    pub fn columns(&self) -> u16 {
        self.columns
    }

    /// Elements of a stripe, `rows * columns`.
    pub fn elements(&self) -> usize {
        self.role.len()
    }

    /// The slot of an element, `row * columns + column`.
    pub fn index(&self, element: Element) -> usize {
        usize::from(element.row) * usize::from(self.columns) + usize::from(element.column)
    }

    /// The element in a slot.
    pub fn element(&self, slot: usize) -> Element {
        let columns = usize::from(self.columns);
        Element::new(self::slot(slot / columns), self::slot(slot % columns))
    }

    /// The data elements, in logical order.
    pub fn data(&self) -> &[Element] {
        &self.data
    }

    /// The slots of the data elements, in logical order.
    pub fn data_slots(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.data.iter().map(|&e| self.index(e))
    }

    /// The slots of the parities, in evaluation order.
    pub fn parity_slots(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.equations.iter().map(|e| self.index(e.parity))
    }

    /// Whether the slot holds data.
    pub fn is_data(&self, slot: usize) -> bool {
        matches!(self.role[slot], Role::Data(_))
    }

    /// The equations, in evaluation order.
    pub fn equations(&self) -> &[Equation] {
        &self.equations
    }

    /// The number of columns that may be lost, whichever columns they are.
    pub fn tolerance(&self) -> u16 {
        self.tolerance
    }

    /// The slots of one column, from the top.
    pub fn column(&self, column: u16) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows).map(move |row| self.index(Element::new(row, column)))
    }

    /// The slots of several columns.
    pub fn columns_set(&self, columns: &[u16]) -> ElementSet {
        columns.iter().flat_map(|&c| self.column(c)).collect()
    }

    /// All slots but those of `columns`.
    pub fn without_columns(&self, columns: &[u16]) -> ElementSet {
        ElementSet::full(self.elements()).difference(&self.columns_set(columns))
    }

    /// The coefficient of a data element in a parity, with parities expanded to data. 0 when the
    /// parity does not depend on the data element, or the slots are not a parity and a data
    /// element.
    pub fn coefficient(&self, parity_slot: usize, data_slot: usize) -> u8 {
        match (self.role[parity_slot], self.role[data_slot]) {
            (Role::Parity(equation), Role::Data(d)) => {
                self.generator[equation * self.data.len() + d]
            }
            _ => 0,
        }
    }

    /// The parity slots that change when the data element changes, in evaluation order.
    pub fn parities_of(&self, data_slot: usize) -> &[usize] {
        &self.parities_of[data_slot]
    }

    /// Computes all parity slots from the data slots; shared sums are computed once.
    pub fn encode(&self) -> &Schedule {
        self.encode.get_or_init(|| encode::encode(self))
    }

    /// Whether every coefficient is 1.
    pub fn is_xor(&self) -> bool {
        let ones = |e: &Equation| e.members.iter().all(|&(_, c)| c == 1);
        self.equations.iter().all(ones)
    }

    /// Each equation as a sum that is zero: `(slot, coefficient)`, the parity first.
    pub(crate) fn checks(&self) -> &[Vec<(u16, u8)>] {
        &self.checks
    }

    /// The checks that contain a slot.
    pub(crate) fn checks_of(&self, slot: usize) -> &[u16] {
        &self.checks_of[slot]
    }

    /// The largest t such that any t columns can be lost.
    pub(crate) fn measure_tolerance(&self) -> u16 {
        let mut tolerance = 0;
        while tolerance < self.columns && self.all_recoverable(tolerance + 1) {
            tolerance += 1;
        }
        tolerance
    }

    fn all_recoverable(&self, count: u16) -> bool {
        // There cannot be more unknowns than equations.
        if usize::from(count) * usize::from(self.rows) > self.equations.len() {
            return false;
        }
        let mut chosen: Vec<u16> = (0..count).collect();
        loop {
            if !self.is_recoverable(&self.columns_set(&chosen)) {
                return false;
            }
            if !next_combination(&mut chosen, self.columns) {
                return true;
            }
        }
    }
}

/// Slots fit 16 bits: the constructors check this.
pub(crate) fn slot(index: usize) -> u16 {
    u16::try_from(index).expect("a stripe has fewer slots than 2^16")
}

/// The next combination of `chosen.len()` of the numbers `0..n`, in lexicographic order.
pub(crate) fn next_combination(chosen: &mut [u16], n: u16) -> bool {
    let k = chosen.len();
    for i in (0..k).rev() {
        if chosen[i] < n - slot(k - i) {
            chosen[i] += 1;
            for j in i + 1..k {
                chosen[j] = chosen[j - 1] + 1;
            }
            return true;
        }
    }
    false
}
