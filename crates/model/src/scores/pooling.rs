use crate::blocks::Linear;
use crate::ops::Packing;
use crate::recurrent::{pad_mask, padded};
use crate::{ParamInit, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::softmax;

/// Pools a sequence into one vector: the mean of its states weighted by attention to a trained query, as for
/// words in a sentence (Yang et al. 2016, eq. 5–7): `u = tanh(W h + b)`, `α = softmax(u·q)`, `s = Σ α h`.
#[derive(Module, Debug)]
pub struct AttentionPooling {
    /// `[d_memory, d]`
    pub key: Linear,
    /// `[d]`
    pub query: Param<Tensor<1>>,
}

linear_maps!(AttentionPooling { key });

impl AttentionPooling {
    /// A pooling for states of `d_memory` features, compared in `d` features.
    pub fn new(d_memory: usize, d: usize, init: &mut ParamInit) -> Self {
        let key = Linear::uniform(d_memory, d, init);
        Self { key, query: init.uniform([d], 1.0 / (d.max(1) as f64).sqrt()) }
    }

    /// The sequences' vectors, and the weights of their states.
    ///
    /// # Shapes
    /// - `states`: `[n_tokens, d_memory]`, packed; returns `[sequences, d_memory]` and `[sequences, longest]`
    pub fn forward(&self, states: Tensor<2>, packing: &Packing) -> (Tensor<2>, Tensor<2>) {
        let device = states.device();
        let [d] = self.query.dims();
        let keys = self.key.forward(states.clone()).tanh();
        let scores = padded(keys.matmul(self.query.val().reshape([d, 1])), packing).squeeze_dim::<2>(2);
        let scores = match pad_mask(packing, &device) {
            Some(ignored) => scores.mask_fill(ignored, f32::MIN),
            None => scores,
        };
        let weights = softmax(scores, 1);
        let pooled = weights.clone().unsqueeze_dim::<3>(1).matmul(padded(states, packing));
        (pooled.squeeze_dim::<2>(1), weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn a_sequence_is_pooled_by_itself() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 3);
        let pooling = AttentionPooling::new(4, 3, init);
        let states = init.uniform([6, 4], 1.0).val();
        let (all, weights) = pooling.forward(states.clone(), &Packing::new([2, 4]));
        assert_eq!(weights.dims(), [2, 4]);
        let sums: Vec<f32> = weights.clone().sum_dim(1).into_data().iter().collect();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-6));
        let weights: Vec<f32> = weights.into_data().iter().collect();
        assert!(weights[2..4] == [0.0, 0.0] && weights[0] != weights[1]);
        for (row, (start, len)) in [(0, 2), (2, 4)].into_iter().enumerate() {
            let (alone, weights) =
                pooling.forward(states.clone().narrow(0, start, len), &Packing::new([len]));
            let expected = all.clone().narrow(0, row, 1).into_data();
            alone.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            let by_hand = weights.matmul(states.clone().narrow(0, start, len)).into_data();
            by_hand.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }
}
