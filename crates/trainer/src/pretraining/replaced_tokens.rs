//! ELECTRA's pretraining objective, replaced token detection (Clark et al. 2020, §2).

use super::encoder_objective::EncoderObjective;
use super::objective::{MaskedSums, figure, masked_input, save_tokenizer, sum, vector};
use super::tables;
use crate::Result;
use crate::engine::{Objective, Term, load_parameters, save_parameters};
use crate::metrics::curve::{Line, Panel, Source, TRAINING};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::{PretrainingBatch, UnigramCounts};
use cloze_evaluation::figures::Figures;
use cloze_model::bert::{Electra, ElectraConfig, replaced_token_loss, sampled_pieces, with_pieces};
use cloze_model::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use cloze_model::huggingface::{Architecture, PretrainedFolder, SaveConfig, save_pretrained};
use cloze_model::ops;
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::ops::AddAssign;
use std::path::Path;

/// The generator's subfolder in the discriminator's folder.
pub(crate) const GENERATOR: &str = "generator";

/// The generator's cross-entropy of the masked pieces, plus `λ` times the discriminator's binary cross-entropy of all
/// tokens (Clark et al. 2020, §2):
///
/// ```text
/// x̂ₜ ~ p_G(xₜ | x^masked) for the masked t    min  L_MLM(x, θ_G) + λ·L_Disc(x, x̂, θ_D)
/// ```
///
/// The discriminator reads the sequence with a sampled piece in each masked position; no gradient flows through
/// the sample. A sampled piece equal to the original counts as original. The two encoders share their
/// embeddings.
///
/// Each sample uses a random number from its batch ([`PretrainingBatch::uniform`]), so that it is a function of
/// the example and the weights, in evaluations too.
///
/// Tokens of spans whose length was changed by a corruption are not masked positions: they stay unchanged and
/// count as original.
#[derive(Debug, Clone)]
pub struct ReplacedTokenPretraining<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    weight: f64,
    published: Option<Published>,
    parts: PhantomData<fn() -> (A, P)>,
}

/// How the two encoders are saved.
#[derive(Debug, Clone)]
struct Published {
    config: ElectraConfig,
    save: SaveConfig,
}

impl Published {
    fn of_generator(&self) -> SaveConfig {
        self.save.clone().with_architecture(Architecture::MaskedLm)
    }
}

impl<A: Attention, P: Positions> ReplacedTokenPretraining<A, P> {
    /// `λ` in the paper, tuned there.
    pub const WEIGHT: f64 = 50.0;

    /// The objective with this weight `λ` of the discriminator's loss. The model is saved with its own
    /// parameter paths.
    pub fn new(weight: f64) -> Self {
        Self { weight, published: None, parts: PhantomData }
    }

    /// Saves the discriminator as a Hugging Face folder for the class in `save`, and the generator as a masked
    /// LM in its subfolder `generator`.
    pub(super) fn published(self, config: ElectraConfig, save: SaveConfig) -> Self {
        Self { published: Some(Published { config, save }), ..self }
    }
}

/// Both encoders' results for a batch.
struct Losses {
    /// `[masked, vocab_size]`
    logits: Tensor<2>,
    /// `[masked]`
    masked: Tensor<1>,
    /// `[n_tokens]`: the logits that a token was replaced.
    detected: Tensor<1>,
    /// `[n_tokens]`: 1 for a token that was replaced by another one, else 0.
    replaced: Tensor<1, Int>,
    /// `[n_tokens]`
    of_tokens: Tensor<1>,
}

fn losses<A: Attention, P: Positions>(
    model: &Electra<A, P>,
    batch: &PretrainingBatch,
    device: &Device,
) -> Losses {
    let (tokens, labels) = (&batch.tokens, vector(&batch.masked_labels, device));
    let (mut input, masked_places) = masked_input(&model.discriminator.bert, batch, device);
    let masked_places = vector(&masked_places, device);
    let logits = model.masked_lm().forward(input.clone(), masked_places.clone());
    let masked = ops::cross_entropy(logits.clone(), labels.clone());

    let uniform = TensorData::new(batch.uniform.clone(), [batch.uniform.len()]);
    let pieces = sampled_pieces(logits.clone(), Tensor::from_data(uniform, device));
    let numbers: Vec<i32> = (0..tokens.n_tokens() as i32).collect();
    let places = match input.packing {
        Some(_) => vector(&numbers, device),
        None => vector(&tokens.padded_places(&numbers), device),
    };
    input.input_ids = with_pieces(input.input_ids, masked_places, pieces.clone());
    let detected = model.discriminator.forward(input, places);

    let original = Tensor::<2, Int>::zeros([1, numbers.len()], device);
    let differs = pieces.not_equal(labels).int();
    let replaced = with_pieces(original, vector(&batch.masked_positions, device), differs);
    let replaced = replaced.squeeze_dim::<1>(0);
    let of_tokens = replaced_token_loss(detected.clone(), replaced.clone());
    Losses { logits, masked, detected, replaced, of_tokens }
}

impl<A: Attention, P: Positions> Objective for ReplacedTokenPretraining<A, P> {
    type Model = Electra<A, P>;
    type Batch = PretrainingBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new(figure::MASKED_LOSS), Term::new(figure::REPLACED_LOSS).with_weight(self.weight)]
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        vec![batch.masked_labels.len() as f64, batch.tokens.n_tokens() as f64]
    }

    /// # Panics
    /// If the number of [uniform numbers](PretrainingBatch::uniform) differs from the number of masked tokens.
    fn sums(&self, model: &Electra<A, P>, batch: &PretrainingBatch, device: &Device) -> Vec<Tensor<1>> {
        let Losses { masked, of_tokens, .. } = losses(model, batch, device);
        vec![masked.sum(), of_tokens.sum()]
    }
}

impl<A: Attention, P: Positions> EncoderObjective for ReplacedTokenPretraining<A, P> {
    type Sums = ReplacedTokenSums;

    fn measure(
        &self,
        model: &Electra<A, P>,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    ) -> ReplacedTokenSums {
        let mut sums = ReplacedTokenSums::default();
        sums.add(model, batch, unigram, device);
        sums
    }

    fn figures(&self, sums: &ReplacedTokenSums) -> Figures {
        sums.figures()
    }

    fn line(&self, step: u64, figures: &Figures) -> String {
        tables::line(step, figures)
    }

    /// The training and held-out losses of both, and held-out accuracies.
    fn panels(&self, split: &str) -> Vec<Panel> {
        let source = Source::LossTerm(figure::REPLACED_LOSS.into());
        let detection = vec![
            Line { label: TRAINING.into(), source },
            tables::held_out(split, "held out", figure::REPLACED_LOSS),
        ];
        let mut accuracies = tables::accuracy_panel(split);
        let more = [
            tables::held_out(split, "replaced tokens: precision, held out", figure::REPLACED_PRECISION),
            tables::held_out(split, "replaced tokens: recall, held out", figure::REPLACED_RECALL),
        ];
        accuracies.lines.splice(1..1, more);
        vec![
            tables::loss_panel(split),
            Panel { axis: "replaced-token loss (nats)".into(), lines: detection },
            accuracies,
        ]
    }

    fn results(&self, step: u64, figures: &Figures) -> String {
        tables::results(step, figures)
    }

    fn save(&self, model: &Electra<A, P>, folder: &Path, tokenizer: Option<&Tokenizer>) -> Result<()> {
        let Some(published) = &self.published else { return save_parameters(model, folder) };
        let Published { config, save } = published;
        save_pretrained(folder, &model.discriminator, config.discriminator(), save)?;
        save_tokenizer(tokenizer, folder)?;
        let folder = folder.join(GENERATOR);
        let masked_lm = model.masked_lm();
        save_pretrained(&folder, &masked_lm, config.generator(), &published.of_generator())?;
        save_tokenizer(tokenizer, &folder)
    }

    fn load(&self, model: Electra<A, P>, folder: &Path) -> Result<Electra<A, P>> {
        let Some(published) = &self.published else { return load_parameters(model, folder) };
        let masked_lm = model.masked_lm();
        let architecture = published.save.architecture;
        let (discriminator, _) =
            PretrainedFolder::open(folder)?.load_into(model.discriminator.clone(), architecture, &[])?;
        let architecture = published.of_generator().architecture;
        let (masked_lm, _) =
            PretrainedFolder::open(&folder.join(GENERATOR))?.load_into(masked_lm, architecture, &[])?;
        Ok(Electra { discriminator, ..model }.with_masked_lm(masked_lm))
    }
}

/// Sums over held-out batches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplacedTokenSums {
    examples: usize,
    masked: MaskedSums,
    loss: f64,
    tokens: u64,
    /// Number of replaced tokens.
    replaced: u64,
    /// Number of tokens classified as replaced.
    called: u64,
    /// Number of replaced tokens classified as replaced.
    found: u64,
}

impl AddAssign for ReplacedTokenSums {
    fn add_assign(&mut self, more: Self) {
        let Self { examples, masked, loss, tokens, replaced, called, found } = more;
        self.examples += examples;
        self.masked += masked;
        self.loss += loss;
        self.tokens += tokens;
        self.replaced += replaced;
        self.called += called;
        self.found += found;
    }
}

impl ReplacedTokenSums {
    /// Adds one batch; `model` is on an inference device.
    pub fn add<A: Attention, P: Positions>(
        &mut self,
        model: &Electra<A, P>,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    ) {
        let Losses { logits, masked, detected, replaced, of_tokens } =
            ops::on_awake_cores(device, || losses(model, batch, device));
        self.examples += batch.tokens.n_sequences();
        self.masked.add(logits, masked, &batch.masked_labels, unigram);
        self.loss += sum(of_tokens);
        let (detected, replaced) = (detected.into_data(), replaced.into_data());
        for (logit, replaced) in detected.iter::<f32>().zip(replaced.iter::<i32>()) {
            self.count(logit > 0.0, replaced == 1);
        }
    }

    /// Counts a token.
    fn count(&mut self, called: bool, replaced: bool) {
        self.tokens += 1;
        self.replaced += u64::from(replaced);
        self.called += u64::from(called);
        self.found += u64::from(called && replaced);
    }

    /// The means, under the names of [`figure`].
    pub fn figures(&self) -> Figures {
        let Self { tokens, replaced, called, found, .. } = *self;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        // Neither called replaced though original, nor called original though replaced.
        let right = tokens + 2 * found - called - replaced;
        let of_tokens = [
            (figure::REPLACED_LOSS, self.loss / tokens.max(1) as f64),
            (figure::REPLACED_ACCURACY, share(right, tokens)),
            (figure::REPLACED_PRECISION, share(found, called)),
            (figure::REPLACED_RECALL, share(found, replaced)),
            (figure::REPLACED_SHARE, share(replaced, tokens)),
        ];
        Figures::new(self.examples, self.masked.figures().into_iter().chain(of_tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_as_they_are_called() {
        let mut sums = ReplacedTokenSums { loss: 5.0, ..Default::default() };
        assert_eq!(ReplacedTokenSums::default().figures().get(figure::REPLACED_PRECISION), Some(0.0));
        for (times, called, replaced) in
            [(12, false, false), (3, true, true), (1, true, false), (4, false, true)]
        {
            (0..times).for_each(|_| sums.count(called, replaced));
        }
        let figures = sums.figures();
        let of = |name| figures.get(name).unwrap();
        assert_eq!(of(figure::REPLACED_LOSS), 0.25);
        assert_eq!(of(figure::REPLACED_ACCURACY), 0.75);
        assert_eq!(of(figure::REPLACED_PRECISION), 0.75);
        assert_eq!(of(figure::REPLACED_RECALL), 3.0 / 7.0);
        assert_eq!(of(figure::REPLACED_SHARE), 0.35);
        assert_eq!(figures.main().0, figure::MASKED_LOSS);
    }
}
