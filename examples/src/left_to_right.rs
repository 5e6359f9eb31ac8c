//! A custom objective: a left-to-right language model on packed text (Radford et al. 2018, eq. 1).
//!
//! ```text
//! loss = − Σ_i log P(u_i | u_1, …, u_{i−1})
//! ```
//!
//! The text is cut into blocks without regard to documents or sentences, so nothing is padding. The model is the
//! encoder's blocks with a causal mask, sinusoidal positions and one table for input and output.

use crate::text::{Blocks, Text};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::Loader;
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::blocks::{
    Activation, Embedding, Encoder, EncoderLayerConfig, EncoderTrace, FeedForwardConfig, MultiHeadAttention,
    MultiHeadAttentionConfig, Norm, NormKind, NormPlacement, Positions, SinusoidalPositions,
};
use cloze_model::ops::{self, AttentionMask};
use cloze_trainer::Result;
use cloze_trainer::engine::{
    Advance, Cadence, Objective, Outcome, Position, Recipe, RunOptions, RunSettings, StepBatches, Term, train,
};
use cloze_trainer::metrics::progress::RunProgress;

/// A decoder: no position sees a later one.
#[derive(Module, Debug)]
pub struct LanguageModel {
    tokens: Embedding,
    positions: SinusoidalPositions,
    layers: Encoder<MultiHeadAttention>,
}

impl LanguageModel {
    /// Two pre-norm layers of `d_model` features.
    pub fn new(vocab_size: usize, d_model: usize, init: &mut ParamInit) -> Self {
        let layer = EncoderLayerConfig {
            feed_forward: FeedForwardConfig::new(d_model, 4 * d_model, Activation::Gelu),
            attention_output_dropout: 0.1,
            feed_forward_output_dropout: 0.1,
            norm: NormPlacement::Pre,
            norm_kind: NormKind::Layer,
            layer_norm_eps: 1e-5,
        };
        let layers = (0..2).map(|_| {
            let attention = MultiHeadAttentionConfig::new(d_model, 2).init(init);
            layer.init(attention, init)
        });
        let layers: Vec<_> = layers.collect();
        let final_norm = Some(Norm::new(NormKind::Layer, d_model, 1e-5, init));
        Self {
            layers: Encoder {
                order: (0..layers.len()).collect(),
                layers,
                final_norm,
                output_dropout: 0.0,
                recompute: false,
            },
            tokens: Embedding::new(vocab_size, d_model, init),
            positions: SinusoidalPositions::new(d_model),
        }
    }

    /// The logits of the next piece at each place.
    ///
    /// # Shapes
    /// - `ids`: `[batch, len]`; returns `[batch · len, vocab_size]`
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let [batch, len] = ids.dims();
        let device = ids.device();
        let x = self.tokens.forward(ids) + self.positions.forward(len, &device);
        let mask = AttentionMask::default().with_causal();
        let states = self.layers.forward(x, &mask, EncoderTrace::default(), None).last_hidden_state;
        let [_, _, d_model] = states.dims();
        ops::linear_tied(states.reshape([batch * len, d_model]), self.tokens.weight.val(), None)
    }
}

/// The training of it.
pub struct LeftToRight {
    text: Text,
    batch_size: usize,
}

impl LeftToRight {
    /// The cross-entropy of each piece but the first of each block, `[n]`.
    fn losses(&self, model: &LanguageModel, batch: &[i32], device: &Device) -> Tensor<1> {
        let len = self.text.train.len;
        let n = batch.len() / len;
        let ids = Tensor::<2, Int>::from_data(TensorData::new(batch.to_vec(), [n, len]), device);
        let input = ids.clone().narrow(1, 0, len - 1);
        let next = ids.narrow(1, 1, len - 1).reshape([n * (len - 1)]);
        ops::cross_entropy(model.forward(input), next)
    }

    fn n_predicted(&self, batch: &[i32]) -> usize {
        batch.len() / self.text.train.len * (self.text.train.len - 1)
    }
}

impl Objective for LeftToRight {
    type Model = LanguageModel;
    type Batch = Vec<i32>;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("next_piece")]
    }

    fn counts(&self, batch: &Vec<i32>) -> Vec<f64> {
        vec![self.n_predicted(batch) as f64]
    }

    fn sums(&self, model: &LanguageModel, batch: &Vec<i32>, device: &Device) -> Vec<Tensor<1>> {
        vec![self.losses(model, batch, device).sum()]
    }
}

impl Recipe for LeftToRight {
    fn data(&self) -> String {
        format!("the sample in blocks of {}", self.text.train.len)
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Vec<i32>>>> + '_> {
        let loader = Loader::new(self.text.train.clone(), self.batch_size);
        StepBatches::from_loader(&loader, from, 1, |batch| batch.len() as u64)
    }

    fn split(&self) -> Option<&str> {
        Some("heldout")
    }

    /// The mean over held-out pieces, and among how many pieces the model wavers.
    fn evaluate(
        &self,
        model: &LanguageModel,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let held_out: &std::sync::Arc<Blocks> = &self.text.held_out;
        let batches = Loader::new(held_out.clone(), self.batch_size).one_pass(128)?;
        let (mut sum, mut count) = (0.0, 0);
        for (place, batch) in batches.iter().enumerate() {
            sum += self.losses(model, batch, device).sum().into_data().iter::<f64>().sum::<f64>();
            count += self.n_predicted(batch);
            advanced(Advance { done: place + 1, share: (place + 1) as f64 / batches.len() as f64 });
        }
        let loss = sum / count as f64;
        Ok(Figures::new(count, [("loss", loss), ("perplexity", loss.exp())]))
    }
}

/// Trains it.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let mut settings = RunSettings::new("left-to-right", steps, 2e-3);
    settings.evaluate = Cadence::Every(50);
    settings.checkpoint.every = 50;
    let recipe = LeftToRight { text: Text::load(65, settings.seed)?, batch_size: 16 };
    let init = &mut ParamInit::new(&options.device.clone().autodiff(), settings.seed).with_std(0.05);
    let model = LanguageModel::new(recipe.text.tokenizer.vocab_size(), 128, init);
    train(&recipe, model, &settings, options, progress)
}
