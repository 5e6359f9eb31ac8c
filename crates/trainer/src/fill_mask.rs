//! Mask filling: predicting masked pieces with a pretrained BERT.

use crate::cutting::Cutting;
use crate::fit::check_fit;
use crate::input;
use crate::requests::Respond;
use crate::{Result, TrainerError};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use cloze_data::{TokenBatch, TokenSequence};
use cloze_model::bert::MlmHead;
use cloze_model::blocks::pack_weights;
use cloze_model::huggingface::{Architecture, PretrainedFolder};
use cloze_model::tasks::BertForMaskedLm;
use cloze_model::{ParamInit, linear_maps};
use cloze_tokenizer::{Encoding, Tokenizer, TruncationDirection};
use std::path::{Path, PathBuf};

/// A tokenizer and a masked language model from one folder.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision).
#[derive(Debug)]
pub struct FillMask {
    folder: PathBuf,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) model: BertForMaskedLm,
    pub(crate) device: Device,
    max_len: usize,
    /// For texts that are weighed.
    cutting: Cutting,
    pub(crate) mask: u32,
}

linear_maps!(FillMask { model });

/// A candidate piece for a mask.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The piece's id.
    pub id: u32,
    /// The piece as in the vocabulary.
    pub token: String,
    /// Its probability among all pieces.
    pub probability: f32,
    /// The text with this piece in place of this mask; other masks stay.
    pub filled: String,
}

/// A text whose masks to fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillRequest {
    /// The text, with [masks](FillMask::mask_token).
    pub text: String,
    /// Number of candidates for each mask.
    pub top_k: usize,
    /// Whether to answer with the [weights](Filled::weights) of pieces in place of candidates. Such a text needs no
    /// mask.
    pub weighs: bool,
    /// Where a text that is weighed is cut if it is too long. A text whose masks are filled is never cut.
    pub cut: TruncationDirection,
}

impl FillRequest {
    /// A text for whose masks this many candidates are asked.
    pub fn of(text: impl Into<String>, top_k: usize) -> Self {
        Self { text: text.into(), top_k, weighs: false, cut: TruncationDirection::Right }
    }
}

/// The answer to a [`FillRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filled {
    /// The candidates for each mask, best first.
    pub masks: Vec<Vec<Candidate>>,
    /// The weights of pieces above zero, by id: a sparse vector of the text (Formal et al. 2021, SPLADE).
    ///
    /// ```text
    /// w_j = max_i log(1 + ReLU(logit_ij))      over the text's tokens i
    /// ```
    pub weights: Vec<(u32, f32)>,
}

/// An encoded text.
#[derive(Debug)]
pub struct FillUnit {
    request: FillRequest,
    encoding: Encoding,
    /// The positions of the masks, or of all tokens of a text that is weighed.
    masks: Vec<usize>,
}

impl FillUnit {
    /// Whether it is a part of its text.
    pub fn is_cut(&self) -> bool {
        self.encoding.truncated
    }
}

impl Respond for FillMask {
    type Request = FillRequest;
    type Unit = FillUnit;
    type Answer = Filled;

    fn encode(&self, request: FillRequest) -> Result<FillUnit> {
        let mut encoding = self.tokenizer.encode(&request.text, true)?;
        if request.weighs && encoding.len() > self.max_len {
            let cutting = self.cutting.of(&self.tokenizer, request.cut, self.max_len)?;
            encoding = cutting.encode(&request.text, true)?;
        }
        let masks = encoding.ids.iter().enumerate().filter(|(_, id)| **id == self.mask);
        let masks: Vec<usize> = match request.weighs {
            true => (0..encoding.len()).collect(),
            false => masks.map(|(place, _)| place).collect(),
        };
        if masks.is_empty() {
            let (text, mask) = (request.text, self.mask_token().into());
            return Err(TrainerError::NothingToFill { text, mask });
        }
        let (tokens, max) = (encoding.len(), self.max_len);
        if tokens > max {
            return Err(TrainerError::TextTooLong { folder: self.folder.clone(), tokens, max });
        }
        Ok(FillUnit { request, encoding, masks })
    }

    fn cost(&self, unit: &FillUnit) -> usize {
        unit.encoding.len()
    }

    fn answer(&self, units: &[&FillUnit]) -> Vec<Result<Filled>> {
        let Some(longest) = units.iter().map(|unit| self.cost(unit)).max() else {
            return Vec::new();
        };
        // As long as the longest is: one text is not padded.
        let mut tokens = TokenBatch::new().with_max_len(longest);
        let sequences: Vec<TokenSequence> = units.iter().map(|unit| (&unit.encoding).into()).collect();
        tokens.extend(&sequences);
        let input = input::input(&self.model.bert, &tokens, &self.device);
        let starts = input.starts().into_iter().zip(units);
        let masks = starts.flat_map(|(start, unit)| unit.masks.iter().map(move |mask| (start + mask) as i32));
        let masks: Vec<i32> = masks.collect();
        let states = self.model.bert.states_at(input, Tensor::from_data(masks.as_slice(), &self.device));
        let mut from = 0;
        let answer = |unit: &&FillUnit| {
            let rows = from..from + unit.masks.len();
            from = rows.end;
            let states = states.clone().slice(rows);
            Ok(match unit.request.weighs {
                true => Filled { weights: self.weights(states)?, ..Filled::default() },
                false => Filled { masks: self.filled(unit, states)?, ..Filled::default() },
            })
        };
        units.iter().map(answer).collect()
    }
}

impl FillMask {
    /// Loads a Hugging Face folder: `config.json`, `model.safetensors` and a tokenizer.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; [`TrainerError::NoMlmHead`] for a model without the head,
    /// [`TrainerError::NoMaskToken`] for a tokenizer without a mask token, [`TrainerError::VocabularyMismatch`]
    /// and [`TrainerError::UnfitTokenizer`] for a tokenizer of another model.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let mut tokenizer = Tokenizer::load(folder)?;
        // A text is a batch of its own, and the model is given no mask of the padding.
        tokenizer.set_padding(None)?;
        let pretrained = PretrainedFolder::open(folder)?;
        let config = pretrained.encoder(Architecture::MaskedLm);
        let init = &mut ParamInit::new(device, 0).deferred();
        let model = BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
        let (mut model, report) = pretrained.load_into(model, Architecture::MaskedLm, &["mlm.*"])?;
        if let Some(missing) = report.missing.first() {
            return Err(TrainerError::NoMlmHead { folder: folder.into(), missing: missing.clone() });
        }
        let mask = tokenizer
            .special_ids()
            .mask
            .ok_or_else(|| TrainerError::NoMaskToken { folder: folder.into() })?;
        check_fit(&tokenizer, &config, folder, false)?;
        pack_weights(&mut model);
        Ok(Self {
            folder: folder.into(),
            tokenizer,
            model,
            device: device.clone(),
            max_len: config.max_positions,
            cutting: Cutting::default(),
            mask,
        })
    }

    /// The mask token as written in a text, `[MASK]` or `<mask>`.
    pub fn mask_token(&self) -> &str {
        self.tokenizer.id_to_token(self.mask).unwrap_or("[MASK]")
    }

    /// The maximum tokens of a text, special tokens included.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// For each mask in `text`, its `top_k` most probable pieces, best first.
    ///
    /// # Errors
    /// [`TrainerError::NothingToFill`] for a text without a mask, [`TrainerError::TextTooLong`],
    /// [`TrainerError::OutputNotFinite`].
    pub fn fill(&self, text: &str, top_k: usize) -> Result<Vec<Vec<Candidate>>> {
        let unit = self.encode(FillRequest::of(text, top_k))?;
        Ok(self.answer(&[&unit]).remove(0)?.masks)
    }

    /// The weights of pieces, from the states of all tokens of a text, `[tokens, d]`.
    fn weights(&self, states: Tensor<2>) -> Result<Vec<(u32, f32)>> {
        let logits = self.model.mlm.forward(states, self.model.bert.embeddings.tokens.weight.val());
        let most: Vec<f32> = logits.max_dim(0).into_data().iter::<f32>().collect();
        if !most.iter().all(|logit| logit.is_finite()) {
            return Err(TrainerError::OutputNotFinite);
        }
        let weights = (0..).zip(most).filter(|(_, logit)| *logit > 0.0);
        Ok(weights.map(|(id, logit)| (id, logit.ln_1p())).collect())
    }

    /// The words of a text, in order, as bytes of it: what the tokenizer splits before it cuts pieces, without white space.
    ///
    /// # Errors
    /// A text that the tokenizer rejects.
    pub(crate) fn word_spans(&self, text: &str) -> Result<Vec<(usize, usize)>> {
        let encoding = self.tokenizer.encode(text, false)?;
        let mut words: Vec<(u32, (usize, usize))> = Vec::new();
        for (word, (start, end)) in encoding.word_ids.iter().zip(&encoding.offsets) {
            let Some(word) = word else { continue };
            match words.last_mut() {
                Some((last, span)) if last == word => span.1 = *end,
                _ => words.push((*word, (*start, *end))),
            }
        }
        let trimmed = |(_, (start, end)): (u32, (usize, usize))| {
            let word = text.get(start..end)?;
            let left = word.trim_start();
            let start = end - left.len();
            Some((start, start + left.trim_end().len())).filter(|(start, end)| start < end)
        };
        Ok(words.into_iter().filter_map(trimmed).collect())
    }

    /// A piece as a word, if it is one of letters: not a part of a longer one.
    pub(crate) fn whole_word(&self, id: u32) -> Option<String> {
        // Two words have white space between them, whatever the vocabulary writes for it.
        let twice = self.tokenizer.decode(&[id, id], true).ok()?;
        let mut words = twice.split_whitespace();
        let (first, second) = (words.next()?, words.next()?);
        let is_word = words.next().is_none() && first == second && first.chars().all(char::is_alphabetic);
        is_word.then(|| first.to_owned())
    }

    /// The candidates of all masks of a text, from the masked tokens' states, `[masks, d]`.
    fn filled(&self, unit: &FillUnit, states: Tensor<2>) -> Result<Vec<Vec<Candidate>>> {
        // Each text by itself: the rows of a product may change its last digits.
        let logits = self.model.mlm.forward(states, self.model.bert.embeddings.tokens.weight.val());
        let [_, vocab_size] = logits.dims();
        let probabilities: Vec<f32> = softmax(logits, 1).into_data().iter::<f32>().collect();
        if !probabilities.iter().all(|probability| probability.is_finite()) {
            return Err(TrainerError::OutputNotFinite);
        }
        let rows = probabilities.chunks(vocab_size).zip(&unit.masks);
        rows.map(|(row, position)| self.candidates(unit, *position, row)).collect()
    }

    /// Encodes texts without truncation, whatever the tokenizer's file says.
    pub(crate) fn set_whole_texts(&mut self) -> Result<()> {
        Ok(self.tokenizer.set_truncation(None)?)
    }

    fn candidates(
        &self,
        FillUnit { request: FillRequest { text, top_k, .. }, encoding, .. }: &FillUnit,
        position: usize,
        probabilities: &[f32],
    ) -> Result<Vec<Candidate>> {
        let mut order: Vec<u32> = (0..probabilities.len() as u32).collect();
        let by_probability = |a: &u32, b: &u32| {
            probabilities[*b as usize].total_cmp(&probabilities[*a as usize]).then(a.cmp(b))
        };
        let top_k = (*top_k).min(order.len());
        if top_k == 0 {
            return Ok(Vec::new());
        }
        order.select_nth_unstable_by(top_k - 1, by_probability);
        order.truncate(top_k);
        order.sort_by(by_probability);
        // A mask that takes a wide white space may begin or end inside of it, see `Encoding::offsets`.
        let (start, end) = encoding.offsets[position];
        let (start, end) = (text.floor_char_boundary(start), text.ceil_char_boundary(end));
        order
            .into_iter()
            .map(|id| {
                let token = self.tokenizer.id_to_token(id).unwrap_or_default().to_string();
                let piece = self.tokenizer.decode(&[id], false)?;
                // A continuation joins what is before it: `walk ##ing` is `walking`.
                let joins = token.starts_with("##");
                let before = if joins { text[..start].trim_end() } else { &text[..start] };
                let piece = if joins { token.trim_start_matches("##") } else { piece.trim() };
                let filled = format!("{before}{piece}{}", &text[end..]);
                Ok(Candidate { id, token, probability: probabilities[id as usize], filled })
            })
            .collect()
    }
}
