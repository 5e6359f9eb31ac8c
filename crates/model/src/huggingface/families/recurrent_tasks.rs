//! This project's own recurrent classifiers and taggers, which have no class in transformers.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRules};
use super::own;
use crate::tasks::{
    RecurrentClassifierConfig, RecurrentForSequenceClassification, RecurrentForTokenClassification,
    RecurrentTaggerConfig,
};
use crate::{ParamInit, Result};
use serde_json::{Map, Value};

/// The key of the configuration.
const KEY: &str = "recurrent";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new().table("encoder.embedding", "encoder.embedding")
}

impl Format for RecurrentClassifierConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-recurrent-classifier"];

    fn read(fields: &Fields) -> Result<Self> {
        own::read(fields, KEY, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::insert(self, KEY, "ClozeRecurrentForSequenceClassification", config);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        rules()
    }
}

impl Published for RecurrentClassifierConfig {
    type Model = RecurrentForSequenceClassification;

    fn init(&self, init: &mut ParamInit) -> Self::Model {
        self.init(init)
    }
}

impl Format for RecurrentTaggerConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-recurrent-tagger"];

    fn read(fields: &Fields) -> Result<Self> {
        own::read(fields, KEY, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::insert(self, KEY, "ClozeRecurrentForTokenClassification", config);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        rules()
    }
}

impl Published for RecurrentTaggerConfig {
    type Model = RecurrentForTokenClassification;

    fn init(&self, init: &mut ParamInit) -> Self::Model {
        self.init(init)
    }
}
