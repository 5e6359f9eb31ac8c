//! The encoder–decoder Transformer in folders: as a class of transformers if one computes the same, and in this crate's
//! own format otherwise.

use super::super::fields::Fields;
use super::super::published::Constant;
use super::super::{Format, Published, TensorRule, TensorRules};
use super::encoder_keys::BUCKETS;
use super::{bart, marian, seq2seq, t5};
use crate::seq2seq::{Transformer, TransformerConfig};
use crate::{ModelError, ParamInit, Result};
use serde_json::{Map, Value, json};

/// The `model_type` of a model that no class of transformers computes.
const OWN: &str = "cloze-transformer";

/// The key of the whole configuration.
const CONFIG: &str = "transformer";

/// The class that a model is saved as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Marian,
    Bart,
    T5,
    Own,
}

impl Class {
    fn of(config: &TransformerConfig) -> Self {
        match () {
            () if marian::fits(config) => Self::Marian,
            () if bart::fits(config) => Self::Bart,
            () if t5::fits(config) => Self::T5,
            () => Self::Own,
        }
    }

    fn model_type(self) -> &'static str {
        match self {
            Self::Marian => marian::MODEL_TYPE,
            Self::Bart => bart::MODEL_TYPE,
            Self::T5 => t5::MODEL_TYPE,
            Self::Own => OWN,
        }
    }
}

/// A folder of `MarianMTModel`, `BartForConditionalGeneration` or `T5ForConditionalGeneration`, or in this crate's own
/// format. If one of these classes computes the same as the model, it is saved as that class, which can then load it. Such
/// a folder does not contain the initialisation, except T5's, and when it is read again, a bias of the output layer is
/// [fixed](crate::seq2seq::OutputBias::Fixed). An mT5 is read as well; it is a T5 with other defaults, and saved as one.
impl Format for TransformerConfig {
    const MODEL_TYPES: &'static [&'static str] =
        &[OWN, marian::MODEL_TYPE, bart::MODEL_TYPE, t5::MODEL_TYPE, t5::MULTILINGUAL];

    fn untied(&self) -> Option<Self> {
        self.tied.joins_output().then(|| self.clone().with_tied(self.tied.without_output()))
    }

    fn read(fields: &Fields) -> Result<Self> {
        let model_type = fields.text("model_type")?;
        let config = match model_type {
            Some(marian::MODEL_TYPE) => marian::read(fields),
            Some(bart::MODEL_TYPE) => bart::read(fields),
            Some(t5::MODEL_TYPE) => t5::read(fields, &t5::DEFAULTS),
            Some(t5::MULTILINGUAL) => t5::read(fields, &t5::MULTILINGUAL_DEFAULTS),
            _ => fields.nested(CONFIG)?.ok_or_else(|| fields.error(&format!("there is no `{CONFIG}`"))),
        }?;
        config.validate().map_err(|error| match error {
            ModelError::Setting { key, found, expected } => {
                let is_t5 = matches!(model_type, Some(t5::MODEL_TYPE | t5::MULTILINGUAL));
                let key = match model_type {
                    Some(OWN) | None => key,
                    Some(_) if is_t5 => t5::key_of(key),
                    Some(_) => seq2seq::key_of(key),
                };
                let expected = if is_t5 { expected.replace("n_buckets", BUCKETS.0) } else { expected };
                fields.error(&format!("`{key}` is {found}, expected {expected}"))
            }
            other => other,
        })?;
        Ok(config)
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        let class = Class::of(self);
        map.insert("model_type".into(), class.model_type().into());
        match class {
            Class::Marian => marian::write(self, map),
            Class::Bart => bart::write(self, map),
            Class::T5 => t5::write(self, map),
            Class::Own => {
                map.insert("architectures".into(), json!(["ClozeTransformer"]));
                map.insert(CONFIG.into(), serde_json::to_value(self).expect("plain values serialise"));
            }
        }
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        match Class::of(self) {
            Class::Marian => marian::rules(self),
            Class::Bart => bart::rules(self),
            Class::T5 => t5::rules(self),
            Class::Own => TensorRules::new()
                .table("source_embeddings", "source_embeddings")
                .table("target_embeddings", "target_embeddings")
                .with(TensorRule::copy("*_input.positions.weight", "*_input.positions.table.weight"))
                .with(TensorRule::copy("*_input.relative_bias.weight", "*_input.relative_bias.table.weight")),
        }
    }

    /// Parameters that transformers initialises with zeros.
    fn optional(&self) -> &'static [&'static str] {
        match Class::of(self) {
            Class::Own | Class::T5 => &[],
            Class::Marian | Class::Bart => &["output_bias"],
        }
    }

    fn constants(&self) -> Vec<Constant> {
        match Class::of(self) {
            Class::Marian => marian::constants(self),
            Class::Bart | Class::T5 | Class::Own => Vec::new(),
        }
    }

    fn generation(&self) -> Option<Map<String, Value>> {
        (Class::of(self) != Class::Own).then(|| seq2seq::generation(self))
    }
}

impl Published for TransformerConfig {
    type Model = Transformer;

    fn init(&self, init: &mut ParamInit) -> Transformer {
        Self::init(self, init)
    }
}
