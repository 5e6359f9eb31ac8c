//! `cloze senses eval`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use cloze_trainer::senses::{SensePart, SenseVectors, evaluate};
use indicatif::HumanCount;

use super::model::ComputeArgs;
use super::{PRIOR, say_without_token, tagger, weight, wordnet};
use crate::failure::WrongUsage;
use crate::model::OtherModel;
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::rows::BadRowArgs;

/// Measure sense accuracy, against a most-frequent-sense baseline.
///
/// Example: cloze senses eval --senses senses --data senseval3.jsonl
///
/// Prints F1 by part of speech, by whether the sense is the most frequent one, and by whether the lemma and the
/// sense occurred in training. Methods: the most frequent sense in the training data, the nearest sense, the
/// nearest weighted by frequency, and with --wordnet the nearest among all of the lemma's senses in WordNet. An
/// unanswered word lowers recall (Raganato et al. 2017).
///
/// For the file that the vectors were trained on, only the held-out sentences are measured. A copy with
/// different compression counts as another file: all of it is measured.
#[derive(clap::Args)]
pub struct Args {
    /// The folder that `cloze senses train` wrote.
    #[arg(long, value_name = "DIR")]
    senses: PathBuf,
    /// Labelled sentences.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
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
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bad: BadRowArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let vectors = SenseVectors::load(&args.senses)?;
    let wordnet = wordnet(args.wordnet.as_deref())?;
    let tagger = tagger(&vectors, wordnet.as_ref(), args.prior)?;
    let data = super::open(&args.data, &args.bad)?;
    let held_out = vectors.origin.held_out;
    let (part, sentences) = match data.checksum == vectors.origin.checksum {
        true if held_out > 0.0 => {
            let n = data.held_out(held_out)?;
            let (now, learnt_from) = (data.sentences - n, vectors.origin.sentences);
            if now != learnt_from {
                let error = anyhow!(
                    "{}: the vectors were learnt from {learnt_from} of its sentences, and now {now} are not held out; use \
                     the --on-bad-row and --max-line-bytes of `cloze senses train`",
                    args.data.display()
                );
                return Err(WrongUsage::new(error).into());
            }
            say(format_args!("{}: the {} sentences that were held out", args.data.display(), HumanCount(n)));
            (SensePart::HeldOut(held_out), n)
        }
        true => {
            say(format_args!(
                "{}: the vectors were learnt from these sentences, so the figures say little; `cloze senses train \
                 --held-out` leaves some out",
                args.data.display()
            ));
            (SensePart::All, data.sentences)
        }
        false => (SensePart::All, data.sentences),
    };
    let embedder = args.compute.of_senses(&vectors, args.model.as_deref(), &args.other)?;
    let mut progress = Progress::new("sentences", false);
    let shown = &mut |done: u64| progress.show(done as usize, Some(done as f64 / sentences.max(1) as f64));
    let measured = args.compute.compute.run(|| evaluate(&tagger, &embedder, &data, part, shown));
    progress.finish();
    let report = measured?;
    say_without_token(report.without_token, "they have the most frequent sense");
    let mut output = Output::new();
    match args.json {
        true => output.line(serde_json::to_string(&report.scores)?)?,
        false => output.line(&report.scores)?,
    }
    output.finish()
}
