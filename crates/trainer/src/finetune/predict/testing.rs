//! Saved models with random weights.

use super::super::model_folder::{ModelFolder, TaskFile};
use super::super::predictor::Predictor;
use super::super::task::PretrainedTask;
use super::super::task_model::Predicted;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, PretrainedFolder, SaveConfig, save_pretrained};
use cloze_model::tasks::DropoutOverrides;
use cloze_tokenizer::{Tokenizer, Vocab};
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// A character tokenizer.
pub(crate) fn tokenizer() -> Tokenizer {
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    Tokenizer::bert(Vocab::from_tokens(specials.into_iter().chain(letters)).unwrap(), true).unwrap()
}

pub(crate) fn encoder() -> BertConfig {
    BertConfig::new(57, 2, 16).with_d_ff(24).with_n_heads(2).with_max_positions(20)
}

pub(crate) fn init() -> ParamInit {
    ParamInit::new(&Device::flex(), 3).with_std(0.5)
}

/// A folder with a model for a task.
pub(crate) fn saved<T: PretrainedTask>(task: T, max_len: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bert = encoder().init_encoder(&mut init());
    save_pretrained(folder.path(), &bert, &encoder(), &SaveConfig::new(Architecture::Encoder)).unwrap();
    let pretrained = PretrainedFolder::open(folder.path()).unwrap();
    let family = pretrained.config.family;
    let (encoder, model, _) = task.model(pretrained, &DropoutOverrides::default(), &mut init()).unwrap();
    let file = TaskFile::of(&task, max_len);
    // The weights are in the file that the model is read from, which is replaced.
    ModelFolder {
        family,
        encoder,
        languages: Vec::new(),
        tokenizer: &tokenizer(),
        file,
        saved_as: task.saved_as(),
        labels: task.labels(),
    }
    .save(&model, folder.path())
    .unwrap();
    folder
}

/// The predictions of a folder's model for lines.
pub(crate) fn ask(folder: &Path, lines: &[&str]) -> Predicted {
    let predictor = Predictor::load(folder, &Device::flex(), false).unwrap();
    let predicted = predictor.predict(lines, &mut |_| {}).unwrap();
    assert!(predicted.refused.is_none(), "{:?}", predicted.refused);
    for answer in predicted.values.iter().filter_map(Value::as_object) {
        assert!(answer.keys().eq(&predictor.answer_keys()), "{answer:?}");
    }
    predicted
}

/// The error message for a line.
pub(crate) fn refused(folder: &Path, line: &str) -> String {
    let predictor = Predictor::load(folder, &Device::flex(), false).unwrap();
    let predicted = predictor.predict(&[line], &mut |_| {}).unwrap();
    assert!(predicted.values.is_empty());
    predicted.refused.unwrap().to_string()
}
