//! `cloze senses eval`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use cloze_trainer::senses::{SensePart, SenseVectors, evaluate};
use indicatif::HumanCount;

use super::model::ComputeArgs;
use super::{DataArgs, PRIOR, say_without_token, tagger, weight, wordnet};
use crate::failure::WrongUsage;
use crate::model::OtherModel;
use crate::output::{Output, say};
use crate::progress::Progress;

/// Measure how often the sense is right, beside the most frequent sense.
///
/// Prints F1 by part of speech, by whether the sense is the most frequent one, and by whether training saw the lemma and the
/// sense: of the most frequent sense in the training data, of the nearest sense, of the nearest by frequency, and with --wordnet of the nearest among all
/// of the lemma's senses in WordNet. A word without an answer costs recall (Raganato et al. 2017).
///
/// Of the file that the vectors were learnt from, only the sentences that were held out are measured. A copy that is compressed
/// otherwise is another file: all of it is measured.
#[derive(clap::Args)]
pub struct Args {
    /// The folder that `cloze senses train` wrote.
    #[arg(long, value_name = "DIR")]
    senses: PathBuf,
    /// Labelled sentences.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The model (default: the one that the vectors were learnt with).
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    other: OtherModel,
    /// WordNet's database files, the folder dict: candidates and relations for what the training data lacks. Its version must
    /// be that of the senses' names.
    #[arg(long, value_name = "DIR")]
    wordnet: Option<PathBuf>,
    /// How much a sense's frequency in the training data counts: the cosine plus WEIGHT times the logarithm of the share of the
    /// word's occurrences decides. With 0 the cosine alone does.
    #[arg(long, value_name = "WEIGHT", default_value_t = PRIOR, value_parser = weight)]
    prior: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data_args: DataArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let vectors = SenseVectors::load(&args.senses)?;
    let wordnet = wordnet(args.wordnet.as_deref())?;
    let tagger = tagger(&vectors, wordnet.as_ref(), args.prior)?;
    let data = args.data_args.open(&args.data)?;
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
