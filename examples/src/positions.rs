//! Custom positions in BERT: rotary positions (Su et al. 2021, "RoFormer", eq. 34).
//!
//! ```text
//! score(m, n) = (R_m q)ᵀ (R_n k) / √d,    R_m turns each pair (x_2i, x_2i+1) by the angle m · 10000^(−2i/d)
//! ```
//!
//! A turn by `m` and one by `n` leave a turn by `n − m`, so a score knows how far apart two tokens are, and nothing else of
//! where they stand. The model has no table of positions: [`NoPositions`] takes its place, and queries and keys are turned
//! in a custom attention, which hands them to the operation that every attention uses.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::blocks::{Attention, AttentionInput, AttentionOutput, Linear, NoPositions};
use cloze_model::{ParamInit, linear_maps, ops};
use cloze_trainer::Result;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::RunProgress;

/// Softmax attention with several heads and rotary positions.
#[derive(Module, Debug)]
pub struct RotaryAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_heads: usize,
    dropout: f64,
}

impl RotaryAttention {
    /// A new one for states of `d_model` features, an even number of them in each head.
    pub fn new(d_model: usize, n_heads: usize, dropout: f64, init: &mut ParamInit) -> Self {
        let mut linear = || Linear::new(d_model, d_model, init);
        Self { query: linear(), key: linear(), value: linear(), output: linear(), n_heads, dropout }
    }

    /// `[batch, len, d_model]` → `[batch, n_heads, len, d_head]`
    fn heads(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, len, d_model] = x.dims();
        x.reshape([batch, len, self.n_heads, d_model / self.n_heads]).swap_dims(1, 2)
    }
}

/// Cosines and sines of the angles by which each position turns each pair of features.
struct Rotation {
    /// `[1, 1, len, d / 2, 1]`
    cos: Tensor<5>,
    /// `[1, 1, len, d / 2, 1]`
    sin: Tensor<5>,
}

impl Rotation {
    fn new(positions: &[usize], d: usize, device: &Device) -> Self {
        let angle =
            |position: usize, pair: usize| position as f64 * 10_000f64.powf(-2.0 * pair as f64 / d as f64);
        let table = |of: fn(f64) -> f64| {
            let pairs = positions.iter().flat_map(|m| (0..d / 2).map(|i| of(angle(*m, i)) as f32));
            let shape = [1, 1, positions.len(), d / 2, 1];
            Tensor::from_data(TensorData::new(pairs.collect(), shape), device)
        };
        Self { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// # Shapes
    /// - `x`: `[batch, n_heads, len, d]`; returns the same
    fn turn(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, n_heads, len, d] = x.dims();
        let pairs = x.reshape([batch, n_heads, len, d / 2, 2]);
        let (first, second) = (pairs.clone().narrow(4, 0, 1), pairs.narrow(4, 1, 1));
        let (cos, sin) = (self.cos.clone(), self.sin.clone());
        let turned_first = first.clone() * cos.clone() - second.clone() * sin.clone();
        let turned_second = first * sin + second * cos;
        Tensor::cat(vec![turned_first, turned_second], 4).reshape([batch, n_heads, len, d])
    }
}

linear_maps!(RotaryAttention { query, key, value, output });

impl Attention for RotaryAttention {
    fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
        let AttentionInput { queries: x, mask, wanted, .. } = input;
        let [batch, len, d_model] = x.dims();
        // Packed sequences each begin at position 0.
        let positions: Vec<usize> = match &mask.packing {
            Some(packing) => packing.positions().collect(),
            None => (0..len).collect(),
        };
        let rotation = Rotation::new(&positions, d_model / self.n_heads, &x.device());
        let q = rotation.turn(self.heads(self.query.forward(x.clone())));
        let k = rotation.turn(self.heads(self.key.forward(x.clone())));
        let v = self.heads(self.value.forward(x));
        let context = ops::attention(q, k, v, mask, self.dropout);
        let context = context.swap_dims(1, 2).reshape([batch, len, d_model]);
        AttentionOutput::new(self.output.forward(context), wanted)
    }

    fn takes_packed(&self) -> bool {
        ops::takes_packed(&self.query.weight.val())
    }
}

/// Pretrains a BERT with these positions, and loads it again.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    crate::pretrain("rotary-positions", steps, options, progress, |bert, init| {
        let attention = |init: &mut ParamInit| {
            RotaryAttention::new(bert.d_model, bert.n_heads, bert.attention_dropout, init)
        };
        bert.init_with(init, attention).with_positions(NoPositions {})
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;
    use cloze_model::ops::{AttentionMask, Packing};

    #[test]
    fn a_turn_by_hand() {
        let device = Device::flex();
        let x = Tensor::<4>::from_data([[[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]]], &device);
        let turned = Rotation::new(&[0, 1], 4, &device).turn(x);
        // By 0; then by 1 and by 1/100 radian.
        let expected =
            TensorData::from([[[[1.0f32, 2.0, 3.0, 4.0], [-1.142_64, 1.922_076, 2.959_851, 4.029_799]]]]);
        turned.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }

    #[test]
    fn scores_know_distances_and_nothing_else() {
        let device = Device::flex();
        let scores = |positions: [usize; 3]| {
            let x = |phase: f32| {
                let values = (0..24).map(|i| (i as f32 * 0.7 + phase).sin()).collect();
                Tensor::<4>::from_data(TensorData::new(values, [1, 1, 3, 8]), &device)
            };
            let rotation = Rotation::new(&positions, 8, &device);
            rotation.turn(x(0.1)).matmul(rotation.turn(x(0.9)).swap_dims(2, 3)).into_data()
        };
        scores([0, 2, 3]).assert_approx_eq::<f32>(&scores([40, 42, 43]), Tolerance::absolute(1e-4));
        assert_ne!(scores([0, 2, 3]), scores([0, 1, 3]));
    }

    #[test]
    fn packed_sequences_are_turned_each_from_its_beginning() {
        let device = Device::flex();
        let block = RotaryAttention::new(8, 2, 0.0, &mut ParamInit::new(&device, 1).with_std(0.4));
        let values = (0..40).map(|i| (i as f32 * 0.7).sin()).collect();
        let x = Tensor::<3>::from_data(TensorData::new(values, [1, 5, 8]), &device);
        let context =
            |x: Tensor<3>, mask: AttentionMask| block.forward(AttentionInput::new(x, &mask)).context;
        let packed = context(x.clone(), AttentionMask::default().with_packing(Packing::new([3, 2])));
        let alone = [(0, 3), (3, 2)]
            .map(|(start, len)| context(x.clone().narrow(1, start, len), AttentionMask::default()));
        let alone = Tensor::cat(alone.to_vec(), 1).into_data();
        packed.into_data().assert_approx_eq::<f32>(&alone, Tolerance::absolute(1e-5));
    }
}
