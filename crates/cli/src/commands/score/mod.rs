//! `cloze score`.

mod captions;
mod files;
mod reports;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Subcommand, ValueEnum};
use cloze_evaluation::translation::{
    Bleu, ByLength, CONFIDENCE_SAMPLES, Chrf, Corpus, Metric, PairedTest, SEED, Smoothing, Ter, Tokenization,
    compare, draw_by_length,
};
use rayon::prelude::*;

use self::captions::{CaptionArgs, CaptionMetric};
use self::files::Files;
use self::reports::{paired, table_by_length};
use crate::failure::WrongUsage;
use crate::lines;
use crate::output::{Output, say};

/// Score translations by BLEU, chrF or TER, as sacreBLEU does, and captions of images as pycocoevalcap does.
///
/// Example: cloze score bleu --reference test.de < translations.de
///
/// Translations and references are plain text, one sentence per line. A translation's score equals sacreBLEU's with
/// the same signature, except for the version in it. So do confidence intervals and p-values: the random numbers
/// are sacreBLEU's too. A caption's score equals pycocoevalcap's on the same tokens.
#[derive(Subcommand)]
#[command(after_long_help = "\
More examples:
  cloze score bleu --reference test.de --confidence --json < translations.de
  cloze score chrf --word-order 2 --reference first.de second.de < translations.de
  cloze score ter --reference test.de --paired other.de --test randomization < translations.de
  cloze score bleu --reference test.de --by-length test.en --plot lengths.svg --input new.de --paired old.de
  cloze score cider --tokenize simple --reference first.txt second.txt third.txt < captions.txt
  cloze score caption-bleu --reference first.txt second.txt --json < captions.txt")]
pub enum Command {
    Bleu(BleuArgs),
    Chrf(ChrfArgs),
    Ter(TerArgs),
    /// Score captions by CIDEr-D, the similarity of n-grams that are rare in other images' references (Vedantam et al.
    /// 2015).
    ///
    /// Example: cloze score cider --reference first.txt second.txt < captions.txt
    ///
    /// From 0 to 10. The references of all images decide what is rare, so a caption's score depends on the others; of
    /// one image alone it is 0.
    Cider(CaptionArgs),
    /// Score captions by ROUGE-L, the longest common subsequence of words (Lin 2004).
    ///
    /// Example: cloze score rouge-l --reference first.txt second.txt < captions.txt
    RougeL(CaptionArgs),
    /// Score captions by BLEU-1 to BLEU-4 as pycocoevalcap does, which is not sacreBLEU's.
    ///
    /// Example: cloze score caption-bleu --reference first.txt second.txt < captions.txt
    CaptionBleu(CaptionArgs),
}

/// Score translations by BLEU, the precisions of n-grams up to four words (Papineni et al. 2002).
///
/// Example: cloze score bleu --reference test.de --confidence < translations.de
#[derive(clap::Args)]
pub struct BleuArgs {
    #[command(flatten)]
    common: Common,
    /// How lines are cut into tokens: `13a` for languages with spaces, `intl` with the punctuation of all scripts, `zh`
    /// for Chinese, `char` into characters, `none` at white space alone.
    #[arg(long, value_name = "NAME", default_value = "13a", value_parser = tokenizations())]
    tokenize: Tokenization,
    /// Smoothing of zero precisions.
    #[arg(long, value_name = "NAME", default_value = "exp", value_parser = PossibleValuesParser::new(Smoothing::NAMES))]
    smooth: String,
    /// The value of the smoothing `floor` (default: 0.1) or `add-k` (default: 1).
    #[arg(long, value_name = "VALUE", value_parser = not_negative)]
    smooth_value: Option<f64>,
    /// Lower-case all text first.
    #[arg(long)]
    lowercase: bool,
    /// Skip orders that the translations are too short for (as `--sentences` does).
    #[arg(long)]
    effective_order: bool,
}

/// Score translations by chrF, the F-score of n-grams of characters (Popović 2015).
///
/// Example: cloze score chrf --reference test.de < translations.de
#[derive(clap::Args)]
pub struct ChrfArgs {
    #[command(flatten)]
    common: Common,
    /// The longest n-grams of characters.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    char_order: usize,
    /// The longest n-grams of words; 2 is chrF++.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(..=100))]
    word_order: usize,
    /// How many times more recall counts than precision.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    beta: u32,
    /// Lower-case all text first.
    #[arg(long)]
    lowercase: bool,
    /// Count white space among the characters.
    #[arg(long)]
    whitespace: bool,
    /// Count orders without n-grams as almost nothing, instead of skipping them.
    #[arg(long)]
    epsilon_smoothing: bool,
}

/// Score translations by TER, the edits per word that turn a translation into a reference (Snover et al.
/// 2006). Lower is better.
///
/// Example: cloze score ter --reference test.de < translations.de
#[derive(clap::Args)]
pub struct TerArgs {
    #[command(flatten)]
    common: Common,
    /// Split off punctuation and decode XML entities.
    #[arg(long)]
    normalized: bool,
    /// Remove punctuation.
    #[arg(long)]
    no_punctuation: bool,
    /// With `--normalized` or `--no-punctuation`: also process Chinese and Japanese.
    #[arg(long)]
    asian_support: bool,
    /// Do not lower-case text.
    #[arg(long)]
    case_sensitive: bool,
}

#[derive(clap::Args)]
struct Common {
    /// The references: files with a line for each translation.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    reference: Vec<PathBuf>,
    /// The translations (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Estimate the score's confidence interval by bootstrap resampling. This and `--paired` keep the
    /// statistics of each line in memory: 4 bytes for each of BLEU's 10, chrF's 18 (chrF++: 24) and TER's 2.
    #[arg(long, conflicts_with_all = ["paired", "sentences"])]
    confidence: bool,
    /// Translations by other systems: test whether they differ significantly from the first ones.
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with = "sentences")]
    paired: Vec<PathBuf>,
    /// The significance test.
    #[arg(long, value_enum, default_value_t = Test::Bootstrap, requires = "paired")]
    test: Test,
    /// Number of samples (default: 1000, or 10000 with `--test randomization`).
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(2..=10_000_000))]
    samples: Option<usize>,
    /// The seed of the samples (default: 12345, as in sacreBLEU).
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Score each line separately, one output line per score.
    #[arg(long)]
    sentences: bool,
    /// Also score short and long sentences separately, by the words per line of this file, the source text.
    #[arg(long, value_name = "FILE", conflicts_with = "sentences")]
    by_length: Option<PathBuf>,
    /// Where `--by-length` splits lines: the maximum words of each part but the last.
    #[arg(
        long,
        value_name = "N,N,…",
        value_delimiter = ',',
        default_value = "10,20,30,40,50,60",
        requires = "by_length"
    )]
    lengths: Vec<usize>,
    /// Plot the scores by length, as SVG.
    #[arg(long, value_name = "FILE", requires = "by_length")]
    plot: Option<PathBuf>,
    /// Print JSON with sacreBLEU's keys.
    #[arg(long)]
    json: bool,
    /// Decimal places of scores.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(..=15))]
    decimals: usize,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Test {
    /// Paired bootstrap resampling.
    Bootstrap,
    /// Approximate randomisation.
    Randomization,
}

fn tokenizations() -> impl TypedValueParser<Value = Tokenization> {
    PossibleValuesParser::new(Tokenization::ALL.map(Tokenization::name))
        .map(|name| Tokenization::named(&name).unwrap_or_default())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "expected a number, 0 or more".to_owned())
}

pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Bleu(args) => {
            let Some(smoothing) = Smoothing::named(&args.smooth, args.smooth_value) else {
                let error = anyhow!("`--smooth-value` is for `--smooth floor` and `--smooth add-k`");
                return Err(WrongUsage::new(error).into());
            };
            let metric = Bleu {
                tokenization: args.tokenize,
                smoothing,
                lowercase: args.lowercase,
                effective_order: args.effective_order || args.common.sentences,
            };
            args.common.run(&metric, args.tokenize != Tokenization::None)
        }
        Command::Chrf(args) => {
            let metric = Chrf {
                char_order: args.char_order,
                word_order: args.word_order,
                beta: args.beta,
                lowercase: args.lowercase,
                whitespace: args.whitespace,
                epsilon_smoothing: args.epsilon_smoothing,
            };
            args.common.run(&metric, false)
        }
        Command::Ter(args) => {
            let metric = Ter {
                normalized: args.normalized,
                no_punctuation: args.no_punctuation,
                asian_support: args.asian_support,
                case_sensitive: args.case_sensitive,
            };
            args.common.run(&metric, false)
        }
        Command::Cider(args) => args.run(CaptionMetric::Cider),
        Command::RougeL(args) => args.run(CaptionMetric::RougeL),
        Command::CaptionBleu(args) => args.run(CaptionMetric::Bleu),
    }
}

/// The accumulated statistics of one system.
struct System {
    name: String,
    corpus: Corpus,
    by_length: ByLength,
}

impl Common {
    /// Scores by `metric`; `is_plain` says that translations are expected to be untokenized.
    fn run(&self, metric: &(impl Metric + Sync), is_plain: bool) -> Result<()> {
        let draws = self.confidence || !self.paired.is_empty();
        if !draws && (self.samples.is_some() || self.seed.is_some()) {
            let error = anyhow!("`--samples` and `--seed` are for `--confidence` and `--paired`");
            return Err(WrongUsage::new(error).into());
        }
        let mut files = Files::open(
            self.input.as_deref(),
            &self.paired,
            &self.reference,
            self.by_length.as_deref(),
            self.max_line_bytes,
        )?;
        let mut output = Output::new();
        let mut systems: Vec<System> = files.systems().map(|name| self.system(name, draws)).collect();
        let mut n_tokenized = 0;
        while files.read()? {
            let files = files.at_hand();
            n_tokenized += files.translations(0).iter().filter(|line| line.ends_with(" .")).count();
            for (place, system) in systems.iter_mut().enumerate() {
                let translations = files.translations(place);
                let of_line = |at: usize| {
                    let mut statistics = Vec::with_capacity(metric.width());
                    metric.statistics(&translations[at], &files.references(at), &mut statistics);
                    statistics
                };
                let all: Vec<Vec<f64>> = (0..translations.len()).into_par_iter().map(of_line).collect();
                for (at, statistics) in all.iter().enumerate() {
                    if self.sentences {
                        let mut line = Corpus::of_sums();
                        line.add(statistics, self.reference.len());
                        let score = line.score(metric)?;
                        match self.json {
                            true => output.line(score.json(self.decimals))?,
                            false => output.line(score.number(self.decimals))?,
                        }
                    }
                    system.corpus.add(statistics, self.reference.len());
                    if let Some(source) = files.source(at) {
                        system.by_length.add(source, statistics, self.reference.len());
                    }
                }
            }
        }
        let Some(first) = systems.first().filter(|first| first.corpus.n_lines() > 0) else {
            bail!("{}: no lines to score", files.name())
        };
        if is_plain && n_tokenized >= 100 {
            say(format_args!(
                "{n_tokenized} translations end in \" .\": they seem to be tokenised, and references are not expected to be"
            ));
        }
        if self.sentences {
            return output.finish();
        }
        let lengths = self.by_length(metric, &systems)?;
        let with_lengths = |mut value: serde_json::Value, place: usize| {
            if let (Some((_, lengths)), Some(object)) = (lengths.get(place), value.as_object_mut()) {
                object.insert("by_length".to_owned(), reports::json_by_length(lengths, self.decimals));
            }
            value
        };
        if self.paired.is_empty() {
            let score = match self.confidence {
                true => {
                    let n = self.samples.unwrap_or(CONFIDENCE_SAMPLES);
                    first.corpus.score_with_confidence(metric, n, self.seed.unwrap_or(SEED))?
                }
                false => first.corpus.score(metric)?,
            };
            match self.json {
                true => output.line(format!("{:#}", with_lengths(score.json(self.decimals), 0)))?,
                false => output.line(score.line(self.decimals))?,
            }
        } else {
            let test = match self.test {
                Test::Bootstrap => PairedTest::Bootstrap,
                Test::Randomization => PairedTest::Randomization,
            };
            let n = self.samples.unwrap_or(test.usual_samples());
            let names: Vec<String> = systems.iter().map(|system| system.name.clone()).collect();
            let corpora: Vec<Corpus> = systems.into_iter().map(|system| system.corpus).collect();
            let (signature, compared) =
                compare(metric, test, &corpora[0], &corpora[1..], n, self.seed.unwrap_or(SEED))?;
            let name = metric.name();
            if self.json {
                let systems = names.iter().zip(&compared).enumerate();
                let all = systems.map(|(place, (system, compared))| {
                    with_lengths(reports::json_paired(system, &name, compared), place)
                });
                output.line(format!("{:#}", serde_json::Value::from(all.collect::<Vec<_>>())))?;
            } else {
                output.line(paired(&name, &names, &compared, self.decimals))?;
                output.line(format_args!("{name}|{signature}"))?;
            }
        }
        if !lengths.is_empty() && !self.json {
            output.line(table_by_length(&metric.name(), &lengths, self.decimals))?;
        }
        output.finish()
    }

    fn system(&self, name: String, draws: bool) -> System {
        let corpus = if draws { Corpus::of_lines() } else { Corpus::of_sums() };
        System { name, corpus, by_length: ByLength::new(&self.lengths) }
    }

    /// The scores of each system by length, if requested, also as a plot.
    fn by_length(
        &self,
        metric: &impl Metric,
        systems: &[System],
    ) -> Result<Vec<(String, Vec<cloze_evaluation::translation::OfLength>)>> {
        if self.by_length.is_none() {
            return Ok(Vec::new());
        }
        let scores = systems.iter().map(|system| Ok((system.name.clone(), system.by_length.scores(metric)?)));
        let scores = scores.collect::<Result<Vec<_>>>()?;
        if let Some(path) = &self.plot {
            draw_by_length(path, &metric.name(), &scores)?;
        }
        Ok(scores)
    }
}
