//! XLNet's loss.

use crate::engine::{Objective, Term};
use crate::running_text::{TextObjective, figure};
use burn::tensor::{Device, Tensor};
use cloze_data::OrderedBatch;
use cloze_model::xlnet::{XlnetInput, XlnetLanguageModel};

/// The mean cross-entropy of the predicted tokens, each given those before it in a random order `z`, in nats:
/// `−1/n · Σ_(t > c) log P(x_(z_t) | x_(z_<t))` (Yang et al. 2019, eq. 7), where the first `c` tokens of the order are not
/// predicted.
///
/// A segment's memory is the states of the tokens before it, computed in the same step without a gradient. The
/// reference code instead keeps the previous step's states, which come from older weights and make each step
/// depend on earlier ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permutation;

impl Objective for Permutation {
    type Model = XlnetLanguageModel;
    type Batch = OrderedBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new(figure::LOSS)]
    }

    fn counts(&self, batch: &OrderedBatch) -> Vec<f64> {
        vec![batch.n_predicted() as f64]
    }

    fn sums(&self, model: &XlnetLanguageModel, batch: &OrderedBatch, device: &Device) -> Vec<Tensor<1>> {
        vec![self.losses(model, batch, device).sum()]
    }
}

impl TextObjective for Permutation {
    const PREDICTION: &str = "prediction";

    fn losses(&self, model: &XlnetLanguageModel, batch: &OrderedBatch, device: &Device) -> Tensor<1> {
        let memory = (!batch.before.is_empty()).then(|| {
            let before = XlnetInput::new(batch.before.clone(), batch.n);
            model.xlnet.forward(&before, None, device).memory
        });
        let segments = XlnetInput::new(batch.ids.clone(), batch.n).with_order(&batch.order);
        model.losses(&segments, memory.as_ref(), device).0
    }

    fn n_tokens(batch: &OrderedBatch) -> u64 {
        batch.ids.len() as u64
    }
}
