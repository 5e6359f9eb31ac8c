//! Rows of integers, each feature in a scale of its own, in another scale.

use super::{Dyadic, saturated};
#[cfg(feature = "flex")]
use crate::flex::integer;

/// The factors from the scales of a row's features to another scale.
#[derive(Debug, Clone)]
pub struct Ratios {
    exact: Vec<Dyadic>,
    /// The same in double precision, which is exact.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))]
    doubles: Vec<f64>,
}

impl Ratios {
    /// A factor for each feature.
    pub fn new(exact: Vec<Dyadic>) -> Self {
        let doubles = exact.iter().map(|ratio| ratio.to_f64()).collect();
        Self { exact, doubles }
    }

    /// In double precision.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))]
    pub(super) fn doubles(&self) -> &[f64] {
        &self.doubles
    }

    /// Each feature's factor.
    pub(super) fn exact(&self) -> &[Dyadic] {
        &self.exact
    }

    /// A row in the other scale, cut to 8 bits.
    pub fn to_8_bits(&self, q: &[i32], to: &mut [i8]) {
        #[cfg(feature = "flex")]
        if integer::to_8_bits(q, &self.doubles, to) {
            return;
        }
        for ((q, ratio), to) in q.iter().zip(&self.exact).zip(to) {
            *to = saturated(ratio.apply_narrow(i64::from(*q)), 8) as i8;
        }
    }

    /// The sum of a row and of `x`, whose features have one factor, in the other scale, cut to 22 bits.
    pub fn added(&self, q: &[i32], x: &[i8], of_x: Dyadic, to: &mut [i32]) {
        #[cfg(feature = "flex")]
        if integer::added(q, &self.doubles, x, of_x.to_f64(), to) {
            return;
        }
        for (((q, ratio), x), to) in q.iter().zip(&self.exact).zip(x).zip(to) {
            let added = ratio.apply_narrow(i64::from(*q)) + of_x.apply_narrow(i64::from(*x));
            *to = saturated(added, 22) as i32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In double precision, too, they are the integers of the products.
        #[test]
        fn rows_are_rounded_as_single_integers_are(
            row in prop::collection::vec((any::<i32>(), -3.0f64..3.0, 0..30i32, any::<i8>()), 1..40),
            of_x in -300.0f64..300.0,
        ) {
            // Powers of two make halves.
            let ratio = |(_, ratio, power, _): &(i32, f64, i32, i8)| {
                let ratio = if power % 3 == 0 { ratio.signum() } else { *ratio };
                Dyadic::new(ratio / 2f64.powi(*power)).unwrap()
            };
            let ratios = Ratios::new(row.iter().map(ratio).collect());
            let (q, x): (Vec<i32>, Vec<i8>) = row.iter().map(|(q, _, _, x)| (*q, *x)).unzip();
            let of_x = Dyadic::new(of_x).unwrap();
            let (mut bytes, mut sums) = (vec![0; q.len()], vec![0; q.len()]);
            ratios.to_8_bits(&q, &mut bytes);
            ratios.added(&q, &x, of_x, &mut sums);
            for i in 0..q.len() {
                let product = ratios.exact[i].apply(i64::from(q[i]));
                prop_assert_eq!(i64::from(bytes[i]), saturated(product, 8));
                prop_assert_eq!(i64::from(sums[i]), saturated(product + of_x.apply(i64::from(x[i])), 22));
            }
        }
    }
}
