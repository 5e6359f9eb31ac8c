//! Integers of one scale as integers of another, in double precision: the integers of
//! [`Dyadic::apply`](crate::integer_only::Dyadic::apply), or word that one of them is in doubt.
//!
//! A product of a whole number below 2^53 and a dyadic number has one rounding, whose error is less than 2^-53 of it. It decides about
//! the nearest integer only where the product is about halfway between two. Such a place is told, and the caller computes in integers.

use crate::flex::vector::vectorised;

/// 1.5 · 2^52: a number below 2^51 that is added to it is rounded half to even, and lies in the lowest bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// Products below this are within 2^-25 of the exact ones.
const GREATEST: f64 = (1u64 << 28) as f64;

/// Whole numbers below this are exact.
const EXACT: f64 = (1u64 << 53) as f64;

/// How far from an integer a product may be without doubt.
const SURE: f64 = 0.5 - 1.0 / (1u64 << 24) as f64;

/// The nearest integer as a double, and 1 if it is in doubt.
#[inline(always)]
fn nearest(product: f64) -> (f64, u32) {
    let integer = (product + MAGIC) - MAGIC;
    (integer, u32::from((product - integer).abs() > SURE))
}

/// A whole number in double precision as an integer.
#[inline(always)]
fn whole(x: f64) -> i32 {
    (x + MAGIC).to_bits() as i32
}

vectorised! {
    /// `round(q · ratio)`, cut to 8 bits; whether all of them are sure.
    pub(crate) fn to_8_bits(q: &[i32], ratios: &[f64], to: &mut [i8]) -> bool {
        let mut doubts = 0;
        for ((q, ratio), to) in q.iter().zip(ratios).zip(to) {
            // What is cut is not in doubt.
            let (integer, doubt) = nearest((f64::from(*q) * ratio).clamp(-129.0, 129.0));
            doubts += doubt;
            *to = whole(integer.clamp(-128.0, 127.0)) as i8;
        }
        doubts == 0
    }

    /// `round(q · ratio) + round(x · of_x)`, cut to 22 bits; whether all of them are sure.
    pub(crate) fn added(q: &[i32], ratios: &[f64], x: &[i8], of_x: f64, to: &mut [i32]) -> bool {
        let mut doubts = 0;
        for (((q, ratio), x), to) in q.iter().zip(ratios).zip(x).zip(to) {
            let products = [f64::from(*q) * ratio, f64::from(*x) * of_x];
            let [(a, in_a), (b, in_b)] = products.map(|product| nearest(product.clamp(-GREATEST, GREATEST)));
            let [large_a, large_b] = products.map(|product| u32::from(product.abs() >= GREATEST));
            doubts += in_a + in_b + large_a + large_b;
            *to = whole((a + b).clamp(-2_097_152.0, 2_097_151.0));
        }
        doubts == 0
    }

    /// `round(n · ratio) + later`, cut to 8 bits, of `n = ⌊(q − mean) · factor / 2⌋ + shift`; whether all of them are sure.
    /// `moments` are the mean and the factor, `features` have the shift, the ratio and what is added later.
    ///
    /// All numbers have to be exact in double precision, `n` too.
    pub(crate) fn normalised(
        q: &[i32],
        moments: [f64; 2],
        features: (&[i32], &[f64], &[i16]),
        to: &mut [i8],
    ) -> bool {
        let ([mean, factor], (shifts, ratios, later)) = (moments, features);
        let mut doubts = 0;
        for ((((q, shift), ratio), later), to) in q.iter().zip(shifts).zip(ratios).zip(later).zip(to) {
            let n = ((f64::from(*q) - mean) * factor * 0.5).floor() + f64::from(*shift);
            // `later` is less than 2^8: beyond 2^10 the sum is cut.
            let (integer, doubt) = nearest((n * ratio).clamp(-1_024.0, 1_024.0));
            doubts += doubt;
            *to = whole((integer + f64::from(*later)).clamp(-128.0, 127.0)) as i8;
        }
        doubts == 0
    }

    /// i-exp of `q − most` (`q ≤ most`), as `round(((p + b)·p + c) · ratio · 2^−z)`, cut to 15 bits and at 0; their sum, and whether
    /// all of them are sure. `constants` are `ln 2`, `b`, `c` and the ratio, whole numbers but for the last.
    pub(crate) fn exponentials(q: &[i32], most: f64, constants: [f64; 4], to: &mut [i32]) -> (i64, bool) {
        let [ln2, b, c, ratio] = constants;
        let (inverse, least) = (1.0 / ln2, -30.0 * ln2);
        let (mut doubts, mut sum) = (0, 0i64);
        for (q, to) in q.iter().zip(to) {
            let q = (f64::from(*q) - most).max(least);
            // The quotient may be rounded up to the next whole number, or down from one.
            let z = (-q * inverse).floor();
            let p = q + ln2 * z;
            let up = if p <= -ln2 { 1.0 } else { 0.0 };
            let down = if p > 0.0 { 1.0 } else { 0.0 };
            let (z, p) = (z + up - down, p + (up - down) * ln2);
            let polynomial = ((p + b) * p + c).max(0.0);
            // 2^−z: z is at most 30.
            let power = f64::from_bits(((1_023.0 - z + MAGIC).to_bits() & 0x7ff) << 52);
            let (integer, doubt) = nearest((polynomial * ratio * power).min(32_768.0));
            doubts += doubt;
            *to = whole(integer.min(32_767.0));
            sum += i64::from(*to);
        }
        (sum, doubts == 0)
    }

    /// `⌊q · factor / 2^24⌋` of exponentials: products below 2^48, which are exact.
    pub(crate) fn probabilities(q: &[i32], factor: f64, to: &mut [i16]) {
        for (q, to) in q.iter().zip(to) {
            *to = whole((f64::from(*q) * factor * (1.0 / 16_777_216.0)).floor()) as i16;
        }
    }

    /// i-GELU of `q` by the polynomial `(min(|q|, end) − end)² + c`, and its way to 8 bits; whether all of them are sure.
    ///
    /// `features` have `end`, `c`, the integer of 1 and the ratio. The polynomial has to be exact in double precision.
    pub(crate) fn gelu(q: &[i32], features: [&[f64]; 4], to: &mut [i8]) -> bool {
        let [end, c, one, ratios] = features;
        let mut doubts = 0;
        for (((((q, end), c), one), ratio), to) in q.iter().zip(end).zip(c).zip(one).zip(ratios).zip(to) {
            let q = f64::from(*q);
            let distance = q.abs().min(*end) - end;
            let erf = distance * distance + c;
            // Where `q` is 0 the product is 0, whatever the sign.
            let erf = (if q < 0.0 { -erf } else { erf } * (1.0 / 16_384.0)).floor();
            let whole_product = q * (erf + one);
            let (integer, doubt) = nearest((whole_product * ratio).clamp(-129.0, 129.0));
            doubts += doubt + u32::from(whole_product.abs() >= EXACT);
            *to = whole(integer.clamp(-128.0, 127.0)) as i8;
        }
        doubts == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_in_doubt_and_the_rest_is_rounded() {
        assert_eq!(nearest(2.25), (2.0, 0));
        assert_eq!(nearest(-2.75), (-3.0, 0));
        assert_eq!(nearest(2.5), (2.0, 1));
        assert_eq!(nearest(-3.5), (-4.0, 1));
        assert_eq!((whole(-7.0), whole(127.0), whole(-2_097_152.0)), (-7, 127, -2_097_152));
        let mut to = [0; 2];
        assert!(to_8_bits(&[3, -900], &[0.4, 1.0], &mut to));
        assert_eq!(to, [1, -128]);
        assert!(!to_8_bits(&[3, 1], &[0.5, 1.0], &mut to));
        let mut to = [0; 1];
        assert!(!added(&[1 << 30], &[2.0], &[0], 1.0, &mut to));
    }
}
