//! Captions of images, scored as by pycocoevalcap.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_evaluation::captions::{CaptionScores, bleu, cider_d, distinct_share, rouge_l, tokenize};
use cloze_evaluation::table::grouped;
use serde_json::{Map, Value};

use super::files::Files;
use crate::lines;
use crate::output::{Output, say};

#[derive(clap::Args)]
pub struct CaptionArgs {
    /// The references: files with a line for each caption. An image has as many references as files with a line that is
    /// not empty.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    reference: Vec<PathBuf>,
    /// The captions, one of each image (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// How lines are cut into tokens.
    #[arg(long, value_enum, default_value_t = Tokens::None)]
    tokenize: Tokens,
    /// Score each caption separately, one output line per caption.
    #[arg(long)]
    sentences: bool,
    /// Print JSON with pycocoevalcap's keys.
    #[arg(long)]
    json: bool,
    /// Decimal places of scores.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(..=15))]
    decimals: usize,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tokens {
    /// At white space alone: lines are tokenised and lower-cased.
    None,
    /// As captions usually are: lower-cased, without punctuation, with English endings such as 's split off.
    Simple,
}

/// A metric of captions.
#[derive(Clone, Copy, Debug)]
pub enum CaptionMetric {
    Cider,
    RougeL,
    Bleu,
}

impl CaptionMetric {
    /// Its name.
    fn name(self) -> &'static str {
        match self {
            Self::Cider => "CIDEr-D",
            Self::RougeL => "ROUGE-L",
            Self::Bleu => "BLEU-1/2/3/4",
        }
    }

    /// Its keys in pycocoevalcap, one for each of its scores.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Cider => &["CIDEr"],
            Self::RougeL => &["ROUGE_L"],
            Self::Bleu => &["Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4"],
        }
    }

    /// Its scores, one for each key.
    fn scores(self, captions: &[String], references: &[Vec<String>]) -> Result<Vec<CaptionScores>> {
        Ok(match self {
            Self::Cider => vec![cider_d(captions, references)?],
            Self::RougeL => vec![rouge_l(captions, references)?],
            Self::Bleu => bleu(captions, references)?.into(),
        })
    }
}

impl CaptionArgs {
    /// Scores by `metric`. All lines are in memory: CIDEr-D weighs words by all references.
    pub fn run(&self, metric: CaptionMetric) -> Result<()> {
        let (captions, references) = self.read()?;
        let scores = metric.scores(&captions, &references)?;
        let mut output = Output::new();
        if self.sentences {
            for image in 0..captions.len() {
                let of_image: Vec<f64> = scores.iter().map(|scores| scores.images[image]).collect();
                match self.json {
                    true => output.line(Value::from(self.json(metric, &of_image)))?,
                    false => output.line(self.numbers(&of_image, " "))?,
                }
            }
            return output.finish();
        }
        let distinct = distinct_share(&captions)?;
        let scores: Vec<f64> = scores.iter().map(|scores| scores.corpus).collect();
        if self.json {
            let mut all = self.json(metric, &scores);
            all.insert("captions".to_owned(), captions.len().into());
            all.insert("distinct".to_owned(), self.rounded(distinct));
            output.line(format!("{:#}", Value::from(all)))?;
        } else {
            let (numbers, n) = (self.numbers(&scores, "/"), grouped(captions.len() as u64));
            let distinct = 100.0 * distinct;
            output.line(format_args!(
                "{} = {numbers} ({n} captions, {distinct:.1} % of them distinct)",
                metric.name()
            ))?;
        }
        output.finish()
    }

    /// The captions, and the references of each.
    fn read(&self) -> Result<(Vec<String>, Vec<Vec<String>>)> {
        let input = self.input.as_deref();
        let mut files = Files::open(input, &[], &self.reference, None, self.max_line_bytes)?;
        let (mut captions, mut references) = (Vec::new(), Vec::new());
        let mut n_raw = 0;
        while files.read()? {
            let lines = files.at_hand();
            for (at, caption) in lines.translations(0).iter().enumerate() {
                let of_image = lines.references(at);
                let of_image: Vec<String> = of_image
                    .into_iter()
                    .filter(|line| !line.trim().is_empty())
                    .map(|line| self.tokens(line))
                    .collect();
                if of_image.is_empty() {
                    let line = captions.len() + 1;
                    bail!(
                        "line {line} is empty in all files of references; expected a reference in one of them"
                    );
                }
                n_raw += usize::from(is_raw(caption));
                captions.push(self.tokens(caption));
                references.push(of_image);
            }
        }
        if captions.is_empty() {
            bail!("{}: no lines to score", files.name());
        }
        if self.tokenize == Tokens::None && 2 * n_raw > captions.len() {
            let n = grouped(n_raw as u64);
            say(format_args!(
                "{n} captions have capitals or end in punctuation; `--tokenize simple` removes both, as is usual"
            ));
        }
        Ok((captions, references))
    }

    fn tokens(&self, line: &str) -> String {
        match self.tokenize {
            Tokens::None => line.to_owned(),
            Tokens::Simple => tokenize(line),
        }
    }

    fn numbers(&self, scores: &[f64], between: &str) -> String {
        let decimals = self.decimals;
        scores.iter().map(|score| format!("{score:.decimals$}")).collect::<Vec<_>>().join(between)
    }

    fn json(&self, metric: CaptionMetric, scores: &[f64]) -> Map<String, Value> {
        let keys = metric.keys().iter().map(|key| (*key).to_owned());
        keys.zip(scores.iter().map(|score| self.rounded(*score))).collect()
    }

    fn rounded(&self, value: f64) -> Value {
        self.numbers(&[value], "").parse::<f64>().map_or(Value::Null, Value::from)
    }
}

/// Whether a caption seems to be text as people write it.
fn is_raw(caption: &str) -> bool {
    caption.contains(char::is_uppercase) || caption.ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_as_people_write_them_are_noticed() {
        assert!(is_raw("A man") && is_raw("a man.") && !is_raw("a man 's hat") && !is_raw(""));
    }
}
