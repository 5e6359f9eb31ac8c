//! Sentences with target words whose senses are known or to be predicted.

use crate::{Result, TrainerError};
use cloze_data::labelled::{Column, DataFormat, LabelledSource, RecordColumn, Records, records};
use cloze_data::{SkipReport, file_checksum};
use cloze_evaluation::senses::PartOfSpeech;
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Number of parts of a file; the last sentences of each are held out.
const SEGMENTS: u64 = 10;

/// A sentence and its target words, whose senses are known or to be predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenseSentence {
    /// Its line, from 1.
    pub line: u64,
    /// The sentence.
    pub text: SenseText,
    /// The target words.
    pub targets: Vec<SenseTarget>,
}

/// A sentence as words or as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenseText {
    /// Words. Multi-word expressions have underscores between their parts: `primary_election`.
    Words(Vec<String>),
    /// Text.
    Text(String),
}

/// A target word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenseTarget {
    /// Its position: word indices, or character offsets in a text; end-exclusive.
    pub place: Range<usize>,
    /// Its lemma in lower case, with underscores for spaces.
    pub lemma: String,
    /// Its part of speech.
    pub pos: PartOfSpeech,
    /// Its sense, if known.
    pub sense: Option<String>,
}

/// Parses a sentence from a JSON object.
///
/// It has `tokens`, a list of words, or `text`, a string; and `senses`, a list of objects with `lemma`, `pos`
/// (n, v, a, s or r), an optional `sense` (a string, or null if unknown), and the word's position: `index` from
/// 0 for `tokens`, or character offsets `start` and `end`, end-exclusive, for `text`. Other keys are ignored.
/// WordNet's satellites are adjectives: a sense that ends in `-s` is the one that ends in `-a`.
///
/// # Errors
/// What is wrong with the object, and what was expected.
pub fn sense_sentence(line: u64, object: &Map<String, Value>) -> std::result::Result<SenseSentence, String> {
    let get = |key: &str| object.get(key).filter(|value| !value.is_null());
    let (text, length) = match (get("tokens"), get("text")) {
        (Some(tokens), None) => {
            let words = words(tokens)?;
            let n_words = words.len();
            (SenseText::Words(words), n_words)
        }
        (None, Some(Value::String(text))) => (SenseText::Text(text.clone()), text.chars().count()),
        (None, Some(other)) => return Err(format!("`text` is {}; expected a string", kind(other))),
        (Some(_), Some(_)) => {
            return Err("it has `tokens` and `text`; expected one of them".into());
        }
        (None, None) => return Err("it has no `tokens`; expected a list of words".into()),
    };
    let senses = match object.get("senses") {
        Some(Value::Array(senses)) => senses,
        Some(other) => return Err(format!("`senses` is {}; expected a list of objects", kind(other))),
        None => return Err("it has no `senses`; expected a list of objects".into()),
    };
    let is_words = matches!(text, SenseText::Words(_));
    let target = |(number, value): (usize, &Value)| {
        target(value, is_words, length).map_err(|problem| format!("`senses[{number}]`: {problem}"))
    };
    let targets = senses.iter().enumerate().map(target).collect::<std::result::Result<_, _>>()?;
    Ok(SenseSentence { line, text, targets })
}

fn words(tokens: &Value) -> std::result::Result<Vec<String>, String> {
    let Value::Array(tokens) = tokens else {
        return Err(format!("`tokens` is {}; expected a list of words", kind(tokens)));
    };
    let word = |(number, token): (usize, &Value)| match token {
        Value::String(word) => Ok(word.clone()),
        other => Err(format!("`tokens[{number}]` is {}; expected a string", kind(other))),
    };
    let words: Vec<String> = tokens.iter().enumerate().map(word).collect::<std::result::Result<_, _>>()?;
    match words.is_empty() {
        true => Err("`tokens` is empty; expected at least one word".into()),
        false => Ok(words),
    }
}

fn target(value: &Value, is_words: bool, length: usize) -> std::result::Result<SenseTarget, String> {
    let Value::Object(object) = value else {
        return Err(format!("it is {}; expected an object", kind(value)));
    };
    let number = |key: &str| match object.get(key) {
        Some(value) => value
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .ok_or_else(|| format!("`{key}` is {}; expected a whole number from 0", shown(value))),
        None => Err(format!("it has no `{key}`")),
    };
    let place = match is_words {
        true => {
            let index = number("index")?;
            if index >= length {
                return Err(format!("`index` is {index}; expected a number below {length}, the words"));
            }
            index..index + 1
        }
        false => {
            let (start, end) = (number("start")?, number("end")?);
            if start >= end || end > length {
                let problem = format!("its characters are {start} to {end}");
                return Err(format!("{problem}; expected some of the text's {length}"));
            }
            start..end
        }
    };
    let text = |key: &str| match object.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.trim()),
        Some(other) => Err(format!("`{key}` is {}; expected a non-empty string", shown(other))),
        None => Err(format!("it has no `{key}`")),
    };
    let lemma = text("lemma")?.to_lowercase().split_whitespace().collect::<Vec<_>>().join("_");
    let pos = text("pos")?;
    let pos = pos.parse().map_err(|expected| format!("`pos` is {pos:?}; {expected}"))?;
    let sense = match object.get("sense") {
        None | Some(Value::Null) => None,
        Some(_) => {
            let sense = text("sense")?;
            Some(sense.strip_suffix("-s").map_or_else(|| sense.to_owned(), |stem| format!("{stem}-a")))
        }
    };
    Ok(SenseTarget { place, lemma, pos, sense })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value for a message: numbers and short strings verbatim.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(_) => value.to_string(),
        Value::String(text) if text.chars().count() <= 40 => format!("{text:?}"),
        other => kind(other).to_owned(),
    }
}

/// A file of sentences with senses: JSON lines as for [`sense_sentence`], optionally compressed with gzip or
/// zstd.
#[derive(Debug, Clone)]
pub struct SenseData {
    source: LabelledSource,
    path: PathBuf,
    /// Identifies the file.
    pub checksum: String,
    /// Its sentences, without skipped ones.
    pub sentences: u64,
    /// Number of words with a sense.
    pub labelled_words: u64,
    /// Skipped rows, by reason.
    pub skipped: SkipReport,
}

/// A part of a file's sentences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SensePart {
    /// All.
    All,
    /// Those that remain if this fraction is held out.
    Training(f64),
    /// Those held out if this fraction is.
    HeldOut(f64),
}

impl SenseData {
    /// Reads a file once to its end, so that every bad row is found before any computation. Ignores
    /// `source.files` and `source.format`.
    ///
    /// # Errors
    /// A file that cannot be read, or has no sentences or no senses; with file and line, rows that are not
    /// sentences with senses, unless `source.on_bad_row` says to skip them.
    pub fn open(path: &Path, source: &LabelledSource) -> Result<Self> {
        let checksum = file_checksum(path)?;
        let mut data = Self {
            source: source.clone(),
            path: path.to_owned(),
            checksum,
            sentences: 0,
            labelled_words: 0,
            skipped: SkipReport::default(),
        };
        let mut all = data.read(SensePart::All)?;
        for sentence in &mut all {
            data.sentences += 1;
            data.labelled_words += labelled(&sentence?);
        }
        data.skipped = all.records.skipped().clone();
        let left_out = match data.skipped.is_empty() {
            true => String::new(),
            false => format!("; left out: {}", data.skipped),
        };
        let refused = |reason: String| Err(TrainerError::Text { path: path.to_owned(), reason });
        if data.sentences == 0 {
            return refused(format!("it has no sentences; expected one per line{left_out}"));
        }
        if data.labelled_words == 0 {
            return refused(format!(
                "no word has a sense; expected `sense` in the objects of `senses`{left_out}"
            ));
        }
        Ok(data)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The sentences of a part in file order.
    ///
    /// Held-out sentences are chosen by position: the file is divided into ten parts of the same length, and
    /// the last sentences of each are held out. This way most held-out documents do not occur in training, and
    /// consecutive text types in the file are all represented.
    ///
    /// # Errors
    /// A file that cannot be opened; [`TrainerError::Setting`] for a fraction that holds out no sentences, or
    /// all.
    pub fn read(&self, part: SensePart) -> Result<SenseSentences> {
        let (segment, held_out) = match part {
            SensePart::All => (1, 0),
            SensePart::Training(share) | SensePart::HeldOut(share) => self.split(share)?,
        };
        let source = LabelledSource {
            format: DataFormat::Jsonl,
            ..self.source.with_files([self.path.display().to_string()])
        };
        let column = |field: &str| RecordColumn {
            field: field.into(),
            column: Column::Name(field.into()),
            required: false,
        };
        let columns = ["tokens", "text", "senses"].map(column).into();
        let records = records(&source, Path::new(""), columns)?;
        Ok(SenseSentences { records, part, segment, held_out, count: 0 })
    }

    /// The number of sentences that a fraction holds out.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for a fraction that holds out no sentences, or all.
    pub fn held_out(&self, share: f64) -> Result<u64> {
        let (segment, held_out) = self.split(share)?;
        // The last part may be shorter.
        let of_last = (self.sentences % segment + held_out).saturating_sub(segment);
        Ok(self.sentences / segment * held_out + of_last)
    }

    /// The sentences of each part, and how many of its last ones are held out.
    fn split(&self, share: f64) -> Result<(u64, u64)> {
        let segment = self.sentences.div_ceil(SEGMENTS).max(1);
        let held_out = (share * segment as f64).round() as u64;
        if share > 0.0 && (held_out == 0 || held_out >= segment) {
            let expected = format!(
                "a share that holds out some of {segment} sentences and not all: it is taken from each tenth of {}, \
                 which has {}",
                self.path.display(),
                self.sentences
            );
            return Err(TrainerError::Setting { key: "held_out".into(), found: share.to_string(), expected });
        }
        Ok((segment, held_out))
    }
}

/// The number of a sentence's words that have a sense.
pub(super) fn labelled(sentence: &SenseSentence) -> u64 {
    sentence.targets.iter().filter(|target| target.sense.is_some()).count() as u64
}

/// An iterator over the sentences of a file, which are not kept. It ends with the first error.
pub struct SenseSentences {
    records: Records,
    part: SensePart,
    segment: u64,
    held_out: u64,
    /// Sentences so far.
    count: u64,
}

impl SenseSentences {
    fn is_wanted(&self, number: u64) -> bool {
        let is_held_out = number % self.segment >= self.segment - self.held_out;
        match self.part {
            SensePart::All => true,
            SensePart::Training(_) => !is_held_out,
            SensePart::HeldOut(_) => is_held_out,
        }
    }
}

impl Iterator for SenseSentences {
    type Item = Result<SenseSentence>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error.into())),
            };
            let names = ["tokens", "text", "senses"].map(String::from);
            let object: Map<String, Value> =
                names.into_iter().zip(record.cells).filter(|(_, cell)| !cell.is_null()).collect();
            match sense_sentence(record.line, &object) {
                Ok(sentence) => {
                    self.count += 1;
                    if self.is_wanted(self.count - 1) {
                        return Some(Ok(sentence));
                    }
                }
                Err(problem) => {
                    if let Err(error) = self.records.refuse(record.line, "no sentence with senses", problem) {
                        return Some(Err(error.into()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_data::labelled::OnBadRow;
    use serde_json::json;
    use std::fs;

    fn sentence(value: Value) -> std::result::Result<SenseSentence, String> {
        sense_sentence(7, value.as_object().unwrap())
    }

    #[test]
    fn words_and_texts_have_targets() {
        let found = sentence(json!({
            "tokens": ["The", "Old_Bank", "ran"],
            "senses": [
                {"index": 1, "lemma": "Old Bank", "pos": "n", "sense": "wn30-00000001-n"},
                {"index": 2, "lemma": "run", "pos": "v", "sense": null},
                {"index": 1, "lemma": "old", "pos": "s", "sense": "wn30-00000002-s"},
            ],
        }))
        .unwrap();
        assert_eq!(found.line, 7);
        assert_eq!(found.text, SenseText::Words(["The", "Old_Bank", "ran"].map(String::from).into()));
        let target = |place, lemma: &str, pos, sense: Option<&str>| SenseTarget {
            place,
            lemma: lemma.into(),
            pos,
            sense: sense.map(String::from),
        };
        let expected = [
            target(1..2, "old_bank", PartOfSpeech::Noun, Some("wn30-00000001-n")),
            target(2..3, "run", PartOfSpeech::Verb, None),
            target(1..2, "old", PartOfSpeech::Adjective, Some("wn30-00000002-a")),
        ];
        assert_eq!(found.targets, expected);
        assert_eq!(labelled(&found), 2);

        let object =
            json!({"text": "été à Rome", "senses": [{"start": 6, "end": 10, "lemma": "rome", "pos": "n"}]});
        let found = sentence(object).unwrap();
        assert_eq!(found.targets, [target(6..10, "rome", PartOfSpeech::Noun, None)]);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let with = |target: Value| json!({"tokens": ["a", "b"], "senses": [target]});
        let cases = [
            (json!({"senses": []}), "it has no `tokens`; expected a list of words"),
            (json!({"tokens": [], "senses": []}), "`tokens` is empty; expected at least one word"),
            (json!({"tokens": "a b", "senses": []}), "`tokens` is a string; expected a list of words"),
            (json!({"tokens": ["a", 1], "senses": []}), "`tokens[1]` is a number; expected a string"),
            (
                json!({"tokens": ["a"], "text": "a", "senses": []}),
                "it has `tokens` and `text`; expected one of them",
            ),
            (json!({"text": 3, "senses": []}), "`text` is a number; expected a string"),
            (json!({"tokens": ["a"]}), "it has no `senses`; expected a list of objects"),
            (json!({"tokens": ["a"], "senses": {}}), "`senses` is an object; expected a list of objects"),
            (with(json!(1)), "`senses[0]`: it is a number; expected an object"),
            (with(json!({"lemma": "a", "pos": "n"})), "`senses[0]`: it has no `index`"),
            (
                with(json!({"index": 2, "lemma": "a", "pos": "n"})),
                "`senses[0]`: `index` is 2; expected a number below 2, the words",
            ),
            (
                with(json!({"index": -1, "lemma": "a", "pos": "n"})),
                "`senses[0]`: `index` is -1; expected a whole number from 0",
            ),
            (with(json!({"index": 0, "pos": "n"})), "`senses[0]`: it has no `lemma`"),
            (
                with(json!({"index": 0, "lemma": " ", "pos": "n"})),
                "`senses[0]`: `lemma` is \" \"; expected a non-empty string",
            ),
            (
                with(json!({"index": 0, "lemma": "a", "pos": "x"})),
                "`senses[0]`: `pos` is \"x\"; expected n, v, a or r",
            ),
            (
                with(json!({"index": 0, "lemma": "a", "pos": "n", "sense": 3})),
                "`senses[0]`: `sense` is 3; expected a non-empty string",
            ),
            (
                json!({"text": "ab", "senses": [{"start": 1, "end": 3, "lemma": "a", "pos": "n"}]}),
                "`senses[0]`: its characters are 1 to 3; expected some of the text's 2",
            ),
            (
                json!({"text": "ab", "senses": [{"start": 1, "end": 1, "lemma": "a", "pos": "n"}]}),
                "`senses[0]`: its characters are 1 to 1; expected some of the text's 2",
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(sentence(value).unwrap_err(), expected);
        }
    }

    fn file(lines: &[String]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a[1].jsonl");
        fs::write(&path, lines.join("\n")).unwrap();
        (folder, path)
    }

    fn line(lemma: &str) -> String {
        json!({"tokens": [lemma], "senses": [{"index": 0, "lemma": lemma, "pos": "n", "sense": "s"}]})
            .to_string()
    }

    #[test]
    fn a_share_is_held_out_of_each_tenth() {
        let lines: Vec<String> = (0..40).map(|number| line(&format!("w{number}"))).collect();
        let (_folder, path) = file(&lines);
        let data = SenseData::open(&path, &LabelledSource::default()).unwrap();
        assert_eq!((data.sentences, data.labelled_words), (40, 40));
        let read = |part| -> Vec<u64> {
            data.read(part).unwrap().map(|sentence| sentence.unwrap().line - 1).collect()
        };
        assert_eq!(read(SensePart::All), (0..40).collect::<Vec<u64>>());
        assert_eq!(read(SensePart::HeldOut(0.25)), (3..40).step_by(4).collect::<Vec<u64>>());
        let held_out = |number: &u64| number % 4 == 3;
        assert_eq!(
            read(SensePart::Training(0.25)),
            (0..40).filter(|number| !held_out(number)).collect::<Vec<u64>>()
        );
        assert_eq!(read(SensePart::Training(0.0)).len(), 40);
        assert_eq!((data.held_out(0.25).unwrap(), data.held_out(0.0).unwrap()), (10, 0));
        // Of 38 sentences the last part has two.
        for n in 36..40 {
            let (_folder, path) = file(&lines[..n]);
            let data = SenseData::open(&path, &LabelledSource::default()).unwrap();
            let read = data.read(SensePart::HeldOut(0.5)).unwrap().count();
            assert_eq!(data.held_out(0.5).unwrap(), read as u64, "{n}");
        }
        for share in [0.1, 0.9] {
            let error = data.read(SensePart::HeldOut(share)).err().unwrap();
            let message = error.to_string();
            let expected =
                format!("`held_out` is {share}; expected a share that holds out some of 4 sentences");
            assert!(message.starts_with(&expected) && error.is_of_config(), "{message}");
        }
    }

    #[test]
    fn bad_rows_are_errors_with_their_lines_or_left_out() {
        let bad = r#"{"tokens": ["a"], "senses": [{"index": 1, "lemma": "a", "pos": "n"}]}"#;
        let (_folder, path) = file(&[line("a"), bad.into(), "{".into(), line("b")]);
        let open = |on_bad_row| SenseData::open(&path, &LabelledSource { on_bad_row, ..Default::default() });
        let message = open(OnBadRow::Error).unwrap_err().to_string();
        let expected =
            "a[1].jsonl:2: `senses[0]`: `index` is 1; expected a number below 1, the words; correct it";
        assert!(message.contains(expected), "{message}");
        let data = open(OnBadRow::Skip).unwrap();
        assert_eq!(
            (data.sentences, data.skipped.to_string()),
            (2, "1 × bad JSON, 1 × no sentence with senses".into())
        );

        let none = json!({"tokens": ["a"], "senses": []}).to_string();
        for (lines, expected) in [
            (vec![], "it has no sentences; expected one per line"),
            (vec![none], "no word has a sense; expected `sense` in the objects of `senses`"),
        ] {
            let (_folder, path) = file(&lines);
            let message = SenseData::open(&path, &LabelledSource::default()).unwrap_err().to_string();
            assert!(message.ends_with(expected), "{message}");
        }
        let absent = SenseData::open(Path::new("absent.jsonl"), &LabelledSource::default()).unwrap_err();
        assert!(absent.to_string().contains("absent.jsonl"), "{absent}");
    }
}
