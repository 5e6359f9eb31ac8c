//! `cloze quantize`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use cloze_evaluation::figures::shown;
use cloze_evaluation::table::{facts, grouped};
use cloze_trainer::TrainerError;
use cloze_trainer::quantization::{QuantizeConfig, QuantizeReport, Ranges, WeightFormat, quantize};

use crate::compute::DeviceArgs;
use crate::failure::WrongUsage;
use crate::folder_files::{Tokenizers, copy_kept};
use crate::lines::{Batch, Lines, Longer};
use crate::model;
use crate::new_folder::NewFolder;
use crate::output::{Output, say};
use crate::progress::Progress;

/// Fewer texts leave ranges that others will often exceed.
const FEW: usize = 100;

/// The maximum bytes of a line that are read.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Store a model's weights as integers of 8 or 4 bits: smaller files, less memory, faster answers.
///
/// Example: cloze quantize --model sentence-transformers/all-MiniLM-L6-v2 --weights q4_0 --tables --out tiny
///
/// The weights of the layers' linear maps become integers, and so do the embeddings of pieces with --tables. All commands
/// read the new folder and multiply in integers: each token is rounded to 8 bits in a range of its own, so no answer
/// depends on other texts, and all processors give the same integers. Texts given by --calibrate, a thousand like those that
/// the model is for, are needed to measure one range for all tokens (--ranges), to let weights make up for each other's
/// errors (--gptq; Frantar et al. 2023), and to move the large features of tokens into the weights (--smooth; Xiao et al.
/// 2023).
///
/// --integers-only computes an encoder of BERT's or RoBERTa's family with integers from embeddings to logits (I-BERT; Kim et al.
/// 2021): the same bits on every processor. It measures ranges on texts, by mse unless --ranges says otherwise.
///
/// The layout is that of the package compressed-tensors, with which transformers loads the folder, except for tables of 4 bits,
/// after --smooth and with --integers-only. A model of integers cannot be trained; `cloze convert` writes floats.
///
/// Prints the new folder, and on standard error its size and what was rounded.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze quantize --model runs/sst2/model --weights int8 --out sst2-int8
  cloze quantize --model runs/sst2/model --weights int8 --ranges mse --calibrate texts.txt --out sst2-static
  cloze quantize --model runs/sst2/model --weights int8 --integers-only --calibrate texts.txt --out sst2-integers
  cloze quantize --model runs/sst2/model --weights q4_0 --gptq --calibrate texts.txt --out sst2-4bit")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The format of weights.
    #[arg(long, value_enum)]
    weights: Weights,
    /// Round the embeddings of pieces too.
    #[arg(long)]
    tables: bool,
    /// Texts to measure the inputs of linear maps on, one per line.
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// One range for all tokens of a map: minmax, mse, or a percentile such as 99.99, measured on --calibrate; or trained, the
    /// one that training found (default: a range for each token).
    #[arg(long, value_name = "RANGES", value_parser = ranges)]
    ranges: Option<Ranges>,
    /// Compute with integers alone, from embeddings to logits: I-BERT. Needs --weights int8 and --calibrate.
    #[arg(long, requires = "calibrate")]
    integers_only: bool,
    /// Round weights so that later ones make up for the errors of earlier ones.
    #[arg(long, requires = "calibrate")]
    gptq: bool,
    /// Move what is large in a few features from tokens to weights, by this exponent from 0 to 1.
    #[arg(long, value_name = "ALPHA", num_args = 0..=1, default_missing_value = "0.5", requires = "calibrate")]
    smooth: Option<f64>,
    /// The output folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    /// 8 bits, with a scale for each output.
    Int8,
    /// 8 bits, with a scale for each 32 inputs.
    #[value(name = "q8_0")]
    Q8_0,
    /// 4 bits, with a scale for each 32 inputs.
    #[value(name = "q4_0")]
    Q4_0,
}

fn ranges(text: &str) -> Result<Ranges, String> {
    match text {
        "minmax" => Ok(Ranges::MinMax),
        "mse" => Ok(Ranges::Mse),
        "trained" => Ok(Ranges::Trained),
        _ => text
            .parse()
            .ok()
            .filter(|share| (50.0..=100.0).contains(share) && *share > 50.0)
            .map(Ranges::Percentile)
            .ok_or_else(|| {
                "expected minmax, mse, trained, or a percentile above 50, such as 99.99".to_owned()
            }),
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut config = QuantizeConfig::new(match args.weights {
        Weights::Int8 => WeightFormat::Int8,
        Weights::Q8_0 => WeightFormat::Q8_0,
        Weights::Q4_0 => WeightFormat::Q4_0,
    });
    config.tables = args.tables;
    config.ranges = args.ranges;
    config.smooth = args.smooth;
    config.gptq = args.gptq;
    config.integers_only = args.integers_only;
    if args.calibrate.is_some() && !config.needs_texts() {
        let error = anyhow!(
            "--calibrate is for --ranges, --gptq, --smooth and --integers-only: give one of them, or leave it out"
        );
        return Err(WrongUsage::new(error).into());
    }
    if args.calibrate.is_none() && args.ranges.is_some_and(Ranges::are_measured) {
        let error = anyhow!("--ranges are measured on texts: give some with --calibrate FILE");
        return Err(WrongUsage::new(error).into());
    }
    let device = args.device.open()?;
    let new = NewFolder::new(&args.out)?;
    let folder = model::folder(&args.model)?;
    let tokenizers = Tokenizers::load(&folder)?;
    let texts = args.calibrate.as_deref().map(texts).transpose()?;
    let mut progress = Progress::new("texts", false);
    let report = quantize(&folder, &new.path(), &config, texts.into_iter().flatten(), &device, |done| {
        progress.show(done, None);
    });
    drop(progress);
    let report = report.map_err(|error| by_option(error, args.calibrate.as_deref()))?;
    tokenizers.save(&folder, &new.path())?;
    copy_kept(&folder, &new.path())?;
    let before = model::weight_bytes(&folder)?;
    new.finish()?;
    say(format_args!("{}", facts("quantization", rows(&report, before))));
    warn(&report, args);
    let mut output = Output::new();
    output.line(args.out.display())?;
    output.flush()
}

/// The lines of a file that are not empty.
fn texts(path: &Path) -> Result<impl Iterator<Item = cloze_trainer::Result<String>>> {
    let mut lines = Lines::of(Some(path), MAX_LINE_BYTES)?.with_longer(Longer::Cut);
    let mut batch = Batch::default();
    let mut all = Vec::new();
    while lines.read(1_024, &mut batch)? {
        all.extend(
            batch.numbered().map(|(_, line)| line.text.to_owned()).filter(|line| !line.trim().is_empty()),
        );
    }
    if all.is_empty() {
        bail!("{}: it has no line; expected texts to calibrate with", path.display());
    }
    Ok(all.into_iter().map(Ok))
}

/// A setting of this command by its option.
fn by_option(error: TrainerError, texts: Option<&Path>) -> anyhow::Error {
    match &error {
        TrainerError::Setting { key, found, expected } => {
            WrongUsage::new(anyhow!("--{key} is {found}, expected {expected}")).into()
        }
        TrainerError::OutputNotFinite => match texts {
            Some(path) => anyhow!(
                "{}: the model computes NaN or an infinity for a text of it; nothing was written",
                path.display()
            ),
            None => error.into(),
        },
        _ => error.into(),
    }
}

fn rows(report: &QuantizeReport, before: u64) -> Vec<(&'static str, String)> {
    let megabytes = |n: u64| format!("{:.1} MB", n as f64 / 1e6);
    let after = report.saved.n_bytes as u64;
    let mut rows = vec![
        ("weights", format!("{} → {}", megabytes(before), megabytes(after))),
        ("tensors of integers", grouped(report.saved.quantized.len() as u64)),
        ("relative error of weights", shown(report.weight_error.sqrt())),
    ];
    if report.n_texts > 0 {
        rows.push(("texts", grouped(report.n_texts as u64)));
    }
    rows
}

/// The paths of linear maps, those of several layers together: "`h.*.attn.c_attn` (12)".
fn of_layers(paths: &[String]) -> String {
    let mut patterns: Vec<(String, usize)> = Vec::new();
    for path in paths {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = path.split('.').map(|part| if is_number(part) { "*" } else { part });
        let pattern = parts.collect::<Vec<_>>().join(".");
        match patterns.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, n)) => *n += 1,
            None => patterns.push((pattern, 1)),
        }
    }
    let listed = patterns.iter().map(|(pattern, n)| match pattern.contains('*') {
        true => format!("`{pattern}` ({n})"),
        false => format!("`{pattern}`"),
    });
    listed.collect::<Vec<_>>().join(", ")
}

fn warn(report: &QuantizeReport, args: &Args) {
    if !report.uneven.is_empty() {
        let listed = of_layers(&report.uneven);
        say(format_args!("left in FP16, because 32 does not divide their inputs: {listed}"));
    }
    if !report.saved.kept.is_empty() {
        say(format_args!(
            "left as floats, because the file of this family holds them in another form: {}",
            of_layers(&report.saved.kept)
        ));
    }
    if report.n_silent > 0 {
        say(format_args!(
            "{} features were 0 in all texts: more, or other texts are better",
            report.n_silent
        ));
    }
    if let Some(path) = args.calibrate.as_ref().filter(|_| report.n_texts < FEW) {
        let n = report.n_texts;
        say(format_args!("{}: {n} texts are few to calibrate with; a thousand are better", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_several_layers_are_listed_once() {
        let paths = ["h.0.attn.c_attn", "h.0.mlp.c_fc", "h.1.attn.c_attn", "h.1.mlp.c_fc", "lm_head"];
        assert_eq!(
            of_layers(&paths.map(String::from)),
            "`h.*.attn.c_attn` (2), `h.*.mlp.c_fc` (2), `lm_head`"
        );
    }
}
