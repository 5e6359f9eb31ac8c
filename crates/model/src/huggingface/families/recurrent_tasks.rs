//! This project's own recurrent classifiers and taggers, which have no class in transformers.

use super::super::TensorRules;
use super::own::{self, own_format};
use crate::tasks::{
    RecurrentClassifierConfig, RecurrentForSequenceClassification, RecurrentForTokenClassification,
    RecurrentTaggerConfig,
};

/// The key of the configuration.
const KEY: &str = "recurrent";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new().table("encoder.embedding", "encoder.embedding")
}

own_format!(
    RecurrentClassifierConfig,
    RecurrentForSequenceClassification,
    "cloze-recurrent-classifier",
    KEY,
    rules(),
    |config, file| own::insert(config, KEY, "ClozeRecurrentForSequenceClassification", file)
);

own_format!(
    RecurrentTaggerConfig,
    RecurrentForTokenClassification,
    "cloze-recurrent-tagger",
    KEY,
    rules(),
    |config, file| own::insert(config, KEY, "ClozeRecurrentForTokenClassification", file)
);
