//! `cloze lexicon build`.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_data::sentences;
use cloze_evaluation::table::{self, grouped};
use cloze_trainer::TrainerError;
use cloze_trainer::lexicon::{
    ContextSample, WordContext, WordFinder, WordMeans, WordTypeConfig, WordTypeEmbedder,
};
use cloze_trainer::token_vectors::Layers;

use super::word_list::WordColumns;
use crate::compute::Compute;
use crate::failure::{WrongUsage, by_option};
use crate::lines::{self, Batch, Lines};
use crate::model;
use crate::npy::{Element, Npy};
use crate::output::{Output, say};
use crate::progress::Progress;

/// Words or sentences embedded together.
const TOGETHER: usize = 512;

/// Maximum words that a message names.
const NAMED: usize = 10;

/// Make a vector for each word of a list with an encoder (Vulić et al. 2020).
///
/// Example: cloze lexicon build --model google-bert/bert-base-uncased --words words.txt --out words
///
/// The vector of a word is the mean over its pieces of the mean over layers. Without --contexts, each word is read
/// alone; with it, the vector is the mean over up to --per-word sentences of the corpus, drawn at random, in which the
/// word occurs as written or capitalised. Words without a vector are named and left out.
///
/// Writes NAME.npy, the vectors as 32-bit floats; NAME.words, a word per line in the same order; and NAME.vec, both as
/// text in word2vec's format, with underscores for spaces. With --each-layer, NAME-0.npy and so on.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze lexicon build --model MODEL --words simlex.csv --words analogies.csv --layers 0-4 --out words
  cloze lexicon build --model MODEL --words words.txt --contexts corpus.txt --per-word 10 --seed 2 --out words
  cloze lexicon build --model MODEL --words words.txt --layers 0,6,-1 --each-layer --out words
  cloze lexicon build --model MODEL --words en-de.tsv --no-header --columns 1 --special all --out english")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Words: text with one per line, or a table with columns of words. Repeat it for several files.
    #[arg(long, value_name = "FILE", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    columns: WordColumns,
    /// Text whose sentences the words are read in: a file, which is read twice. Repeat it for several files.
    #[arg(long, value_name = "FILE")]
    contexts: Vec<PathBuf>,
    /// Sentences per word with --contexts (default: 100).
    #[arg(long, value_name = "N", requires = "contexts", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    per_word: Option<u64>,
    /// The seed that draws sentences (default: 42).
    #[arg(long, value_name = "N", requires = "contexts")]
    seed: Option<u64>,
    /// The language of --contexts, an ISO 639-1 code that decides where sentences end (default: en).
    #[arg(long, value_name = "CODE", requires = "contexts")]
    sentence_language: Option<String>,
    /// The layers that are averaged: numbers and ranges such as 0-4 or 0,6,-1, where 0 is the embeddings and -1 the
    /// last layer, or all.
    #[arg(long, value_name = "LAYERS", default_value = "all", value_parser = layers, allow_hyphen_values = true)]
    layers: LayerNumbers,
    /// Write the vectors of each layer to files of its own, NAME-LAYER.npy, instead of their mean. The text is read once.
    #[arg(long)]
    each_layer: bool,
    /// Whether the special tokens around a text belong to the mean.
    #[arg(long, value_enum, default_value_t = Special::None)]
    special: Special,
    /// The model's language, if it has language embeddings.
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<String>,
    /// The files to write, without an extension.
    #[arg(long, value_name = "NAME")]
    out: PathBuf,
    /// Tokens processed at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = WordTypeConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    #[command(flatten)]
    compute: Compute,
}

/// Numbers of layers; all if there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LayerNumbers(Vec<i32>);

/// Which tokens the mean is over.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Special {
    /// The word's pieces alone.
    None,
    /// The word's pieces and the special tokens around the text.
    All,
}

/// Parses numbers of layers.
fn layers(text: &str) -> Result<LayerNumbers, String> {
    /// More layers than any model has.
    const MOST: i32 = 10_000;
    let expected =
        || "expected all, or numbers and ranges of layers between commas, such as 0-4 or 0,6,-1".to_owned();
    if text == "all" {
        return Ok(LayerNumbers(Vec::new()));
    }
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim) {
        // The sign of a first number is no range.
        let range = part.char_indices().skip(1).find(|(_, c)| *c == '-').map(|(at, _)| part.split_at(at));
        let (first, last) = match range {
            Some((first, last)) => (first.parse::<i32>(), last[1..].parse::<i32>()),
            None => (part.parse(), part.parse()),
        };
        let (Ok(first), Ok(last)) = (first, last) else { return Err(expected()) };
        let is_range = range.is_some();
        if first.max(last) > MOST || is_range && (first < 0 || last < first) {
            return Err(expected());
        }
        found.extend(first..=last);
    }
    let mut once = found.clone();
    once.sort_unstable();
    once.dedup();
    match once.len() == found.len() {
        true => Ok(LayerNumbers(found)),
        false => Err("a layer is named twice; expected each once".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    check_out(&args.out)?;
    let words = args.columns.read(&args.words)?;
    let device = args.compute.open()?;
    let config = WordTypeConfig {
        layers: match (args.each_layer, args.layers.0.clone()) {
            (false, numbers) => Layers::Mean(numbers),
            (true, numbers) if numbers.is_empty() => Layers::All,
            (true, numbers) => Layers::Listed(numbers),
        },
        special: args.special == Special::All,
        language: args.language.clone(),
        batch_tokens: args.batch_tokens,
        int8: args.compute.int8,
    };
    let embedder =
        WordTypeEmbedder::load(&model::folder(&args.model)?, config, &device).map_err(by_option)?;
    let vectors = match args.contexts.is_empty() {
        true => alone(args, &embedder, &words)?,
        false => in_contexts(args, &embedder, &words)?,
    };
    let found: Vec<(&str, &[f32])> = words
        .iter()
        .zip(&vectors)
        .filter_map(|(word, vector)| Some((word.as_str(), vector.as_deref()?)))
        .collect();
    let missing: Vec<&str> = words
        .iter()
        .zip(&vectors)
        .filter(|(_, vector)| vector.is_none())
        .map(|(word, _)| word.as_str())
        .collect();
    let cause = match args.contexts.is_empty() {
        true => "the model's vocabulary has no piece for",
        false => "the contexts have no sentence with",
    };
    if found.is_empty() {
        let cure = match args.contexts.is_empty() {
            true => "take another model, or other words",
            false => "take another corpus, or read the words alone, without --contexts",
        };
        bail!("{}: {cause} any of the {} words; {cure}", args.words.join(", "), grouped(words.len() as u64));
    }
    if !missing.is_empty() {
        let named = missing.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = missing.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
        say(format_args!(
            "{cause} {} of the {} words, which are left out: {}{more}",
            grouped(missing.len() as u64),
            grouped(words.len() as u64),
            named.escape_debug()
        ));
    }
    // Layers lie side by side in a vector.
    let layers: Vec<Option<usize>> = match args.each_layer {
        true => embedder.layers().iter().map(|layer| Some(*layer)).collect(),
        false => vec![None],
    };
    let width = embedder.width() / layers.len();
    let mut written = Vec::with_capacity(layers.len());
    for (place, layer) in layers.into_iter().enumerate() {
        let files = Files::of(&args.out, layer);
        save(args, &found, place * width..(place + 1) * width, &files)?;
        written.push(files.vectors.display().to_string());
    }
    let facts = [
        ("words", grouped(words.len() as u64)),
        ("with a vector", grouped(found.len() as u64)),
        ("features of a vector", grouped(width as u64)),
    ];
    let mut output = Output::new();
    output.line(table::facts(&written.join(", "), facts))?;
    output.finish()
}

/// That files can be written beside `out`.
fn check_out(out: &Path) -> Result<()> {
    if out.file_name().is_none() {
        let error = anyhow!("--out {}: expected a name for files, such as vectors/words", out.display());
        return Err(WrongUsage::new(error).into());
    }
    if let Some(folder) = out.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        bail!("--out {}: there is no folder {}; create it", out.display(), folder.display());
    }
    Ok(())
}

/// The files to write.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    vectors: PathBuf,
    words: PathBuf,
    text: PathBuf,
}

impl Files {
    /// Those of a layer, or of the mean of layers.
    fn of(out: &Path, layer: Option<usize>) -> Self {
        let layer = layer.map_or_else(String::new, |layer| format!("-{layer}"));
        let with = |extension: &str| {
            let mut name = OsString::from(out.file_name().unwrap_or_default());
            name.push(format!("{layer}.{extension}"));
            out.with_file_name(name)
        };
        Self { vectors: with("npy"), words: with("words"), text: with("vec") }
    }
}

/// The vectors of words that are read alone.
fn alone(args: &Args, embedder: &WordTypeEmbedder, words: &[String]) -> Result<Vec<Option<Vec<f32>>>> {
    let mut progress = Progress::new("words", false);
    let mut vectors = Vec::with_capacity(words.len());
    for part in words.chunks(TOGETHER) {
        vectors.extend(args.compute.run(|| embedder.alone(part)).map_err(|error| told(error, part))?);
        progress.show(vectors.len(), Some(vectors.len() as f64 / words.len() as f64));
    }
    progress.finish();
    Ok(vectors)
}

/// Names the text that the tokenizer fails on.
fn told(error: TrainerError, texts: &[String]) -> anyhow::Error {
    match error {
        TrainerError::Tokenizer(cloze_tokenizer::Error::Batch { index, source, .. }) => {
            let beginning: String = texts[index].chars().take(40).collect();
            anyhow!(*source).context(format!("the text that begins with {beginning:?}"))
        }
        error => error.into(),
    }
}

/// The mean vectors of words over sentences of the contexts: one pass counts where they occur, another reads the
/// sentences drawn.
fn in_contexts(args: &Args, embedder: &WordTypeEmbedder, words: &[String]) -> Result<Vec<Option<Vec<f32>>>> {
    let finder = WordFinder::new(words);
    let mut counts = vec![0_u64; words.len()];
    let mut progress = Progress::new("lines searched", false);
    each_sentence(args, &mut progress, |sentence| {
        finder.find(sentence).into_iter().for_each(|(word, _)| counts[word] += 1);
        Ok(true)
    })?;
    let (per_word, seed) = (args.per_word.unwrap_or(100), args.seed.unwrap_or(42));
    let mut sample = ContextSample::new(words, &counts, per_word, seed);
    let all = sample.wanted();
    let mut means = WordMeans::new(words.len(), embedder.width());
    let mut pending: Vec<WordContext> = Vec::new();
    let mut progress = Progress::new("occurrences", false);
    let mut done = 0;
    let mut read = |pending: &mut Vec<WordContext>| -> Result<()> {
        let vectors = args.compute.run(|| embedder.in_contexts(pending)).map_err(|error| {
            told(error, &pending.iter().map(|context| context.text.clone()).collect::<Vec<_>>())
        })?;
        for (context, vectors) in pending.iter().zip(vectors) {
            for ((word, _), vector) in context.words.iter().zip(vectors) {
                vector.iter().for_each(|vector| means.add(*word, vector));
                done += 1;
            }
        }
        pending.clear();
        progress.show(done, Some(done as f64 / all.max(1) as f64));
        Ok(())
    };
    each_sentence(args, &mut Progress::new("lines", false), |sentence| {
        let drawn: Vec<_> =
            finder.find(sentence).into_iter().filter(|(word, _)| sample.draws(*word)).collect();
        if !drawn.is_empty() {
            let chars = |byte: usize| sentence[..byte].chars().count();
            let words = drawn.into_iter().map(|(word, place)| (word, chars(place.start)..chars(place.end)));
            pending.push(WordContext { text: sentence.to_owned(), words: words.collect() });
        }
        if pending.len() == TOGETHER {
            read(&mut pending)?;
        }
        Ok(sample.wanted() > 0)
    })?;
    read(&mut pending)?;
    progress.finish();
    Ok((0..words.len()).map(|word| means.mean(word)).collect())
}

/// Calls `each` with all sentences of the contexts, until it returns false.
fn each_sentence(
    args: &Args,
    progress: &mut Progress,
    mut each: impl FnMut(&str) -> Result<bool>,
) -> Result<()> {
    let language = args.sentence_language.as_deref().unwrap_or("en");
    let mut done = 0;
    for path in &args.contexts {
        let mut lines = Lines::of(Some(path), lines::MAX_LINE_BYTES)?;
        let mut batch = Batch::default();
        while lines.read(lines::BATCH, &mut batch)? {
            for line in batch.iter() {
                for sentence in sentences(line.text, language) {
                    if !each(sentence)? {
                        return Ok(());
                    }
                }
            }
            done += batch.len();
            progress.show(done, None);
        }
    }
    progress.finish();
    Ok(())
}

/// Writes words and these features of their vectors.
fn save(args: &Args, found: &[(&str, &[f32])], features: Range<usize>, files: &Files) -> Result<()> {
    let read = || args.words.iter().map(Path::new).chain(args.contexts.iter().map(PathBuf::as_path));
    let output = |path| Output::apart_from(Some(path), read());
    let mut array = Npy::new(Element::F32, "vectors", output(&files.vectors)?)?;
    let (mut list, mut text) = (output(&files.words)?, output(&files.text)?);
    text.line(format_args!("{} {}", found.len(), features.len()))?;
    for (word, vector) in found {
        let vector = &vector[features.clone()];
        let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
        array.append(&bytes)?;
        list.line(word)?;
        let numbers: String = vector.iter().map(|value| format!(" {value}")).collect();
        let word: String = word.split_whitespace().collect::<Vec<_>>().join("_");
        text.line(format_args!("{word}{numbers}"))?;
    }
    text.finish()?;
    list.finish()?;
    array.finish(Some(features.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_numbers_and_ranges() {
        let found = |text: &str| layers(text).map(|layers| layers.0);
        assert!(found("all").unwrap().is_empty());
        assert_eq!(found("0-4").unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(found("0, 6,-1").unwrap(), [0, 6, -1]);
        assert_eq!(found("3").unwrap(), [3]);
        for text in ["", "4-0", "-3--1", "a", "1-", "0-999999999", "1,,2"] {
            assert!(found(text).unwrap_err().starts_with("expected all, or numbers"), "{text}");
        }
        assert!(found("1,0-2").unwrap_err().contains("twice"));
    }

    #[test]
    fn files_have_the_name_and_an_extension() {
        let names = |layer| {
            let files = Files::of(Path::new("a.b"), layer);
            [files.vectors, files.words, files.text].map(|path| path.display().to_string())
        };
        assert_eq!(names(None), ["a.b.npy", "a.b.words", "a.b.vec"]);
        assert_eq!(names(Some(12)), ["a.b-12.npy", "a.b-12.words", "a.b-12.vec"]);
        assert!(check_out(Path::new("/")).is_err());
        let error = check_out(Path::new("no/such/a")).unwrap_err().to_string();
        assert!(error.contains("there is no folder no/such"), "{error}");
    }
}
