//! Conversion between packed and padded sequences.

use crate::ops::Packing;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// Packed states as one sequence per row; padding holds the sequence's first state.
///
/// # Shapes
/// - `states`: `[n_tokens, d]`; returns `[sequences, longest, d]`
pub(crate) fn padded(states: Tensor<2>, packing: &Packing) -> Tensor<3> {
    let [_, d] = states.dims();
    let shape = [packing.lengths().len(), packing.longest(), d];
    if shape[0] * shape[1] == packing.n_tokens() {
        return states.reshape(shape);
    }
    let starts = packing.starts().flat_map(|start| std::iter::repeat_n(start, packing.longest()));
    let places = packing.padded_tokens().into_iter().zip(starts);
    let tokens: Vec<i32> = places.map(|(token, start)| token.unwrap_or(start) as i32).collect();
    let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), &states.device());
    states.select(0, tokens).reshape(shape)
}

/// The inverse of [`padded`].
pub(crate) fn unpadded(states: Tensor<3>, packing: &Packing) -> Tensor<2> {
    let [batch, len, d] = states.dims();
    let states = states.reshape([batch * len, d]);
    if batch * len == packing.n_tokens() {
        return states;
    }
    let places: Vec<i32> = packing.padded_places().map(|place| place as i32).collect();
    let places = Tensor::<1, Int>::from_data(places.as_slice(), &states.device());
    states.select(0, places)
}

/// The padding mask, `true` = ignored, `[sequences, longest]`; `None` without padding.
pub(crate) fn pad_mask(packing: &Packing, device: &Device) -> Option<Tensor<2, Bool>> {
    let shape = [packing.lengths().len(), packing.longest()];
    let ignored: Vec<bool> = packing.padded_tokens().iter().map(Option::is_none).collect();
    ignored.contains(&true).then(|| Tensor::from_data(TensorData::new(ignored, shape), device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let device = Device::flex();
        for lengths in [&[2, 3, 1][..], &[2, 2], &[4]] {
            let packing = Packing::new(lengths);
            let n = packing.n_tokens();
            let states = Tensor::<1, Int>::arange(0..2 * n as i64, &device).float().reshape([n, 2]);
            let rectangle = padded(states.clone(), &packing);
            assert_eq!(rectangle.dims(), [lengths.len(), packing.longest(), 2]);
            assert_eq!(unpadded(rectangle, &packing).into_data(), states.into_data());
            let ignored = pad_mask(&packing, &device)
                .map_or(0, |mask| mask.into_data().iter::<bool>().filter(|ignored| *ignored).count());
            assert_eq!(ignored, lengths.len() * packing.longest() - n);
        }
    }
}
