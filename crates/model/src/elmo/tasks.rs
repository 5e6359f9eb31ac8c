//! Task models on ELMo's layers: a scalar mix, a bidirectional recurrent layer, and a head.

use super::{ElmoConfig, ElmoEncoder};
use crate::bert::Pooling;
use crate::blocks::{Linear, ScalarMix, ScalarMixConfig};
use crate::ops::{self, CrossEntropy, Packing};
use crate::recurrent::{Cell, Reading, Recurrent, RecurrentConfig};
use crate::sizes::check_recurrent_sizes;
use crate::tasks::{Crf, decode_tags, tagging_loss};
use crate::{HasBackbone, ModelError, ParamInit, Result, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// The configuration of an [`ElmoReader`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ElmoReaderConfig {
    /// Whether the encoder's layers are normalised before they are mixed.
    pub layer_norm: bool,
    /// Features of a token's state, half for each direction.
    pub d_model: usize,
    /// Dropout on the mix, and before the head.
    pub dropout: f64,
}

impl ElmoReaderConfig {
    /// States of `d_model` features, and the paper's dropout on ELMo's vectors, 0.5 (Peters et al. 2018, §3.3
    /// and appendix).
    pub fn new(d_model: usize) -> Self {
        Self { layer_norm: false, d_model, dropout: 0.5 }
    }

    /// Sets the dropout.
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("d_model", self.d_model)])?;
        if !self.d_model.is_multiple_of(2) {
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

    fn init(&self, encoder: &ElmoConfig, init: &mut ParamInit) -> ElmoReader {
        let layers =
            RecurrentConfig::new(Cell::Lstm, encoder.d_model(), self.d_model / 2).with_reading(Reading::Both);
        ElmoReader {
            mix: ScalarMixConfig::new(encoder.n_layers + 1).with_layer_norm(self.layer_norm).init(init),
            layers: layers.init(init),
            dropout: self.dropout,
        }
    }
}

/// A task's recurrent layer over its own mix of ELMo's layers: the vectors `ELMo_k = γ Σ_j s_j h_(k,j)` are the input of a
/// bidirectional LSTM (Peters et al. 2018, §3.3 and §4).
///
/// Deviation: the paper's task models also read word vectors; here ELMo's are the only input.
#[derive(Module, Debug)]
pub struct ElmoReader {
    /// The mix of the encoder's layers.
    pub mix: ScalarMix,
    /// The task's own layer.
    pub layers: Recurrent,
    /// Dropout on the mix, and before the head.
    pub dropout: f64,
}

linear_maps!(ElmoReader { layers });

impl ElmoReader {
    /// The states of all tokens, after dropout.
    ///
    /// # Shapes
    /// - `layers`: the encoder's, each `[n_tokens, 2·p]`, packed; returns `[n_tokens, d_model]`
    pub fn forward(&self, layers: &[Tensor<2>], packing: &Packing) -> Tensor<2> {
        let x = ops::dropout(self.mix.forward(layers), self.dropout);
        ops::dropout(self.layers.forward(x, packing, None).states, self.dropout)
    }
}

/// The configuration of a classifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElmoClassifierConfig {
    /// The encoder.
    pub encoder: ElmoConfig,
    /// The reader on it.
    pub reader: ElmoReaderConfig,
    /// The number of classes; 1 for a regression.
    pub n_outputs: usize,
}

impl ElmoClassifierConfig {
    /// A reader as wide as the encoder's layers.
    pub fn new(encoder: ElmoConfig, n_outputs: usize) -> Self {
        let reader = ElmoReaderConfig::new(encoder.d_model());
        Self { encoder, reader, n_outputs }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("n_outputs", self.n_outputs)])?;
        self.reader.validate()?;
        self.encoder.validate()
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ElmoForSequenceClassification {
        let encoder = self.encoder.init_encoder(init);
        self.init_with(encoder, init)
    }

    /// A model with an existing encoder, and new parts on it.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_with(&self, encoder: ElmoEncoder, init: &mut ParamInit) -> ElmoForSequenceClassification {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let reader = self.reader.init(&self.encoder, init);
        ElmoForSequenceClassification {
            encoder,
            reader,
            output: Linear::uniform(self.reader.d_model, self.n_outputs, init),
        }
    }
}

/// A classifier of texts: classifies the maximum of each feature of the reader's states.
#[derive(Module, Debug)]
pub struct ElmoForSequenceClassification {
    /// The encoder.
    pub encoder: ElmoEncoder,
    /// The reader on it.
    pub reader: ElmoReader,
    /// `[d_model, n_outputs]`
    pub output: Linear,
}

linear_maps!(ElmoForSequenceClassification { encoder; reader, output });

impl ElmoForSequenceClassification {
    /// One row of logits for each sequence, `[sequences, n_outputs]`.
    ///
    /// # Panics
    /// If there is no sequence.
    pub fn forward(&self, sequences: &Sequences, device: &Device) -> Tensor<2> {
        let packing = sequences.packing();
        let states = self.reader.forward(&self.encoder.forward(sequences, device).layers, &packing);
        self.output.forward(Pooling::Max.forward(states.unsqueeze_dim::<3>(0), None, Some(&packing)))
    }
}

/// The configuration of a tagger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElmoTaggerConfig {
    /// The encoder.
    pub encoder: ElmoConfig,
    /// The reader on it.
    pub reader: ElmoReaderConfig,
    /// Tags.
    pub n_tags: usize,
    /// Whether a conditional random field tags all words of a sentence jointly, as in the paper's named
    /// entity model.
    pub crf: bool,
}

impl ElmoTaggerConfig {
    /// A reader as wide as the encoder's layers, without a conditional random field.
    pub fn new(encoder: ElmoConfig, n_tags: usize) -> Self {
        let reader = ElmoReaderConfig::new(encoder.d_model());
        Self { encoder, reader, n_tags, crf: false }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("n_tags", self.n_tags)])?;
        self.reader.validate()?;
        self.encoder.validate()
    }

    /// A new model. Its conditional random field has no rules yet, see [`Crf::with_rules`].
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ElmoForTokenClassification {
        let encoder = self.encoder.init_encoder(init);
        self.init_with(encoder, init)
    }

    /// A model with an existing encoder, and new parts on it.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_with(&self, encoder: ElmoEncoder, init: &mut ParamInit) -> ElmoForTokenClassification {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let reader = self.reader.init(&self.encoder, init);
        ElmoForTokenClassification {
            encoder,
            reader,
            output: Linear::uniform(self.reader.d_model, self.n_tags, init),
            crf: self.crf.then(|| Crf::new(self.n_tags, init)),
        }
    }
}

/// A tagger of words by their first pieces.
#[derive(Module, Debug)]
pub struct ElmoForTokenClassification {
    /// The encoder.
    pub encoder: ElmoEncoder,
    /// The reader on it.
    pub reader: ElmoReader,
    /// `[d_model, n_tags]`
    pub output: Linear,
    /// The conditional random field, whose emissions are the output's logits.
    pub crf: Option<Crf>,
}

linear_maps!(ElmoForTokenClassification { encoder; reader, output });

impl ElmoForTokenClassification {
    /// The logits, or emissions, of some tokens: one row for each word.
    ///
    /// # Shapes
    /// - `positions`: the indices of `n_words` tokens in the order of [`Sequences::ids`]; returns `[n_words, n_tags]`
    pub fn forward(&self, sequences: &Sequences, positions: &[i32], device: &Device) -> Tensor<2> {
        let layers = self.encoder.forward(sequences, device).layers;
        let states = self.reader.forward(&layers, &sequences.packing());
        self.output.forward(states.select(0, Tensor::from_data(positions, device)))
    }

    /// As [`BertForTokenClassification::loss`](crate::tasks::BertForTokenClassification::loss).
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

    /// As [`BertForTokenClassification::decode`](crate::tasks::BertForTokenClassification::decode).
    ///
    /// # Panics
    /// As there.
    pub fn decode(&self, logits: Tensor<2>, n_words: &[usize]) -> Vec<Vec<usize>> {
        decode_tags(self.crf.as_ref(), logits, n_words)
    }
}

impl HasBackbone for ElmoForSequenceClassification {
    type Backbone = ElmoEncoder;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &ElmoEncoder {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut ElmoEncoder {
        &mut self.encoder
    }
}

impl HasBackbone for ElmoForTokenClassification {
    type Backbone = ElmoEncoder;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &ElmoEncoder {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut ElmoEncoder {
        &mut self.encoder
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoder::tests::small;
    use super::*;
    use burn::module::Param;
    use burn::tensor::Tolerance;

    #[test]
    fn a_text_is_classified_by_itself() {
        let device = Device::flex();
        let model = ElmoClassifierConfig::new(small(), 3).init(&mut ParamInit::new(&device, 2));
        let texts: [&[i32]; 3] = [&[3, 4, 5], &[6], &[7, 8, 9, 10]];
        let all = model.forward(&texts.into_iter().collect(), &device);
        assert_eq!(all.dims(), [3, 3]);
        for (row, text) in texts.into_iter().enumerate() {
            let alone = model.forward(&[text].into_iter().collect(), &device).into_data();
            let expected = all.clone().narrow(0, row, 1).into_data();
            alone.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }

    #[test]
    fn words_are_tagged_by_chosen_tokens_and_the_mix_learns() {
        let device = Device::flex().autodiff();
        let mut config = ElmoTaggerConfig { crf: true, ..ElmoTaggerConfig::new(small(), 4) };
        config.reader.dropout = 0.0;
        let model = config.init(&mut ParamInit::new(&device, 2));
        let sentences: Sequences = [&[3, 4, 5][..], &[6, 7]].into_iter().collect();
        let all = model.forward(&sentences, &[0, 1, 2, 3, 4], &device);
        let some = model.forward(&sentences, &[0, 2, 3], &device);
        let expected = Tensor::cat([0, 2, 3].map(|word| all.clone().narrow(0, word, 1)).to_vec(), 0);
        some.clone().into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-6));
        let decoded = model.decode(some.clone(), &[2, 1]);
        assert_eq!(decoded.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let gradients = model.loss(some, &[1, 3, 0], &[2, 1], &CrossEntropy::default()).sum().backward();
        let gradient = |parameter: &Param<Tensor<1>>| {
            let gradient = parameter.val().grad(&gradients).unwrap().into_data();
            gradient.iter::<f32>().all(|x| x != 0.0)
        };
        assert!(gradient(&model.reader.mix.weights) && gradient(&model.reader.mix.gamma));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let refused = |config: ElmoClassifierConfig| config.validate().unwrap_err().to_string();
        let base = ElmoClassifierConfig::new(small(), 3);
        base.validate().unwrap();
        let message = refused(ElmoClassifierConfig { n_outputs: 0, ..base.clone() });
        assert!(message.contains("`n_outputs` is 0"), "{message}");
        let message = refused(ElmoClassifierConfig { reader: ElmoReaderConfig::new(7), ..base.clone() });
        assert!(message.contains("`d_model` is 7, expected an even number"), "{message}");
        let reader = ElmoReaderConfig::new(8).with_dropout(1.0);
        let message = refused(ElmoClassifierConfig { reader, ..base });
        assert!(message.contains("`dropout` is 1, expected 0 or more"), "{message}");
        let tagger = ElmoTaggerConfig::new(small(), 0).validate().unwrap_err().to_string();
        assert!(tagger.contains("`n_tags` is 0"), "{tagger}");
    }
}
