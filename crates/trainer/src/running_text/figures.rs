//! The figures of a model on held-out text, and how they are shown.

use super::figure::{BITS_PER_BYTE, BITS_PER_CHARACTER, LOSS, PERPLEXITY};
use crate::Result;
use crate::engine::{Exported, SplitFigures};
use crate::metrics::curve::{Line, Panel, Source};
use crate::metrics::progress::RunProgress;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::{facts, grouped};

/// What the data is called that the model is measured on.
pub(crate) const HELD_OUT: &str = "heldout";

/// The figures of `n` predictions whose cross-entropies sum up to `sum` nats; in bits too where all of a text of `size`
/// bytes and characters is predicted.
pub(crate) fn figures(sum: f64, n: usize, size: Option<[u64; 2]>) -> Figures {
    let loss = sum / n as f64;
    let mut figures = vec![(LOSS, loss), (PERPLEXITY, loss.exp())];
    if let Some([bytes, characters]) = size {
        let bits = |of: u64| if of == 0 { f64::NAN } else { sum / std::f64::consts::LN_2 / of as f64 };
        figures.extend([(BITS_PER_BYTE, bits(bytes)), (BITS_PER_CHARACTER, bits(characters))]);
    }
    Figures::new(n, figures)
}

/// An evaluation on one line.
pub(crate) fn evaluation_line(step: u64, figures: &Figures) -> String {
    let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
    let bits = figures.get(BITS_PER_BYTE).map(|bits| format!(", {bits:.3} bits a byte"));
    format!(
        "evaluation after step {}: loss {:.4}, perplexity {:.2}{}",
        grouped(step),
        value(LOSS),
        value(PERPLEXITY),
        bits.unwrap_or_default()
    )
}

/// The learning curve.
pub(crate) fn panels(has_bits: bool) -> Vec<Panel> {
    let line = |label: &str, source| Line { label: label.into(), source };
    let held_out = |figure: &str| Source::Figure { split: HELD_OUT.into(), figure: figure.into() };
    let losses = vec![line("training (smoothed)", Source::Loss), line("held out", held_out(LOSS))];
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

/// Shows and writes what the result is worth; a prediction is called such as `"token"`.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn report<M>(
    exported: &Exported<'_, M>,
    prediction: &str,
    progress: &mut dyn RunProgress,
) -> Result<Vec<SplitFigures>> {
    let Some(figures) = exported.figures else { return Ok(Vec::new()) };
    let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
    let mut rows = vec![
        (format!("loss (nats a {prediction})"), format!("{:.4}", value(LOSS))),
        ("perplexity".into(), format!("{:.2}", value(PERPLEXITY))),
    ];
    if figures.get(BITS_PER_BYTE).is_some() {
        rows.push(("bits a byte".into(), format!("{:.4}", value(BITS_PER_BYTE))));
        rows.push(("bits a character".into(), format!("{:.4}", value(BITS_PER_CHARACTER))));
    }
    rows.push((format!("{prediction}s"), grouped(figures.examples() as u64)));
    progress.note(&facts(&format!("held out, after step {}", grouped(exported.step)), rows));
    exported.page(HELD_OUT, figures, None)?;
    Ok(vec![SplitFigures { split: HELD_OUT.into(), figures: figures.clone(), seconds: 0.0 }])
}
