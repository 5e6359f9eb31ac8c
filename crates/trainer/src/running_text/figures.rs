//! Metrics of a model on held-out text, and their display.

use super::figure::{BITS_PER_BYTE, BITS_PER_CHARACTER, LOSS, PERPLEXITY};
use crate::Result;
use crate::engine::{Exported, SplitFigures};
use crate::metrics::curve::{Line, Panel, Source, TRAINING};
use crate::metrics::progress::RunProgress;
use cloze_evaluation::figures::{Figures, decimals};
use cloze_evaluation::report::Baseline;
use cloze_evaluation::table::{grouped, numbers};
use cloze_tokenizer::Tokenizer;

/// The name of the evaluation data.
pub(crate) const HELD_OUT: &str = "heldout";

/// The size of the predicted text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextSize {
    /// In UTF-8.
    pub bytes: u64,
    /// Unicode's code points.
    pub characters: u64,
}

impl TextSize {
    /// Adds the text of these consecutive tokens.
    ///
    /// # Errors
    /// Ids that the tokenizer does not have.
    pub fn add(&mut self, ids: impl IntoIterator<Item = i32>, tokenizer: &Tokenizer) -> Result<()> {
        let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
        let text = tokenizer.decode(&ids, true)?;
        self.bytes += text.len() as u64;
        self.characters += text.chars().count() as u64;
        Ok(())
    }
}

/// The metrics of `n` predictions whose cross-entropies sum to `sum` nats; also in bits if they are all tokens
/// of a text of this size.
pub(crate) fn figures(sum: f64, n: usize, size: Option<TextSize>) -> Figures {
    let loss = sum / n as f64;
    let mut figures = vec![(LOSS, loss), (PERPLEXITY, loss.exp())];
    if let Some(size) = size {
        let bits = |of: u64| if of == 0 { f64::NAN } else { sum / std::f64::consts::LN_2 / of as f64 };
        figures.extend([(BITS_PER_BYTE, bits(size.bytes)), (BITS_PER_CHARACTER, bits(size.characters))]);
    }
    Figures::new(n, figures)
}

/// An evaluation on one line.
pub(crate) fn evaluation_line(step: u64, figures: &Figures) -> String {
    let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
    let bits = figures.get(BITS_PER_BYTE).map(|bits| format!(", {bits:.3} bits per byte"));
    format!(
        "evaluation after step {}: loss {:.4}, perplexity {}{}",
        grouped(step),
        value(LOSS),
        decimals(value(PERPLEXITY), 2),
        bits.unwrap_or_default()
    )
}

/// The learning curve: losses, plus bits per byte and character if available.
pub(crate) fn panels(has_bits: bool) -> Vec<Panel> {
    let line = |label: &str, source| Line { label: label.into(), source };
    let held_out = |figure: &str| Source::Figure { split: HELD_OUT.into(), figure: figure.into() };
    let losses = vec![line(TRAINING, Source::Loss), line("held out", held_out(LOSS))];
    let mut panels = vec![Panel { axis: "loss (nats)".into(), lines: losses }];
    if has_bits {
        let lines = vec![
            line("a byte, held out", held_out(BITS_PER_BYTE)),
            line("a character, held out", held_out(BITS_PER_CHARACTER)),
        ];
        panels.push(Panel { axis: "bits".into(), lines });
    }
    panels
}

/// Shows and writes the result's metrics. `prediction` is the unit of the loss, such as `"token"`; a
/// prediction is one of `vocab_size` tokens.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn report<M>(
    exported: &Exported<'_, M>,
    prediction: &str,
    vocab_size: usize,
    progress: &mut dyn RunProgress,
) -> Result<Vec<SplitFigures>> {
    let Some(figures) = exported.figures else { return Ok(Vec::new()) };
    let uniform = Baseline {
        rule: format!("the same probability for each of the {} tokens", grouped(vocab_size as u64)),
        figures: Figures::new(
            figures.examples(),
            [(LOSS, (vocab_size as f64).ln()), (PERPLEXITY, vocab_size as f64)],
        ),
    };
    progress.note(&table(exported.step, figures, prediction, &uniform));
    exported.page_with(HELD_OUT, figures, None, Some(&uniform), &[])?;
    exported.tell_loss(figures, LOSS, Some(&uniform), progress)?;
    Ok(vec![SplitFigures {
        split: HELD_OUT.into(),
        figures: figures.clone(),
        seconds: 0.0,
        baseline: Some(uniform),
    }])
}

/// The result's metrics beside a baseline's.
fn table(step: u64, figures: &Figures, prediction: &str, baseline: &Baseline) -> String {
    let rows = [
        (format!("loss (nats per {prediction})"), LOSS, 4),
        ("perplexity".into(), PERPLEXITY, 2),
        ("bits per byte".into(), BITS_PER_BYTE, 4),
        ("bits per character".into(), BITS_PER_CHARACTER, 4),
    ];
    let rows = rows.into_iter().filter_map(|(shown, name, digits)| {
        let of_rule = baseline.figures.get(name).map_or_else(String::new, |value| decimals(value, digits));
        Some([shown, decimals(figures.get(name)?, digits), of_rule])
    });
    let n = [format!("{prediction}s"), grouped(figures.examples() as u64), String::new()];
    let title = format!("held out, after step {}", grouped(step));
    let table = numbers([title.as_str(), "model", "baseline"], rows.chain([n]));
    format!("{table}\nbaseline: {}", baseline.rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_stands_beside_the_baseline() {
        let rule = "the same probability for each of the 100 tokens".to_owned();
        let baseline =
            Baseline { rule, figures: Figures::new(9, [(LOSS, 100f64.ln()), (PERPLEXITY, 100.0)]) };
        let shown = table(1_500, &figures(9.0 * 200.0, 9, None), "token", &baseline);
        let expected = "
┌────────────────────────────┬──────────┬──────────┐
│ held out, after step 1,500 ┆    model ┆ baseline │
╞════════════════════════════╪══════════╪══════════╡
│ loss (nats per token)      ┆ 200.0000 ┆   4.6052 │
│ perplexity                 ┆  7.23e86 ┆   100.00 │
│ tokens                     ┆        9 ┆          │
└────────────────────────────┴──────────┴──────────┘
baseline: the same probability for each of the 100 tokens";
        assert_eq!(shown, expected.trim_start());
    }
}
