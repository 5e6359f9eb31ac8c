//! The score that is explained, and what it is computed from.

use super::model::{Asked, Input, Model};
use crate::{Result, TrainerError};
use burn::tensor::{Device, Int, Tensor};
use cloze_model::blocks::replace_embeddings;
use cloze_model::ops::as_inference;
use std::collections::VecDeque;

/// Which number of a model's outputs is explained: the sum of some, less that of others.
#[derive(Debug, Clone)]
pub(super) struct Score {
    pub asked: Asked,
    /// Columns of the [outputs](Model::outputs).
    pub plus: Vec<usize>,
    pub minus: Vec<usize>,
    /// The tokens whose states the answer is read from.
    pub read_from: Vec<usize>,
    /// The score of the text itself.
    pub value: f64,
}

impl Score {
    /// The score of a text with these outputs.
    pub fn new(
        asked: Asked,
        plus: Vec<usize>,
        minus: Vec<usize>,
        read_from: Vec<usize>,
        outputs: &[f32],
    ) -> Self {
        let sum = |columns: &[usize]| columns.iter().map(|column| f64::from(outputs[*column])).sum::<f64>();
        let value = sum(&plus) - sum(&minus);
        Self { asked, plus, minus, read_from, value }
    }

    /// `[copies, answers]` → `[copies]`
    fn of(&self, outputs: Tensor<2>) -> Tensor<1> {
        let sum = |columns: &[usize]| {
            let columns: Vec<i32> = columns.iter().map(|column| *column as i32).collect();
            let columns = Tensor::<1, Int>::from_data(columns.as_slice(), &outputs.device());
            outputs.clone().select(1, columns).sum_dim(1).squeeze_dim::<1>(1)
        };
        match self.minus.is_empty() {
            true => sum(&self.plus),
            false => sum(&self.plus) - sum(&self.minus),
        }
    }
}

/// What stands in place of a token that is taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Baseline {
    /// The piece that masks, else the one that pads, else zeros; special tokens stay.
    #[default]
    Piece,
    /// Zeros, in place of all tokens, special ones too.
    Zeros,
}

/// An answer to one input, and the means to ask for its score with other word embeddings.
#[derive(Debug)]
pub(super) struct Explained<'a> {
    pub model: &'a Model,
    /// The same model with gradients; none if its weights have none.
    pub tracked: Option<&'a Model>,
    pub device: &'a Device,
    pub input: &'a Input,
    pub score: &'a Score,
    /// Whether each token stays as it is in the baseline, of the source and of the target.
    pub kept: [Vec<bool>; 2],
    /// The piece in place of the others; none: zeros.
    pub filler: Option<i32>,
    /// The most copies that are read at once.
    pub most_copies: usize,
}

/// The word embeddings of each side, source first: `[copies, len, d]`.
pub(super) type Words = Vec<Tensor<3>>;

impl Explained<'_> {
    /// The number of tokens of each side.
    pub fn lengths(&self) -> [usize; 2] {
        [self.input.source.len(), self.input.target.len()]
    }

    /// The word embeddings of the text, of one copy.
    pub fn words(&self) -> Words {
        self.model.words(self.input, self.device)
    }

    /// The word embeddings of the baseline, of one copy.
    pub fn baseline(&self) -> Words {
        let Some(filler) = self.filler else {
            return self.words().iter().zip(&self.kept).map(|(words, kept)| with_kept(words, kept)).collect();
        };
        let mut other = self.input.clone();
        let sides = [&mut other.source.input_ids, &mut other.target];
        for (ids, kept) in sides.into_iter().zip(&self.kept) {
            ids.iter_mut().zip(kept).filter(|(_, kept)| !**kept).for_each(|(id, _)| *id = filler);
        }
        self.model.words(&other, self.device)
    }

    /// The scores with these word embeddings, one for each copy.
    pub fn scores(&self, words: &Words) -> Vec<f64> {
        let outputs = self.outputs(self.model, words, self.device);
        self.score.of(outputs).into_data().iter::<f64>().collect()
    }

    fn outputs(&self, model: &Model, words: &Words, device: &Device) -> Tensor<2> {
        let [copies, ..] = words[0].dims();
        let mut words: VecDeque<Tensor<3>> = words.iter().cloned().collect();
        // Packed or not, copies follow one another.
        let replacement = move |found: Tensor<3>| match words.pop_front() {
            Some(words) => words.reshape(found.dims()),
            None => found,
        };
        replace_embeddings(model.tables(), replacement, || {
            model.outputs(self.input, self.score.asked, copies, device)
        })
    }

    /// The gradients of the scores at these word embeddings, each of its own copy's score.
    ///
    /// # Errors
    /// A model whose weights have no gradient.
    pub fn gradients(&self, words: &Words) -> Result<Words> {
        let (model, device) = self.with_gradients()?;
        let leaves: Words =
            words.iter().map(|words| Tensor::from_inner(words.clone()).require_grad()).collect();
        let score = as_inference(|| self.score.of(self.outputs(model, &leaves, &device)));
        let grads = score.sum().backward();
        let gradient =
            |(leaf, words): (&Tensor<3>, &Tensor<3>)| leaf.grad(&grads).unwrap_or_else(|| words.zeros_like());
        Ok(leaves.iter().zip(words).map(gradient).collect())
    }

    /// The score, in the graph; the model reads the text itself.
    ///
    /// # Errors
    /// A model whose weights have no gradient.
    pub fn in_graph(&self) -> Result<Tensor<1>> {
        let (model, device) = self.with_gradients()?;
        Ok(as_inference(|| self.score.of(model.outputs(self.input, self.score.asked, 1, &device))))
    }

    fn with_gradients(&self) -> Result<(&Model, Device)> {
        match self.tracked {
            Some(model) => Ok((model, self.device.clone().autodiff())),
            None => Err(no_gradient()),
        }
    }

    /// Numbers of all tokens, split into those of the source and of the target.
    pub fn split(&self, mut values: Vec<Vec<f64>>) -> [Vec<f64>; 2] {
        values.resize(2, Vec::new());
        let target = values.pop().unwrap_or_default();
        [values.pop().unwrap_or_default(), target]
    }
}

/// The error of a model in integers.
pub(super) fn no_gradient() -> TrainerError {
    TrainerError::BadInput {
        problem: "the model's weights are integers, which have no gradient; expected attention rollout or occlusion, or a \
                  model in floating point"
            .into(),
    }
}

/// Zeros in place of what is not kept.
fn with_kept(words: &Tensor<3>, kept: &[bool]) -> Tensor<3> {
    let factors: Vec<f32> = kept.iter().map(|kept| f32::from(u8::from(*kept))).collect();
    let [_, len, _] = words.dims();
    let factors = Tensor::<1>::from_data(factors.as_slice(), &words.device()).reshape([1, len, 1]);
    words.clone() * factors
}

/// `[copies, len, d]` → the sum over features of a product with `[1, len, d]`, for each token of one copy.
pub(super) fn summed(gradient: Tensor<3>, words: Tensor<3>) -> Vec<f64> {
    (gradient * words).sum_dim(2).into_data().iter::<f64>().collect()
}

#[cfg(test)]
mod tests {
    use super::super::gradient_times_input::gradient_times_input;
    use super::super::integrated_gradients::integrated_gradients;
    use super::super::lens::rows;
    use super::super::occlusion::occlusion;
    use super::*;
    use burn::module::Module;
    use cloze_data::TokenSequence;
    use cloze_model::ParamInit;
    use cloze_model::blocks::NormPlacement;
    use cloze_model::gpt::GptConfig;

    /// A model without layers is linear in its word embeddings.
    #[test]
    fn a_linear_model_is_explained_by_its_weights() {
        let device = Device::flex();
        let mut config = GptConfig::llama(11, 1, 8);
        (config.norm, config.tied) = (NormPlacement::Post, false);
        let mut gpt = config.init(&mut ParamInit::new(&device, 3).with_std(0.5));
        gpt.layers.clear();
        let model = Model::Writer(gpt);
        let tracked = model.clone().train().no_grad();
        let source = TokenSequence { input_ids: vec![4, 7, 5], token_type_ids: vec![0; 3] };
        let input = Input { source, target: Vec::new() };
        let outputs = rows(model.outputs(&input, Asked::Token(2), 1, &device)).remove(0);
        let score = Score::new(Asked::Token(2), vec![6], vec![1], vec![2], &outputs);
        let mut explained = Explained {
            model: &model,
            tracked: Some(&tracked),
            device: &device,
            input: &input,
            score: &score,
            kept: [vec![false; 3], Vec::new()],
            filler: None,
            most_copies: 100,
        };
        let whole = score.value;
        assert!((explained.scores(&explained.words())[0] - whole).abs() < 1e-6);
        let [product, _] = gradient_times_input(&explained).unwrap();
        // Nothing is seen of other tokens, and all of the score is of the last one.
        assert_eq!(product[..2], [0.0, 0.0]);
        assert!(whole.abs() > 0.1 && (product[2] - whole).abs() < 1e-5, "{product:?}, {whole}");
        // However many copies are read at once.
        for most_copies in [100, 7, 2, 1] {
            explained.most_copies = most_copies;
            let ([integrated, _], completeness) = integrated_gradients(&explained).unwrap();
            let [occluded, _] = occlusion(&explained);
            for other in [integrated, occluded] {
                assert!(product.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5));
            }
            assert!(
                completeness.converged && completeness.points == 50 && completeness.baseline.abs() < 1e-6
            );
        }
    }
}
