//! Dropout masks as a function of a seed and an element's index: redrawn wherever needed.
//!
//! The seed is two numbers on the device, from the device's generator, so no synchronisation is needed. Masks
//! differ from flex's for the same seed.

use super::Primitive;
use burn::backend::Cube;
use burn::tensor::{Device, Distribution, Tensor};
use cubecl::prelude::*;

/// The next seed of the device's generator, two numbers.
pub(crate) fn draw_seed(device: &Device) -> Primitive {
    let seed = Tensor::<1>::random([2], Distribution::Uniform(0.0, 1.0), &device.clone().inner());
    seed.try_into_primitive::<Cube>().expect(super::TAKEN)
}

/// A 32-bit draw below it drops the element.
pub(crate) fn threshold(prob: f64) -> u32 {
    (prob.clamp(0.0, 1.0) * 4_294_967_296.0).min(4_294_967_295.0) as u32
}

/// The factor for kept elements.
pub(crate) fn scale(prob: f64) -> f32 {
    // Of probability 1 nothing is kept.
    if prob < 1.0 { (1.0 / (1.0 - prob)) as f32 } else { 0.0 }
}

/// The factor for the element of this index: 0 or `scale`.
#[cube]
pub(crate) fn factor(seed: &[f32], element: usize, threshold: u32, scale: f32) -> f32 {
    let first = mix(seed[0].to_bits());
    let second = mix(seed[1].to_bits());
    let draw = mix(mix(u32::cast_from(element) * 0x9E37_79B9u32 + first) ^ second);
    select(draw >= threshold, scale, 0.0f32)
}

/// A bijection of 32-bit words with little bias (Wellons 2018, "lowbias32").
#[cube]
fn mix(word: u32) -> u32 {
    let mut x = word;
    x ^= x >> 16u32;
    x *= 0x7FEB_352Du32;
    x ^= x >> 15u32;
    x *= 0x846C_A68Bu32;
    x ^ (x >> 16u32)
}
