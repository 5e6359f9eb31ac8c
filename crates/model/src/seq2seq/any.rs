//! Any of this crate's translation models, chosen at run time.

use super::{
    ConvolutionalDecoding, ConvolutionalEncoderDecoder, ConvolutionalEncoderDecoderConfig, DecodeOptions,
    EncoderDecoder, RecurrentDecoding, RecurrentEncoderDecoder, RecurrentEncoderDecoderConfig, Transformer,
    TransformerConfig, TransformerState,
};
use crate::blocks::{LinearMap, LinearMaps, SampledSoftmax};
use crate::generate::{NextToken, StepOutput};
use crate::huggingface::{
    FloatType, Format, SaveReport, check_published, load_published, model_type, save_published,
};
use crate::{ModelError, ParamInit, Result, Sequences};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use std::path::Path;

/// A translation model of any kind in this crate.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one model, and no list")]
pub enum AnyEncoderDecoder {
    /// A Transformer.
    Transformer(Transformer),
    /// A recurrent model.
    Recurrent(RecurrentEncoderDecoder),
    /// A convolutional model.
    Convolutional(ConvolutionalEncoderDecoder),
}

/// The configuration of a translation model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnyEncoderDecoderConfig {
    /// That of a Transformer.
    Transformer(TransformerConfig),
    /// That of a recurrent model.
    Recurrent(RecurrentEncoderDecoderConfig),
    /// That of a convolutional model.
    Convolutional(ConvolutionalEncoderDecoderConfig),
}

impl From<TransformerConfig> for AnyEncoderDecoderConfig {
    fn from(config: TransformerConfig) -> Self {
        Self::Transformer(config)
    }
}

impl From<RecurrentEncoderDecoderConfig> for AnyEncoderDecoderConfig {
    fn from(config: RecurrentEncoderDecoderConfig) -> Self {
        Self::Recurrent(config)
    }
}

impl From<ConvolutionalEncoderDecoderConfig> for AnyEncoderDecoderConfig {
    fn from(config: ConvolutionalEncoderDecoderConfig) -> Self {
        Self::Convolutional(config)
    }
}

/// The decoding state of an [`AnyEncoderDecoder`].
#[allow(clippy::large_enum_variant, reason = "there is one state, and no list")]
pub enum AnyState {
    /// That of a Transformer.
    Transformer(TransformerState),
    /// That of a recurrent model.
    Recurrent(RecurrentDecoding),
    /// That of a convolutional model.
    Convolutional(ConvolutionalDecoding),
}

impl AnyEncoderDecoderConfig {
    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, init: &mut ParamInit) -> AnyEncoderDecoder {
        match self {
            Self::Transformer(config) => AnyEncoderDecoder::Transformer(config.init(init)),
            Self::Recurrent(config) => AnyEncoderDecoder::Recurrent(config.init(init)),
            Self::Convolutional(config) => AnyEncoderDecoder::Convolutional(config.init(init)),
        }
    }

    /// The vocabulary sizes of source and target.
    pub fn vocab_sizes(&self) -> [usize; 2] {
        match self {
            Self::Transformer(config) => [config.source_vocabulary(), config.vocab_size],
            Self::Recurrent(config) => {
                [config.source_vocab_size.unwrap_or(config.vocab_size), config.vocab_size]
            }
            Self::Convolutional(config) => [config.source_vocabulary(), config.vocab_size],
        }
    }

    /// Checks that the configuration is valid and such a model can be saved.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid key.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Transformer(config) => {
                config.validate()?;
                check_published(config)
            }
            Self::Recurrent(config) => {
                config.validate()?;
                check_published(config)
            }
            Self::Convolutional(config) => {
                config.validate()?;
                check_published(config)
            }
        }
    }

    /// Saves a model of this configuration in `folder`.
    ///
    /// # Errors
    /// Those of [`save_published`].
    ///
    /// # Panics
    /// If the model is of a different kind.
    pub fn save(&self, model: &AnyEncoderDecoder, folder: &Path) -> Result<SaveReport> {
        match (self, model) {
            (Self::Transformer(config), AnyEncoderDecoder::Transformer(model)) => {
                save_published(folder, model, config, FloatType::F32)
            }
            (Self::Recurrent(config), AnyEncoderDecoder::Recurrent(model)) => {
                save_published(folder, model, config, FloatType::F32)
            }
            (Self::Convolutional(config), AnyEncoderDecoder::Convolutional(model)) => {
                save_published(folder, model, config, FloatType::F32)
            }
            _ => panic!("the model and its configuration are of different kinds"),
        }
    }

    /// Reads a folder's model, of the kind named by its `model_type`.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a model of any other kind; those of [`load_published`].
    pub fn load(folder: &Path, init: &mut ParamInit) -> Result<(Self, AnyEncoderDecoder)> {
        let found = model_type(folder)?;
        let is_of = |types: &[&str]| found.as_deref().is_some_and(|found| types.contains(&found));
        if is_of(TransformerConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<TransformerConfig>(folder, init)?;
            return Ok((Self::Transformer(config), AnyEncoderDecoder::Transformer(model)));
        }
        if is_of(RecurrentEncoderDecoderConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<RecurrentEncoderDecoderConfig>(folder, init)?;
            return Ok((Self::Recurrent(config), AnyEncoderDecoder::Recurrent(model)));
        }
        if is_of(ConvolutionalEncoderDecoderConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<ConvolutionalEncoderDecoderConfig>(folder, init)?;
            return Ok((Self::Convolutional(config), AnyEncoderDecoder::Convolutional(model)));
        }
        let known = [
            TransformerConfig::MODEL_TYPES,
            RecurrentEncoderDecoderConfig::MODEL_TYPES,
            ConvolutionalEncoderDecoderConfig::MODEL_TYPES,
        ]
        .concat();
        let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let (found, known) = (found.unwrap_or_else(|| "absent".into()), known.join(", "));
        Err(ModelError::Config(format!(
            "{}: `model_type` is {found:?}, expected a translation model's, one of {known}",
            folder.join("config.json").display()
        )))
    }
}

impl LinearMaps for AnyEncoderDecoder {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match self {
            Self::Transformer(model) => model.linear_maps_mut(),
            Self::Recurrent(model) => model.linear_maps_mut(),
            Self::Convolutional(model) => model.linear_maps_mut(),
        }
    }
}

impl EncoderDecoder for AnyEncoderDecoder {
    fn logits(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        match self {
            Self::Transformer(model) => model.logits(source, target, device),
            Self::Recurrent(model) => model.logits(source, target, device),
            Self::Convolutional(model) => model.logits(source, target, device),
        }
    }

    fn losses(
        &self,
        source: &Sequences,
        target: &Sequences,
        next: &[i32],
        sampled: Option<SampledSoftmax>,
        device: &Device,
    ) -> Tensor<1> {
        match self {
            Self::Transformer(model) => model.losses(source, target, next, sampled, device),
            Self::Recurrent(model) => model.losses(source, target, next, sampled, device),
            Self::Convolutional(model) => model.losses(source, target, next, sampled, device),
        }
    }

    fn begin(&self, source: &Sequences, options: DecodeOptions, device: &Device) -> AnyState {
        match self {
            Self::Transformer(model) => AnyState::Transformer(model.begin(source, options, device)),
            Self::Recurrent(model) => AnyState::Recurrent(model.begin(source, options, device)),
            Self::Convolutional(model) => AnyState::Convolutional(model.begin(source, options, device)),
        }
    }

    fn max_source_tokens(&self) -> Option<usize> {
        match self {
            Self::Transformer(model) => model.max_source_tokens(),
            Self::Recurrent(model) => model.max_source_tokens(),
            Self::Convolutional(model) => model.max_source_tokens(),
        }
    }
}

/// The end of the panic message for a state of a different kind of model.
const ANOTHER: &str = "the state belongs to a different kind of model";

/// # Panics
/// The whole message.
impl NextToken for AnyEncoderDecoder {
    type State = AnyState;

    fn step(&self, tokens: &[i32], state: &mut AnyState) -> StepOutput {
        match (self, state) {
            (Self::Transformer(model), AnyState::Transformer(state)) => model.step(tokens, state),
            (Self::Recurrent(model), AnyState::Recurrent(state)) => model.step(tokens, state),
            (Self::Convolutional(model), AnyState::Convolutional(state)) => model.step(tokens, state),
            _ => panic!("{ANOTHER}"),
        }
    }

    fn select(&self, state: &mut AnyState, rows: &[usize]) {
        match (self, state) {
            (Self::Transformer(model), AnyState::Transformer(state)) => model.select(state, rows),
            (Self::Recurrent(model), AnyState::Recurrent(state)) => model.select(state, rows),
            (Self::Convolutional(model), AnyState::Convolutional(state)) => model.select(state, rows),
            _ => panic!("{ANOTHER}"),
        }
    }

    fn join(&self, state: &mut AnyState, other: AnyState) {
        match (self, state, other) {
            (Self::Transformer(model), AnyState::Transformer(state), AnyState::Transformer(other)) => {
                model.join(state, other);
            }
            (Self::Recurrent(model), AnyState::Recurrent(state), AnyState::Recurrent(other)) => {
                model.join(state, other);
            }
            (Self::Convolutional(model), AnyState::Convolutional(state), AnyState::Convolutional(other)) => {
                model.join(state, other);
            }
            _ => panic!("{ANOTHER}"),
        }
    }

    fn max_tokens(&self) -> Option<usize> {
        match self {
            Self::Transformer(model) => model.max_tokens(),
            Self::Recurrent(model) => model.max_tokens(),
            Self::Convolutional(model) => model.max_tokens(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::AdaptiveSoftmaxConfig;
    use crate::seq2seq::{OutputBias, TiedEmbeddings, Wiring};
    use crate::weights;
    use burn::tensor::{TensorData, Tolerance};

    /// A model of each kind, with tied embeddings and without.
    fn of_each_kind() -> Vec<AnyEncoderDecoderConfig> {
        let transformer = TransformerConfig::new(40, 1, 8).with_d_ff(8).with_dropout(0.0);
        let recurrent = RecurrentEncoderDecoderConfig {
            dropout: 0.0,
            wiring: Wiring::Luong,
            ..RecurrentEncoderDecoderConfig::new(40, 6, 8)
        };
        let convolutional = ConvolutionalEncoderDecoderConfig::new(40, 6, 8).with_dropout(0.0);
        vec![
            transformer.clone().with_tied(TiedEmbeddings::None).into(),
            transformer.with_output_bias(OutputBias::Learned).into(),
            RecurrentEncoderDecoderConfig { tied: TiedEmbeddings::None, ..recurrent.clone() }.into(),
            recurrent.into(),
            convolutional.clone().with_tied(TiedEmbeddings::SourceTarget).into(),
            convolutional.into(),
        ]
    }

    fn pairs() -> [Sequences; 2] {
        let source = [&[5, 6, 2][..], &[7, 2]].into_iter().collect();
        let target = [&[2, 9][..], &[2, 30, 31]].into_iter().collect();
        [source, target]
    }

    /// The piece after each target token.
    const NEXT: [i32; 5] = [9, 2, 30, 39, 2];

    /// Replaces the biases of the output layer, which are zero at first and would not be missed.
    fn give_output_biases(model: &mut AnyEncoderDecoder, init: &mut ParamInit) {
        match model {
            AnyEncoderDecoder::Transformer(model) => {
                model.output_bias = model.output_bias.take().map(|_| init.uniform([1, 40], 1.0));
            }
            AnyEncoderDecoder::Recurrent(model) => {
                model.output_bias = model.output_bias.take().map(|_| init.uniform([40], 1.0));
            }
            AnyEncoderDecoder::Convolutional(model) => {
                model.output_bias = model.output_bias.take().map(|_| init.uniform([40], 1.0));
                if let Some(output) = &mut model.output {
                    output.bias = init.uniform([40], 1.0);
                }
            }
        }
    }

    #[test]
    fn losses_among_drawn_pieces_are_those_of_all_logits() {
        let device = Device::flex();
        let [source, target] = pairs();
        let sampled = SampledSoftmax::new(12);
        for config in of_each_kind() {
            let mut model = config.init(&mut ParamInit::new(&device, 3));
            give_output_biases(&mut model, &mut ParamInit::new(&device, 4));
            let logits = model.logits(&source, &target, &device);
            device.seed(5);
            let found = model.losses(&source, &target, &NEXT, Some(sampled), &device).into_data();
            device.seed(5);
            let expected = sampled.losses_of(logits, &NEXT).into_data();
            found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }

    #[test]
    fn an_adaptive_output_has_probabilities_of_all_pieces() {
        let device = Device::flex();
        let [source, target] = pairs();
        let folder = tempfile::tempdir().unwrap();
        let output = AdaptiveSoftmaxConfig::new(vec![8, 20]).with_divisor(2.0);
        for config in of_each_kind() {
            let config: AnyEncoderDecoderConfig = match config {
                AnyEncoderDecoderConfig::Transformer(config) => {
                    config.with_output_bias(OutputBias::None).with_output(output.clone()).into()
                }
                AnyEncoderDecoderConfig::Recurrent(config) => config.with_output(output.clone()).into(),
                AnyEncoderDecoderConfig::Convolutional(config) => config.with_output(output.clone()).into(),
            };
            config.check().unwrap();
            let mut model = config.init(&mut ParamInit::new(&device, 3));
            let log_probs = model.logits(&source, &target, &device);
            let sums = log_probs.clone().exp().sum_dim(1).into_data();
            assert!(sums.iter::<f32>().all(|sum| (sum - 1.0).abs() < 1e-5), "{sums}");
            let losses = model.losses(&source, &target, &NEXT, None, &device).into_data();
            let log_probs = log_probs.into_data();
            let values: Vec<f32> = log_probs.iter().collect();
            let expected: Vec<f32> =
                NEXT.iter().enumerate().map(|(i, next)| -values[i * 40 + *next as usize]).collect();
            losses.assert_approx_eq::<f32>(&TensorData::new(expected, [5]), Tolerance::absolute(1e-5));
            config.save(&model, folder.path()).unwrap();
            let (read, again) =
                AnyEncoderDecoderConfig::load(folder.path(), &mut ParamInit::new(&device, 4)).unwrap();
            assert_eq!(read, config);
            assert_eq!(again.logits(&source, &target, &device).into_data(), log_probs);
            assert!(model.linear_maps_mut().iter().any(|map| map.path.starts_with("adaptive.")));
        }
        let tied = RecurrentEncoderDecoderConfig {
            output: Some(output.clone()),
            ..RecurrentEncoderDecoderConfig::new(40, 8, 8)
        };
        let message = tied.validate().unwrap_err().to_string();
        assert!(message.contains("`tied` is All, expected `source-target` or `none`"), "{message}");
        let beyond = ConvolutionalEncoderDecoderConfig::new(20, 8, 8).with_output(output.clone());
        let message = beyond.validate().unwrap_err().to_string();
        assert!(message.contains("`output.cutoffs` is [8, 20]"), "{message}");
        let biased =
            TransformerConfig::new(40, 1, 8).with_output_bias(OutputBias::Learned).with_output(output);
        let message = biased.validate().unwrap_err().to_string();
        assert!(message.contains("`output_bias` is Learned, expected `none`"), "{message}");
    }

    #[test]
    fn a_folder_says_what_kind_of_model_it_holds() {
        let device = Device::flex();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let transformer = TransformerConfig::new(20, 1, 8).with_d_ff(8).with_layers(2, 1);
        let base = RecurrentEncoderDecoderConfig::new(20, 8, 8);
        let separate = RecurrentEncoderDecoderConfig {
            source_vocab_size: Some(30),
            tied: TiedEmbeddings::TargetOutput,
            ..base.clone()
        };
        let convolutional = ConvolutionalEncoderDecoderConfig::new(20, 6, 8);
        let configs: [(AnyEncoderDecoderConfig, [usize; 2], &str); 6] = [
            (transformer.clone().into(), [20, 20], "target_embeddings.weight"),
            (transformer.with_source_vocab(30).into(), [30, 20], "source_embeddings.weight"),
            (base.into(), [20, 20], "target_embedding.weight"),
            (separate.into(), [30, 20], "source_embedding.weight"),
            (convolutional.clone().into(), [20, 20], "decoder.2.attention.query.v"),
            (convolutional.with_source_vocab(30).into(), [30, 20], "source_embedding.weight"),
        ];
        for (config, sizes, parameter) in configs {
            config.check().unwrap();
            let model = config.init(&mut ParamInit::new(&device, 3));
            config.save(&model, path).unwrap();
            let (read, again) = AnyEncoderDecoderConfig::load(path, &mut ParamInit::new(&device, 4)).unwrap();
            assert_eq!(read.vocab_sizes(), sizes);
            let source: Sequences = [&[5, 6, 2][..]].into_iter().collect();
            let target: Sequences = [&[2, 9][..]].into_iter().collect();
            let logits = |model: &AnyEncoderDecoder| model.logits(&source, &target, &device).into_data();
            assert_eq!(logits(&again), logits(&model));
            let paths = weights::shapes(&model);
            let inner = match &model {
                AnyEncoderDecoder::Transformer(model) => weights::shapes(model),
                AnyEncoderDecoder::Recurrent(model) => weights::shapes(model),
                AnyEncoderDecoder::Convolutional(model) => weights::shapes(model),
            };
            assert_eq!(paths, inner);
            assert!(paths.iter().any(|(path, _)| path == parameter), "{paths:?}");
            // Marian's folders have a bias of the output, zeros where the model has none.
            let (of_model, mut read) = (weights::collect(&model), weights::collect(&again));
            read.retain(|path, _| of_model.contains_key(path));
            assert_eq!(read, of_model);
            let other = config.init(&mut ParamInit::new(&device, 5));
            assert_ne!(logits(&other), logits(&model));
            assert_eq!(logits(&weights::replace(other, read)), logits(&model));
        }

        std::fs::write(path.join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
        let error = AnyEncoderDecoderConfig::load(path, &mut ParamInit::new(&device, 4)).unwrap_err();
        assert!(error.to_string().contains("`model_type` is \"bert\", expected a translation model's"));
    }
}
