//! Human-readable tables and numbers.

use comfy_table::{Cell, CellAlignment, Table, presets};

/// A table of names and values under a title, as text for a terminal.
pub fn facts<N: AsRef<str>, V: AsRef<str>>(title: &str, rows: impl IntoIterator<Item = (N, V)>) -> String {
    let rows: Vec<(N, V)> = rows.into_iter().collect();
    numbers([title, ""], rows.iter().map(|(name, value)| [name.as_ref(), value.as_ref()]))
}

/// A table of numbers under a header, as text for a terminal: the first column, of names, is left-aligned,
/// all others right-aligned.
pub fn numbers<H, R>(header: H, rows: impl IntoIterator<Item = R>) -> String
where
    H: IntoIterator<Item: AsRef<str>>,
    R: IntoIterator<Item: AsRef<str>>,
{
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(row(header));
    for values in rows {
        table.add_row(row(values));
    }
    table.to_string()
}

/// A name and right-aligned numbers.
fn row(values: impl IntoIterator<Item: AsRef<str>>) -> Vec<Cell> {
    let cell = |(column, value): (usize, _)| {
        let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(AsRef::<str>::as_ref(&value)).set_alignment(alignment)
    };
    values.into_iter().enumerate().map(cell).collect()
}

/// A share from 0 to 1 in percent: `12.3 %`; `<0.1 %` if it would be rounded to nothing.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// A number with thousands separators: `1,234,567`.
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

/// A duration in its two largest units: `2 h 05 min`, `3 min 20 s`, `12 s`, `4.2 s`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
