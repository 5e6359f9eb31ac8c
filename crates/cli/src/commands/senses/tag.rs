//! `cloze senses tag`.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use cloze_evaluation::senses::PartOfSpeech;
use cloze_tokenizer::Error as TokenizerError;
use cloze_trainer::TrainerError;
use cloze_trainer::senses::{
    Candidate, SenseSentence, SenseTagger, SenseTarget, SenseText, SenseVectors, sense_sentence,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::model::ComputeArgs;
use super::{PRIOR, tagger, weight, wordnet};
use crate::lines::{self, Batch, Lines};
use crate::model::OtherModel;
use crate::output::{Output, STANDARD_INPUT};
use crate::progress::Progress;

/// Maximum lines per batch: each token has a vector, and those of a batch are in memory at once.
const BATCH: usize = 64;

/// Tag words with their senses, JSON lines in and out.
///
/// Example: cloze senses tag --senses senses < sentences.jsonl > tagged.jsonl
///
/// A line is {"tokens": ["The", "jury", "sat"], "senses": [{"index": 1, "lemma": "jury", "pos": "n"}]}, or
/// {"text": "The jury sat.", "senses": [{"start": 4, "end": 8, "lemma": "jury", "pos": "n"}]} with the word's
/// character offsets, end-exclusive; other keys are dropped. The output line adds "sense", the "similarity"
/// (the cosine), and "by", the method: nearest; nearest-synset, nearest-neighbours, nearest-hypernyms or
/// nearest-lexicographer-file, by WordNet's relations; most-frequent in the labelled sentences, or first in
/// WordNet, if no vector decides. An unknown lemma gives null, and so does an empty line. An unreadable line is
/// an error that names it, after the lines before it are printed.
#[derive(clap::Args)]
pub struct Args {
    /// The folder that `cloze senses train` wrote.
    #[arg(long, value_name = "DIR")]
    senses: PathBuf,
    /// The model (default: the one that the vectors were trained with).
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    other: OtherModel,
    /// WordNet's database files, the folder dict: candidates and relations for what the training data lacks.
    /// Its version must match that of the sense names.
    #[arg(long, value_name = "DIR")]
    wordnet: Option<PathBuf>,
    /// Weight of a sense's frequency in the training data: the score is the cosine plus WEIGHT times the log of
    /// the sense's share of the word's occurrences. 0 uses the cosine alone.
    #[arg(long, value_name = "WEIGHT", default_value_t = PRIOR, value_parser = weight)]
    prior: f64,
    /// List all compared senses as "candidates", the chosen one first, with their "share" of the word's
    /// occurrences.
    #[arg(long)]
    candidates: bool,
    /// A file of JSON lines (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The output file, created only once it is complete (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// A line of output.
#[derive(Serialize)]
struct Tagged<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    senses: Vec<TaggedWord<'a>>,
}

#[derive(Serialize)]
struct TaggedWord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<usize>,
    lemma: &'a str,
    pos: PartOfSpeech,
    sense: Option<String>,
    similarity: Option<f64>,
    by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<Vec<Compared>>,
}

#[derive(Serialize)]
struct Compared {
    sense: String,
    similarity: Option<f64>,
    share: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let mut lines = Lines::of(args.input.as_deref(), args.max_line_bytes)?;
    let vectors = SenseVectors::load(&args.senses)?;
    let wordnet = wordnet(args.wordnet.as_deref())?;
    let tagger = tagger(&vectors, wordnet.as_ref(), args.prior)?;
    let embedder = args.compute.of_senses(&vectors, args.model.as_deref(), &args.other)?;
    let input = args.input.as_deref().unwrap_or(Path::new(STANDARD_INPUT));
    let mut output = Output::apart_from(args.output.as_deref(), [input])?;
    let mut progress = Progress::new("lines", args.output.is_none() && io::stdout().is_terminal());
    let size = lines.size().map(|size| size as f64);
    let (mut count, mut bytes) = (0, 0);
    let mut batch = Batch::default();
    while lines.read(BATCH, &mut batch)? {
        let (read, mut failed) = parsed(&batch);
        let places: Vec<usize> = (0..read.len()).filter(|place| read[*place].is_some()).collect();
        let sentences: Vec<SenseSentence> = read.into_iter().flatten().collect();
        let embed = |sentences: &[SenseSentence]| args.compute.compute.run(|| embedder.embed(sentences));
        let (vectors, unembedded) = embedded(&sentences, embed)?;
        let mut end = failed.as_ref().map_or(batch.len(), |(place, _)| *place);
        if let Some((index, error)) = unembedded {
            end = places[index];
            failed = Some((end, error));
        }
        let mut tagged = places.iter().zip(sentences.iter().zip(&vectors)).peekable();
        for place in 0..end {
            match tagged.next_if(|(of, _)| **of == place) {
                Some((_, (sentence, vectors))) => {
                    let line = line(&tagger, sentence, vectors, args.candidates);
                    output.line(serde_json::to_string(&line)?)?;
                }
                None => output.line("null")?,
            }
        }
        output.flush()?;
        if let Some((place, error)) = failed {
            return Err(error).with_context(|| lines.place(batch.first() + place));
        }
        count += batch.len();
        bytes += batch.iter().map(|line| line.text.len() + 1).sum::<usize>();
        progress.show(count, size.map(|size| bytes as f64 / size));
    }
    progress.finish();
    output.finish()
}

/// The index of a line in its batch, and its error.
type Failed = (usize, anyhow::Error);

/// The sentences of a batch, none for an empty line, up to the first invalid line, which is returned too.
fn parsed(batch: &Batch) -> (Vec<Option<SenseSentence>>, Option<Failed>) {
    let mut sentences = Vec::new();
    for (place, (number, line)) in batch.numbered().enumerate() {
        let text = line.text.trim();
        if text.is_empty() {
            sentences.push(None);
            continue;
        }
        let object = serde_json::from_str::<Map<String, Value>>(text)
            .map_err(|error| anyhow!("expected a JSON object with `tokens` and `senses` ({error})"));
        let sentence =
            object.and_then(|object| sense_sentence(number as u64, &object).map_err(anyhow::Error::msg));
        match sentence {
            Ok(sentence) => sentences.push(Some(sentence)),
            Err(error) => return (sentences, Some((place, error))),
        }
    }
    (sentences, None)
}

/// The vectors of the words of each sentence.
type Vectors = Vec<Vec<Option<Vec<f32>>>>;

/// The result of `embed` for sentences; if the tokenizer fails on one, for those before it, with its index and
/// the reason.
fn embedded(
    sentences: &[SenseSentence],
    mut embed: impl FnMut(&[SenseSentence]) -> cloze_trainer::Result<Vectors>,
) -> Result<(Vectors, Option<Failed>)> {
    let mut failed = None;
    let mut good = sentences;
    loop {
        match embed(good) {
            Ok(vectors) => return Ok((vectors, failed)),
            Err(TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. })) => {
                failed = Some((index, anyhow::Error::new(*source)));
                good = &sentences[..index];
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A sentence with the senses of its words.
fn line<'a>(
    tagger: &SenseTagger<'_>,
    sentence: &'a SenseSentence,
    vectors: &[Option<Vec<f32>>],
    with_candidates: bool,
) -> Tagged<'a> {
    let (tokens, text) = match &sentence.text {
        SenseText::Words(words) => (Some(words.as_slice()), None),
        SenseText::Text(text) => (None, Some(text.as_str())),
    };
    let word = |(target, vector): (&'a SenseTarget, &Option<Vec<f32>>)| {
        let SenseTarget { place, lemma, pos, .. } = target;
        let choice = tagger.choose(lemma, *pos, vector.as_deref(), true);
        let candidates = with_candidates.then(|| {
            let mut all = tagger.candidates(lemma, *pos, vector.as_deref(), true);
            // A stable sort: of equals the one that is chosen stays first.
            let order = |found: &Candidate| found.score(tagger.prior()).unwrap_or(f64::NEG_INFINITY);
            all.sort_by(|a, b| order(b).total_cmp(&order(a)));
            let compared = |Candidate { sense, similarity, share, .. }| Compared { sense, similarity, share };
            all.into_iter().map(compared).collect()
        });
        TaggedWord {
            index: tokens.is_some().then_some(place.start),
            start: text.is_some().then_some(place.start),
            end: text.is_some().then_some(place.end),
            lemma,
            pos: *pos,
            similarity: choice.as_ref().and_then(|choice| choice.similarity),
            by: choice.as_ref().map(|choice| choice.by),
            sense: choice.map(|choice| choice.sense),
            candidates,
        }
    };
    Tagged { tokens, text, senses: sentence.targets.iter().zip(vectors).map(word).collect() }
}
