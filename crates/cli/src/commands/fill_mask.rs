//! `cloze fill-mask`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::builder::RangedU64ValueParser;
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, BertForPreTraining, BertInput};
use cloze_model::huggingface::load_bert;
use cloze_tokenizer::Tokenizer;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::device::{self, DeviceName};
use crate::failure::WrongUsage;
use crate::lines::Lines;
use crate::output::Output;

/// Fill the masks in a text with what the model finds most likely.
///
/// A mask is the model's own mask token: [MASK] for BERT, <mask> for RoBERTa. Texts come from the
/// command line, or from standard input, a line each. Each mask is filled on its own, the others
/// stay.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze fill-mask --model runs/tiny/model 'The [MASK] of the United States'
  cloze fill-mask --model runs/tiny/model --top-k 1 --json < lines.txt")]
pub struct Args {
    /// A model in Hugging Face's format: config.json, model.safetensors and a tokenizer.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// How many tokens to show for a mask.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top_k: usize,
    /// Print one JSON object for each text.
    #[arg(long)]
    json: bool,
    #[arg(long, value_name = "DEVICE", help = device::HELP)]
    device: Option<DeviceName>,
    /// The texts (default: the lines of standard input).
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
}

/// A text and what its masks may stand for.
#[derive(Serialize)]
struct Filled<'a> {
    text: &'a str,
    /// In the order of the text.
    masks: Vec<Mask>,
}

/// One mask's most likely tokens, best first.
#[derive(Serialize)]
struct Mask {
    predictions: Vec<Prediction>,
}

#[derive(Serialize)]
struct Prediction {
    token: String,
    id: u32,
    probability: f32,
    /// The text with this mask filled.
    sequence: String,
}

pub fn run(args: &Args) -> Result<()> {
    let filler = Filler::load(&args.model, &device::open(args.device)?)?;
    let mut output = Output::new();
    let mut print = |text: &str| {
        let filled = filler.fill(text, args.top_k)?;
        if args.json {
            output.line(serde_json::to_string(&filled)?)?;
        } else {
            output.line(filled.table())?;
        }
        output.flush()
    };
    for text in &args.texts {
        print(text).with_context(|| format!("`{text}`"))?;
    }
    if args.texts.is_empty() {
        let mut lines = Lines::stdin();
        while let Some((first, batch)) = lines.next_batch()? {
            for (at, text) in batch.iter().enumerate() {
                print(text).with_context(|| format!("standard input, line {}", first + at))?;
            }
        }
    }
    Ok(())
}

/// A model that fills masks.
struct Filler {
    tokenizer: Tokenizer,
    config: BertConfig,
    model: BertForPreTraining,
    mask: u32,
}

impl Filler {
    fn load(folder: &Path, device: &Device) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        let mask = tokenizer.special_ids().mask.with_context(|| {
            format!("{}: the tokenizer has no mask token", folder.display())
        })?;
        // The seed matters to no one: every parameter is loaded, or the model is refused.
        let (config, model, report) = load_bert(folder, &mut ParamInit::new(device, 0))?;
        if let Some(name) = report.missing.iter().find(|name| name.contains("predictions")) {
            bail!("{}: no masked-language-model head (`{name}` is missing)", folder.display());
        }
        ensure!(
            tokenizer.vocab_size() <= config.vocab_size,
            "{}: the tokenizer has {} tokens and the model only {}",
            folder.display(),
            tokenizer.vocab_size(),
            config.vocab_size
        );
        Ok(Self { tokenizer, config, model, mask })
    }

    fn fill<'a>(&self, text: &'a str, top_k: usize) -> Result<Filled<'a>> {
        let encoding = self.tokenizer.encode(text, true);
        let (ids, limit) = (&encoding.ids, self.config.max_positions);
        let positions: Vec<usize> = (0..ids.len()).filter(|&at| ids[at] == self.mask).collect();
        if positions.is_empty() {
            let mask = self.tokenizer.id_to_token(self.mask).unwrap_or_default();
            return Err(WrongUsage::new(anyhow!(
                "nothing to fill: write {mask} where a word is missing"
            ))
            .into());
        }
        ensure!(ids.len() <= limit, "{} tokens; the model takes at most {limit}", ids.len());

        let device = self.model.bert.embeddings.tokens.weight.device();
        let int = |values: Vec<i32>| Tensor::<1, Int>::from_data(TensorData::from(&values[..]), &device);
        // Ids and positions are below the vocabulary's and the model's size: they fit.
        let input_ids = int(ids.iter().map(|&id| id as i32).collect());
        let input = BertInput::new(input_ids.reshape([1, ids.len()]));
        let hidden = self.model.bert.forward(input).last_hidden_state;
        let asked = int(positions.iter().map(|&at| at as i32).collect());
        let logits = self.model.mlm_logits(hidden, asked).into_data().convert::<f32>();
        let logits = logits.to_vec::<f32>().map_err(|error| anyhow!("{error:?}"))?;

        let masks = positions.iter().zip(logits.chunks_exact(self.config.vocab_size));
        let masks = masks.map(|(&at, logits)| {
            // Rows beyond the tokenizer's vocabulary only pad the matrix: no token is theirs.
            let best = most_likely(&logits[..self.tokenizer.vocab_size()], top_k);
            let (start, end) = encoding.offsets[at];
            let prediction = |(id, probability)| Prediction {
                token: self.tokenizer.id_to_token(id).unwrap_or_default().to_owned(),
                id,
                probability,
                sequence: self.replace(text, start, end, id),
            };
            Mask { predictions: best.into_iter().map(prediction).collect() }
        });
        Ok(Filled { text, masks: masks.collect() })
    }

    /// `text` with the bytes from `start` to `end`, a mask, replaced by token `id`.
    fn replace(&self, text: &str, start: usize, end: usize, id: u32) -> String {
        let (before, after) = (&text[..start], &text[end..]);
        match self.tokenizer.id_to_token(id).and_then(|token| token.strip_prefix("##")) {
            // A WordPiece inside a word: it continues what stands before it.
            Some(piece) if !piece.is_empty() => format!("{}{piece}{after}", before.trim_end()),
            _ => format!("{before}{}{after}", self.tokenizer.decode(&[id], false)),
        }
    }
}

/// The `top_k` most likely ids and their probabilities (softmax), best first, lower ids first
/// among equals.
fn most_likely(logits: &[f32], top_k: usize) -> Vec<(u32, f32)> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - greatest).exp()).sum();
    let mut ranked: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked.truncate(top_k);
    for (_, value) in &mut ranked {
        *value = (f64::from(*value - greatest).exp() / total) as f32;
    }
    ranked
}

impl Filled<'_> {
    /// The text, and below it a line for each prediction: token, probability, filled text.
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        for (number, mask) in self.masks.iter().enumerate() {
            if self.masks.len() > 1 {
                table.add_row([format!("mask {}", number + 1)]);
            }
            for prediction in &mask.predictions {
                table.add_row([
                    prediction.token.clone(),
                    format!("{:.1} %", 100.0 * prediction.probability),
                    prediction.sequence.clone(),
                ]);
            }
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n{}\n", self.text, table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_likely_come_first_with_their_softmax() {
        let best = most_likely(&[0.0, 2.0_f32.ln(), 0.0, 4.0_f32.ln()], 3);
        let ids: Vec<u32> = best.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [3, 1, 0]);
        for ((_, probability), expected) in best.iter().zip([0.5, 0.25, 0.125]) {
            assert!((probability - expected).abs() < 1e-6);
        }
        assert_eq!(most_likely(&[1.0, 2.0], 9).len(), 2);
    }

    #[test]
    fn the_table_names_masks_only_where_there_are_several() {
        let prediction = |token: &str, probability| Prediction {
            token: token.to_owned(),
            id: 7,
            probability,
            sequence: format!("a {token}"),
        };
        let mask = || Mask { predictions: vec![prediction("cat", 0.5), prediction("elephant", 0.051)] };
        let one = Filled { text: "a [MASK]", masks: vec![mask()] };
        assert_eq!(
            one.table(),
            "a [MASK]\n cat       50.0 %  a cat\n elephant   5.1 %  a elephant\n"
        );
        let two = Filled { text: "a [MASK]", masks: vec![mask(), mask()] };
        assert!(two.table().contains("mask 2"));
    }
}
