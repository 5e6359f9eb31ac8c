//! Vectorised arithmetic: loops that the compiler turns into vector code, compiled for several instruction
//! sets and selected at run time.

/// Compiles each function for AVX-512, AVX2 and the plain instruction set, and calls the best one the
/// machine supports. (NEON is part of AArch64's plain set.)
///
/// The arithmetic is the same in all versions, so results are bit-identical: additions are fused with
/// products only by explicit `mul_add`, which a machine without such an instruction (x86 before 2013)
/// computes in software.
macro_rules! vectorised {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($arg: $type),*) $(-> $result)? { body($($arg),*) }

                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $type),*) $(-> $result)? { body($($arg),*) }

                if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                    if std::is_x86_feature_detected!("avx512f")
                        && std::is_x86_feature_detected!("avx512vl")
                        && std::is_x86_feature_detected!("avx512dq")
                        && std::is_x86_feature_detected!("avx512bw")
                    {
                        // SAFETY: the machine has these instructions.
                        return unsafe { avx512($($arg),*) };
                    }
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    )*};
}
pub(crate) use vectorised;

/// Number of parallel partial sums: one AVX-512 register.
const LANES: usize = 16;

/// `Σ f(xᵢ, yᵢ, …)` over slices of the same length, in an order that does not depend on the instruction set.
///
/// Slices rather than an index: with indexing, the compiler checks bounds and does not vectorise.
#[inline(always)]
pub(crate) fn sum<const N: usize>(x: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let chunks = x.map(|x| x.as_chunks::<LANES>());
    let n_chunks = chunks.iter().map(|(whole, _)| whole.len()).min().unwrap_or(0);
    for i in 0..n_chunks {
        // By reference: of copies, an `f` as long as `tanh` is not vectorised, and takes 13 times as long.
        let chunk = chunks.map(|(whole, _)| &whole[i]);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(chunk.map(|chunk| chunk[lane]));
        }
    }
    for half in [8, 4, 2, 1] {
        let (left, right) = lanes.split_at_mut(half);
        for (sum, x) in left.iter_mut().zip(right) {
            *sum += *x;
        }
    }
    let n_rest = chunks.iter().map(|(_, rest)| rest.len()).min().unwrap_or(0);
    (0..n_rest).fold(lanes[0], |sum, i| sum + f(chunks.map(|(_, rest)| rest[i])))
}

/// The maximum of `x`, minus infinity if empty.
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (max, x) in lanes.iter_mut().zip(chunk) {
            *max = if *x > *max { *x } else { *max };
        }
    }
    for half in [8, 4, 2, 1] {
        let (left, right) = lanes.split_at_mut(half);
        for (max, x) in left.iter_mut().zip(right) {
            *max = if *x > *max { *x } else { *max };
        }
    }
    rest.iter().fold(lanes[0], |max, x| if *x > max { *x } else { max })
}

/// `eˣ` to 2 units in the last place, after Cephes' `expf`; NaN for NaN. Below −87.3 it gives e^−87.3,
/// which is 1e-38, above 88.3 e^88.3.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let clamped = x.clamp(-87.3, 88.3);
    // Adding 1.5·2²³ rounds to a whole number, which then stands in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, clamped));
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let y = (p * r).mul_add(r, r) + 1.0;
    let y = f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x.is_nan() { x } else { y }
}

/// `1 / (1 + e⁻ˣ)`; NaN for NaN.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent to 3e-7 of its value, after Cephes' `tanhf`; NaN for NaN.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    // Of the absolute value, whose exponential is small: nothing overflows.
    let e = exp(-2.0 * x.abs());
    let large = ((1.0 - e) / (1.0 + e)).copysign(x);
    let z = x * x;
    let mut p = -5.704_988_7e-3f32;
    p = p.mul_add(z, 2.063_909e-2);
    p = p.mul_add(z, -5.373_971_6e-2);
    p = p.mul_add(z, 1.333_144_2e-1);
    p = p.mul_add(z, -3.333_328e-1);
    let small = (p * z).mul_add(x, x);
    if x.abs() < 0.625 { small } else { large }
}

/// The standard normal distribution function and its density.
///
/// `erfc(z)·e^{z²}` is a polynomial of degree 9 in `1 / (1 + 0.36·z)`, fitted for this file to a relative
/// error of 4e-8 for `z` in 0..9.5, so that the lower tail is as accurate as the upper one.
#[inline(always)]
pub(crate) fn normal(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / z.mul_add(0.36, 1.0);
    let e = exp(-0.5 * x * x);
    let mut p = 0.058_548_22f32;
    p = p.mul_add(t, -0.318_169_7);
    p = p.mul_add(t, 0.573_186_3);
    p = p.mul_add(t, -0.382_275_7);
    p = p.mul_add(t, 0.378_924_85);
    p = p.mul_add(t, 0.077_586_11);
    p = p.mul_add(t, 0.208_001_8);
    p = p.mul_add(t, 0.200_982_58);
    p = p.mul_add(t, 0.203_215_51);
    let tail = 0.5 * p * t * e;
    (if x >= 0.0 { 1.0 - tail } else { tail }, 0.398_942_3 * e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exact_to_two_units() {
        let mut worst = 0.0f64;
        for i in -87_000..88_000 {
            let x = i as f32 * 1e-3;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.4e-7, "{worst}");
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-1e30) < 2e-38 && exp(1e30).is_finite());
    }

    #[test]
    fn sigmoid_and_tanh_are_exact_to_a_few_units() {
        for i in -30_000..30_000 {
            let x = i as f32 * 1e-3;
            let exact = f64::from(x).tanh();
            assert!((f64::from(tanh(x)) - exact).abs() <= 3e-7 * exact.abs(), "tanh({x}) = {}", tanh(x));
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid(x)) - exact).abs() <= 4e-7 * exact, "σ({x}) = {}", sigmoid(x));
        }
        assert_eq!([tanh(1e30), tanh(-1e30), tanh(0.0), sigmoid(1e30)], [1.0, -1.0, 0.0, 1.0]);
        assert!(sigmoid(-1e30) < 1e-37 && tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn the_normal_distribution_is_exact_in_both_tails() {
        // Φ from a table with 15 digits.
        for (x, cdf) in [
            (0.0f32, 0.5),
            (0.5, 0.691_462_461_274_013),
            (1.0, 0.841_344_746_068_543),
            (-1.0, 0.158_655_253_931_457),
            (-2.0, 0.022_750_131_948_179_2),
            (-3.0, 1.349_898_031_630_09e-3),
            (-5.0, 2.866_515_718_791_93e-7),
            (-8.0, 6.220_960_574_271_82e-16),
        ] {
            let (found, density) = normal(x);
            let error = (f64::from(found) - cdf).abs() / cdf;
            assert!(error < 5e-6, "Φ({x}) = {found}, not {cdf}");
            let exact = (-0.5 * f64::from(x).powi(2)).exp() / (2.0 * std::f64::consts::PI).sqrt();
            assert!((f64::from(density) - exact).abs() < 1e-6 * exact + 1e-30);
        }
    }

    #[test]
    fn sums_and_maxima_of_ragged_lengths() {
        for n in [0, 1, 15, 16, 17, 31, 100] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            assert_eq!(sum([&x], |[x]| x), x.iter().sum::<f32>());
            let squares = x.iter().map(|x| x * x).sum::<f32>();
            assert_eq!(sum([&x, &x], |[a, b]| a * b), squares);
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
