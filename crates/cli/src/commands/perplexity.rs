//! `cloze perplexity`.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::builder::RangedU64ValueParser;
use cloze_data::check_no_spreadsheet;
use cloze_data::labelled::records;
use cloze_evaluation::table::{facts, grouped};
use cloze_model::blocks::quantize_int8;
use cloze_trainer::TrainerError;
use cloze_trainer::perplexity::{Perplexity, TextScore};
use serde::Serialize;

use crate::compute::Compute;
use crate::failure::{WrongUsage, by_option};
use crate::model;
use crate::output::Output;
use crate::ranks;
use crate::rows::{BadRowArgs, RowArgs, RowFormat, text_of};

/// Measure how well a language model predicts texts.
///
/// Example: cloze perplexity --model openai-community/gpt2 texts.txt
///
/// A left-to-right model (GPT-2, Llama, Mistral, Qwen2) reads each file in windows as long as its positions,
/// which begin --stride tokens apart; each window predicts the tokens that no earlier window predicted.
/// Perplexity is the exponential of the mean of −log P(token | previous tokens).
///
/// A masked model (BERT and the like) reads lines and predicts each token from all others of its line, with
/// only that token masked: the pseudo-perplexity of Salazar et al. 2020. It is not comparable with perplexity.
///
/// A table has a text in each row, in the field text, and each is predicted by itself. --on-bad-row is for tables alone.
///
/// Bits per byte and word perplexity are comparable across vocabularies.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze perplexity --model openai-community/gpt2 --stride 256 --json book.txt
  cloze perplexity --model google-bert/bert-base-uncased sentences.txt")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Tokens between the starts of consecutive windows, at most the model's positions (default: half of them).
    /// Smaller strides give tokens more context and take longer.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    stride: Option<usize>,
    /// Print a JSON object for each file, and one for the total if there are several.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compute: Compute,
    #[command(flatten)]
    rows: RowArgs,
    /// Text files in UTF-8, or tables of texts.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Object<'a> {
    /// None for the total of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
    perplexity: f64,
    #[serde(flatten)]
    score: &'a TextScore,
    bits_per_byte: f64,
    word_perplexity: f64,
}

impl Args {
    /// Whether a file is one text, not a table with one in each row.
    fn is_text(&self, path: &Path) -> bool {
        matches!(self.rows.format(Some(path), RowFormat::Lines), RowFormat::Lines)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    let folder = model::folder(&args.model)?;
    args.rows.check_fields(&["text"])?;
    for path in args.files.iter().filter(|path| args.is_text(path)) {
        args.rows.check_lines()?;
        if args.rows.bad.skips() {
            let problem = anyhow!(
                "{}: --on-bad-row skip is for the rows of tables, and a text file is read as one text; leave the option out",
                path.display()
            );
            return Err(WrongUsage::new(problem).into());
        }
    }
    let mut model = Perplexity::load(&folder, args.stride, &device).map_err(by_option)?;
    if args.compute.int8 {
        quantize_int8(&mut model);
    }
    let mut output = Output::new();
    let mut all = TextScore::default();
    for path in &args.files {
        let score = if args.is_text(path) { text(args, &model, path)? } else { table(args, &model, path)? };
        print(&mut output, Some(path), &model, &score, args.json)?;
        all += score;
    }
    if args.files.len() > 1 {
        print(&mut output, None, &model, &all, args.json)?;
    }
    output.flush()
}

/// The score of a text file.
fn text(args: &Args, model: &Perplexity, path: &Path) -> Result<TextScore> {
    check_no_spreadsheet(path)?;
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(std::io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    });
    let file = file.map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
    Ok(args.compute.run(|| model.score_together(BufReader::new(file), path, &*ranks::replicas()))?)
}

/// The score of the texts in a table's rows, each predicted by itself.
fn table(args: &Args, model: &Perplexity, path: &Path) -> Result<TextScore> {
    let name = path.display().to_string();
    let source = args.rows.source([&name])?;
    let mut rows = records(&source, Path::new(""), vec![args.rows.record_column("text", true)])?;
    let (mut all, mut n_scored) = (TextScore::default(), 0);
    while let Some(record) = rows.next().transpose().map_err(BadRowArgs::told)? {
        let text = match text_of(record.cells.into_iter().next(), false) {
            Ok(text) => text,
            Err((reason, problem)) => {
                rows.refuse(record.line, reason, problem.into()).map_err(BadRowArgs::told)?;
                continue;
            }
        };
        let place = format!("{name}:{}", record.line);
        let score = args
            .compute
            .run(|| model.score_together(text.as_bytes(), Path::new(&place), &*ranks::replicas()));
        match score {
            Ok(score) => {
                all += score;
                n_scored += 1;
            }
            Err(TrainerError::Text { reason, .. }) => {
                rows.refuse(record.line, "text without a prediction", reason).map_err(BadRowArgs::told)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    args.rows.bad.check_skipped(&name, rows.skipped(), n_scored)?;
    match all.tokens {
        0 => bail!("{name}: no row has a text to predict"),
        _ => Ok(all),
    }
}

/// Prints a file's figures as soon as they are computed, or those of all files.
fn print(
    output: &mut Output,
    file: Option<&Path>,
    model: &Perplexity,
    score: &TextScore,
    json: bool,
) -> Result<()> {
    if ranks::replicas().rank() > 0 {
        return Ok(());
    }
    let (bits_per_byte, word_perplexity) = (score.bits_per_byte(), score.word_perplexity());
    if json {
        let perplexity = score.perplexity();
        let object = Object { file, perplexity, score, bits_per_byte, word_perplexity };
        output.line(serde_json::to_string(&object)?)?;
        return output.flush();
    }
    let kind = match model {
        Perplexity::Masked(_) => "pseudo-perplexity",
        _ => "perplexity",
    };
    let title = file.map_or("all files".to_owned(), |file| file.display().to_string());
    let rows = [
        (kind, format!("{:.3}", score.perplexity())),
        ("nats per token", format!("{:.4}", score.nats / score.tokens as f64)),
        ("bits per byte", format!("{bits_per_byte:.4}")),
        ("perplexity of words", format!("{word_perplexity:.2}")),
        ("tokens", grouped(score.tokens)),
        ("bytes", grouped(score.bytes)),
        ("words", grouped(score.words)),
    ];
    output.line(facts(&title, rows))?;
    output.flush()
}
