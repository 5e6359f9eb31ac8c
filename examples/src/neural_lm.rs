//! A model without a Transformer: the neural probabilistic language model (Bengio et al. 2003, eq. 1).
//!
//! ```text
//! y = b + W·x + U·tanh(d + H·x),    x = C(w_{t−1}) ‖ … ‖ C(w_{t−n+1}),    P(w_t | w_{t−1}, …) = softmax(y)
//! ```
//!
//! The engine asks a model to be a module, and nothing more.

use crate::text::Text;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::Loader;
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::blocks::{Embedding, Linear};
use cloze_model::ops;
use cloze_trainer::Result;
use cloze_trainer::engine::{
    Advance, Cadence, Objective, Outcome, Position, Recipe, RunOptions, RunSettings, StepBatches, Term, train,
};
use cloze_trainer::metrics::progress::RunProgress;

/// Pieces that the next one is predicted from.
const CONTEXT: usize = 5;

/// Bengio's network.
#[derive(Module, Debug)]
pub struct NeuralLm {
    /// `C`: `[vocab_size, d]`
    words: Embedding,
    /// `H` and `d`: `[CONTEXT · d, hidden]`
    hidden: Linear,
    /// `U` and `b`: `[hidden, vocab_size]`
    output: Linear,
    /// `W`: `[CONTEXT · d, vocab_size]`
    direct: Linear,
}

impl NeuralLm {
    /// A new one with word vectors of `d` features.
    pub fn new(vocab_size: usize, d: usize, hidden: usize, init: &mut ParamInit) -> Self {
        Self {
            words: Embedding::new(vocab_size, d, init),
            hidden: Linear::new(CONTEXT * d, hidden, init),
            output: Linear::new(hidden, vocab_size, init),
            direct: Linear::new(CONTEXT * d, vocab_size, init),
        }
    }

    /// # Shapes
    /// - `context`: `[n, CONTEXT]`; returns the logits, `[n, vocab_size]`
    pub fn forward(&self, context: Tensor<2, Int>) -> Tensor<2> {
        let [n, len] = context.dims();
        let words = self.words.forward(context);
        let [_, _, d] = words.dims();
        let x = words.reshape([n, len * d]);
        self.direct.forward(x.clone()) + self.output.forward(self.hidden.forward(x).tanh())
    }
}

/// The training of it.
pub struct NextWord {
    text: Text,
    batch_size: usize,
    accumulate: usize,
}

impl NextWord {
    /// The cross-entropy of each piece that has a whole context in its block, `[n]`.
    fn losses(&self, model: &NeuralLm, batch: &[i32], device: &Device) -> Tensor<1> {
        let windows = batch.chunks(self.text.train.len).flat_map(|block| block.windows(CONTEXT + 1));
        let (mut contexts, mut next) = (Vec::new(), Vec::new());
        for window in windows {
            contexts.extend_from_slice(&window[..CONTEXT]);
            next.push(window[CONTEXT]);
        }
        let shape = [next.len(), CONTEXT];
        let contexts = Tensor::<2, Int>::from_data(TensorData::new(contexts, shape), device);
        ops::cross_entropy(model.forward(contexts), Tensor::from_data(next.as_slice(), device))
    }

    fn n_predicted(&self, batch: &[i32]) -> usize {
        let len = self.text.train.len;
        batch.len() / len * (len - CONTEXT)
    }
}

impl Objective for NextWord {
    type Model = NeuralLm;
    type Batch = Vec<i32>;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("next_piece")]
    }

    fn counts(&self, batch: &Vec<i32>) -> Vec<f64> {
        vec![self.n_predicted(batch) as f64]
    }

    fn sums(&self, model: &NeuralLm, batch: &Vec<i32>, device: &Device) -> Vec<Tensor<1>> {
        vec![self.losses(model, batch, device).sum()]
    }
}

impl Recipe for NextWord {
    fn data(&self) -> String {
        format!("the sample in blocks of {}", self.text.train.len)
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Vec<i32>>>> + '_> {
        let loader = Loader::new(self.text.train.clone(), self.batch_size);
        StepBatches::from_loader(&loader, from, self.accumulate, |batch| batch.len() as u64)
    }

    fn split(&self) -> Option<&str> {
        Some("heldout")
    }

    fn evaluate(
        &self,
        model: &NeuralLm,
        device: &Device,
        _advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let (mut sum, mut count) = (0.0, 0);
        for batch in Loader::new(self.text.held_out.clone(), self.batch_size).one_pass(256)? {
            sum += self.losses(model, &batch, device).sum().into_data().iter::<f64>().sum::<f64>();
            count += self.n_predicted(&batch);
        }
        Ok(Figures::new(count, [("loss", sum / count as f64)]))
    }
}

/// What is trained and how, with word vectors and a hidden layer of these widths.
///
/// # Errors
/// A sample that is not there.
pub fn prepare(
    [d, hidden]: [usize; 2],
    batch_size: usize,
    accumulate: usize,
    seed: u64,
    device: &Device,
) -> Result<(NextWord, NeuralLm)> {
    let recipe = NextWord { text: Text::load(32, seed)?, batch_size, accumulate };
    let init = &mut ParamInit::new(&device.clone().autodiff(), seed).with_std(0.05);
    let model = NeuralLm::new(recipe.text.tokenizer.vocab_size(), d, hidden, init);
    Ok((recipe, model))
}

/// Trains it.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    train_with(steps, 1, options, progress)
}

/// Trains it with so many micro-batches a step.
pub fn train_with(
    steps: u64,
    accumulate: usize,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let mut settings = RunSettings::new("neural-lm", steps, 2e-3);
    settings.evaluate = Cadence::Every(50);
    settings.checkpoint.every = 50;
    let (recipe, model) = prepare([64, 128], 32, accumulate, settings.seed, &options.device)?;
    train(&recipe, model, &settings, options, progress)
}
