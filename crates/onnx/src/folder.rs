//! The graph of a folder's model.

use crate::error::{OnnxError, Result};
use crate::heads::SentenceModel;
use crate::images;
use crate::model::OnnxModel;
use crate::pooling::SentenceModules;
use burn::tensor::Device;
use cloze_model::bert::{BertConfig, MlmHead, Pooling, ReplacedTokenDetector, ReplacedTokenHead};
use cloze_model::blocks::Linear;
use cloze_model::huggingface::{Architecture, Dense, Format, PretrainedFolder, SentenceConfig, model_type};
use cloze_model::tasks::{
    BertForMaskedLm, BertForMultipleChoice, BertForQuestionAnswering, BertForSequenceClassification,
    BertForTokenClassification,
};
use cloze_model::vision::VitConfig;
use cloze_model::{HasBackbone, ParamInit};
use std::path::Path;

/// How a folder's model is exported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportConfig {
    /// Whether the encoder's states are exported, without its head and without the modules of sentence-transformers.
    pub states: bool,
    /// How the states are pooled for a head over sequences, if not as its family does.
    pub pooling: Option<Pooling>,
}

/// What was exported.
pub struct Exported {
    /// The model.
    pub model: OnnxModel,
    /// The head, [`Encoder`](Architecture::Encoder) if there is none; of a classifier of images that of texts.
    pub architecture: Architecture,
    /// Whether the model makes sentence embeddings.
    pub is_sentence: bool,
}

/// Loads the model of a folder, of texts or of images, and makes its graph.
///
/// # Errors
/// Those of [`PretrainedFolder::open`] and [`PretrainedFolder::load_into`]; [`OnnxError::Unsupported`].
pub fn export(folder: &Path, config: &ExportConfig, device: &Device) -> Result<Exported> {
    if matches!(model_type(folder), Ok(Some(found)) if VitConfig::MODEL_TYPES.contains(&found.as_str())) {
        let init = &mut ParamInit::new(device, 0).deferred();
        let (model, has_head) = images::export(folder, config.states, init)?;
        let architecture =
            if has_head { Architecture::SequenceClassification } else { Architecture::Encoder };
        return Ok(Exported { model, architecture, is_sentence: false });
    }
    let pretrained = PretrainedFolder::open(folder)?;
    if pretrained.is_integer_only() {
        let expected = "the floats that it was rounded from can, or integers without `--integers-only`";
        return Err(OnnxError::unsupported("a model of integers alone (I-BERT)", expected));
    }
    let names = &pretrained.config.architectures;
    let mut architecture = pretrained.config.architecture;
    let sentence = match config.states || is_head(architecture) {
        true => None,
        false => SentenceConfig::load(folder)?,
    };
    let is_known = names.is_empty() || names.iter().any(|name| Architecture::parse(name).is_some());
    if !is_known && !config.states && sentence.is_none() {
        let expected = "an encoder with a head of its family's classes can, or its states alone (--states)";
        return Err(OnnxError::unsupported(names.join(", "), expected));
    }
    let init = &mut ParamInit::new(device, 0).deferred();
    if let Some(sentence) = sentence {
        let model = sentence_model(folder, &sentence, pretrained, init, device)?;
        return Ok(Exported { model, architecture: Architecture::Encoder, is_sentence: true });
    }
    if config.states {
        architecture = Architecture::Encoder;
    }
    let model = graph(pretrained, architecture, config.pooling, init)?;
    Ok(Exported { model, architecture, is_sentence: false })
}

/// Whether a class has a head that says what its folder is for. A sentence model may be saved under the class that its
/// encoder was pretrained as.
fn is_head(architecture: Architecture) -> bool {
    use Architecture::{MultipleChoice, QuestionAnswering, SequenceClassification, TokenClassification};
    matches!(architecture, SequenceClassification | TokenClassification | QuestionAnswering | MultipleChoice)
}

fn sentence_model(
    folder: &Path,
    sentence: &SentenceConfig,
    pretrained: PretrainedFolder,
    init: &mut ParamInit,
    device: &Device,
) -> Result<OnnxModel> {
    if sentence.excludes_prompt {
        let expected = "a model that pools all tokens can, or the encoder's states (--states)";
        return Err(OnnxError::unsupported("pooling without the prompt (`include_prompt`: false)", expected));
    }
    let dense = sentence.dense.iter().map(|module| Dense::load(&folder.join(module), device));
    let modules = SentenceModules {
        pooling: sentence.pooling()?,
        dense: dense.collect::<std::result::Result<_, _>>()?,
        normalize: sentence.normalize,
    };
    let (mut encoder, bert, _) = pretrained.load_encoder(init)?;
    // Embeddings are of states; a pooler has no part in them.
    encoder.pooler = false;
    let mut d = modules.pooling.width(encoder.d_model);
    for dense in &modules.dense {
        if dense.d_in() != d {
            let what = format!("a module Dense of {} inputs after {d} features", dense.d_in());
            return Err(OnnxError::unsupported(what, "modules whose widths fit can"));
        }
        d = dense.d_out();
    }
    OnnxModel::new(&SentenceModel { bert, modules }, &encoder)
}

/// The graph of a model with this head.
fn graph(
    pretrained: PretrainedFolder,
    architecture: Architecture,
    pooling: Option<Pooling>,
    init: &mut ParamInit,
) -> Result<OnnxModel> {
    // The head of a masked language model is the same in both classes.
    let architecture = match architecture {
        Architecture::PreTraining => Architecture::MaskedLm,
        other => other,
    };
    let (family, n_outputs) = (pretrained.config.family, pretrained.config.labels.len());
    let config = pretrained.encoder(architecture);
    let mut bert = config.init_encoder(init);
    let sequence_head = |n, init: &mut ParamInit| architecture.sequence_head(family, &config, n, 0.0, init);
    let transform = |init: &mut ParamInit| architecture.head_transform(family, &config, init);
    match architecture {
        Architecture::Encoder | Architecture::PreTraining => {
            bert.pooler = None;
            finish(bert, pretrained, architecture, &config.clone().with_pooler(false))
        }
        Architecture::MaskedLm => {
            let mlm = MlmHead::new(&config, init);
            finish(BertForMaskedLm { bert, mlm }, pretrained, architecture, &config)
        }
        Architecture::ReplacedTokens => {
            let head = ReplacedTokenHead::new(&config, init);
            finish(ReplacedTokenDetector { bert, head }, pretrained, architecture, &config)
        }
        Architecture::SequenceClassification => {
            if pooling.is_some() {
                // A head on states that are pooled otherwise does not use it.
                bert.pooler = None;
            }
            let mut model = BertForSequenceClassification::new(bert, sequence_head(n_outputs, init));
            model.pooling = pooling;
            finish(model, pretrained, architecture, &config)
        }
        Architecture::MultipleChoice => {
            let head = sequence_head(1, init);
            finish(BertForMultipleChoice { bert, head }, pretrained, architecture, &config)
        }
        Architecture::TokenClassification => {
            let output = Linear::new(config.d_model, n_outputs, init);
            let transform = transform(init);
            let model = BertForTokenClassification { bert, transform, output, crf: None, dropout: 0.0 };
            finish(model, pretrained, architecture, &config)
        }
        Architecture::QuestionAnswering => {
            let (transform, output) = (transform(init), Linear::new(config.d_model, 2, init));
            finish(BertForQuestionAnswering { bert, transform, output }, pretrained, architecture, &config)
        }
    }
}

/// Loads the weights into a new model and makes its graph.
fn finish<M: HasBackbone + crate::ToOnnx>(
    model: M,
    pretrained: PretrainedFolder,
    architecture: Architecture,
    config: &BertConfig,
) -> Result<OnnxModel> {
    let (model, _) = pretrained.load_into(model, architecture, &[])?;
    OnnxModel::new(&model, config)
}
