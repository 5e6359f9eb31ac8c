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
/// for text in tagger.tag(&["Ada Lovelace was born in London ."])? {
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
    /// The words, split at white space.
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
    /// Its word range.
    pub words: Range<usize>,
    /// Its byte range in the text.
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
    start: usize,
    end: usize,
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

    /// The tags and entities of each text. Models are trained on words with punctuation split off: `London .`
    ///
    /// # Errors
    /// Non-finite model outputs.
    pub fn tag<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<TaggedText>> {
        let answers: Vec<Answered> =
            predict(&self.0, texts.iter().map(|text| json!({ "text": text.as_ref() })))?;
        let tagged = texts.iter().zip(answers).map(|(text, answered)| {
            let Answered { words, tags, entities } = answered;
            let places =
                ByteOffsets::of(text.as_ref(), entities.iter().flat_map(|entity| [entity.start, entity.end]));
            let entities = entities.into_iter().map(|entity| Entity {
                label: entity.label,
                text: entity.text,
                words: entity.first..entity.last + 1,
                bytes: places.range(entity.start, entity.end).unwrap_or_default(),
            });
            TaggedText { words, tags, entities: entities.collect() }
        });
        Ok(tagged.collect())
    }
}

impl TryFrom<Predictor> for Tagger {
    type Error = Error;

    fn try_from(predictor: Predictor) -> Result<Self> {
        for_task(predictor, "tagging", |task| matches!(task, TaskSection::Tagging(_))).map(Self)
    }
}
