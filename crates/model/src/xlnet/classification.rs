use super::{Xlnet, XlnetConfig, XlnetInput};
use crate::blocks::Linear;
use crate::huggingface::ProblemType;
use crate::{HasBackbone, ModelError, ParamInit, Result, ops};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// The configuration of an XLNet that classifies sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct XlnetClassifierConfig {
    /// The model.
    pub xlnet: XlnetConfig,
    /// Dropout between the summary and the output layer.
    pub summary_dropout: f64,
    /// The names of the classes, in the order of the outputs; one for a regression.
    pub labels: Vec<String>,
    /// The kind of labels, if it is recorded.
    pub problem_type: Option<ProblemType>,
}

impl XlnetClassifierConfig {
    /// A classifier of these classes.
    pub fn new(xlnet: XlnetConfig, labels: Vec<String>) -> Self {
        Self { xlnet, summary_dropout: 0.1, labels, problem_type: None }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        if self.labels.is_empty() {
            return Err(ModelError::setting("labels", "empty", "at least one label"));
        }
        if !(0.0..1.0).contains(&self.summary_dropout) {
            return Err(ModelError::setting(
                "summary_dropout",
                self.summary_dropout,
                "0 or more and below 1",
            ));
        }
        self.xlnet.validate()
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> XlnetForSequenceClassification {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let d_model = self.xlnet.d_model;
        XlnetForSequenceClassification {
            xlnet: self.xlnet.init_encoder(init),
            summary: Linear::new(d_model, d_model, init),
            output: Linear::new(d_model, self.labels.len(), init),
            dropout: self.summary_dropout,
        }
    }
}

/// XLNet with a head on each sequence's last state: a dense layer with tanh, and the output layer. The last token is to be
/// the classification token, so sequences are [padded at their beginnings](XlnetInput::left_padded).
#[derive(Module, Debug)]
pub struct XlnetForSequenceClassification {
    /// The model.
    pub xlnet: Xlnet,
    /// The dense layer, `[d_model, d_model]`.
    pub summary: Linear,
    /// The output layer, `[d_model, n_outputs]`.
    pub output: Linear,
    dropout: f64,
}

impl XlnetForSequenceClassification {
    /// The logits of each sequence, or its one number.
    ///
    /// # Shapes
    /// - returns `[batch, n_outputs]`
    pub fn forward(&self, input: &XlnetInput, device: &Device) -> Tensor<2> {
        let states = self.xlnet.forward(input, None, device).last_hidden_state;
        let last = states.narrow(1, input.len() - 1, 1).squeeze_dim::<2>(1);
        let summary = self.summary.forward(last).tanh();
        self.output.forward(ops::dropout(summary, self.dropout))
    }
}

impl HasBackbone for XlnetForSequenceClassification {
    type Backbone = Xlnet;
    const PATH: &'static str = "xlnet";

    fn backbone(&self) -> &Xlnet {
        &self.xlnet
    }

    fn backbone_mut(&mut self) -> &mut Xlnet {
        &mut self.xlnet
    }
}
