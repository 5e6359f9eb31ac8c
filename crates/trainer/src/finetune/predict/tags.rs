//! Tagging words, and the resulting entities.

use super::super::section::TaskSection;
use super::super::tags::{SentenceFeatures, SentenceTags, Tagger, Tags};
use super::super::task::{Encoded, bad_setting};
use super::{Cut, InputKey, LineFields, PredictTask, Read};
use crate::Result;
use cloze_data::labelled::{LabelledSource, Loaded, LongSentences, TagScheme, TaggedSentence};
use cloze_evaluation::tags::entities;
use cloze_tokenizer::{Tokenizer, split_words};
use serde_json::{Value, json};
use std::ops::Range;

/// `{"words": […], "tags": […], "entities": […]}`. An entity has its `"type"`, its `"first"` and `"last"` word
/// and its `"text"`; for words split from a text also `"start"` and `"end"`, its place there in characters. Tags that
/// are word classes give no entities.
impl<M: Tagger> PredictTask for Tags<M> {
    type Origin = Option<Text>;

    fn input(&self) -> &'static str {
        r#"{"words": ["…", "…"]}, {"text": "…"} or "…""#
    }

    fn input_keys(&self) -> &'static [InputKey] {
        const { &[InputKey::text("text").or_none(), InputKey::texts("words").or_none()] }
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        vec!["words", "tags", "entities"]
    }

    fn read_line(&self, line: Value) -> Read<(TaggedSentence, Option<Text>)> {
        let mut fields = LineFields::or_text(line)?;
        let (words, text) = (fields.words("words")?, fields.text("text")?);
        fields.end()?;
        let (words, text) = match (words, text) {
            (Some(words), None) => (words, None),
            (None, Some(text)) => {
                let text = Text::new(text);
                (text.words().map(str::to_owned).collect(), Some(text))
            }
            (Some(_), Some(_)) => return Err("both `words` and `text`".into()),
            (None, None) => return Err("`words` is missing".into()),
        };
        Ok((TaggedSentence { words, tags: Vec::new() }, text))
    }

    fn tokens(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<TaggedSentence>,
        max_len: usize,
    ) -> Result<Cut<Self>> {
        let (data, report) = self.encode(tokenizer, examples, max_len)?;
        let cut = match self.section.long_sentences {
            LongSentences::Truncate => report.long_sentences,
            LongSentences::Windows { .. } => 0,
        };
        Ok((data, cut))
    }

    fn answer(
        &self,
        origins: &[Option<Text>],
        data: &Encoded<TaggedSentence, SentenceFeatures>,
        outputs: &[SentenceTags],
    ) -> Vec<Value> {
        let tags = self.tags(&data.examples, &data.features, outputs);
        let sentences = data.examples.iter().zip(tags).zip(origins).map(|((sentence, tags), text)| {
            let entities = if self.is_of_words() { Vec::new() } else { entities(&tags) };
            let entities = entities.into_iter().map(|entity| {
                let (first, last) = (entity.start, entity.end - 1);
                let mut line = json!({ "type": entity.label, "first": first, "last": last });
                match text {
                    None => line["text"] = sentence.words[first..=last].join(" ").into(),
                    Some(text) => {
                        let (from, to) = (&text.places[first], &text.places[last]);
                        line["start"] = from.chars.start.into();
                        line["end"] = to.chars.end.into();
                        line["text"] = text.text[from.bytes.start..to.bytes.end].into();
                    }
                }
                line
            });
            let entities: Vec<Value> = entities.collect();
            json!({ "words": sentence.words, "tags": tags, "entities": entities })
        });
        sentences.collect()
    }

    /// Read and truncated as configured; the tags are the model's.
    fn labelled(
        &self,
        section: &TaskSection,
        source: &LabelledSource,
    ) -> Result<(Self, Loaded<TaggedSentence>)> {
        let mut task = self.clone();
        if let TaskSection::Tagging(config) = section {
            let of_words = |scheme| scheme == Some(TagScheme::Words);
            if of_words(config.scheme) != self.is_of_words() {
                let (found, expected) = match self.is_of_words() {
                    true => ("of entities", "\"words\": the model's tags are classes of words"),
                    false => {
                        ("\"words\"", "a scheme of entities, or no such key: the model's tags mark entities")
                    }
                };
                return Err(bad_setting("task.scheme", found, expected.into()));
            }
            task.section.scheme = config.scheme;
            task.section.long_sentences = config.long_sentences;
            if !config.tag_names.is_empty() {
                task.section.tag_names = config.tag_names.clone();
            }
        }
        let loaded = task.read_more(source)?;
        Ok((task, loaded))
    }
}

/// A text with its [words](split_words).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    text: String,
    places: Vec<Place>,
}

/// The position of a word in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    bytes: Range<usize>,
    chars: Range<usize>,
}

impl Text {
    fn new(text: String) -> Self {
        let (mut byte, mut char) = (0, 0);
        let place = |bytes: Range<usize>| {
            let start = char + text[byte..bytes.start].chars().count();
            let end = start + text[bytes.clone()].chars().count();
            (byte, char) = (bytes.end, end);
            Place { bytes, chars: start..end }
        };
        let places = split_words(&text).into_iter().map(place).collect();
        Self { text, places }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| &self.text[place.bytes.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::section::TaggingSection;
    use super::super::super::tags::TagTask;
    use super::super::testing::{ask, refused, saved};
    use super::*;

    fn task(crf: bool, scheme: TagScheme, labels: &[&str]) -> TagTask {
        let labels = labels.iter().map(ToString::to_string).collect();
        let long_sentences = LongSentences::Windows { stride: 2 };
        let section = TaggingSection {
            crf,
            labels,
            predict_scheme: Some(scheme),
            long_sentences,
            ..TaggingSection::default()
        };
        TagTask::spelt_out(&section).unwrap()
    }

    const TAGS: [&str; 5] = ["O", "B-x", "I-x", "E-x", "S-x"];
    const TEXT: &str = "  été  kab\u{a0}日\tl mnop q r s t u vw x y z abc d ";

    #[test]
    fn words_of_raw_text_have_their_places() {
        let raw = "  Été à Zürich, «kab\u{a0}日»; Wei Chen's.";
        let text = Text::new(raw.into());
        let words: Vec<&str> = text.words().collect();
        assert_eq!(words, ["Été", "à", "Zürich", ",", "«", "kab", "日", "»", ";", "Wei", "Chen", "'s", "."]);
        let chars: Vec<char> = raw.chars().collect();
        for (word, place) in words.iter().zip(&text.places) {
            assert_eq!(chars[place.chars.clone()].iter().collect::<String>(), *word);
        }
        assert!(Text::new(" \u{3000}".into()).places.is_empty());
    }

    #[test]
    fn entities_are_cut_from_the_text() {
        let folder = saved(task(false, TagScheme::Bioes, &TAGS), 10);
        let words: Vec<&str> = TEXT.split_whitespace().collect();
        let lines = [json!({ "text": TEXT }).to_string(), json!({ "words": words }).to_string()];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let values = ask(folder.path(), &lines).values;
        let [of_text, of_words] = &values[..] else { panic!("{values:?}") };
        assert_eq!(of_text["words"], json!(words));
        assert_eq!(of_text["tags"], of_words["tags"]);
        assert_eq!(of_text["tags"].as_array().unwrap().len(), words.len());
        let entities = of_text["entities"].as_array().unwrap();
        assert!(entities.len() > 1, "{of_text}");
        let chars: Vec<char> = TEXT.chars().collect();
        for (entity, same) in entities.iter().zip(of_words["entities"].as_array().unwrap()) {
            let place = |key: &str| entity[key].as_u64().unwrap() as usize;
            let cut: String = chars[place("start")..place("end")].iter().collect();
            assert_eq!(entity["text"], cut);
            let joined = words[place("first")..=place("last")].join(" ");
            assert_eq!(cut.split_whitespace().collect::<Vec<_>>().join(" "), joined);
            assert_eq!(
                *same,
                json!({ "type": "x", "first": entity["first"], "last": entity["last"], "text": joined })
            );
        }
    }

    #[test]
    fn a_field_gives_what_the_scheme_allows_alone() {
        let folder = saved(task(true, TagScheme::Bioes, &TAGS), 10);
        let value = ask(folder.path(), &[&json!(TEXT).to_string()]).values.remove(0);
        let tags: Vec<&str> = value["tags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        TagScheme::Bioes.spans(&tags).unwrap();
        // Which it does not do by itself.
        let folder = saved(task(false, TagScheme::Bioes, &TAGS), 10);
        let value = ask(folder.path(), &[&json!(TEXT).to_string()]).values.remove(0);
        let tags: Vec<&str> = value["tags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(TagScheme::Bioes.spans(&tags).is_err(), "{tags:?}");
    }

    #[test]
    fn a_sentence_may_have_any_number_of_windows() {
        let folder = saved(task(false, TagScheme::Bioes, &TAGS), 10);
        // Windows begin six words after one another, so all but the outer ones see the same words.
        let mut varied = 0;
        for six in ["abcdef", "ghijkl", "mnopqr", "stuvwx"] {
            let words: Vec<String> = six.chars().cycle().take(9_000).map(String::from).collect();
            let value = ask(folder.path(), &[&json!({ "words": words }).to_string()]).values.remove(0);
            let tags = value["tags"].as_array().unwrap();
            assert_eq!(tags.len(), words.len());
            let inner = &tags[12..8_988];
            varied += usize::from(inner.iter().any(|tag| *tag != inner[0]));
            assert!(inner.iter().zip(&inner[6..]).all(|(tag, next)| tag == next));
        }
        assert!(varied > 0);
    }

    #[test]
    fn words_without_pieces_are_outside() {
        let folder = saved(task(false, TagScheme::Bio, &["O", "B-x", "I-x"]), 10);
        let values =
            ask(folder.path(), &[r#"{"words": []}"#, r#"" ""#, r#"{"words": ["", "\u0007"]}"#]).values;
        let nothing = json!({ "words": [], "tags": [], "entities": [] });
        assert_eq!(values[..2], [nothing.clone(), nothing]);
        assert_eq!(values[2]["tags"], json!(["O", "O"]));
    }

    #[test]
    fn words_that_are_given_are_kept() {
        let folder = saved(task(false, TagScheme::Bioes, &TAGS), 10);
        let lines = [r#"{"words": ["a.", "b,", "c"]}"#, r#"{"words": " a.  b, c"}"#, r#""a. b, c""#];
        let values = ask(folder.path(), &lines).values;
        assert_eq!(values[0]["words"], json!(["a.", "b,", "c"]));
        assert_eq!(values[1], values[0]);
        assert_eq!(values[2]["words"], json!(["a", ".", "b", ",", "c"]));
    }

    #[test]
    fn what_is_no_sentence_is_refused() {
        let task = task(false, TagScheme::Bio, &["O", "B-x", "I-x"]);
        let folder = saved(task.clone(), 10);
        for (line, problem) in [
            ("7", "neither an object nor a string"),
            ("{}", "`words` is missing"),
            (r#"{"words": 7}"#, "`words` is not a list of strings"),
            (r#"{"words": ["a", null]}"#, "`words` is not a list of strings"),
            (r#"{"words": ["a"], "text": "a"}"#, "both `words` and `text`"),
            (r#"{"words": ["a"], "tags": ["O"]}"#, "unknown key `tags`"),
        ] {
            let message = refused(folder.path(), line);
            assert_eq!(message, format!("{problem}; expected {}", task.input()));
        }
    }
}
