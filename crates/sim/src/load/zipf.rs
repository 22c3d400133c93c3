//! Zipf's law over any number of places, in constant time and memory.
//!
//! Rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", ACM TOMACS 6(3), 1996. With h(x) = x^-s and H its integral, a uniform u between H(1.5) − 1 and
//! H(n + 0.5) gives x = H⁻¹(u), k is x rounded, and is taken if k − x ≤ c or u ≥ H(k + 0.5) − h(k).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use stats::to_f64;

#[derive(Clone, Debug)]
pub(super) struct Zipf {
    places: u64,
    exponent: f64,
    low: f64,
    high: f64,
    cut: f64,
    /// Rank r is at place r · step mod places: a bijection that scatters neighbours in rank.
    step: u64,
}

impl Zipf {
    pub(super) fn new(places: u64, exponent: f64) -> Self {
        let places = places.max(1);
        let mut zipf = Self {
            places,
            exponent,
            low: 0.0,
            high: 0.0,
            cut: 0.0,
            step: coprime_near(places),
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(to_f64(places) + 0.5);
        zipf.cut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.power(2.0));
        zipf
    }

    fn power(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// ∫ x^-s = (x^(1−s) − 1) / (1 − s), the logarithm where s is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let rest = (1.0 - self.exponent) * log;
        if rest.abs() < 1e-12 {
            log
        } else {
            log * libm::expm1(rest) / rest
        }
    }

    fn inverse(&self, y: f64) -> f64 {
        let product = y * (1.0 - self.exponent);
        let ratio = if product.abs() < 1e-12 {
            1.0
        } else {
            libm::log1p(product) / product
        };
        libm::exp(ratio * y)
    }

    /// A rank from 1, the most popular one.
    fn rank(&self, rng: &mut ChaCha8Rng) -> u64 {
        loop {
            let share = to_f64(rng.random::<u64>() >> 11) / to_f64(1 << 53);
            let u = self.high + share * (self.low - self.high);
            let x = self.inverse(u);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and the number of places"
            )]
            let k = ((x + 0.5) as u64).clamp(1, self.places);
            let near = to_f64(k);
            if near - x <= self.cut || u >= self.integral(near + 0.5) - self.power(near) {
                return k;
            }
        }
    }

    /// A place from 0.
    pub(super) fn place(&self, rng: &mut ChaCha8Rng) -> u64 {
        let rank = self.rank(rng) - 1;
        let place = u128::from(rank) * u128::from(self.step) % u128::from(self.places);
        u64::try_from(place).expect("below the number of places")
    }
}

/// A number without a common factor with `places`, near the golden section of it.
fn coprime_near(places: u64) -> u64 {
    const fn divisor(mut a: u64, mut b: u64) -> u64 {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    }
    let golden = u128::from(places) * 618_033_989 / 1_000_000_000;
    let golden = u64::try_from(golden).expect("less than the number of places");
    (golden.max(1)..)
        .find(|&step| divisor(step, places) == 1)
        .expect("1 at the latest, or a prime")
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for exponent in [0.5, 0.99, 1.0, 1.3] {
            let places = 1000_u64;
            let zipf = Zipf::new(places, exponent);
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            let mut counts = vec![0_u64; 1001];
            let draws = 400_000;
            for _ in 0..draws {
                counts[usize::try_from(zipf.rank(&mut rng)).unwrap()] += 1;
            }
            let all: f64 = (1..=places).map(|k| zipf.power(to_f64(k))).sum();
            for k in [1, 2, 3, 10, 100] {
                let expected = to_f64(draws) * zipf.power(to_f64(k)) / all;
                let found = to_f64(counts[usize::try_from(k).unwrap()]);
                // Five standard deviations.
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "rank {k} at {exponent}: {found} for {expected}"
                );
            }
        }
    }

    #[test]
    fn every_rank_has_a_place_of_its_own() {
        for places in [1, 2, 9, 64, 1000, 1009] {
            let step = coprime_near(places);
            let mut seen: Vec<u64> = (0..places).map(|rank| rank * step % places).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..places));
        }
    }
}
