//! Tables for people: what went into a run, and what came out.

use cloze_data::{BatchStats, PrepareReport};
use comfy_table::{Cell, CellAlignment, Table, presets};

use super::EvalRecord;

/// A table of names and values under a title, as text for a terminal.
pub fn facts<N: AsRef<str>, V: AsRef<str>>(title: &str, rows: impl IntoIterator<Item = (N, V)>) -> String {
    let mut table = styled();
    table.set_header([title, ""]);
    for (name, value) in rows {
        table.add_row([Cell::new(name.as_ref()), number(value.as_ref())]);
    }
    table.to_string()
}

/// A prepared corpus and how it is split, in documents: a table as text for a terminal.
pub fn corpus(report: &PrepareReport, train: u64, held_out: u64) -> String {
    let mut rows = vec![
        ("documents", grouped(report.documents)),
        ("  trained on", grouped(train)),
        ("  held out", grouped(held_out)),
        ("sentences", grouped(report.sentences)),
        ("tokens", grouped(report.tokens)),
    ];
    if !report.skipped.is_empty() {
        rows.push(("left out or cut", report.skipped.to_string()));
    }
    let how = if report.reused { "prepared before, opened in" } else { "prepared in" };
    rows.push((how, duration(report.seconds)));
    facts("corpus", rows)
}

/// What was counted in making examples, `pairs` where they have a second segment: a table as text for a
/// terminal.
pub fn examples(stats: &BatchStats, pairs: bool) -> String {
    let of = |part: u64, whole: u64| match whole {
        0 => "–".to_owned(),
        _ => percent(part as f64 / whole as f64),
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
        ("  replaced by the mask", of(masking.masked, masking.predicted)),
        ("  replaced at random", of(masking.random, masking.predicted)),
        ("  left as they are", of(masking.kept, masking.predicted)),
    ]);
    facts("examples", rows)
}

/// The result of a run against the unigram baseline: a table as text for a terminal.
pub fn results(eval: &EvalRecord) -> String {
    let mut table = styled();
    table.set_header([
        Cell::new(format!("held out, after step {}", grouped(eval.step))),
        number("model"),
        number("unigram baseline"),
        number("gain"),
    ]);
    let mut row = |name: &str, model: String, baseline: String, gain: String| {
        table.add_row([Cell::new(name), number(&model), number(&baseline), number(&gain)]);
    };
    let (loss, unigram) = (eval.masked_loss, eval.unigram_loss);
    row(
        "masked-token loss (nats)",
        format!("{loss:.3}"),
        format!("{unigram:.3}"),
        format!("{:.3} {}", (unigram - loss).abs(), if loss <= unigram { "lower" } else { "higher" }),
    );
    row(
        "masked-token perplexity",
        format!("{:.1}", eval.perplexity()),
        format!("{:.1}", unigram.exp()),
        format!("÷ {:.2}", (unigram - loss).exp()),
    );
    let ratio = eval.masked_accuracy / eval.unigram_accuracy;
    row(
        "masked-token accuracy",
        percent(eval.masked_accuracy),
        percent(eval.unigram_accuracy),
        if ratio.is_finite() { format!("× {ratio:.2}") } else { String::new() },
    );
    if let Some(accuracy) = eval.pair_accuracy {
        row("sentence-pair accuracy", percent(accuracy), String::new(), String::new());
    }
    row("masked tokens", grouped(eval.masked_tokens), String::new(), String::new());
    table.to_string()
}

/// An evaluation on one line, with the unigram baseline's figures in brackets.
pub fn line(eval: &EvalRecord) -> String {
    let mut line = format!(
        "evaluation after step {}: masked-token loss {:.3} (unigram {:.3}), accuracy {} (unigram {})",
        grouped(eval.step),
        eval.masked_loss,
        eval.unigram_loss,
        percent(eval.masked_accuracy),
        percent(eval.unigram_accuracy),
    );
    if let Some(accuracy) = eval.pair_accuracy {
        line += &format!(", sentence pairs {}", percent(accuracy));
    }
    line
}

/// A share from 0 to 1 in percent: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A number with its thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A duration in the two units that matter: `2 h 05 min`, `3 min 20 s`, `12 s`, `4.2 s`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// An empty table in the program's style.
pub(crate) fn styled() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

/// A cell whose text stands at its right, as numbers do.
pub(crate) fn number(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use cloze_data::{MaskStats, SkipReport};

    use super::*;

    #[test]
    fn results_stand_beside_the_baseline() {
        let eval = EvalRecord {
            step: 1_500,
            masked_loss: 5.5,
            masked_accuracy: 0.15,
            masked_tokens: 12_345,
            unigram_loss: 6.25,
            unigram_accuracy: 0.06,
            pair_accuracy: Some(0.625),
            ..Default::default()
        };
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
        assert_eq!(results(&eval), expected.trim_start());
    }

    #[test]
    fn an_evaluation_fits_a_line() {
        let mut eval = EvalRecord {
            step: 2_000,
            masked_loss: 5.5,
            masked_accuracy: 0.15,
            unigram_loss: 6.25,
            unigram_accuracy: 0.06,
            ..Default::default()
        };
        let masked = "evaluation after step 2,000: masked-token loss 5.500 (unigram 6.250), accuracy 15.0 % (unigram 6.0 %)";
        assert_eq!(line(&eval), masked);
        eval.pair_accuracy = Some(0.5);
        assert_eq!(line(&eval), format!("{masked}, sentence pairs 50.0 %"));
    }

    #[test]
    fn a_model_worse_than_the_baseline_is_told_so() {
        let eval = EvalRecord { masked_loss: 7.0, unigram_loss: 6.5, ..Default::default() };
        let shown = results(&eval);
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
    fn examples_are_counted() {
        let masking = MaskStats { maskable: 10_000, predicted: 1_500, masked: 1_200, random: 150, kept: 150 };
        let stats = BatchStats {
            examples: 200,
            tokens: 11_000,
            padding: 1_000,
            random_pairs: 100,
            short: 20,
            truncated: 30,
            masking,
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
│   replaced by the mask            ┆ 80.0 % │
│   replaced at random              ┆ 10.0 % │
│   left as they are                ┆ 10.0 % │
└───────────────────────────────────┴────────┘";
        assert_eq!(examples(&stats, true), expected.trim_start());

        let none = examples(&BatchStats::default(), false);
        assert!(!none.contains("second segment") && !none.contains("NaN"), "{none}");
    }

    #[test]
    fn facts_are_names_and_values() {
        let expected = "
┌───────────┬────────┐
│ corpus    ┆        │
╞═══════════╪════════╡
│ documents ┆     12 │
│ tokens    ┆ 34,567 │
└───────────┴────────┘";
        let shown = facts("corpus", [("documents", grouped(12)), ("tokens", grouped(34_567))]);
        assert_eq!(shown, expected.trim_start());
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn durations_have_two_units() {
        let cases = [
            (4.24, "4.2 s"),
            (12.3, "12 s"),
            (59.7, "1 min 00 s"),
            (200.0, "3 min 20 s"),
            (7_500.0, "2 h 05 min"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }
}
