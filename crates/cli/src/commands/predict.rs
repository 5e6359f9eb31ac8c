//! `cloze predict`.

use std::io::{self, IsTerminal};

use anyhow::{Result, anyhow};
use burn::tensor::Device;
use clap::builder::RangedU64ValueParser;
use cloze_trainer::engine::replicas::{bytes_of, words_of};
use cloze_trainer::finetune::{Advance, InputKey, Predicted, Predictor};
use cloze_trainer::images::{ImagePredictor, is_image_model};
use indicatif::HumanCount;
use serde_json::{Map, Value};

use crate::answers::{AnswerArgs, Answers};
use crate::compute::Compute;
use crate::failure::{WrongUsage, by_option};
use crate::input::{Asked, Blank, InputArgs, Row};
use crate::lines::{BATCH, Longer};
use crate::model;
use crate::output::say;
use crate::progress::Progress;
use crate::ranks;
use crate::rows::RowFormat;

/// Predict with a fine-tuned model for each row of a table or of JSON lines.
///
/// Example: cloze predict --model distilbert/distilbert-base-uncased-finetuned-sst-2-english --columns
/// text=review --input reviews.csv --output labelled.csv
///
/// The task is read from the model folder. A JSON object is printed with the answer's keys after its own,
/// which may be anything; a CSV or TSV line with the answer's cells after its own, where anything but text
/// and numbers is JSON; a row of Parquet or XML as an object; of a line of text the answer alone. An output
/// file that ends in .csv, .tsv or .jsonl is in that format, unless --output-format says otherwise. The columns of a table, by these names or those
/// in --columns, correspond to the keys in JSON:
///
/// Classes and numbers for {"text": "..."}, {"text": "...", "pair": "..."} or "...": a classifier prints
/// {"label": ..., "score": ..., "scores": {...}} with the probability of every label, a regression {"value":
/// ...}. A prompt-based model prints the labels of its verbaliser. A multi-label model prints {"labels": [...],
/// "scores": {...}}: the labels whose probability is above --threshold, and every label's probability.
///
/// Tags for the words of {"text": "..."} or "...", whose punctuation is split off, or for words that are already
/// split, {"words": ["...", ...]} or {"words": "words between spaces"}: {"words": [...], "tags": [...],
/// "entities": [...]}. An entity has its "type", "first" and "last" word and "text"; in a text also "start" and
/// "end" in characters, end-exclusive.
///
/// Answers to {"question": "...", "context": "..."}: {"answer": ..., "start": ..., "end": ..., "score": ...},
/// with character offsets into the context and the probability; with --n-best also the best candidates as
/// "n_best". For no answer, a model that allows it prints "" with null offsets.
///
/// Choices for {"text": "...", "choices": ["...", ...]}, where "context" is accepted for "text": {"choice":
/// ..., "score": ..., "scores": [...]}, the index of the best, from 0, and the probabilities. In CSV and TSV
/// each choice has a column: --columns choices=A,choices=B.
///
/// Classes of images for {"image": "..."} or "...", a path or data:image/png;base64,...: as for texts.
///
/// Each line of JSON or of text has its line of output; for a blank line it is null. Blank lines of CSV and TSV are
/// skipped; their output is UTF-8. An unusable row, such as one without text, is an error that names it, after the rows
/// before it are printed; no output file is created then. With --on-bad-row skip it is left out. An input column or key
/// with the same name as the answer's is also an error: rename the answer's with --answer-prefix.
#[derive(clap::Args)]
#[command(after_long_help = r#"More examples:
  cloze predict --model runs/mrpc/model --input pairs.jsonl --output predictions.jsonl
  echo '{"text": "one long string of cliches"}' | cloze predict --model runs/sst2/model
  cloze predict --model runs/sst2/model --columns text=review --input reviews.csv --output labelled.csv
  cloze predict --model runs/sst2/model --output-format csv < reviews.txt
  cloze predict --model runs/squad/model --n-best 3 < questions.jsonl
  echo 'Ada Lovelace was born in London.' | cloze predict --model runs/wnut17/model
  cloze predict --model runs/wnut17/model --columns text=review --input reviews.csv --output tagged.jsonl"#)]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    answers: AnswerArgs,
    /// List the N best answers to each question; the model's task sets the maximum.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    n_best: Option<usize>,
    /// The probability above which one of several labels is predicted (default: the model's, 0.5 if it has none).
    #[arg(long, value_name = "P")]
    threshold: Option<f64>,
    #[command(flatten)]
    compute: Compute,
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    args.input.check()?;
    let predictor = AnyPredictor::open(args, &device)?;
    let keys = predictor.input_keys();
    let part = |lines: &[String]| {
        let asked: Vec<&str> = lines.iter().map(String::as_str).collect();
        let predicted = args.compute.run(|| predictor.predict(&asked, &mut |_| ())).ok()?;
        let words = || Some(words_of(&serde_json::to_vec(&(predicted.truncated, &predicted.values)).ok()?));
        predicted.refused.is_none().then(words)?
    };
    if ranks::helps(part)? {
        return Ok(());
    }
    let mut input = args.input.open(Asked {
        fields: keys,
        expected: predictor.input(),
        replaced: &[],
        default: RowFormat::Jsonl,
        longer: Longer::Refused,
        blank: Blank::Answered,
    })?;
    let mut answers = Answers::new(&args.answers, &input, predictor.answer_keys())?;
    let mut progress = Progress::new("lines", args.answers.is_stdout() && io::stdout().is_terminal());
    let size = input.size().map(|size| size as f64);
    let (mut count, mut bytes, mut truncated) = (0, 0, 0);
    loop {
        let mut rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        let of_batch: usize = rows.iter().map(|row| row.bytes).sum();
        let lines: Vec<String> = rows.iter_mut().map(|row| line(row, keys)).collect();
        let advanced = &mut |advance: Advance| {
            let part = |all: usize| advance.share * all as f64;
            let share = size.map(|size| (bytes as f64 + part(of_batch)) / size);
            progress.show(count + part(rows.len()) as usize, share);
        };
        // The rows after one that the model refuses are predicted in turn, if unusable rows are skipped.
        let mut done = 0;
        for words in ranks::shared(|| lines.clone(), part)?.into_iter().flatten() {
            let (n_truncated, values): (usize, Vec<Value>) = serde_json::from_slice(&bytes_of(&words))?;
            for (row, value) in rows[done..].iter().zip(&values) {
                answers.write(row, value)?;
            }
            done += values.len();
            truncated += n_truncated;
        }
        answers.flush()?;
        while done < rows.len() {
            let asked: Vec<&str> = lines[done..].iter().map(String::as_str).collect();
            let predicted = args.compute.run(|| predictor.predict(&asked, &mut *advanced))?;
            for (row, value) in rows[done..].iter().zip(&predicted.values) {
                answers.write(row, value)?;
            }
            answers.flush()?;
            done += predicted.values.len();
            truncated += predicted.truncated;
            if let Some(error) = predicted.refused {
                input.refuse(&rows[done].place, anyhow!(error))?;
                done += 1;
            }
        }
        count += rows.len();
        bytes += of_batch;
    }
    ranks::done()?;
    progress.finish();
    if truncated > 0 {
        say(format_args!(
            "{} of {} lines have more than {} tokens and were cut",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            predictor.max_len()
        ));
    }
    answers.finish()
}

/// A model of texts or of images.
enum AnyPredictor {
    Texts(Predictor),
    Images(ImagePredictor),
}

impl AnyPredictor {
    fn open(args: &Args, device: &Device) -> Result<Self> {
        let (folder, int8) = (model::folder(&args.model)?, args.compute.int8);
        if is_image_model(&folder) {
            for (option, is_given) in
                [("--n-best", args.n_best.is_some()), ("--threshold", args.threshold.is_some())]
            {
                if is_given {
                    let error = anyhow!("{option}: a classifier of images has one answer; leave it out");
                    return Err(WrongUsage::new(error).into());
                }
            }
            return Ok(Self::Images(ImagePredictor::open(&folder, device, int8)?));
        }
        let mut predictor = Predictor::load(&folder, device, int8)?;
        if let Some(n) = args.n_best {
            predictor.list(n).map_err(by_option)?;
        }
        if let Some(threshold) = args.threshold {
            predictor.predict_above(threshold).map_err(by_option)?;
        }
        Ok(Self::Texts(predictor))
    }

    fn input_keys(&self) -> &'static [InputKey] {
        match self {
            Self::Texts(predictor) => predictor.input_keys(),
            Self::Images(predictor) => predictor.input_keys(),
        }
    }

    fn input(&self) -> &'static str {
        match self {
            Self::Texts(predictor) => predictor.input(),
            Self::Images(predictor) => predictor.input(),
        }
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        match self {
            Self::Texts(predictor) => predictor.answer_keys(),
            Self::Images(predictor) => predictor.answer_keys(),
        }
    }

    fn predict(&self, lines: &[&str], advanced: &mut dyn FnMut(Advance)) -> Result<Predicted> {
        Ok(match self {
            Self::Texts(predictor) => predictor.predict(lines, advanced)?,
            Self::Images(predictor) => predictor.predict_lines(lines, advanced)?,
        })
    }

    /// The maximum tokens of a text.
    fn max_len(&self) -> usize {
        match self {
            Self::Texts(predictor) => predictor.max_len(),
            Self::Images(_) => usize::MAX,
        }
    }
}

/// The predictor's input for a row; takes the fields out of the row.
fn line(row: &mut Row, keys: &[InputKey]) -> String {
    let Some(fields) = row.fields.take() else { return String::new() };
    let named = keys.iter().zip(fields).filter(|(_, value)| !value.is_null());
    let object: Map<String, Value> = named.map(|(key, value)| (key.name.into(), value)).collect();
    Value::Object(object).to_string()
}
