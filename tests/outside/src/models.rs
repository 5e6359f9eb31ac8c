//! Small models with random weights, made with what `cloze` has for its users.

use std::error::Error;
use std::fs;
use std::path::Path;

use cloze::Device;
use cloze::model::bert::{BertConfig, MlmHead};
use cloze::model::blocks::Linear;
use cloze::model::gpt::GptConfig;
use cloze::model::huggingface::{
    Architecture, Family, FloatType, ProblemType, SaveConfig, save_pretrained, save_published,
};
use cloze::model::seq2seq::TransformerConfig;
use cloze::model::tasks::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
};
use cloze::model::{HasBackbone, ParamInit};
use cloze::tokenizer::{Tokenizer, Vocab};

/// An encoder.
pub const ENCODER: &str = "sentence-transformers/all-MiniLM-L6-v2";
/// An encoder with a masked-LM head.
pub const MASKED: &str = "google-bert/bert-base-uncased";
/// A classifier of texts.
pub const CLASSIFIER: &str = "distilbert/distilbert-base-uncased-finetuned-sst-2-english";
/// A cross-encoder.
pub const RERANKER: &str = "cross-encoder/ms-marco-MiniLM-L6-v2";
/// A tagger of words.
pub const TAGGER: &str = "dslim/bert-base-NER";
/// A model that answers questions.
pub const ANSWERER: &str = "deepset/bert-base-cased-squad2";
/// A model that translates.
pub const TRANSLATOR: &str = "runs/multi30k/model";
/// A language model.
pub const GENERATOR: &str = "openai-community/gpt2";
/// A tokenizer alone.
pub const TOKENIZER: &str = "my-tokenizer";

/// That a model is made, or why it is not.
type Made = Result<(), Box<dyn Error>>;

/// Makes all of them, each in a folder of its name below `folder`.
pub fn make(folder: &Path) -> Made {
    let tokenizer = tokenizer()?;
    let at = folder.join(TOKENIZER);
    fs::create_dir_all(&at)?;
    tokenizer.save(&at)?;

    let config = BertConfig::new(tokenizer.vocab_size(), 4, 32).with_d_ff(64).with_n_heads(2);
    // Weights that are large enough for answers that differ.
    let init = &mut ParamInit::new(&Device::flex(), 7).with_std(0.5);
    let save = |name: &str, model: &dyn Fn(&Path) -> Made| {
        let at = folder.join(name);
        fs::create_dir_all(&at)?;
        model(&at)?;
        Ok::<_, Box<dyn Error>>(tokenizer.save(&at)?)
    };

    let encoder = config.init_encoder(init);
    save(ENCODER, &|at| written(at, &encoder, &config, SaveConfig::new(Architecture::Encoder)))?;

    let masked = BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
    save(MASKED, &|at| written(at, &masked, &config, SaveConfig::new(Architecture::MaskedLm)))?;

    let architecture = Architecture::SequenceClassification;
    let head = architecture.sequence_head(Family::default(), &config, 2, 0.1, init);
    let classifier = BertForSequenceClassification::new(config.init_encoder(init), head);
    let labels = ["NEGATIVE", "POSITIVE"].map(String::from).to_vec();
    let problem_type = Some(ProblemType::SingleLabel);
    save(CLASSIFIER, &|at| {
        let save = SaveConfig::new(architecture).with_labels(labels.clone()).with_problem_type(problem_type);
        written(at, &classifier, &config, save)
    })?;

    let labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"].map(String::from).to_vec();
    let output = Linear::new(config.d_model, labels.len(), init);
    let bert = config.init_encoder(init);
    let tagger = BertForTokenClassification { bert, transform: None, output, crf: None, dropout: 0.1 };
    save(TAGGER, &|at| {
        let save = SaveConfig::new(Architecture::TokenClassification).with_labels(labels.clone());
        written(at, &tagger, &config, save)
    })?;

    let output = Linear::new(config.d_model, 2, init);
    let answerer = BertForQuestionAnswering { bert: config.init_encoder(init), transform: None, output };
    save(ANSWERER, &|at| written(at, &answerer, &config, SaveConfig::new(Architecture::QuestionAnswering)))?;

    // BERT's tokenizer ends texts with [SEP].
    let config = TransformerConfig::new(tokenizer.vocab_size(), 1, 64).with_d_ff(64);
    let translator = config.init(init);
    save(TRANSLATOR, &|at| Ok(save_published(at, &translator, &config, FloatType::F32).map(drop)?))?;

    let config = GptConfig::gpt2(tokenizer.vocab_size(), 1, 32);
    let generator = config.init(init);
    save(GENERATOR, &|at| Ok(save_published(at, &generator, &config, FloatType::F32).map(drop)?))?;

    let config = BertConfig::new(tokenizer.vocab_size(), 4, 32).with_d_ff(64).with_n_heads(2);
    let head = architecture.sequence_head(Family::default(), &config, 1, 0.1, init);
    let reranker = BertForSequenceClassification::new(config.init_encoder(init), head);
    save(RERANKER, &|at| {
        let save = SaveConfig::new(architecture).with_labels(vec!["LABEL_0".to_owned()]);
        written(at, &reranker, &config, save)
    })
}

/// BERT's tokenizer for letters, which spells any word of them.
fn tokenizer() -> Result<Tokenizer, Box<dyn Error>> {
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    Ok(Tokenizer::bert(Vocab::from_tokens(specials.into_iter().chain(letters))?, true)?)
}

fn written<M: HasBackbone>(folder: &Path, model: &M, config: &BertConfig, save: SaveConfig) -> Made {
    save_pretrained(folder, model, config, &save)?;
    Ok(())
}
