//! Tables of a pretraining run: data statistics and results.

use super::objective::figure;
use crate::metrics::curve::{Line, Panel, Source, TRAINING};
use cloze_data::parallel::PairReport;
use cloze_data::{AttentionStats, BatchStats, LanguageSampling, PrepareReport};
use cloze_evaluation::figures::{Figures, decimals};
use cloze_evaluation::report::Baseline;
use cloze_evaluation::table::{duration, facts, grouped, numbers, percent};
use std::collections::BTreeMap;

/// A table of a prepared corpus: `rows`, and how it was prepared.
pub(crate) fn prepared_corpus(mut rows: Vec<(&str, String)>, report: &PrepareReport) -> String {
    if !report.skipped.is_empty() {
        rows.push(("skipped or cut", report.skipped.to_string()));
        let places = report.skipped.first_places();
        if !places.is_empty() {
            rows.push(("  the first at", places));
        }
    }
    let how = if report.reused { "prepared before, opened in" } else { "prepared in" };
    rows.push((how, duration(report.seconds)));
    facts("corpus", rows)
}

/// A table of a prepared corpus and how its documents are split.
pub fn corpus(report: &PrepareReport, train: u64, held_out: u64) -> String {
    let rows = vec![
        ("documents", grouped(report.documents)),
        ("  trained on", grouped(train)),
        ("  held out", grouped(held_out)),
        ("sentences", grouped(report.sentences)),
        ("tokens", grouped(report.tokens)),
    ];
    prepared_corpus(rows, report)
}

/// A language's corpus.
pub struct Language {
    /// Its name.
    pub name: String,
    /// Its documents.
    pub documents: u64,
    /// Its held-out documents.
    pub held_out: u64,
    /// Its sentences.
    pub sentences: u64,
    /// Its tokens.
    pub tokens: u64,
}

/// A table of the languages' corpora: their sizes and sampling rates.
pub fn languages(languages: &[Language], sampling: &LanguageSampling) -> String {
    let shares = sampling.shares().iter().zip(sampling.probabilities());
    let rows = languages.iter().zip(shares).map(|(language, (share, probability))| {
        let Language { name, documents, held_out, sentences, tokens } = language;
        let counts = [*documents, *held_out, *sentences, *tokens].map(grouped);
        [name.clone()].into_iter().chain(counts).chain([percent(*share), percent(*probability)])
    });
    numbers(["language", "documents", "held out", "sentences", "tokens", "of all", "drawn"], rows)
}

/// A table of parallel text, with the names of its language pairs.
pub fn translations(prepared: &[(String, PairReport)]) -> String {
    let rows = prepared.iter().map(|(names, report)| {
        let [source, target] = report.tokens.map(grouped);
        let skipped = if report.skipped.is_empty() { "–".into() } else { report.skipped.to_string() };
        [names.clone(), grouped(report.pairs), source, target, skipped]
    });
    numbers(["translations", "pairs", "tokens", "of the translations", "left out"], rows)
}

/// A table of the actual samples from each of the `sources`.
pub fn drawn(sources: &[String], stats: &BTreeMap<usize, BatchStats>) -> String {
    let all: u64 = stats.values().map(|stats| stats.tokens).sum();
    let rows = sources.iter().enumerate().map(|(source, name)| {
        let BatchStats { examples, tokens, masking, .. } = stats.get(&source).copied().unwrap_or_default();
        let share = if all == 0 { "–".into() } else { percent(tokens as f64 / all as f64) };
        [name.clone(), grouped(examples), grouped(tokens), share, grouped(masking.predicted)]
    });
    numbers(["trained on", "examples", "tokens", "of all", "predicted"], rows)
}

/// The statistics of generated examples, with `pairs` if they have a second segment: a text table for a
/// terminal.
pub fn examples(stats: &BatchStats, pairs: bool) -> String {
    let of = |part: u64, whole: u64| match whole {
        0 => "–".to_owned(),
        _ => percent(part as f64 / whole as f64),
    };
    let mean = |tokens: u64, spans: u64| match spans {
        0 => "–".to_owned(),
        _ => format!("{:.2}", tokens as f64 / spans as f64),
    };
    let mut rows = vec![
        ("examples", grouped(stats.examples)),
        ("tokens", grouped(stats.tokens)),
        ("padding", of(stats.padding, stats.tokens + stats.padding)),
    ];
    if pairs {
        rows.extend([
            ("second segment random or swapped", of(stats.random_pairs, stats.examples)),
            ("from a short target", of(stats.short, stats.examples)),
            ("truncated", of(stats.truncated, stats.examples)),
        ]);
    }
    let masking = &stats.masking;
    rows.extend([
        ("predicted, of the maskable tokens", of(masking.predicted, masking.maskable)),
        ("  tokens of a span on average", mean(masking.predicted, masking.spans)),
        ("  replaced by the mask", of(masking.masked, masking.predicted)),
        ("  replaced at random", of(masking.random, masking.predicted)),
        ("  left as they are", of(masking.kept, masking.predicted)),
    ]);
    let AttentionStats { bidirectional, left_to_right, right_to_left, sequence_to_sequence } =
        stats.attention;
    if left_to_right + right_to_left + sequence_to_sequence > 0 {
        rows.extend([
            ("attention bidirectional", of(bidirectional, stats.examples)),
            ("  left to right", of(left_to_right, stats.examples)),
            ("  right to left", of(right_to_left, stats.examples)),
            ("  from the first segment to the second", of(sequence_to_sequence, stats.examples)),
        ]);
    }
    facts("examples", rows)
}

/// The result of a run compared with the unigram baseline: a text table for a terminal.
pub fn results(step: u64, figures: &Figures) -> String {
    let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
    let measured = format!("held out, after step {}", grouped(step));
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut row = |name: &str, model: String, baseline: String, gain: String| {
        rows.push([name.to_owned(), model, baseline, gain]);
    };
    let (loss, unigram) = (value(figure::MASKED_LOSS), value(figure::UNIGRAM_LOSS));
    row(
        "masked-token loss (nats)",
        format!("{loss:.3}"),
        format!("{unigram:.3}"),
        format!("{:.3} {}", (unigram - loss).abs(), if loss <= unigram { "lower" } else { "higher" }),
    );
    row(
        "masked-token perplexity",
        decimals(value(figure::PERPLEXITY), 1),
        decimals(unigram.exp(), 1),
        format!("÷ {}", factor((unigram - loss).exp())),
    );
    let (accuracy, baseline) = (value(figure::MASKED_ACCURACY), value(figure::UNIGRAM_ACCURACY));
    let ratio = accuracy / baseline;
    row(
        "masked-token accuracy",
        percent(accuracy),
        percent(baseline),
        if ratio.is_finite() { format!("× {ratio:.2}") } else { String::new() },
    );
    if let Some(accuracy) = figures.get(figure::BOUNDARY_ACCURACY) {
        row("  from spans' boundaries", percent(accuracy), percent(baseline), String::new());
    }
    if let Some(accuracy) = figures.get(figure::PAIR_ACCURACY) {
        row("sentence-pair accuracy", percent(accuracy), String::new(), String::new());
    }
    for (name, figure) in [
        ("replaced tokens: accuracy", figure::REPLACED_ACCURACY),
        ("  precision", figure::REPLACED_PRECISION),
        ("  recall", figure::REPLACED_RECALL),
        ("  share of all tokens", figure::REPLACED_SHARE),
    ] {
        if let Some(share) = figures.get(figure) {
            row(name, percent(share), String::new(), String::new());
        }
    }
    row("masked tokens", grouped(value(figure::MASKED_TOKENS) as u64), String::new(), String::new());
    numbers([measured.as_str(), "model", "unigram baseline", "gain"], rows)
}

/// A factor, also one far below 1.
fn factor(value: f64) -> String {
    if value > 0.0 && value < 0.005 { format!("{value:.2e}") } else { decimals(value, 2) }
}

/// A line of the learning curve: a metric on `split`.
pub fn held_out(split: &str, label: &str, figure: &str) -> Line {
    let source = Source::Figure { split: split.into(), figure: figure.into() };
    Line { label: label.into(), source }
}

fn baseline(split: &str, figure: &str) -> Line {
    let source = Source::Baseline { split: split.into(), figure: figure.into() };
    Line { label: "unigram baseline".into(), source }
}

/// The unigram baseline of an evaluation that has its metrics.
pub fn unigram(figures: &Figures) -> Option<Baseline> {
    let value = |name: &str| figures.get(name).filter(|value| value.is_finite());
    let theirs = [
        (figure::MASKED_LOSS, value(figure::UNIGRAM_LOSS)?),
        (figure::MASKED_ACCURACY, value(figure::UNIGRAM_ACCURACY)?),
    ];
    let rule = "the frequencies of single tokens in the training text".into();
    Some(Baseline { rule, figures: Figures::new(figures.examples(), theirs) })
}

/// The masked-token loss in training and on `split`, and the unigram baseline's.
pub fn loss_panel(split: &str) -> Panel {
    let source = Source::LossTerm(figure::MASKED_LOSS.into());
    let lines = vec![
        Line { label: TRAINING.into(), source },
        held_out(split, "held out", figure::MASKED_LOSS),
        baseline(split, figure::UNIGRAM_LOSS),
    ];
    Panel { axis: "masked-token loss (nats)".into(), lines }
}

/// The accuracy of masked tokens on `split`, and the unigram baseline's.
pub fn accuracy_panel(split: &str) -> Panel {
    let lines = vec![
        held_out(split, "masked tokens, held out", figure::MASKED_ACCURACY),
        baseline(split, figure::UNIGRAM_ACCURACY),
    ];
    Panel { axis: "accuracy".into(), lines }
}

/// An evaluation on one line, with the unigram baseline's metrics in parentheses.
pub fn line(step: u64, figures: &Figures) -> String {
    let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
    let mut line = format!(
        "evaluation after step {}: masked-token loss {:.3} (unigram {:.3}), accuracy {} (unigram {})",
        grouped(step),
        value(figure::MASKED_LOSS),
        value(figure::UNIGRAM_LOSS),
        percent(value(figure::MASKED_ACCURACY)),
        percent(value(figure::UNIGRAM_ACCURACY)),
    );
    if let Some(accuracy) = figures.get(figure::BOUNDARY_ACCURACY) {
        line += &format!(", from spans' boundaries {}", percent(accuracy));
    }
    if let Some(accuracy) = figures.get(figure::PAIR_ACCURACY) {
        line += &format!(", sentence pairs {}", percent(accuracy));
    }
    if let Some(loss) = figures.get(figure::REPLACED_LOSS) {
        let [precision, recall] =
            [figure::REPLACED_PRECISION, figure::REPLACED_RECALL].map(value).map(percent);
        line += &format!(", replaced tokens: loss {loss:.3}, precision {precision}, recall {recall}");
    }
    line
}

#[cfg(test)]
mod tests {
    use cloze_data::{MaskStats, SkipReport};

    use super::*;

    fn figures(loss: f64, unigram: f64, pairs: Option<f64>) -> Figures {
        let of_pairs = pairs.map(|accuracy| (figure::PAIR_ACCURACY, accuracy));
        let figures = [
            (figure::MASKED_LOSS, loss),
            (figure::PERPLEXITY, loss.exp()),
            (figure::MASKED_ACCURACY, 0.15),
            (figure::MASKED_TOKENS, 12_345.0),
            (figure::UNIGRAM_LOSS, unigram),
            (figure::UNIGRAM_ACCURACY, 0.06),
        ];
        Figures::new(100, figures.into_iter().chain(of_pairs))
    }

    #[test]
    fn results_stand_beside_the_baseline() {
        let expected = "
┌────────────────────────────┬────────┬──────────────────┬─────────────┐
│ held out, after step 1,500 ┆  model ┆ unigram baseline ┆        gain │
╞════════════════════════════╪════════╪══════════════════╪═════════════╡
│ masked-token loss (nats)   ┆  5.500 ┆            6.250 ┆ 0.750 lower │
│ masked-token perplexity    ┆  244.7 ┆            518.0 ┆      ÷ 2.12 │
│ masked-token accuracy      ┆ 15.0 % ┆            6.0 % ┆      × 2.50 │
│ sentence-pair accuracy     ┆ 62.5 % ┆                  ┆             │
│ masked tokens              ┆ 12,345 ┆                  ┆             │
└────────────────────────────┴────────┴──────────────────┴─────────────┘";
        assert_eq!(results(1_500, &figures(5.5, 6.25, Some(0.625))), expected.trim_start());
    }

    #[test]
    fn an_evaluation_fits_a_line() {
        let masked = "evaluation after step 2,000: masked-token loss 5.500 (unigram 6.250), accuracy 15.0 % (unigram 6.0 %)";
        assert_eq!(line(2_000, &figures(5.5, 6.25, None)), masked);
        assert_eq!(line(2_000, &figures(5.5, 6.25, Some(0.5))), format!("{masked}, sentence pairs 50.0 %"));
    }

    #[test]
    fn replaced_tokens_are_told_of() {
        let of_replaced = [
            (figure::REPLACED_LOSS, 0.25),
            (figure::REPLACED_ACCURACY, 0.925),
            (figure::REPLACED_PRECISION, 0.75),
            (figure::REPLACED_RECALL, 0.5),
            (figure::REPLACED_SHARE, 0.1),
        ];
        let masked = figures(5.5, 6.25, None);
        let figures = Figures::new(100, masked.iter().chain(of_replaced));
        let told = line(2_000, &figures);
        assert!(told.ends_with(", replaced tokens: loss 0.250, precision 75.0 %, recall 50.0 %"), "{told}");
        let table = results(2_000, &figures);
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in ["replaced tokens: accuracy ┆ 92.5 %", "recall ┆ 50.0 %"] {
            assert!(words.contains(row), "{table}");
        }
    }

    #[test]
    fn a_model_worse_than_the_baseline_is_told_so() {
        let diverged = results(10, &figures(200.0, 6.5, None));
        assert!(diverged.contains("7.2e86") && diverged.contains("÷ 9.20e-85"), "{diverged}");
        let shown = results(10, &figures(7.0, 6.5, None));
        assert!(shown.contains("0.500 higher"), "{shown}");
        assert!(!shown.contains("sentence-pair") && !shown.contains("NaN"), "{shown}");
    }

    #[test]
    fn a_corpus_is_counted() {
        let mut report = PrepareReport {
            reused: false,
            documents: 1_200,
            sentences: 34_567,
            tokens: 890_123,
            skipped: SkipReport::default(),
            seconds: 12.3,
        };
        let expected = "
┌──────────────┬─────────┐
│ corpus       ┆         │
╞══════════════╪═════════╡
│ documents    ┆   1,200 │
│   trained on ┆   1,140 │
│   held out   ┆      60 │
│ sentences    ┆  34,567 │
│ tokens       ┆ 890,123 │
│ prepared in  ┆    12 s │
└──────────────┴─────────┘";
        assert_eq!(corpus(&report, 1_140, 60), expected.trim_start());

        report.skipped.0.insert("bad UTF-8".to_owned(), 2);
        report.reused = true;
        let shown = corpus(&report, 1_140, 60);
        assert!(shown.contains("2 × bad UTF-8") && shown.contains("prepared before, opened in"), "{shown}");
    }

    #[test]
    fn languages_stand_beside_what_was_drawn_of_them() {
        let language = |name: &str, sentences| Language {
            name: name.into(),
            documents: 1_200,
            held_out: 60,
            sentences,
            tokens: 12 * sentences,
        };
        let sampling = LanguageSampling::new(&[9_000, 1_000], 0.5);
        let table = languages(&[language("en", 9_000), language("de", 1_000)], &sampling);
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("de ┆ 1,200 ┆ 60 ┆ 1,000 ┆ 12,000 ┆ 10.0 % ┆ 25.0 %"), "{table}");

        let stats = |tokens| BatchStats { examples: 10, tokens, ..BatchStats::default() };
        let table = drawn(
            &["en".into(), "de".into(), "en-de".into()],
            &BTreeMap::from([(0, stats(3_000)), (2, stats(1_000))]),
        );
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("en ┆ 10 ┆ 3,000 ┆ 75.0 % ┆ 0"), "{table}");
        assert!(
            words.contains("de ┆ 0 ┆ 0 ┆ 0.0 % ┆ 0") && words.contains("en-de ┆ 10 ┆ 1,000 ┆ 25.0 %"),
            "{table}"
        );
        assert!(!drawn(&["en".into()], &BTreeMap::new()).contains("NaN"));
    }

    #[test]
    fn examples_are_counted() {
        let masking = MaskStats {
            maskable: 10_000,
            predicted: 1_500,
            spans: 500,
            masked: 1_200,
            random: 150,
            kept: 150,
        };
        let mut stats = BatchStats {
            examples: 200,
            tokens: 11_000,
            padding: 1_000,
            random_pairs: 100,
            short: 20,
            truncated: 30,
            masking,
            attention: AttentionStats { bidirectional: 200, ..AttentionStats::default() },
        };
        let expected = "
┌───────────────────────────────────┬────────┐
│ examples                          ┆        │
╞═══════════════════════════════════╪════════╡
│ examples                          ┆    200 │
│ tokens                            ┆ 11,000 │
│ padding                           ┆  8.3 % │
│ second segment random or swapped  ┆ 50.0 % │
│ from a short target               ┆ 10.0 % │
│ truncated                         ┆ 15.0 % │
│ predicted, of the maskable tokens ┆ 15.0 % │
│   tokens of a span on average     ┆   3.00 │
│   replaced by the mask            ┆ 80.0 % │
│   replaced at random              ┆ 10.0 % │
│   left as they are                ┆ 10.0 % │
└───────────────────────────────────┴────────┘";
        assert_eq!(examples(&stats, true), expected.trim_start());

        stats.attention = AttentionStats {
            bidirectional: 67,
            left_to_right: 33,
            right_to_left: 34,
            sequence_to_sequence: 66,
        };
        let mixed = examples(&stats, true).split_whitespace().collect::<Vec<_>>().join(" ");
        for row in [
            "attention bidirectional ┆ 33.5 %",
            "left to right ┆ 16.5 %",
            "right to left ┆ 17.0 %",
            "from the first segment to the second ┆ 33.0 %",
        ] {
            assert!(mixed.contains(row), "{mixed}");
        }

        let none = examples(&BatchStats::default(), false);
        assert!(!none.contains("second segment") && !none.contains("NaN"), "{none}");
    }
}
