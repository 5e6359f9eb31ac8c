//! This project's own recurrent classifiers and taggers, which have no class in transformers.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRules};
use crate::tasks::{
    RecurrentClassifierConfig, RecurrentForSequenceClassification, RecurrentForTokenClassification,
    RecurrentTaggerConfig,
};
use crate::{ParamInit, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The key of the configuration.
const KEY: &str = "recurrent";

fn read<C: DeserializeOwned>(fields: &Fields, validate: impl Fn(&C) -> Result<()>) -> Result<C> {
    let Some(config) = fields.nested::<C>(KEY)? else {
        return Err(fields.refuse(KEY, &Value::Null, "the model's configuration"));
    };
    validate(&config).map_err(|error| fields.error(&error.to_string()))?;
    Ok(config)
}

fn write(class: &str, of: &impl Serialize, config: &mut Map<String, Value>) {
    config.insert("architectures".into(), vec![class].into());
    config.insert(KEY.into(), serde_json::to_value(of).expect("plain values serialise"));
}

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new().table("encoder.embedding", "encoder.embedding")
}

impl Format for RecurrentClassifierConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-recurrent-classifier"];

    fn read(fields: &Fields) -> Result<Self> {
        read(fields, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        write("ClozeRecurrentForSequenceClassification", self, config);
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
        read(fields, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        write("ClozeRecurrentForTokenClassification", self, config);
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
