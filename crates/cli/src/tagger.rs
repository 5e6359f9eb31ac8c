//! Named-entity recognition.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::finetune::{Predictor, TaskSection};
use serde::Deserialize;
use serde_json::json;

use crate::predictions::{ByteOffsets, for_task, predict};
use crate::{Error, Result, names};

/// A tokenizer and a model that tags words to find entities. Can be shared between threads.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let tagger = cloze::Tagger::load("dslim/bert-base-NER", &device)?;
/// for text in tagger.tag(&["Ada Lovelace was born in London."])? {
///     text.entities.iter().for_each(|entity| println!("{}: {}", entity.label, entity.text));
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Tagger(Predictor);

/// The words of a text, with tags and entities.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaggedText {
    /// The words.
    pub words: Vec<String>,
    /// Their tags, such as `B-PER`.
    pub tags: Vec<String>,
    /// The entities from the tags, in order.
    pub entities: Vec<Entity>,
}

/// A named entity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entity {
    /// Its type, such as `PER`.
    pub label: String,
    /// Its text.
    pub text: String,
    /// Its range among the words.
    pub words: Range<usize>,
    /// Its range in the text, in characters (Unicode scalar values).
    pub chars: Range<usize>,
    /// Its range in the text, in bytes.
    pub bytes: Range<usize>,
}

#[derive(Deserialize)]
struct Answered {
    words: Vec<String>,
    tags: Vec<String>,
    entities: Vec<AnsweredEntity>,
}

#[derive(Deserialize)]
struct AnsweredEntity {
    #[serde(rename = "type")]
    label: String,
    text: String,
    first: usize,
    last: usize,
    /// Known of words that are split from a text.
    start: Option<usize>,
    end: Option<usize>,
}

impl Tagger {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]). For 8-bit weights, construct one
    /// from a [`Predictor`].
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder; [`Error::WrongTask`].
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Predictor::load(&names::find(model)?, device, false)?.try_into()
    }

    /// The tags and entities of each text. Its words are those of
    /// [`split_words`](cloze_tokenizer::split_words): punctuation is split off.
    ///
    /// # Errors
    /// Non-finite model outputs.
    pub fn tag<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<TaggedText>> {
        let answers: Vec<Answered> =
            predict(&self.0, texts.iter().map(|text| json!({ "text": text.as_ref() })))?;
        Ok(texts.iter().zip(answers).map(|(text, answered)| answered.of(text.as_ref())).collect())
    }

    /// The tags and entities of sentences that are already split into words. Places in the text are those in the
    /// words joined by spaces.
    ///
    /// # Errors
    /// Those of [`tag`](Self::tag).
    pub fn tag_words<S: AsRef<[W]>, W: AsRef<str>>(&self, sentences: &[S]) -> Result<Vec<TaggedText>> {
        let words = |sentence: &S| sentence.as_ref().iter().map(|word| word.as_ref().to_owned()).collect();
        let sentences: Vec<Vec<String>> = sentences.iter().map(words).collect();
        let answers: Vec<Answered> =
            predict(&self.0, sentences.iter().map(|words| json!({ "words": words })))?;
        Ok(answers
            .into_iter()
            .zip(sentences)
            .map(|(answered, words)| answered.of(&words.join(" ")))
            .collect())
    }
}

impl Answered {
    /// The answer with places in this text: that of the words, or the words joined by spaces.
    fn of(self, text: &str) -> TaggedText {
        let Self { words, tags, entities } = self;
        let chars = |entity: &AnsweredEntity| {
            let before = || words[..entity.first].iter().map(|word| word.chars().count() + 1).sum();
            let start = entity.start.unwrap_or_else(before);
            start..entity.end.unwrap_or_else(|| start + entity.text.chars().count())
        };
        let places =
            ByteOffsets::of(text, entities.iter().map(chars).flat_map(|place| [place.start, place.end]));
        let entities = entities.into_iter().map(|entity| {
            let chars = chars(&entity);
            Entity {
                words: entity.first..entity.last + 1,
                bytes: places.range(chars.start, chars.end).unwrap_or_default(),
                chars,
                label: entity.label,
                text: entity.text,
            }
        });
        let entities = entities.collect();
        TaggedText { words, tags, entities }
    }
}

impl TryFrom<Predictor> for Tagger {
    type Error = Error;

    fn try_from(predictor: Predictor) -> Result<Self> {
        for_task(predictor, "tagging", |task| matches!(task, TaskSection::Tagging(_))).map(Self)
    }
}
