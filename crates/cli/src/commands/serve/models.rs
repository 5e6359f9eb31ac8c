//! The models that are served, opened by their kinds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use burn::tensor::Device;
use cloze_data::images::Image;
use cloze_model::awd_lstm::AwdLstmConfig;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{Architecture, Format, PretrainedConfig, model_type};
use cloze_model::seq2seq::{
    ConvolutionalEncoderDecoderConfig, RecurrentEncoderDecoderConfig, TransformerConfig,
};
use cloze_tokenizer::Tokenizer;
use cloze_trainer::embed::{EmbedConfig, EmbedRequest, Embedder};
use cloze_trainer::fill_mask::{FillMask, FillRequest};
use cloze_trainer::finetune::{Predictor, TaskFile, TaskSection, ValueLoss};
use cloze_trainer::generate::{GenerateConfig, GenerateSettings, Generator};
use cloze_trainer::images::{
    ImageEmbedConfig, ImageEmbedder, ImagePredictor, ImageRequest, has_classes, is_image_model,
};
use cloze_trainer::requests::{GenerateRequest, Queue, QueueCounts, Share, TranslateRequest};
use cloze_trainer::translate::{TranslateConfig, TranslateSettings, Translator};
use serde_json::{Value, json};

use super::refusal::{Refusal, Why};
use super::tally::note;
use crate::model;

/// A model with its queue.
pub enum Kind {
    Embeds(Arc<Queue<Embedder>>),
    Fills(Arc<Queue<FillMask>>),
    Predicts(Arc<Queue<Predictor>>),
    Generates(Arc<Queue<Generator>>),
    Translates(Arc<Queue<Translator>>),
    /// Classes of images.
    Classifies(Arc<Queue<ImagePredictor>>),
    EmbedsImages(Arc<Queue<ImageEmbedder>>),
}

/// A model under its name.
pub struct Served {
    pub name: String,
    pub folder: PathBuf,
    pub kind: Kind,
    /// Without truncation; a model of images has none.
    pub tokenizer: Option<Tokenizer>,
    /// Seconds since the Unix epoch at which it was opened.
    pub opened: u64,
    /// Units that were cut to the model's maximum.
    pub truncated: AtomicU64,
}

/// How a predictor scores a pair of texts.
pub enum Scores {
    /// Its only output, or the sigmoid of that.
    Value(ValueLoss),
    /// The probability of this class.
    Class(String),
}

/// `[NAME=]MODEL`.
pub fn parts(argument: &str) -> (&str, &str) {
    match argument.split_once('=') {
        Some((name, model)) if !name.is_empty() && !name.contains(['/', '\\']) => (name, model),
        _ => (argument, argument),
    }
}

/// The name of a model that was given none: the last part of a path, or the whole of a name on the hub.
pub fn default_name(model: &str) -> String {
    let path = Path::new(model);
    let last = path.file_name().and_then(|name| name.to_str());
    match last {
        Some(last) if path.exists() => last.to_owned(),
        _ => model.to_owned(),
    }
}

/// What a folder's files say that its model does.
enum Task {
    Embed,
    Fill,
    Predict,
    Generate,
    Translate,
    ClassifyImages,
    EmbedImages,
}

fn task_of(folder: &Path) -> Result<Task> {
    if let Some(TaskFile { task, .. }) = TaskFile::<Value>::read(folder)? {
        return Ok(if task["kind"] == "embedding" { Task::Embed } else { Task::Predict });
    }
    if is_image_model(folder) {
        return Ok(if has_classes(folder)? { Task::ClassifyImages } else { Task::EmbedImages });
    }
    if let Some(found) = model_type(folder)? {
        let is_of = |types: &[&str]| types.contains(&found.as_str());
        if is_of(GptConfig::MODEL_TYPES) || is_of(AwdLstmConfig::MODEL_TYPES) {
            return Ok(Task::Generate);
        }
        if is_of(TransformerConfig::MODEL_TYPES)
            || is_of(RecurrentEncoderDecoderConfig::MODEL_TYPES)
            || is_of(ConvolutionalEncoderDecoderConfig::MODEL_TYPES)
        {
            return Ok(Task::Translate);
        }
    }
    let config = PretrainedConfig::read(&folder.join("config.json"))?;
    Ok(match config.architecture {
        Architecture::Encoder => Task::Embed,
        Architecture::PreTraining | Architecture::MaskedLm | Architecture::ReplacedTokens => {
            // The encoder of an embedding model may be stored with the head that it was pretrained with.
            let embeds =
                folder.join("modules.json").exists() || config.architecture == Architecture::ReplacedTokens;
            if embeds { Task::Embed } else { Task::Fill }
        }
        _ => Task::Predict,
    })
}

/// How models are opened.
pub struct Opening<'a> {
    /// Tokens that a model computes at a time.
    pub batch_tokens: usize,
    /// Whether linear layers multiply in 8 bits.
    pub int8: bool,
    /// The cores that all models use in turn.
    pub share: &'a Share,
    /// Seconds since 1970.
    pub now: u64,
}

impl Served {
    /// Opens `[NAME=]MODEL`, with a queue of a thread of its own.
    pub fn open(argument: &str, how: &Opening<'_>, device: &Device) -> Result<Self> {
        let Opening { batch_tokens, int8, share, now } = *how;
        let (name, model) = parts(argument);
        let folder = model::folder(model)?;
        let name = if name == model { default_name(model) } else { name.to_owned() };
        let task = task_of(&folder).with_context(|| format!("model `{name}`"))?;
        let kind = match task {
            Task::Embed => {
                let config = EmbedConfig { int8, ..EmbedConfig::default() };
                Kind::Embeds(Arc::new(Queue::sharing(
                    Embedder::load(&folder, config, device)?,
                    batch_tokens,
                    share,
                )))
            }
            Task::Fill => {
                if int8 {
                    return Err(anyhow!("model `{name}`: --int8 is not supported for filling masks"));
                }
                Kind::Fills(Arc::new(Queue::sharing(FillMask::load(&folder, device)?, batch_tokens, share)))
            }
            Task::Predict => {
                let predictor = Predictor::load(&folder, device, int8)?;
                Kind::Predicts(Arc::new(Queue::sharing(predictor, batch_tokens, share)))
            }
            Task::Generate => {
                let mut config = GenerateConfig::default();
                config.int8 = int8;
                let generator = Generator::load(&folder, config, device)?;
                Kind::Generates(Arc::new(Queue::sharing(generator, batch_tokens, share)))
            }
            Task::Translate => {
                let mut config = TranslateConfig::default();
                config.int8 = int8;
                let translator = Translator::load(&folder, config, device)?;
                Kind::Translates(Arc::new(Queue::sharing(translator, batch_tokens, share)))
            }
            Task::ClassifyImages => {
                let predictor = ImagePredictor::open(&folder, device, int8)?;
                Kind::Classifies(Arc::new(Queue::sharing(predictor, batch_tokens, share)))
            }
            Task::EmbedImages => {
                let config = ImageEmbedConfig { int8, ..ImageEmbedConfig::default() };
                let embedder = ImageEmbedder::open(&folder, config, device)?;
                Kind::EmbedsImages(Arc::new(Queue::sharing(embedder, batch_tokens, share)))
            }
        };
        let tokenizer = match kind {
            Kind::Classifies(_) | Kind::EmbedsImages(_) => None,
            _ => {
                let mut tokenizer = Tokenizer::load(&folder)?;
                tokenizer.set_truncation(None)?;
                tokenizer.set_padding(None)?;
                Some(tokenizer)
            }
        };
        Ok(Self { name, folder, kind, tokenizer, opened: now, truncated: AtomicU64::new(0) })
    }

    /// What it does, as `/info` says.
    pub fn task(&self) -> &str {
        match &self.kind {
            Kind::Embeds(_) => "embedding",
            Kind::Fills(_) => "fill-mask",
            Kind::Predicts(queue) => queue.model().kind(),
            Kind::Generates(_) => "generation",
            Kind::Translates(_) => "translation",
            Kind::Classifies(_) => "image-classification",
            Kind::EmbedsImages(_) => "image-embedding",
        }
    }

    /// The routes that it answers.
    pub fn routes(&self) -> Vec<&'static str> {
        let mut routes = match &self.kind {
            Kind::Embeds(_) => vec!["/embed", "/embed_all", "/similarity", "/v1/embeddings"],
            Kind::Fills(_) => vec!["/fill-mask", "/embed_sparse"],
            Kind::Generates(_) => vec!["/generate", "/v1/completions"],
            Kind::Translates(_) => vec!["/translate"],
            Kind::Classifies(_) => vec!["/predict"],
            Kind::EmbedsImages(_) => vec!["/embed"],
            Kind::Predicts(queue) => match queue.model().kind() {
                "tagging" => vec!["/tag"],
                "answers" => vec!["/answer"],
                "multiple-choice" => vec!["/choose"],
                _ => Vec::new(),
            },
        };
        if self.is_classifier() {
            routes.push("/predict");
        }
        if self.pair_scores().is_some() && self.reads_pairs() {
            routes.extend(["/rerank", "/v1/rerank", "/v2/rerank"]);
        }
        if self.tokenizer.is_some() {
            routes.extend(["/tokenize", "/decode"]);
        }
        routes
    }

    /// The mask that it fills, if it fills masks.
    pub fn mask_token(&self) -> Option<&str> {
        match &self.kind {
            Kind::Fills(queue) => Some(queue.model().mask_token()),
            _ => None,
        }
    }

    /// The most tokens of a text, if there is a limit.
    pub fn max_len(&self) -> Option<usize> {
        match &self.kind {
            Kind::Embeds(queue) => Some(queue.model().max_len()),
            Kind::Fills(queue) => Some(queue.model().max_len()),
            Kind::Predicts(queue) => Some(queue.model().max_len()),
            Kind::Generates(queue) => queue.model().max_len(),
            Kind::Translates(queue) => Some(queue.model().max_len()),
            Kind::Classifies(_) | Kind::EmbedsImages(_) => None,
        }
    }

    /// Height and width that images are resized to, of a model of images.
    pub fn image_size(&self) -> Option<[usize; 2]> {
        match &self.kind {
            Kind::Classifies(queue) => Some(queue.model().config().image_size()),
            Kind::EmbedsImages(queue) => Some(queue.model().config().image_size()),
            _ => None,
        }
    }

    /// What its queue holds and has done.
    pub fn counts(&self) -> QueueCounts {
        match &self.kind {
            Kind::Embeds(queue) => queue.counts(),
            Kind::Fills(queue) => queue.counts(),
            Kind::Predicts(queue) => queue.counts(),
            Kind::Generates(queue) => queue.counts(),
            Kind::Translates(queue) => queue.counts(),
            Kind::Classifies(queue) => queue.counts(),
            Kind::EmbedsImages(queue) => queue.counts(),
        }
    }

    /// Counts units that were cut.
    pub fn count_truncated(&self, n: usize) {
        self.truncated.fetch_add(n as u64, Ordering::Relaxed);
        note(|tally| tally.truncated += n as u64);
    }

    /// How its predictor scores pairs, if it is a reranker.
    pub fn pair_scores(&self) -> Option<Scores> {
        let Kind::Predicts(queue) = &self.kind else { return None };
        match queue.model().task()? {
            TaskSection::Regression { loss, .. } => Some(Scores::Value(*loss)),
            TaskSection::Classification { labels, positive, .. } if labels.len() == 2 => {
                Some(Scores::Class(positive.clone().or_else(|| labels.get(1).cloned())?))
            }
            _ => None,
        }
    }

    /// Whether its predictor reads pairs of texts: one that was trained with single texts refuses them.
    fn reads_pairs(&self) -> bool {
        matches!(&self.kind, Kind::Predicts(queue) if queue.model().input().contains("\"pair\""))
    }

    /// Whether it gives texts classes or numbers.
    pub fn is_classifier(&self) -> bool {
        let Kind::Predicts(queue) = &self.kind else { return false };
        queue.model().task().is_some_and(|task| {
            matches!(
                task,
                TaskSection::Classification { .. }
                    | TaskSection::Regression { .. }
                    | TaskSection::MultiLabel { .. }
                    | TaskSection::Prompt(_)
            )
        })
    }

    /// Whether its predictor has this kind of task.
    pub fn predicts(&self, kind: &str) -> bool {
        matches!(&self.kind, Kind::Predicts(queue) if queue.model().kind() == kind)
    }

    /// One pass through the model, as a request.
    pub fn warm(&self) -> cloze_trainer::Result<()> {
        let image = || ImageRequest::of(Image::filled(8, 8, [127; 3]).to_png());
        match &self.kind {
            Kind::Embeds(queue) => queue.ask(EmbedRequest::of("a text")).map(drop),
            Kind::Fills(queue) => {
                let text = format!("a {}", queue.model().mask_token());
                queue.ask(FillRequest::of(text, 1)).map(drop)
            }
            Kind::Predicts(queue) => {
                let line = match queue.model().kind() {
                    "answers" => json!({ "question": "a", "context": "a text" }),
                    "multiple-choice" => json!({ "text": "a", "choices": ["a", "b"] }),
                    _ => json!("a text"),
                };
                // A model of pairs refuses a single text.
                let pair = || json!({ "text": "a", "pair": "a text" });
                queue.ask(line).or_else(|_| queue.ask(pair())).map(drop)
            }
            Kind::Generates(queue) => {
                let mut settings = GenerateSettings::default();
                settings.decoding.max_new = Some(2);
                queue.ask(GenerateRequest { text: "a text".into(), settings, listener: None }).map(drop)
            }
            Kind::Translates(queue) => {
                let mut settings = TranslateSettings::default();
                settings.decoding.max_new = Some(2);
                queue.ask(TranslateRequest { text: "a text".into(), settings }).map(drop)
            }
            Kind::Classifies(queue) => queue.ask(image()).map(drop),
            Kind::EmbedsImages(queue) => queue.ask(image()).map(drop),
        }
    }

    /// The refusal of a route that needs another kind of model.
    pub fn misfit(&self, route: &str, needs: &str) -> Refusal {
        let message = format!(
            "model `{}` is for {}, and {route} needs one for {needs}; `GET /info` lists the models",
            self.name,
            self.task()
        );
        Refusal::new(Why::Backend, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_stand_before_a_model() {
        assert_eq!(parts("mini=sentence-transformers/all-MiniLM-L6-v2").0, "mini");
        assert_eq!(parts("./a=b/model"), ("./a=b/model", "./a=b/model"));
        assert_eq!(parts("=x"), ("=x", "=x"));
        assert_eq!(default_name("org/model"), "org/model");
        assert_eq!(default_name(env!("CARGO_MANIFEST_DIR")), "cli");
    }

    #[test]
    fn a_trained_model_does_what_it_was_trained_for() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, embeds) in [("embedding", true), ("tagging", false)] {
            let file = TaskFile { task: json!({ "kind": kind }), max_len: 64, pairs: None };
            file.write(folder.path()).unwrap();
            let task = task_of(folder.path()).unwrap();
            assert_eq!((matches!(task, Task::Embed), matches!(task, Task::Predict)), (embeds, !embeds));
        }
    }
}
