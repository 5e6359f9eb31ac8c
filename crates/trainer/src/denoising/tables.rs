//! Tables of a denoising run: statistics of the noise and the outputs.

use cloze_data::DenoisingStats;
use cloze_evaluation::table::{facts, grouped, percent};

/// The noise applied to a run's training texts, as a text table for a terminal. Noises without effect have no
/// row.
pub(super) fn noise(stats: &DenoisingStats) -> String {
    let of = |part: u64, whole: u64| match whole {
        0 => "–".to_owned(),
        _ => percent(part as f64 / whole as f64),
    };
    let each = |tokens: u64| match stats.examples {
        0 => "–".to_owned(),
        examples => format!("{:.1}", tokens as f64 / examples as f64),
    };
    let mut rows = vec![
        ("examples", grouped(stats.examples)),
        ("tokens before the noise", grouped(stats.tokens)),
        ("tokens of a source on average", each(stats.source_tokens)),
        ("tokens of a target on average", each(stats.target_tokens)),
    ];
    let tokens = &stats.noise.tokens;
    let spans = stats.mean_span().map(|mean| ("  tokens of a span on average", format!("{mean:.2}")));
    for (row, part, whole) in [
        ("masked, of the tokens", tokens.masked, stats.tokens),
        ("replaced at random", tokens.random, stats.tokens),
        ("deleted", tokens.deleted, stats.tokens),
        ("inserted", tokens.inserted, stats.tokens),
        ("moved among their neighbours", tokens.moved, stats.tokens),
        ("sentences moved", stats.noise.moved_sentences, stats.sentences),
        ("documents rotated", stats.noise.rotated, stats.documents),
        ("cut, of too long sources", stats.cut, stats.source_tokens + stats.cut),
    ] {
        if part > 0 {
            rows.push((row, of(part, whole)));
        }
        if row.starts_with("masked") {
            rows.extend(spans.clone());
        }
    }
    facts("noise", rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_noise_did_is_counted() {
        let mut stats = DenoisingStats::default();
        (stats.examples, stats.tokens, stats.sentences, stats.documents) = (100, 10_000, 500, 120);
        (stats.source_tokens, stats.target_tokens, stats.cut) = (8_200, 10_200, 0);
        let tokens = &mut stats.noise.tokens;
        (tokens.masked, tokens.in_spans, tokens.span_masks) = (3_000, 3_000, 1_000);
        stats.noise.moved_sentences = 400;
        let expected = "
┌───────────────────────────────┬────────┐
│ noise                         ┆        │
╞═══════════════════════════════╪════════╡
│ examples                      ┆    100 │
│ tokens before the noise       ┆ 10,000 │
│ tokens of a source on average ┆   82.0 │
│ tokens of a target on average ┆  102.0 │
│ masked, of the tokens         ┆ 30.0 % │
│   tokens of a span on average ┆   3.00 │
│ sentences moved               ┆ 80.0 % │
└───────────────────────────────┴────────┘";
        assert_eq!(noise(&stats), expected.trim_start());
        let none = noise(&DenoisingStats::default());
        assert!(!none.contains("NaN") && !none.contains("masked"), "{none}");
    }
}
