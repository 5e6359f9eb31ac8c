//! Models for tasks: an encoder with a head on top, each with its loss as a separate function.
//!
//! | task | model | loss |
//! | --- | --- | --- |
//! | classes of sequences and pairs | [`BertForSequenceClassification`] | [`classification_loss`] |
//! | numbers for sequences and pairs | the same with one output | [`regression_loss`], [`binary_loss`] |
//! | several labels per sequence or pair | the same | [`binary_loss`] |
//! | multiple choice | [`BertForMultipleChoice`] | [`classification_loss`] |
//! | tags of words | [`BertForTokenClassification`] | [`BertForTokenClassification::loss`], [`Crf::loss`] |
//! | answers in a text | [`BertForQuestionAnswering`] | [`span_loss`] |
//! | classes and tags by recurrent encoders | [`RecurrentForSequenceClassification`], [`RecurrentForTokenClassification`] | as above |
//! | masked pieces | [`BertForMaskedLm`] | [`classification_loss`] |
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use cloze_model::{ParamInit, bert::{BertConfig, BertInput}};
//! use cloze_model::ops::CrossEntropy;
//! use cloze_model::tasks::{BertForSequenceClassification, SequenceHead, classification_loss};
//!
//! let device = Device::flex();
//! let init = &mut ParamInit::new(&device, 42);
//! let config = BertConfig::tiny(1_000);
//! let head = SequenceHead::new(config.d_model, 3, 0.1, init);
//! let model = BertForSequenceClassification::new(config.init_encoder(init), head);
//! // Two sentences without padding.
//! let logits = model.forward(BertInput::packed(&[2, 17, 4, 3, 2, 9, 3], &[4, 3], &device));
//! assert_eq!(logits.dims(), [2, 3]);
//! let labels = Tensor::<1, Int>::from_data([0, 2], &device);
//! let loss = classification_loss(logits, labels, &CrossEntropy::default()).mean();
//! assert!((loss.into_scalar::<f32>() - 3f32.ln()).abs() < 0.1);
//! ```

mod crf;
mod dropout;
mod head_transform;
mod masked_lm;
mod multiple_choice;
mod question_answering;
mod recurrent;
mod sequence_classification;
mod sequence_head;
#[cfg(test)]
pub(crate) mod testing;
mod token_classification;

use crate::backbone::has_bert;

pub use crf::{Crf, TagRules};
pub use dropout::DropoutOverrides;
pub use head_transform::HeadTransform;
pub use masked_lm::BertForMaskedLm;
pub use multiple_choice::BertForMultipleChoice;
pub use question_answering::{BertForQuestionAnswering, SpanLogits, span_loss};
pub use recurrent::{
    RecurrentClassifierConfig, RecurrentEncoder, RecurrentEncoderConfig, RecurrentForSequenceClassification,
    RecurrentForTokenClassification, RecurrentPooling, RecurrentTaggerConfig,
};
pub use sequence_classification::{
    BertForSequenceClassification, binary_loss, classification_loss, regression_loss,
};
pub use sequence_head::SequenceHead;
pub use token_classification::{BertForTokenClassification, decode_tags, tagging_loss};

has_bert!(
    BertForMaskedLm { mlm },
    BertForMultipleChoice { head },
    BertForQuestionAnswering { transform, output },
    BertForSequenceClassification { head },
    BertForTokenClassification { transform, output },
);
