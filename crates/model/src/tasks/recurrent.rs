//! Recurrent encoders with a head, trained from scratch.

use super::Crf;
use super::token_classification::{decode_tags, tagging_loss};
use crate::bert::Pooling;
use crate::blocks::{Embedding, Linear};
use crate::ops::{self, CrossEntropy, Packing};
use crate::recurrent::{Cell, Reading, Recurrent, RecurrentConfig, RecurrentOutput};
use crate::scores::AttentionPooling;
use crate::sizes::check_recurrent_sizes;
use crate::{ModelError, ParamInit, Result, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// The configuration of a recurrent encoder of tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentEncoderConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// LSTM or GRU.
    pub cell: Cell,
    /// Features of an embedding.
    pub d_embedding: usize,
    /// Features of a token's state: half of them for each direction if there are two.
    pub d_model: usize,
    /// Layers.
    pub n_layers: usize,
    /// The direction in which the layers read.
    pub reading: Reading,
    /// Dropout on the embeddings, between layers, and before the head.
    pub dropout: f64,
}

impl RecurrentEncoderConfig {
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([
            ("vocab_size", self.vocab_size),
            ("d_embedding", self.d_embedding),
            ("d_model", self.d_model),
            ("n_layers", self.n_layers),
        ])?;
        if !self.d_model.is_multiple_of(self.reading.directions()) {
            return Err(ModelError::setting(
                "d_model",
                self.d_model,
                "an even number, half of it for each direction",
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        Ok(())
    }

    /// A new encoder, whose embeddings are initially uniform between ±0.1.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> RecurrentEncoder {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let layers =
            RecurrentConfig::new(self.cell, self.d_embedding, self.d_model / self.reading.directions());
        let layers = layers.with_layers(self.n_layers).with_reading(self.reading).with_dropout(self.dropout);
        RecurrentEncoder {
            embedding: Embedding::from_weight(init.uniform([self.vocab_size, self.d_embedding], 0.1)),
            layers: layers.init(init),
            dropout: self.dropout,
        }
    }
}

/// Embeddings and recurrent layers.
#[derive(Module, Debug)]
pub struct RecurrentEncoder {
    /// `[vocab_size, d_embedding]`
    pub embedding: Embedding,
    /// The layers.
    pub layers: Recurrent,
    /// Dropout on the embeddings.
    pub dropout: f64,
}

linear_maps!(RecurrentEncoder { layers });

impl RecurrentEncoder {
    /// The states of all tokens, `[n_tokens, d_model]`, in the order of [`Sequences::ids`], and the layers' final
    /// states.
    ///
    /// # Panics
    /// If there is no sequence.
    pub fn forward(&self, sequences: &Sequences, device: &Device) -> RecurrentOutput {
        let x = self.embedding.forward(sequences.packed(device)).squeeze_dim::<2>(0);
        self.layers.forward(ops::dropout(x, self.dropout), &sequences.packing(), None)
    }
}

/// How a sequence's states are pooled into one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecurrentPooling {
    /// The final states of the last layer's directions, concatenated.
    #[default]
    Last,
    /// The mean over all tokens.
    Mean,
    /// The maximum of each feature over all tokens.
    Max,
    /// The mean weighted by attention to a trained query (Yang et al. 2016).
    Attention,
}

/// The configuration of a recurrent classifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentClassifierConfig {
    /// The encoder.
    pub encoder: RecurrentEncoderConfig,
    /// How the encoder's states are pooled.
    pub pooling: RecurrentPooling,
    /// The number of classes; 1 for a regression.
    pub n_outputs: usize,
}

impl RecurrentClassifierConfig {
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("n_outputs", self.n_outputs)])?;
        self.encoder.validate()
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> RecurrentForSequenceClassification {
        let d = self.encoder.d_model;
        let encoder = self.encoder.init(init);
        let attends = self.pooling == RecurrentPooling::Attention;
        RecurrentForSequenceClassification {
            encoder,
            attention: attends.then(|| AttentionPooling::new(d, d, init)),
            output: Linear::uniform(d, self.n_outputs, init),
            dropout: self.encoder.dropout,
            pooling: self.pooling,
        }
    }
}

/// A recurrent encoder that classifies sequences, or predicts a number for each.
#[derive(Module, Debug)]
pub struct RecurrentForSequenceClassification {
    /// The encoder.
    pub encoder: RecurrentEncoder,
    /// The pooling's attention, if states are pooled by attention.
    pub attention: Option<AttentionPooling>,
    /// `[d_model, n_outputs]`
    pub output: Linear,
    /// Dropout before the output.
    pub dropout: f64,
    #[module(skip)]
    pooling: RecurrentPooling,
}

linear_maps!(RecurrentForSequenceClassification { encoder; attention, output });

impl RecurrentForSequenceClassification {
    /// One row of logits for each sequence, `[sequences, n_outputs]`.
    ///
    /// # Panics
    /// If there is no sequence.
    pub fn forward(&self, sequences: &Sequences, device: &Device) -> Tensor<2> {
        let RecurrentOutput { states, mut last } = self.encoder.forward(sequences, device);
        let packing: Packing = sequences.packing();
        let pool = |pooling: Pooling, states: Tensor<2>| {
            pooling.forward(states.unsqueeze_dim::<3>(0), None, Some(&packing))
        };
        let pooled = match (self.pooling, &self.attention) {
            (RecurrentPooling::Mean, _) => pool(Pooling::Mean, states),
            (RecurrentPooling::Max, _) => pool(Pooling::Max, states),
            (RecurrentPooling::Attention, Some(attention)) => attention.forward(states, &packing).0,
            _ => last.pop().expect("a layer at least").hidden,
        };
        self.output.forward(ops::dropout(pooled, self.dropout))
    }
}

/// The configuration of a recurrent tagger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentTaggerConfig {
    /// The encoder.
    pub encoder: RecurrentEncoderConfig,
    /// Tags.
    pub n_tags: usize,
    /// Whether a conditional random field tags all words of a sentence jointly (Huang et al. 2015; Lample et al. 2016).
    pub crf: bool,
}

impl RecurrentTaggerConfig {
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("n_tags", self.n_tags)])?;
        self.encoder.validate()
    }

    /// A new model. Its conditional random field has no rules yet, see [`Crf::with_rules`].
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> RecurrentForTokenClassification {
        let encoder = self.encoder.init(init);
        RecurrentForTokenClassification {
            encoder,
            output: Linear::uniform(self.encoder.d_model, self.n_tags, init),
            crf: self.crf.then(|| Crf::new(self.n_tags, init)),
            dropout: self.encoder.dropout,
        }
    }
}

/// A recurrent encoder that tags words by their first pieces.
#[derive(Module, Debug)]
pub struct RecurrentForTokenClassification {
    /// The encoder.
    pub encoder: RecurrentEncoder,
    /// `[d_model, n_tags]`
    pub output: Linear,
    /// The conditional random field, whose emissions are the output's logits.
    pub crf: Option<Crf>,
    /// Dropout before the output.
    pub dropout: f64,
}

linear_maps!(RecurrentForTokenClassification { encoder; output });

impl RecurrentForTokenClassification {
    /// The logits, or emissions, of some tokens: one row for each word.
    ///
    /// # Shapes
    /// - `positions`: the indices of `n_words` tokens in the order of [`Sequences::ids`]; returns `[n_words, n_tags]`
    pub fn forward(&self, sequences: &Sequences, positions: &[i32], device: &Device) -> Tensor<2> {
        let states = self.encoder.forward(sequences, device).states;
        let states = states.select(0, Tensor::from_data(positions, device));
        self.output.forward(ops::dropout(states, self.dropout))
    }

    /// As [`BertForTokenClassification::loss`](super::BertForTokenClassification::loss).
    ///
    /// # Panics
    /// As there.
    pub fn loss(
        &self,
        logits: Tensor<2>,
        tags: &[usize],
        n_words: &[usize],
        loss: &CrossEntropy,
    ) -> Tensor<1> {
        tagging_loss(self.crf.as_ref(), logits, tags, n_words, loss)
    }

    /// As [`BertForTokenClassification::decode`](super::BertForTokenClassification::decode).
    ///
    /// # Panics
    /// As there.
    pub fn decode(&self, logits: Tensor<2>, n_words: &[usize]) -> Vec<Vec<usize>> {
        decode_tags(self.crf.as_ref(), logits, n_words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::assert_read_alone;
    use burn::tensor::Tolerance;

    fn encoder(reading: Reading) -> RecurrentEncoderConfig {
        RecurrentEncoderConfig {
            vocab_size: 20,
            cell: Cell::Lstm,
            d_embedding: 5,
            d_model: 8,
            n_layers: 2,
            reading,
            dropout: 0.3,
        }
    }

    #[test]
    fn a_text_is_classified_by_itself() {
        let device = Device::flex();
        use RecurrentPooling::{Attention, Last, Max, Mean};
        for pooling in [Last, Mean, Max, Attention] {
            let config = RecurrentClassifierConfig { encoder: encoder(Reading::Both), pooling, n_outputs: 3 };
            let model = config.init(&mut ParamInit::new(&device, 2));
            assert_read_alone(3, |texts| model.forward(texts, &device));
        }
    }

    #[test]
    fn words_are_tagged_by_chosen_tokens() {
        let device = Device::flex();
        let config = RecurrentTaggerConfig { encoder: encoder(Reading::Both), n_tags: 4, crf: true };
        let model = config.init(&mut ParamInit::new(&device, 2));
        let sentences: Sequences = [&[3, 4, 5][..], &[6, 7]].into_iter().collect();
        let all = model.forward(&sentences, &[0, 1, 2, 3, 4], &device);
        let some = model.forward(&sentences, &[0, 2, 3], &device);
        let expected = Tensor::cat([0, 2, 3].map(|word| all.clone().narrow(0, word, 1)).to_vec(), 0);
        some.clone().into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-6));
        assert_eq!(model.loss(some.clone(), &[1, 3, 0], &[2, 1], &CrossEntropy::default()).dims(), [2]);
        let decoded = model.decode(some, &[2, 1]);
        assert_eq!(decoded.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let odd = RecurrentEncoderConfig { d_model: 7, ..encoder(Reading::Both) };
        assert!(odd.validate().unwrap_err().to_string().contains("`d_model` is 7"));
        assert!(RecurrentEncoderConfig { d_model: 7, ..encoder(Reading::Forward) }.validate().is_ok());
        let none = RecurrentTaggerConfig { encoder: encoder(Reading::Both), n_tags: 0, crf: false };
        assert!(none.validate().unwrap_err().to_string().contains("`n_tags` is 0"));
    }
}
