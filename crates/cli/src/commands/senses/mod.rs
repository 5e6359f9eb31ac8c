//! `cloze senses`: word sense disambiguation.

mod eval;
mod model;
mod tag;
mod train;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use cloze_trainer::senses::{SenseData, SenseTagger, SenseVectors, WordNet};
use indicatif::HumanCount;

use crate::output::say;
use crate::rows::BadRowArgs;

/// The default weight of sense frequencies, tuned on SemCor sentences outside the evaluation data.
const PRIOR: f64 = 0.05;

/// Disambiguate word senses: choose the sense whose vector is nearest to the word's vector in context.
///
/// Example: cloze senses train --model google-bert/bert-base-uncased --data semcor.jsonl --out senses
///
/// A sense's vector is the mean of the contextual vectors of its occurrences in labelled sentences. A word is
/// compared with the senses of its lemma and part of speech. With WordNet, a lemma missing from the labelled
/// sentences gets the nearest of WordNet's senses by the vectors of related senses, or the first if none has a
/// vector.
///
/// Labelled sentences are JSON lines: {"tokens": ["The", "jury", "sat"], "senses": [{"index": 1, "lemma": "jury", "pos": "n",
/// "sense": "wn30-08414119-n"}]}. A word of several parts has underscores between them, as primary_election. Parts of speech
/// are n, v, a and r.
#[derive(Subcommand)]
#[command(after_long_help = r#"More examples:
  cloze senses train --model google-bert/bert-base-uncased --data semcor.jsonl --held-out 0.1 --out senses
  cloze senses eval --senses senses --data senseval3.jsonl --wordnet WordNet-3.0/dict --json
  echo '{"text": "The bank was muddy.", "senses": [{"start": 4, "end": 8, "lemma": "bank", "pos": "n"}]}' |
    cloze senses tag --senses senses --candidates"#)]
pub enum Command {
    Train(train::Args),
    Eval(eval::Args),
    Tag(tag::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Train(args) => train::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Tag(args) => tag::run(args),
    }
}

/// Reads labelled sentences once to the end of their file; reports skipped lines.
fn open(path: &Path, bad: &BadRowArgs) -> Result<SenseData> {
    let data = SenseData::open(path, &bad.source()).map_err(BadRowArgs::told)?;
    bad.check_skipped(&path.display().to_string(), &data.skipped, data.sentences)?;
    Ok(data)
}

/// WordNet's database, if a folder is given.
fn wordnet(folder: Option<&Path>) -> Result<Option<WordNet>> {
    Ok(folder.map(WordNet::load).transpose()?)
}

/// Builds the sense tagger; reports the parts of speech that WordNet is not used for.
fn tagger<'a>(
    vectors: &'a SenseVectors,
    wordnet: Option<&'a WordNet>,
    prior: f64,
) -> Result<SenseTagger<'a>> {
    let Some(wordnet) = wordnet else { return Ok(SenseTagger::new(vectors).with_prior(prior)) };
    let (tagger, fits) = SenseTagger::with_wordnet(vectors, wordnet)?;
    for fit in fits.iter().filter(|fit| !fit.is_used) {
        if fit.senses == 0 {
            say(format_args!(
                "{}: the {} are not used: they have no labelled senses to determine the version from",
                wordnet.folder().display(),
                fit.pos.plural()
            ));
            continue;
        }
        say(format_args!(
            "{}: the {} are not used: it has {} of their {} labelled senses, so their synsets are those of another version",
            wordnet.folder().display(),
            fit.pos.plural(),
            HumanCount(fit.found as u64),
            HumanCount(fit.senses as u64)
        ));
    }
    Ok(tagger.with_prior(prior))
}

/// Parses the weight of sense frequencies.
fn weight(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
    number.ok_or_else(|| "expected a number of 0 or more".into())
}

/// Reports how many words had no token.
fn say_without_token(n: u64, what_happened: &str) {
    if n > 0 {
        say(format_args!("{} words have no token in the model's vocabulary: {what_happened}", HumanCount(n)));
    }
}
