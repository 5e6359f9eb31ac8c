//! The figures of a left-to-right model on held-out text, and how they are shown.

use crate::Result;
use crate::engine::{Exported, SplitFigures};
use crate::language_model::figure;
use crate::metrics::curve::{Line, Panel, Source};
use crate::metrics::progress::RunProgress;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::{facts, grouped};
use cloze_tokenizer::Tokenizer;

/// What the data is called that a model is measured on.
pub(crate) const HELD_OUT: &str = "heldout";

/// How much text is predicted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TextSize {
    bytes: u64,
    characters: u64,
}

impl TextSize {
    /// Adds the text of these tokens, which follow each other.
    ///
    /// # Errors
    /// Ids that the tokenizer does not have.
    pub fn add(&mut self, ids: &[i32], tokenizer: &Tokenizer) -> Result<()> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        let text = tokenizer.decode(&ids, true)?;
        self.bytes += text.len() as u64;
        self.characters += text.chars().count() as u64;
        Ok(())
    }
}

/// The figures of `tokens` tokens of a text of this size whose cross-entropies sum up to `sum` nats.
pub(crate) fn figures(sum: f64, tokens: usize, size: TextSize) -> Figures {
    let loss = sum / tokens as f64;
    let bits = |of: u64| if of == 0 { f64::NAN } else { sum / std::f64::consts::LN_2 / of as f64 };
    let figures = [
        (figure::LOSS, loss),
        (figure::PERPLEXITY, loss.exp()),
        (figure::BITS_PER_BYTE, bits(size.bytes)),
        (figure::BITS_PER_CHARACTER, bits(size.characters)),
    ];
    Figures::new(tokens, figures)
}

fn value(figures: &Figures, name: &str) -> f64 {
    figures.get(name).unwrap_or(f64::NAN)
}

/// An evaluation on one line.
pub(crate) fn evaluation_line(step: u64, figures: &Figures) -> String {
    format!(
        "evaluation after step {}: loss {:.4}, perplexity {:.2}, {:.3} bits a byte",
        grouped(step),
        value(figures, figure::LOSS),
        value(figures, figure::PERPLEXITY),
        value(figures, figure::BITS_PER_BYTE)
    )
}

/// The learning curve: losses, and bits of bytes and characters.
pub(crate) fn panels() -> Vec<Panel> {
    let line = |label: &str, source| Line { label: label.into(), source };
    let held_out = |figure: &str| Source::Figure { split: HELD_OUT.into(), figure: figure.into() };
    let losses = vec![line("training (smoothed)", Source::Loss), line("held out", held_out(figure::LOSS))];
    let bits = vec![
        line("a byte, held out", held_out(figure::BITS_PER_BYTE)),
        line("a character, held out", held_out(figure::BITS_PER_CHARACTER)),
    ];
    vec![Panel { axis: "loss (nats)".into(), lines: losses }, Panel { axis: "bits".into(), lines: bits }]
}

/// Shows and writes what the result is worth.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn report<M>(
    exported: &Exported<'_, M>,
    progress: &mut dyn RunProgress,
) -> Result<Vec<SplitFigures>> {
    let Some(figures) = exported.figures else { return Ok(Vec::new()) };
    let rows = [
        ("loss (nats a token)", format!("{:.4}", value(figures, figure::LOSS))),
        ("perplexity", format!("{:.2}", value(figures, figure::PERPLEXITY))),
        ("bits a byte", format!("{:.4}", value(figures, figure::BITS_PER_BYTE))),
        ("bits a character", format!("{:.4}", value(figures, figure::BITS_PER_CHARACTER))),
        ("tokens", grouped(figures.examples() as u64)),
    ];
    progress.note(&facts(&format!("held out, after step {}", grouped(exported.step)), rows));
    exported.page(HELD_OUT, figures, None)?;
    Ok(vec![SplitFigures { split: HELD_OUT.into(), figures: figures.clone(), seconds: 0.0 }])
}
