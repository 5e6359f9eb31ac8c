//! `cloze likelihood`.

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_model::blocks::quantize_int8;
use cloze_trainer::TrainerError;
use cloze_trainer::finetune::InputKey;
use cloze_trainer::likelihood::{EncodedSentence, Kind, Likelihood, LikelihoodConfig, Metric, SentenceScore};
use serde::Serialize;
use serde_json::Value;

use crate::answers::{AnswerArgs, Answers};
use crate::compute::Compute;
use crate::failure::by_option;
use crate::input::{Asked, Blank, Input, InputArgs, Row};
use crate::lines::{BATCH, Longer};
use crate::model;
use crate::progress::Progress;
use crate::rows::RowFormat;

/// The fields: a sentence, and the source of an encoder–decoder.
const FIELDS: [InputKey; 2] = [
    InputKey { name: "text", required: true, list: false },
    InputKey { name: "source", required: false, list: false },
];

/// The columns of an answer.
const NAMES: [&str; 5] = ["sum", "mean", "per_word", "per_byte", "n_pieces"];

/// Score sentences: the log-probability of each by a language model, whole and by piece.
///
/// Example: cloze likelihood --model google-bert/bert-base-uncased < sentences.txt
///
/// A left-to-right model (GPT-2, Llama, AWD-LSTM) adds up log P(piece | pieces before it), an encoder–decoder those of a target
/// given its source: the line is SOURCE, a tab, TARGET. A masked model (BERT and the like) or an XLNet predicts each piece
/// from both sides, in a copy of the sentence that hides it: the pseudo-log-likelihood, which compares sentences but is no
/// probability.
///
/// Prints the sum over the pieces in nats, and its mean by piece, word and byte. Blank lines are passed over. A row of a table is printed unchanged, with
/// these figures as extra cells or keys.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  printf 'The boats sail.\\nThe boats sails.\\n' | cloze likelihood --model runs/tiny/model --json
  cloze likelihood --model runs/tiny/model --metric pll --columns text=sentence --input pairs.csv --output scored.csv
  paste test.de test.en | cloze likelihood --model runs/translation/model")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    #[command(flatten)]
    scoring: ScoringArgs,
    /// Print one JSON object per sentence, with the score of each piece.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    answers: AnswerArgs,
}

/// How sentences are scored.
#[derive(clap::Args)]
pub struct ScoringArgs {
    /// What is hidden besides the piece that a masked model or an XLNet predicts (default: word-l2r).
    #[arg(long, value_enum)]
    metric: Option<MetricName>,
    /// What a left-to-right model does with a sentence's first piece (default: predicted).
    #[arg(long, value_enum)]
    first_piece: Option<FirstPiece>,
    /// Tokens processed at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = LikelihoodConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum MetricName {
    /// Nothing else (Salazar et al. 2020): words of many pieces get high scores.
    Pll,
    /// The later pieces of its word (Kauf and Ivanova 2023).
    WordL2r,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum FirstPiece {
    /// Predict it after the piece that begins texts, or else the one that ends them.
    Predicted,
    /// Only read it, unless the tokenizer itself puts a piece before it.
    Given,
}

impl ScoringArgs {
    /// Loads a model by its folder or name.
    ///
    /// # Errors
    /// [`WrongUsage`](crate::failure::WrongUsage) for an option that the model has no use for; those of the model's files.
    pub fn load(&self, name: &str) -> Result<Likelihood> {
        let device = self.compute.open()?;
        let folder = model::folder(name)?;
        let mut config = LikelihoodConfig::default();
        config.metric = self.metric.map(|metric| match metric {
            MetricName::Pll => Metric::Pll,
            MetricName::WordL2r => Metric::WordL2r,
        });
        config.predicts_first = self.first_piece != Some(FirstPiece::Given);
        config.batch_tokens = self.batch_tokens;
        let mut model = Likelihood::load(&folder, config, &device).map_err(by_option)?;
        self.check_first_piece(model.kind())?;
        if self.compute.int8 {
            quantize_int8(&mut model);
        }
        Ok(model)
    }

    /// Refuses `--first-piece` for a model that does not only predict from left to right.
    fn check_first_piece(&self, kind: Kind) -> Result<()> {
        let found = match self.first_piece {
            Some(FirstPiece::Predicted) if kind != Kind::LeftToRight => "predicted",
            Some(FirstPiece::Given) if kind != Kind::LeftToRight => "given",
            _ => return Ok(()),
        };
        let expected = "none: only a left-to-right model has use for it, which the model of `--model` is not";
        Err(by_option(TrainerError::Setting {
            key: "first_piece".into(),
            found: found.into(),
            expected: expected.into(),
        }))
    }
}

/// A sentence's score, as it is printed.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    text: Option<Text<'a>>,
    sum: f64,
    mean: f64,
    per_word: f64,
    per_byte: f64,
    n_pieces: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<Value>,
}

/// The sentence of a line of text.
#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
}

pub fn run(args: &Args) -> Result<()> {
    args.input.check()?;
    let model = args.scoring.load(&args.model)?;
    let mut input = args.input.open(Asked {
        fields: &FIELDS,
        expected: r#"{"text": "…"} or "…", with "source" for an encoder–decoder"#,
        replaced: &[],
        default: RowFormat::Lines,
        longer: Longer::Refused,
        blank: Blank::PassedOver,
    })?;
    let names = NAMES.into_iter().chain(args.json.then_some("pieces")).collect();
    let mut answers = Answers::new(&args.answers, &input, names)?;
    let is_lines = input.is_text();
    if is_lines && !args.json {
        answers.line(NAMES.join("\t") + "\ttext")?;
    }
    let mut progress = Progress::new("pieces", args.answers.is_stdout());
    let (mut done, mut read) = (0, 0);
    loop {
        let rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        let (rows, sentences) = encoded(&model, &mut input, rows)?;
        let scores = args.scoring.compute.run(|| {
            model.score(&sentences, &mut |n| {
                done += n;
                progress.show(done, input.size().map(|size| read as f64 / size.max(1) as f64));
            })
        })?;
        read += rows.iter().map(|row| row.bytes).sum::<usize>();
        for (row, score) in rows.iter().zip(&scores) {
            match is_lines {
                true => answers.line(line(&model, row, score, args.json)?)?,
                false => answers.write(row, &answer(None, score, args.json))?,
            }
        }
        answers.flush()?;
    }
    progress.finish();
    answers.finish()
}

/// The rows that can be scored, and their sentences.
fn encoded(
    model: &Likelihood,
    input: &mut Input,
    rows: Vec<Row>,
) -> Result<(Vec<Row>, Vec<EncodedSentence>)> {
    let is_lines = input.is_text();
    let (mut kept, mut sentences) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for row in rows {
        let (text, source) = texts(model, &row, is_lines);
        match model.encode(text, source) {
            Ok(sentence) => {
                sentences.push(sentence);
                kept.push(row);
            }
            Err(error) => input.refuse(&row.place, error.into())?,
        }
    }
    Ok((kept, sentences))
}

/// The sentence of a row, and its source. In a line of text a tab separates them.
fn texts<'a>(model: &Likelihood, row: &'a Row, is_line: bool) -> (&'a str, Option<&'a str>) {
    let text = row.text();
    if is_line {
        return match text.split_once('\t').filter(|_| model.kind() == Kind::EncoderDecoder) {
            Some((source, target)) => (target, Some(source)),
            None => (text, None),
        };
    }
    (text, row.fields.as_ref().and_then(|fields| fields.get(1)?.as_str()))
}

fn answer<'a>(text: Option<Text<'a>>, score: &SentenceScore, pieces: bool) -> Answer<'a> {
    Answer {
        text,
        sum: score.sum(),
        mean: score.mean(),
        per_word: score.per_word(),
        per_byte: score.per_byte(),
        n_pieces: score.pieces.len(),
        pieces: pieces.then(|| serde_json::to_value(&score.pieces).unwrap_or_default()),
    }
}

/// The answer to a line of text.
fn line(model: &Likelihood, row: &Row, score: &SentenceScore, json: bool) -> Result<String> {
    let (text, source) = texts(model, row, true);
    if json {
        return Ok(serde_json::to_string(&answer(Some(Text { text, source }), score, true))?);
    }
    let figures = [score.sum(), score.mean(), score.per_word(), score.per_byte()];
    let figures: Vec<String> = figures.iter().map(|figure| format!("{figure:.4}")).collect();
    Ok(format!("{}\t{}\t{}", figures.join("\t"), score.pieces.len(), row.text()))
}
