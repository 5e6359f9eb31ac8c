use crate::bert::BertConfig;
use crate::{ModelError, Result};
use serde::{Deserialize, Serialize};

/// Dropout probabilities for fine-tuning, which replace the checkpoint's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DropoutOverrides {
    /// Dropout on the embeddings and on each sub-layer's output. Default the checkpoint's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<f64>,
    /// Dropout on the attention probabilities. Default the checkpoint's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<f64>,
    /// Dropout in the head. Default the checkpoint's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<f64>,
}

impl DropoutOverrides {
    /// Sets them in the encoder's configuration.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a probability outside of `0..1`.
    pub fn apply(&self, config: &mut BertConfig) -> Result<()> {
        let Self { hidden, attention, head } = *self;
        for (name, p) in [("hidden", hidden), ("attention", attention), ("head", head)] {
            if let Some(p) = p.filter(|p| !(0.0..1.0).contains(p)) {
                return Err(ModelError::Config(format!(
                    "dropout `{name}` = {p}, expected 0 or more and below 1"
                )));
            }
        }
        config.hidden_dropout = hidden.unwrap_or(config.hidden_dropout);
        config.attention_dropout = attention.unwrap_or(config.attention_dropout);
        Ok(())
    }

    /// The head's dropout: the one given here, else that of the checkpoint's heads, else that of its hidden states, as
    /// in transformers.
    pub fn head(&self, of_checkpoint: Option<f64>, config: &BertConfig) -> f64 {
        self.head.or(of_checkpoint).unwrap_or(config.hidden_dropout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_replaces_what_was() {
        let mut config = BertConfig { hidden_dropout: 0.1, attention_dropout: 0.2, ..BertConfig::tiny(10) };
        let overrides = DropoutOverrides { attention: Some(0.0), ..DropoutOverrides::default() };
        overrides.apply(&mut config).unwrap();
        assert_eq!((config.hidden_dropout, config.attention_dropout), (0.1, 0.0));
        assert_eq!(overrides.head(None, &config), 0.1);
        assert_eq!(overrides.head(Some(0.3), &config), 0.3);
        assert_eq!(DropoutOverrides { head: Some(0.5), ..overrides }.head(Some(0.3), &config), 0.5);
        let wrong = DropoutOverrides { head: Some(1.0), ..overrides };
        let message = wrong.apply(&mut config).unwrap_err().to_string();
        assert_eq!(message, "model configuration: dropout `head` = 1, expected 0 or more and below 1");
    }
}
