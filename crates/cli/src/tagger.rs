//! Entities in texts.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::finetune::{Predictor, TaskSection};
use serde::Deserialize;
use serde_json::json;

use crate::predictions::{ByteOffsets, for_task, predict};
use crate::{Error, Result, names};

/// A tokenizer and a model that tags the words of texts, by which entities are found. Threads may share one.
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

/// The words of a text and what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaggedText {
    /// The words, which white space divides.
    pub words: Vec<String>,
    /// Their tags, such as `B-PER`.
    pub tags: Vec<String>,
    /// The entities that the tags make, in order.
    pub entities: Vec<Entity>,
}

/// Words that name something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entity {
    /// What it is, such as `PER`.
    pub label: String,
    /// Its text.
    pub text: String,
    /// Its words' places.
    pub words: Range<usize>,
    /// Its bytes in the text.
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
    /// Loads a model's folder, or a model by its name on the hub (see [`names::find`]). For 8 bits, make one from a
    /// [`Predictor`].
    ///
    /// # Errors
    /// As [`names::find`], and whatever is missing or damaged in the folder, by name; [`Error::WrongTask`].
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Predictor::load(&names::find(model)?, device, false)?.try_into()
    }

    /// The tags and entities of each text. Models are trained on words with punctuation apart: `London .`
    ///
    /// # Errors
    /// An output that is not finite.
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
