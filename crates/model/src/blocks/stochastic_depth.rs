use super::WantedTokens;
use crate::ops::{self, AttentionMask};
use burn::tensor::{Int, Tensor};

/// Leaves out a sub-layer's output for some sequences in training, and scales the others' by `1 / (1 − p)` (Huang et al.
/// 2016, "Deep Networks with Stochastic Depth"; timm's `DropPath`).
///
/// # Shapes
/// - `y`: `[batch, len, d_model]`, packed if the mask's tokens are, or `[1, n, d_model]` for `n` wanted tokens of such a
///   batch; returns the same
pub(super) fn stochastic_depth(
    y: Tensor<3>,
    probability: f64,
    [batch, len]: [usize; 2],
    mask: &AttentionMask,
    wanted: Option<&WantedTokens>,
) -> Tensor<3> {
    let device = y.device();
    if probability == 0.0 || !ops::is_training(&device) {
        return y;
    }
    let draw = |n: usize| ops::dropout(Tensor::<3>::ones([n, 1, 1], &device), probability);
    let kept = match &mask.packing {
        Some(packing) => {
            let sequences = packing.lengths().iter().enumerate();
            let of_tokens = sequences.flat_map(|(sequence, len)| std::iter::repeat_n(sequence as i32, *len));
            let of_tokens: Vec<i32> = of_tokens.collect();
            let of_tokens = Tensor::<1, Int>::from_data(of_tokens.as_slice(), &device);
            draw(packing.lengths().len()).select(0, of_tokens).swap_dims(0, 1)
        }
        None => draw(batch),
    };
    match wanted {
        Some(wanted) => y * wanted.select(kept.expand([batch, len, 1])),
        None => y * kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Packing;
    use burn::tensor::Device;

    #[test]
    fn a_sequence_is_kept_or_left_out_as_a_whole() {
        let device = Device::flex().autodiff();
        let mut packed = AttentionMask::default();
        packed.packing = Some(Packing::new([3usize; 200].as_slice()));
        let of = |mask: &AttentionMask, [batch, len]: [usize; 2], wanted: Option<&WantedTokens>| {
            let shape = wanted.map_or([batch, len, 2], |wanted| [1, wanted.tokens.dims()[0], 2]);
            let y = stochastic_depth(Tensor::ones(shape, &device), 0.25, [batch, len], mask, wanted);
            assert_eq!(y.dims(), shape);
            y.into_data().try_to_vec::<f32>().unwrap()
        };
        let firsts: Vec<i32> = (0..200).map(|row| 3 * row).collect();
        let firsts = WantedTokens::new(Tensor::<1, Int>::from_data(firsts.as_slice(), &device));
        let rows = AttentionMask::default();
        for (values, per_sequence) in [
            (of(&rows, [200, 3], None), 6),
            (of(&packed, [1, 600], None), 6),
            (of(&rows, [200, 3], Some(&firsts)), 2),
            (of(&packed, [1, 600], Some(&firsts)), 2),
        ] {
            let sequences: Vec<&[f32]> = values.chunks_exact(per_sequence).collect();
            assert_eq!(sequences.len(), 200);
            assert!(sequences.iter().all(|all| all.iter().all(|x| *x == all[0])));
            assert!(sequences.iter().all(|all| all[0] == 0.0 || (all[0] - 4.0 / 3.0).abs() < 1e-6));
            // A quarter, within six deviations.
            let left_out = sequences.iter().filter(|all| all[0] == 0.0).count();
            assert!((14..=86).contains(&left_out), "{left_out}");
        }
    }
}
