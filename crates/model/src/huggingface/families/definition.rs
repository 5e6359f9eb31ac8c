//! What a published family has to say of itself.

use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRules};
use super::encoder_format::EncoderFormat;
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::Activation;
use serde_json::{Map, Value};

/// The layer before the output of a head over sequences.
#[derive(Debug, Clone, Copy)]
pub(in crate::huggingface) struct HeadLayer {
    pub activation: Activation,
    /// Whether the head's dropout acts before this layer as well as behind it.
    pub has_dropout_before: bool,
    /// Whether its output is normalised.
    pub is_normalised: bool,
}

impl HeadLayer {
    /// With dropout before it and without a normalisation.
    pub(super) fn new(activation: Activation) -> Self {
        Self { activation, has_dropout_before: true, is_normalised: false }
    }
}

/// The names in folders of the authors' own class, where transformers' class has others.
pub(super) struct AuthorsNames {
    /// As [`FamilyDefinition::model_type`].
    pub model_type: &'static str,
    /// As [`FamilyDefinition::class_prefix`].
    pub class_prefix: &'static str,
    /// As [`FamilyDefinition::prefix`].
    pub prefix: &'static str,
}

/// The definition of one family.
pub(super) trait FamilyDefinition: Sync {
    /// Its name in the paper, such as `RoBERTa`.
    fn name(&self) -> &'static str;

    /// Its name in `config.json`.
    fn model_type(&self) -> &'static str;

    /// The beginning of the names of its classes in transformers.
    fn class_prefix(&self) -> &'static str;

    /// The prefix of the encoder's tensors in a model with a head.
    fn prefix(&self) -> &'static str;

    /// Other names that are read and not written.
    fn authors_names(&self) -> Option<AuthorsNames> {
        None
    }

    /// The end of the name of its class for an architecture.
    fn class_suffix(&self, architecture: Architecture) -> &'static str {
        architecture.class_suffix()
    }

    /// See [`Family::has_class`](super::Family::has_class).
    fn has_class(&self, _: Architecture) -> bool {
        true
    }

    /// The kind of its class `…ForPreTraining`; none if there is no such class.
    fn pretraining_class(&self) -> Option<Architecture> {
        None
    }

    /// Whether the class for an architecture has a pooler.
    fn has_pooler(&self, architecture: Architecture) -> bool;

    /// See [`Family::head_layer`](super::Family::head_layer).
    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        None
    }

    /// See [`Family::head_output_bias`](super::Family::head_output_bias).
    fn head_output_bias(&self, _: Architecture) -> bool {
        true
    }

    /// See [`Family::transforms_states`](super::Family::transforms_states).
    fn transforms_states(&self) -> bool {
        false
    }

    /// See [`Family::head_dropout`](super::Family::head_dropout).
    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)>;

    /// Whether an old file that states neither family nor class is of this family, by its keys.
    fn is_told_by(&self, _: &Fields) -> bool {
        false
    }

    /// The keys and switches of its encoder.
    fn format(&self) -> &EncoderFormat;

    /// The keys in a file, if there is more than one way to write it.
    fn format_of(&self, _: &Fields) -> &EncoderFormat {
        self.format()
    }

    /// The sizes with what the family's published models have, where the class in transformers leaves a choice.
    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        sizes
    }

    /// See [`Family::read`](super::Family::read).
    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        self.format().read(fields)
    }

    /// Adds an encoder that was [checked](EncoderFormat::check) to a `config.json`.
    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        self.format().write(encoder, dtype, config);
    }

    /// The rules of the encoder alone, with names and paths relative to it.
    fn encoder_rules(&self, encoder: &BertConfig) -> TensorRules;

    /// The rules of the head.
    fn head_rules(&self, architecture: Architecture) -> TensorRules;
}
