//! `cloze embed --tokens`.

use std::io::{self, IsTerminal};
use std::ops::Range;
use std::slice::ChunksExact;

use anyhow::Result;
use cloze_trainer::token_vectors::{TokenEmbedConfig, TokenEmbedder, TokenVectors, Unit, WordPooling};
use serde::{Serialize, Serializer};

use super::{Args, Format, Words, asked, embedded, sequences};
use crate::answers::Answers;
use crate::failure::by_option;
use crate::input::{Blank, Row};
use crate::lines::Longer;
use crate::model;
use crate::npy::{Element, Npy};
use crate::progress::Progress;

/// Maximum number of lines tokenized together.
const BATCH: usize = 64;

/// Maximum number of vector elements in memory at once, 128 MiB; more only if a single line has more.
const NUMBERS: usize = 1 << 25;

pub fn run(args: &Args) -> Result<()> {
    let config = TokenEmbedConfig {
        layers: args.layers.clone().unwrap_or_default(),
        words: args.words.map(|words| match words {
            Words::Mean => WordPooling::Mean,
            Words::First => WordPooling::First,
        }),
        max_len: args.max_len,
        overlap: args.overlap,
        special: false,
        language: args.language.clone(),
        batch_tokens: args.batch_tokens,
        int8: args.compute.int8,
    };
    let device = args.compute.open()?;
    args.input.check()?;
    let embedder = TokenEmbedder::load(&model::folder(&args.model)?, config, &device).map_err(by_option)?;
    let mut input = args.input.open(asked(Longer::Refused, Blank::Answered))?;
    let unit = if args.words.is_some() { "words" } else { "tokens" };
    let mut sink = match args.format() {
        Format::Jsonl => Sink::Rows(Answers::new(&args.answers, &input, vec![unit])?),
        Format::Npy => Sink::Npy(Npy::new(Element::F32, "vectors", args.answers.output(&input)?)?),
    };
    let mut progress = Progress::new("lines", args.answers.is_stdout() && io::stdout().is_terminal());
    let mut count = 0;
    loop {
        let mut rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        let (encodings, failed) = embedded(&mut input, &mut rows, |texts| embedder.encode(texts))?;
        let texts = sequences(&rows);
        let counts: Vec<usize> = encodings.iter().map(|encoding| encoding.len() * embedder.width()).collect();
        for part in parts(&counts, NUMBERS) {
            let (rows, texts, encodings) = (&rows[part.clone()], &texts[part.clone()], &encodings[part]);
            let embedded = args.compute.run(|| embedder.embed_encoded(texts, encodings))?;
            for (row, text) in rows.iter().zip(embedded) {
                sink.text(row, &text, embedder.width(), args.words.is_some())?;
            }
        }
        sink.flush()?;
        if let Some(error) = failed {
            return Err(error);
        }
        count += rows.len();
        progress.show(count, None);
    }
    progress.finish();
    sink.finish(embedder.width())
}

/// Partitions texts of these sizes into parts of at most `most` in total, or a single text.
fn parts(sizes: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut sum = 0;
    for (place, size) in sizes.iter().enumerate() {
        match parts.last_mut() {
            Some(part) if sum + size <= most => part.end = place + 1,
            _ => {
                parts.push(place..place + 1);
                sum = 0;
            }
        }
        sum += size;
    }
    parts
}

/// Where vectors are written.
enum Sink {
    /// A row for each text.
    Rows(Answers),
    /// A row for each token or word.
    Npy(Npy),
}

impl Sink {
    fn text(&mut self, row: &Row, text: &TokenVectors, width: usize, are_words: bool) -> Result<()> {
        match self {
            Self::Rows(answers) => {
                let list = List { units: &text.units, vectors: text.values.chunks_exact(width) };
                let object = match are_words {
                    true => Object { words: Some(list), tokens: None },
                    false => Object { words: None, tokens: Some(list) },
                };
                answers.write(row, &object)
            }
            Self::Npy(array) => {
                let bytes: Vec<u8> = text.values.iter().flat_map(|value| value.to_le_bytes()).collect();
                array.append(&bytes)
            }
        }
    }

    /// Flushes what has been written so far.
    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Rows(answers) => answers.flush(),
            Self::Npy(_) => Ok(()),
        }
    }

    fn finish(self, width: usize) -> Result<()> {
        match self {
            Self::Rows(answers) => answers.finish(),
            Self::Npy(array) => array.finish(Some(width)),
        }
    }
}

#[derive(Serialize)]
struct Object<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<List<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<List<'a>>,
}

/// Tokens or words with their vectors.
struct List<'a> {
    units: &'a [Unit],
    vectors: ChunksExact<'a, f32>,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let items = self.units.iter().zip(self.vectors.clone()).map(|(unit, vector)| Item {
            text: &unit.text,
            start: unit.chars.start,
            end: unit.chars.end,
            vector,
        });
        serializer.collect_seq(items)
    }
}

#[derive(Serialize)]
struct Item<'a> {
    text: &'a str,
    /// In characters.
    start: usize,
    end: usize,
    vector: &'a [f32],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_apart() {
        assert!(parts(&[], 5).is_empty());
        assert_eq!(parts(&[2, 3, 1, 9, 1, 0, 4], 5), [0..2, 2..3, 3..4, 4..7]);
        assert_eq!(parts(&[1; 64], 64), [0..64; 1]);
    }

    #[test]
    fn a_line_has_a_list_of_places_and_vectors() {
        let units = [Unit { text: "sea".into(), chars: 4..7, word: Some(1) }];
        let list = || List { units: &units, vectors: [0.5f32, -2.0].chunks_exact(2) };
        let json = |object: &Object| serde_json::to_string(object).unwrap();
        let item = r#"[{"text":"sea","start":4,"end":7,"vector":[0.5,-2.0]}]"#;
        assert_eq!(json(&Object { words: None, tokens: Some(list()) }), format!(r#"{{"tokens":{item}}}"#));
        assert_eq!(json(&Object { words: Some(list()), tokens: None }), format!(r#"{{"words":{item}}}"#));
    }
}
