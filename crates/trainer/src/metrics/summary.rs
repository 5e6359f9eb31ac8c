//! Tables for people: what went into a run, and what came out.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::EvalRecord;

/// A table of names and values under a title, as text for a terminal.
pub fn facts<N: AsRef<str>, V: AsRef<str>>(
    title: &str,
    rows: impl IntoIterator<Item = (N, V)>,
) -> String {
    let mut table = styled();
    table.set_header([title, ""]);
    for (name, value) in rows {
        table.add_row([Cell::new(name.as_ref()), number(value.as_ref())]);
    }
    table.to_string()
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
        table.add_row([
            Cell::new(name),
            number(&model),
            number(&baseline),
            number(&gain),
        ]);
    };
    let (loss, unigram) = (eval.masked_loss, eval.unigram_loss);
    row(
        "masked-token loss (nats)",
        format!("{loss:.3}"),
        format!("{unigram:.3}"),
        format!(
            "{:.3} {}",
            (unigram - loss).abs(),
            if loss <= unigram { "lower" } else { "higher" }
        ),
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
        if ratio.is_finite() {
            format!("× {ratio:.2}")
        } else {
            String::new()
        },
    );
    if let Some(accuracy) = eval.pair_accuracy {
        row(
            "sentence-pair accuracy",
            percent(accuracy),
            String::new(),
            String::new(),
        );
    }
    row(
        "masked tokens",
        grouped(eval.masked_tokens),
        String::new(),
        String::new(),
    );
    table.to_string()
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

fn styled() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

fn number(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
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
    fn a_model_worse_than_the_baseline_is_told_so() {
        let eval = EvalRecord {
            masked_loss: 7.0,
            unigram_loss: 6.5,
            ..Default::default()
        };
        let shown = results(&eval);
        assert!(shown.contains("0.500 higher"), "{shown}");
        assert!(
            !shown.contains("sentence-pair") && !shown.contains("NaN"),
            "{shown}"
        );
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
        let shown = facts(
            "corpus",
            [("documents", grouped(12)), ("tokens", grouped(34_567))],
        );
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
