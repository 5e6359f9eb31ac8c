//! `cloze inspect`.

use std::io::{Read, stdin};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use cloze::{InspectRequest, Inspection, Inspector, Method};
use cloze_evaluation::inspection::{Answer, Explanation, Token};
use cloze_evaluation::report::InspectionReport;
use cloze_trainer::inspect::Baseline;
use comfy_table::{CellAlignment, Table, presets};

use crate::compute::DeviceArgs;
use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};

/// Texts of more tokens are looked at without what scores are made of, unless asked for: the page would be large.
const NEURON_TOKENS: usize = 64;

/// Tokens that the table shows; of longer texts those that count most.
const SHOWN: usize = 48;

/// Look inside a model while it reads a text: attention, explanations of its answer, what each layer would answer.
///
/// Example: cloze inspect --model runs/reviews/model 'Not a bad film at all' --output page.html
///
/// The page is one file that loads nothing. Attention is shown by head as lines, as a matrix, for all heads at once, and as
/// what scores are made of; explanations stand side by side, by token and by word; of models that fill masks or write, each
/// layer's own answers; of translators, the alignment of both sides. The model is any that the program loads: an encoder with or
/// without a head, a left-to-right model, an encoder–decoder.
///
/// Methods: attention rollout (Abnar & Zuidema 2020), gradient times input, integrated gradients (Sundararajan et al. 2017),
/// attention weighted by its gradient (Chefer et al. 2021), occlusion. Without --method it is all that the model allows.
///
/// Prints the answer and how much each token contributes to it. The page has shares of 8 bits, --json all digits.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze inspect --model google-bert/bert-base-uncased 'The old [MASK] sat by the sea.' --output mask.html
  cloze inspect --model runs/mrpc/model 'A text.' --pair 'Another one.' --label 1 --against 0 --output pair.html
  cloze inspect --model runs/multi30k/model 'A man reads.' --target 'Ein Mann liest.' --json seen.json")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The text; a question, for a model that finds answers (default: standard input).
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// The second text of a pair; the text in which the answer is found.
    #[arg(long, value_name = "TEXT")]
    pair: Option<String>,
    /// What an encoder–decoder is to have written (default: what it writes).
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// The answer to explain: a label, a piece, or words of the second text (default: the model's).
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Explain the difference from this answer.
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// The token that is answered for, from 0, where the model answers for tokens (default: the first mask, the first word, or
    /// the next token).
    #[arg(long, value_name = "N")]
    place: Option<usize>,
    /// How to explain the answer; may be repeated (default: all that the model allows).
    #[arg(long = "method", value_enum, value_name = "METHOD")]
    methods: Vec<MethodName>,
    /// Without explanations.
    #[arg(long, conflicts_with_all = ["methods", "baseline"])]
    no_explanations: bool,
    /// What takes the place of tokens in integrated gradients and occlusion.
    #[arg(long, value_enum, default_value_t = BaselineName::Mask)]
    baseline: BaselineName,
    /// The layers whose attention is kept, from 0: A..B without B, or one (default: all).
    #[arg(long, value_name = "A..B", value_parser = layers)]
    layers: Option<Range<usize>>,
    /// Whether to keep queries, keys and what positions add (default: for texts of up to 64 tokens).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    neurons: Option<bool>,
    /// Write all numbers as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the page to this file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum MethodName {
    /// Attention rollout.
    Rollout,
    /// The gradient times the word embedding.
    GradientTimesInput,
    /// Integrated gradients.
    IntegratedGradients,
    /// Attention weighted by its gradient.
    GradientWeightedAttention,
    /// What the score loses without a token.
    Occlusion,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum BaselineName {
    /// The piece that masks, else padding; special tokens stay.
    Mask,
    /// Zeros.
    Zeros,
}

impl MethodName {
    fn method(self) -> Method {
        match self {
            Self::Rollout => Method::Rollout,
            Self::GradientTimesInput => Method::GradientTimesInput,
            Self::IntegratedGradients => Method::IntegratedGradients,
            Self::GradientWeightedAttention => Method::GradientWeightedAttention,
            Self::Occlusion => Method::Occlusion,
        }
    }

    fn of(method: Method) -> Option<Self> {
        Self::value_variants().iter().copied().find(|name| name.method() == method)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let text = match &args.text {
        Some(text) => text.clone(),
        None => from_standard_input()?,
    };
    let device = args.device.open()?;
    let inspector = Inspector::load(&args.model, &device)?;
    let is_written = args.output.is_some() || args.json.is_some();
    let request = InspectRequest {
        text,
        pair: args.pair.clone(),
        target: args.target.clone(),
        label: args.label.clone(),
        against: args.against.clone(),
        place: args.place,
        methods: match (args.no_explanations, args.methods.as_slice()) {
            (true, _) => Vec::new(),
            (false, []) => inspector.methods(),
            (false, names) => names.iter().map(|name| name.method()).collect(),
        },
        baseline: match args.baseline {
            BaselineName::Mask => Baseline::Piece,
            BaselineName::Zeros => Baseline::Zeros,
        },
        layers: args.layers.clone(),
        // The table needs neither.
        without_attention: !is_written,
        lens: is_written,
        neurons_up_to: match args.neurons {
            Some(true) => usize::MAX,
            Some(false) => 0,
            None => NEURON_TOKENS,
        },
    };
    let seen = inspector.inspect(&request)?;
    for note in &seen.notes {
        say(note);
    }
    if let Some(path) = &args.json {
        let mut file = Output::of(Some(path))?;
        file.line(serde_json::to_string(&seen)?)?;
        file.finish()?;
    }
    if let Some(path) = &args.output {
        let report = InspectionReport { title: &title(&request.text), facts: &[], inspection: &seen };
        let page = report.to_html().with_context(|| format!("cannot write {}", path.display()))?;
        let mut file = Output::of(Some(path))?;
        file.bytes(page.as_bytes())?;
        file.finish()?;
        say(path.display());
    }
    let mut output = Output::new();
    for line in summary(&seen) {
        output.line(line)?;
    }
    output.flush()
}

/// The text that is given on standard input, without its last line break.
fn from_standard_input() -> Result<String> {
    let mut text = String::new();
    stdin().lock().read_to_string(&mut text).context("standard input")?;
    let text = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text)).unwrap_or(&text);
    match text.trim().is_empty() {
        true => Err(WrongUsage::new(anyhow!("no text: give one as an argument or on standard input")).into()),
        false => Ok(text.to_owned()),
    }
}

/// The page's title: the beginning of the text.
fn title(text: &str) -> String {
    let beginning: String = text.chars().take(60).collect();
    if beginning.len() < text.len() { format!("{beginning}…") } else { beginning }
}

/// The answer, and what each token contributes.
fn summary(seen: &Inspection) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(answer) = &seen.answer {
        lines.push(said(answer));
    }
    if !seen.explanations.is_empty() {
        lines.push(contributions(&seen.source, &seen.explanations, |explanation| &explanation.source));
        let written = seen.target.as_deref().unwrap_or_default();
        if seen.explanations.iter().any(|explanation| !explanation.target.is_empty()) {
            lines.push(contributions(written, &seen.explanations, |explanation| &explanation.target));
        }
    }
    if let Some(alignment) = &seen.alignment {
        let pairs = alignment.pairs.iter().map(|(from, to)| format!("{from}-{to}"));
        lines.push(format!("alignment: {}", pairs.collect::<Vec<_>>().join(" ")));
    }
    lines
}

/// The answer with the best choices.
fn said(answer: &Answer) -> String {
    let choices = answer.choices.iter().take(5).map(|choice| match choice.probability {
        Some(probability) => format!("{} {probability:.3}", choice.name),
        None => format!("{:.3}", choice.score),
    });
    let explained = match &answer.against {
        Some(against) => format!("; explained: {} against {against}", answer.explained),
        None => format!("; explained: {}", answer.explained),
    };
    format!("{}: {}{explained}", answer.kind, choices.collect::<Vec<_>>().join(", "))
}

/// A table with a row for each token and a column for each method.
fn contributions<'a>(
    tokens: &[Token],
    explanations: &'a [Explanation],
    of: impl Fn(&'a Explanation) -> &'a [f64],
) -> String {
    let mut places: Vec<usize> = (0..tokens.len()).collect();
    if let Some(first) = explanations.iter().rev().map(&of).find(|values| !values.is_empty()) {
        let value = |place: &usize| first.get(*place).map_or(0.0, |value| value.abs());
        places.sort_by(|a, b| value(b).total_cmp(&value(a)));
        places.truncate(SHOWN);
        places.sort_unstable();
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let names = explanations.iter().filter_map(|explanation| MethodName::of(explanation.method));
    let names = names.filter_map(|name| Some(name.to_possible_value()?.get_name().replace('-', " ")));
    table.set_header(std::iter::once("token".to_owned()).chain(names));
    for place in places {
        let value = |explanation| {
            of(explanation).get(place).map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
        };
        table.add_row(std::iter::once(tokens[place].text.clone()).chain(explanations.iter().map(value)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Parses `A..B` or a single number.
fn layers(text: &str) -> Result<Range<usize>, String> {
    let number = |text: &str| text.parse::<usize>().ok();
    let range = match text.split_once("..") {
        Some((from, to)) => number(from).zip(number(to)).map(|(from, to)| from..to),
        None => number(text).and_then(|one| Some(one..one.checked_add(1)?)),
    };
    let range = range.filter(|range| !range.is_empty());
    range.ok_or_else(|| "expected A..B with A less than B, or one number, such as 0..2".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_a_range_or_a_number() {
        assert_eq!((layers("0..2"), layers("3")), (Ok(0..2), Ok(3..4)));
        for wrong in ["", "2..2", "3..1", "..2", "a", "-1", "1..2..3", "18446744073709551615"] {
            assert!(layers(wrong).unwrap_err().contains("such as 0..2"), "{wrong}");
        }
    }

    #[test]
    fn a_long_text_is_its_beginning_in_a_title() {
        assert_eq!(title("Ein Satz"), "Ein Satz");
        assert_eq!(title(&"ä".repeat(61)), format!("{}…", "ä".repeat(60)));
    }
}
