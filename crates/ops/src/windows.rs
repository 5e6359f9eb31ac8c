use crate::Packing;
use burn::tensor::{Int, Tensor};

#[cfg(feature = "flex")]
use crate::flex;

/// Each token's window of `width` tokens in its sequence, `before` of them preceding it: `[x_(t−before); …;
/// x_(t−before+width−1)]`, with zeros beyond the sequence's ends.
///
/// A convolution of packed sequences is one product with the windows: [`linear`](crate::linear()) with a
/// weight of `[width · d, d_out]`. No window sees another sequence. With `before` = `width − 1` none sees a
/// later token either.
///
/// # Shapes
/// - `x`: `[n_tokens, d]`; returns `[n_tokens, width · d]`, each window's tokens in order
///
/// # Panics
/// If the packing does not match the tokens, or `before` is not below `width`.
pub fn windows(x: Tensor<2>, packing: &Packing, width: usize, before: usize) -> Tensor<2> {
    assert_eq!(x.dims()[0], packing.n_tokens(), "the tokens that are packed, and that there are");
    assert!(
        before < width,
        "a window of {width} tokens has its own token and at most {} before it",
        width - 1
    );
    if width == 1 {
        return x;
    }
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::windows::windows(x, packing, width, before);
    }
    composed(x, packing, width, before)
}

fn composed(x: Tensor<2>, packing: &Packing, width: usize, before: usize) -> Tensor<2> {
    let [n_tokens, d] = x.dims();
    let device = x.device();
    // The row behind all tokens is zero.
    let tokens = packing.starts().zip(packing.lengths()).flat_map(|(start, len)| {
        (0..*len).flat_map(move |position| {
            (0..width).map(move |place| match (position + place).checked_sub(before) {
                Some(seen) if seen < *len => start + seen,
                _ => n_tokens,
            })
        })
    });
    let tokens: Vec<i32> = tokens.map(|token| token as i32).collect();
    let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), &device);
    let zero = Tensor::zeros([1, d], (&device, x.dtype()));
    Tensor::cat(vec![x, zero], 0).select(0, tokens).reshape([n_tokens, width * d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn by_hand() {
        let x = Tensor::<2>::from_data([[1.0], [2.0], [3.0], [4.0]], &Device::flex());
        let packing = Packing::new([3, 1]);
        for windows in [windows, composed] {
            let found = |width, before| windows(x.clone(), &packing, width, before).into_data();
            let centred =
                TensorData::from([[0f32, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 0.0], [0.0, 4.0, 0.0]]);
            assert_eq!(found(3, 1), centred);
            let causal = TensorData::from([[0f32, 1.0], [1.0, 2.0], [2.0, 3.0], [0.0, 4.0]]);
            assert_eq!(found(2, 1), causal);
            let wide = TensorData::from([
                [0f32, 0.0, 0.0, 0.0, 1.0],
                [0.0, 0.0, 0.0, 1.0, 2.0],
                [0.0, 0.0, 1.0, 2.0, 3.0],
                [0.0, 0.0, 0.0, 0.0, 4.0],
            ]);
            assert_eq!(found(5, 4), wide);
        }
    }
}
