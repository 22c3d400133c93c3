//! From text to [`Scheme`].

use std::ops::Range;
use std::str::FromStr;

use super::error::nearest;
use super::foreign::{meant_by, near};
use super::{Expansion, Family, Raid5Form, Raid6Form, Raid10Form, Scheme, SchemeError, code_words};
use crate::declustered::{Domains, KINDS, Kind, Parity};

/// Classic levels, by their names alone.
const CLASSIC: [&str; 9] = [
    "raid0", "raid1", "raid10", "chained", "zigzag", "raid4", "raid5", "raid6", "raid7",
];

/// Names that a scheme may begin with.
pub fn names() -> impl Iterator<Item = &'static str> {
    let declustered = KINDS.iter().flat_map(|kind| kind.offered.iter().copied());
    { CLASSIC.into_iter() }
        .chain(declustered)
        .chain(["elastic5", "elastic6"])
}

/// "names are raid0, raid1 … and crush", digits left out.
fn known() -> String {
    let mut names: Vec<&str> = CLASSIC.into_iter().collect();
    names.extend(KINDS.iter().map(|kind| kind.name));
    let last = names.pop().unwrap_or_default();
    format!("names are {} and {last}", names.join(", "))
}

/// One part between colons.
struct Part<'a> {
    text: &'a str,
    lower: String,
    span: Range<usize>,
}

impl Part<'_> {
    fn owned(&self) -> String {
        self.text.to_owned()
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let mut parts = split(text);
        if parts.len() == 1 && parts[0].text.is_empty() {
            return Err(SchemeError::Empty);
        }
        let name = parts.remove(0);
        let (mut scheme, parity_said) = parse_name(&name)?;
        let mut parser = Parser {
            name: name.lower.clone(),
            parity_said: parity_said.then(|| name.owned()),
            form_said: None,
            code_said: None,
            elastic_said: None,
            fields_said: Vec::new(),
        };
        for part in &parts {
            if part.text.starts_with(|first: char| first.is_ascii_digit()) {
                parser.field(&mut scheme, part)?;
            } else {
                parser.word(&mut scheme, part)?;
            }
        }
        if parser.parity_said.is_none() {
            scheme.parity = match scheme.family {
                Family::Declustered(Kind {
                    parity: Parity::DigitOr(parity) | Parity::FieldOr(parity),
                    ..
                }) => *parity,
                family => {
                    return Err(SchemeError::ParityMissing {
                        name: family.name(),
                        span: name.span,
                    });
                }
            };
        }
        parser.finish(&mut scheme)?;
        Ok(scheme)
    }
}

fn split(text: &str) -> Vec<Part<'_>> {
    let mut at = 0;
    text.split(':')
        .map(|part| {
            let span = at..at + part.len();
            at += part.len() + 1;
            Part {
                text: part,
                lower: part.to_ascii_lowercase(),
                span,
            }
        })
        .collect()
}

/// The scheme of a bare name, and whether the name determines the parity.
fn parse_name(part: &Part<'_>) -> Result<(Scheme, bool), SchemeError> {
    let lower = part.lower.as_str();
    let elastic = |family, parity| {
        let mut scheme = Scheme::of(family, parity);
        scheme.elastic = true;
        (scheme, true)
    };
    let plain = |family, parity| (Scheme::of(family, parity), true);
    Ok(match lower {
        "raid0" => plain(Family::Raid0, 0),
        "raid1" | "mirror" => plain(Family::Raid1, 0),
        "raid10" => plain(Family::Raid10(Raid10Form::Near), 0),
        "chained" => plain(Family::Chained, 0),
        "zigzag" => plain(Family::Zigzag, 0),
        "raid4" => plain(Family::Raid5(Raid5Form::Pn), 1),
        "raid5" => plain(Family::Raid5(Raid5Form::Ls), 1),
        "raid6" => plain(Family::Raid6(Raid6Form::Ls), 2),
        "raid7" => plain(Family::Raid7, 3),
        "elastic5" => elastic(Family::Raid5(Raid5Form::Ls), 1),
        "elastic6" => elastic(Family::Raid6(Raid6Form::Ls), 2),
        _ => {
            let stem = lower.trim_end_matches(|last: char| last.is_ascii_digit());
            let digits = &lower[stem.len()..];
            let Some(kind) = Kind::by_name(stem) else {
                let near = || near(lower, names()).map(str::to_owned);
                return Err(SchemeError::UnknownName {
                    name: part.owned(),
                    known: known(),
                    nearest: meant_by(lower, None).or_else(near),
                    span: part.span.clone(),
                });
            };
            let family = Family::Declustered(kind);
            if digits.is_empty() {
                (Scheme::of(family, 0), false)
            } else {
                let parity: u32 = digits.parse().unwrap_or(u32::MAX);
                match parity {
                    1 => plain(family, 1),
                    2 => plain(family, 2),
                    3 => plain(family, 3),
                    _ => {
                        return Err(SchemeError::Parity {
                            name: family.name(),
                            parity,
                            nearest: format!("{}{}", family.name(), parity.clamp(1, 3)),
                            span: part.span.clone(),
                        });
                    }
                }
            }
        }
    })
}

struct Parser {
    name: String,
    parity_said: Option<String>,
    form_said: Option<String>,
    code_said: Option<(String, Range<usize>)>,
    elastic_said: Option<(String, Range<usize>)>,
    fields_said: Vec<(char, String)>,
}

impl Parser {
    fn word(&mut self, scheme: &mut Scheme, part: &Part<'_>) -> Result<(), SchemeError> {
        let lower = part.lower.as_str();
        let form = match scheme.family {
            Family::Raid10(_) => Raid10Form::ALL
                .into_iter()
                .find(|form| form.word() == lower)
                .map(Family::Raid10),
            Family::Raid5(_) => Raid5Form::ALL
                .into_iter()
                .find(|form| form.word() == lower || form.long() == lower)
                .map(Family::Raid5),
            Family::Raid6(_) => Raid6Form::ALL
                .into_iter()
                .find(|form| form.word() == lower || form.long() == lower)
                .map(Family::Raid6),
            Family::Raid0
            | Family::Raid1
            | Family::Chained
            | Family::Zigzag
            | Family::Raid7
            | Family::Declustered(_) => None,
        };
        if let Some(family) = form {
            if let Some(first) = self.form_said.replace(part.owned()) {
                return Err(twice(part, first));
            }
            scheme.family = family;
            return Ok(());
        }
        if takes_code(scheme.family) && code_words().any(|word| word == lower) {
            if let Some((first, _)) = self.code_said.replace((part.owned(), part.span.clone())) {
                return Err(twice(part, first));
            }
            scheme.code = (lower != "pq").then(|| lower.to_owned());
            return Ok(());
        }
        if lower == "elastic" {
            if let Some((why, nearest)) = not_elastic(scheme.family) {
                return Err(SchemeError::Misplaced {
                    field: part.owned(),
                    name: self.name.clone(),
                    why: why.to_owned(),
                    nearest: nearest.to_owned(),
                    span: part.span.clone(),
                });
            }
            scheme.elastic = true;
            self.elastic_said = Some((part.owned(), part.span.clone()));
            return Ok(());
        }
        // `1d` and `d1` are easily swapped: report this instead of searching the words.
        let swapped = lower.split_at_checked(1).filter(|(letter, digits)| {
            "dpcsfrx".contains(letter) && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        if let Some((letter, digits)) = swapped
            && !digits.is_empty()
        {
            return Err(SchemeError::BadField {
                field: part.owned(),
                letters: letters_of(scheme.family),
                nearest: format!("{digits}{letter}"),
                span: part.span.clone(),
            });
        }
        let words = words_of(scheme.family);
        Err(SchemeError::UnknownWord {
            word: part.owned(),
            name: self.name.clone(),
            nearest: if words.is_empty() {
                format!("`{}` alone", self.name).replace('`', "")
            } else {
                nearest(lower, words.iter().copied()).to_owned()
            },
            known: if words.is_empty() {
                "no words".to_owned()
            } else {
                words.join(", ")
            },
            span: part.span.clone(),
        })
    }

    fn field(&mut self, scheme: &mut Scheme, part: &Part<'_>) -> Result<(), SchemeError> {
        let digits_end = part
            .lower
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(part.lower.len());
        let (number, letter) = part.lower.split_at(digits_end);
        let bad = |nearest: String| SchemeError::BadField {
            field: part.owned(),
            letters: letters_of(scheme.family),
            nearest,
            span: part.span.clone(),
        };
        let mut chars = letter.chars();
        let letter = match (chars.next(), chars.next()) {
            (Some(letter), None) if "dpcsfrx".contains(letter) => letter,
            _ => return Err(bad(format!("{}c", number.split('.').next().unwrap_or("1")))),
        };
        if letter != 'x' && number.contains('.') {
            let whole = number.split('.').next().unwrap_or("1");
            return Err(bad(format!("{whole}{letter}")));
        }
        self.check_letter(scheme, part, letter)?;
        if let Some((_, first)) = self.fields_said.iter().find(|(said, _)| *said == letter) {
            return Err(twice(part, first.clone()));
        }
        self.fields_said.push((letter, part.owned()));
        if letter == 'x' {
            let expansion = parse_expansion(number).map_err(|nearest| SchemeError::Range {
                field: part.owned(),
                letter,
                range: "1 to 16 with up to three decimals",
                nearest: nearest.to_owned(),
                span: part.span.clone(),
            })?;
            scheme.elastic = true;
            scheme.expansion = Some(expansion);
            self.elastic_said = Some((part.owned(), part.span.clone()));
            return Ok(());
        }
        let out_of_range = |range, nearest: u16| SchemeError::Range {
            field: part.owned(),
            letter,
            range,
            nearest: format!("{nearest}{letter}"),
            span: part.span.clone(),
        };
        let value: u16 = number
            .parse()
            .map_err(|_| out_of_range("at most 65535 (seats have 16 bits)", u16::MAX))?;
        if value == 0 && letter != 's' {
            return Err(out_of_range("1 or more", 1));
        }
        match letter {
            'd' => scheme.data = Some(value),
            'c' => scheme.drives = Some(value),
            's' => scheme.spares = Some(value),
            'f' => scheme.domains = Some(value),
            'r' => scheme.copies = Some(value),
            _ => {
                if value > 3 {
                    return Err(SchemeError::Parity {
                        name: scheme.family.name(),
                        parity: value.into(),
                        nearest: "3p".to_owned(),
                        span: part.span.clone(),
                    });
                }
                scheme.parity = value;
                self.parity_said = Some(part.owned());
            }
        }
        Ok(())
    }

    /// Checks that the family has the field `letter`.
    fn check_letter(
        &self,
        scheme: &Scheme,
        part: &Part<'_>,
        letter: char,
    ) -> Result<(), SchemeError> {
        let family = scheme.family;
        let misplaced = |why: &str, nearest: String| {
            Err(SchemeError::Misplaced {
                field: part.owned(),
                name: self.name.clone(),
                why: why.to_owned(),
                nearest,
                span: part.span.clone(),
            })
        };
        let by_field = matches!(
            family,
            Family::Declustered(Kind {
                parity: Parity::FieldOr(_),
                ..
            })
        );
        if letter == 'p' && self.parity_said.is_some() && !by_field {
            return misplaced(
                "the name already says the parity",
                match family {
                    family if family.is_declustered() => {
                        let asked = part.lower.trim_end_matches('p');
                        format!("{}{asked}", family.name())
                    }
                    Family::Raid5(_) | Family::Raid6(_) | Family::Raid7 => {
                        "raid5, raid6 or raid7".to_owned()
                    }
                    _ => match part.lower.trim_end_matches('p') {
                        "2" => "raid6".to_owned(),
                        "3" => "raid7".to_owned(),
                        _ => "raid5".to_owned(),
                    },
                },
            );
        }
        if letter == 'p' && self.parity_said.is_some() {
            return Err(twice(part, self.parity_said.clone().unwrap_or_default()));
        }
        if letters_of(family).contains(letter) {
            return Ok(());
        }
        if let (
            'f',
            Family::Declustered(Kind {
                domains: Domains::Refused(why),
                ..
            }),
        ) = (letter, family)
        {
            return misplaced(why, format!("pddl{}", scheme.parity.max(1)));
        }
        match letter {
            'r' => misplaced("only raid1 and raid10 keep copies", "raid10:2r".to_owned()),
            'x' => {
                let (why, nearest) = not_elastic(family).unwrap_or_default();
                misplaced(why, format!("{nearest}:{}", part.lower))
            }
            'd' => misplaced("its stripes have no parity to set data apart from", {
                let count = part.lower.trim_end_matches('d');
                format!("{count}c")
            }),
            's' => misplaced(
                "it has no redundancy to rebuild a spare from",
                "raid10".to_owned(),
            ),
            'f' => misplaced(
                "it has no redundancy to survive a domain with",
                "raid10".to_owned(),
            ),
            _ => misplaced("it does not take it", self.name.clone()),
        }
    }

    fn finish(&self, scheme: &mut Scheme) -> Result<(), SchemeError> {
        if let Some((word, span)) = &self.code_said
            && scheme.parity != 2
        {
            return Err(SchemeError::Misplaced {
                field: word.clone(),
                name: self.name.clone(),
                why: format!(
                    "it is a code of two parities and this scheme has {}",
                    scheme.parity
                ),
                nearest: match scheme.family {
                    Family::Declustered(kind) => kind.named(2),
                    family => format!("{}2", family.name()),
                },
                span: span.clone(),
            });
        }
        if let Family::Raid6(form) = &mut scheme.family
            && self.form_said.is_none()
        {
            *form = Raid6Form::default_with(scheme.code.as_deref());
        }
        if !scheme.elastic {
            return Ok(());
        }
        // What makes the scheme elastic: a word or field, or its name.
        let name = || (self.name.clone(), 0..self.name.len());
        let (field, span) = self.elastic_said.clone().unwrap_or_else(name);
        let misplaced = |field, span, why: &str, nearest| {
            Err(SchemeError::Misplaced {
                field,
                name: self.name.clone(),
                why: why.to_owned(),
                nearest,
                span,
            })
        };
        if scheme.parity > 2 {
            let mut nearest = scheme.clone();
            nearest.parity = 2;
            return misplaced(field, span, PARITIES, nearest.to_string());
        }
        if let Some((code, span)) = self.code_said.clone().filter(|_| scheme.code.is_some()) {
            let mut nearest = scheme.clone();
            nearest.code = None;
            if self.form_said.is_none()
                && let Family::Raid6(form) = &mut nearest.family
            {
                *form = Raid6Form::default_with(None);
            }
            let why = "a stripe of an array code has several rows, and an elastic stripe has one, of data, P and Q";
            return misplaced(code, span, why, nearest.to_string());
        }
        Ok(())
    }
}

fn twice(part: &Part<'_>, first: String) -> SchemeError {
    SchemeError::Twice {
        field: part.owned(),
        first,
        span: part.span.clone(),
    }
}

const fn takes_code(family: Family) -> bool {
    matches!(family, Family::Raid6(_)) || family.is_declustered()
}

/// Why no array of three parities is elastic.
const PARITIES: &str = "a stripe that changes between parity and copies has one parity or two";

/// Why stripes of the family cannot change between parity and copies, and what comes nearest. None if they can, with
/// one parity or two.
const fn not_elastic(family: Family) -> Option<(&'static str, &'static str)> {
    match family {
        Family::Raid5(_) | Family::Raid6(_) | Family::Declustered(_) => None,
        Family::Raid7 => Some((PARITIES, "elastic6")),
        Family::Raid1 | Family::Raid10(_) | Family::Chained => {
            Some(("its stripes are always copies", "elastic5"))
        }
        Family::Raid0 | Family::Zigzag => Some(("its stripes have no parity", "elastic5")),
    }
}

fn letters_of(family: Family) -> String {
    match family {
        Family::Raid0 | Family::Zigzag => "c",
        Family::Raid1 | Family::Raid10(_) => "c s f r",
        Family::Chained => "c s f",
        Family::Raid5(_) | Family::Raid6(_) => "d c s f x",
        Family::Raid7 => "d c s f",
        Family::Declustered(kind) => kind.letters(),
    }
    .to_owned()
}

fn words_of(family: Family) -> Vec<&'static str> {
    let mut words = Vec::new();
    match family {
        Family::Raid10(_) => words.extend(Raid10Form::ALL.map(Raid10Form::word)),
        Family::Raid5(_) => words.extend(Raid5Form::ALL.map(Raid5Form::word)),
        Family::Raid6(_) => words.extend(Raid6Form::ALL.map(Raid6Form::word)),
        Family::Raid0
        | Family::Raid1
        | Family::Chained
        | Family::Zigzag
        | Family::Raid7
        | Family::Declustered(_) => {}
    }
    if takes_code(family) {
        words.extend(code_words());
    }
    if not_elastic(family).is_none() {
        words.push("elastic");
    }
    words
}

/// `1.8` as thousandths, or the nearest expansion that works.
fn parse_expansion(number: &str) -> Result<Expansion, &'static str> {
    const EXAMPLE: &str = "1.8x";
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 3 || (fraction.is_empty() && number.contains('.')) {
        return Err(EXAMPLE);
    }
    let whole: u32 = whole.parse().map_err(|_| EXAMPLE)?;
    let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| EXAMPLE)?;
    let thousandths = whole.saturating_mul(1000).saturating_add(fraction);
    let nearest = if whole == 0 { "1x" } else { "16x" };
    Expansion::from_thousandths(thousandths).ok_or(nearest)
}
