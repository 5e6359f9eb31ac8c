use super::model::first_states;
use crate::ops::Packing;
use burn::tensor::{Bool, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// How a sequence's states become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The mean over all tokens, special ones among them (Reimers & Gurevych 2019).
    Mean,
    /// The first token's state.
    Cls,
}

impl Pooling {
    /// One vector a sequence, of padded or of packed states.
    ///
    /// # Shapes
    /// - `states`: `[batch, len, d_model]`, packed where `packing` says so; `pad_mask`: `[batch, len]`, `true`
    ///   = ignored; returns `[sequences, d_model]`
    pub fn forward(
        self,
        states: Tensor<3>,
        pad_mask: Option<Tensor<2, Bool>>,
        packing: Option<&Packing>,
    ) -> Tensor<2> {
        match (self, packing) {
            (Self::Cls, packing) => first_states(states, packing),
            (Self::Mean, Some(packing)) => {
                let n_tokens = packing.n_tokens();
                // A product with a matrix that has each sequence's share of the tokens in a row.
                let mut shares = vec![0f32; packing.lengths().len() * n_tokens];
                let spans = packing.starts().zip(packing.lengths());
                for ((start, len), row) in spans.zip(shares.chunks_exact_mut(n_tokens)) {
                    row[start..start + len].fill(1.0 / *len as f32);
                }
                let shares = TensorData::new(shares, [packing.lengths().len(), n_tokens]);
                Tensor::<2>::from_data(shares, &states.device()).matmul(states.squeeze_dim::<2>(0))
            }
            (Self::Mean, None) => {
                let Some(ignored) = pad_mask else {
                    return states.mean_dim(1).squeeze_dim::<2>(1);
                };
                let kept = ignored.bool_not().float();
                let count = kept.clone().sum_dim(1);
                let sum = (states * kept.unsqueeze_dim::<3>(2)).sum_dim(1).squeeze_dim::<2>(1);
                sum / count
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn packed_and_padded_are_the_same() {
        let device = Device::flex();
        let states = Tensor::<3>::from_data([[[1.0, 2.0], [3.0, 6.0]], [[5.0, 7.0], [99.0, 99.0]]], &device);
        let packed = Tensor::<3>::from_data([[[1.0, 2.0], [3.0, 6.0], [5.0, 7.0]]], &device);
        let mask = Tensor::<2, Bool>::from_data([[false, false], [false, true]], &device);
        let packing = Packing::new([2, 1]);
        for (pooling, expected) in
            [(Pooling::Mean, [[2.0f32, 4.0], [5.0, 7.0]]), (Pooling::Cls, [[1.0, 2.0], [5.0, 7.0]])]
        {
            let expected = TensorData::from(expected);
            let of_padded = pooling.forward(states.clone(), Some(mask.clone()), None);
            let of_packed = pooling.forward(packed.clone(), None, Some(&packing));
            for found in [of_padded, of_packed] {
                found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
        }
        let mean = Pooling::Mean.forward(states, None, None).into_data();
        mean.assert_approx_eq::<f32>(
            &TensorData::from([[2.0f32, 4.0], [52.0, 53.0]]),
            Tolerance::absolute(1e-6),
        );
    }
}
