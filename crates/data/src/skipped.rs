//! What was left out of data, and how much may be.

use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The largest share of the data that may be left out, unless a setting says otherwise.
pub const MAX_SKIPPED: f64 = 0.05;

/// The reason counted when a long document is divided, which leaves nothing out.
pub(crate) const DIVIDED: &str = "long document divided";

/// The reason counted for a row of a corpus whose text is empty: nothing that could be used is left out.
pub(crate) const EMPTY_TEXT: &str = "empty text";

/// What was left out or cut, by reason; shown as `2 × bad UTF-8, 1 × empty file`. The places of the first parts are kept
/// too, though not where the report is stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SkipReport(pub BTreeMap<String, u64>, #[serde(skip)] Vec<Part>);

/// Equal counts. A report that was stored and read again is equal to itself, without its places.
impl PartialEq for SkipReport {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for SkipReport {}

/// A part that was left out.
#[derive(Debug, Clone)]
struct Part {
    /// The file and the line, such as `a.csv:14`.
    place: String,
    reason: String,
    problem: String,
}

impl SkipReport {
    /// The first parts whose places are kept.
    const PLACES: usize = 4;

    /// Nothing was left out or cut.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts one more part that was left out or cut, for this `reason`.
    pub fn count(&mut self, reason: &str) {
        *self.0.entry(reason.to_string()).or_default() += 1;
    }

    /// The same with the part's place, such as `a.csv:14`, and what is wrong there.
    pub fn count_at(&mut self, reason: &str, part: impl FnOnce() -> (String, String)) {
        self.count(reason);
        if self.1.len() < Self::PLACES {
            let (place, problem) = part();
            self.1.push(Part { place, reason: reason.to_owned(), problem });
        }
    }

    /// The number of parts that were left out and could not be used.
    pub fn total(&self) -> u64 {
        self.0
            .iter()
            .filter(|(reason, _)| ![DIVIDED, EMPTY_TEXT].contains(&reason.as_str()))
            .map(|(_, n)| n)
            .sum()
    }

    /// Adds what another report counted.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(reason, n)| *self.0.entry(reason.clone()).or_default() += n);
        let room = Self::PLACES.saturating_sub(self.1.len());
        self.1.extend(other.1.iter().take(room).cloned());
    }

    /// What was left out where so many others were `used`, with the first places: `3 of 1,000 rows (3 × bad UTF-8):
    /// a.csv:14, a.csv:20, a.csv:31`. `unit` names what is counted.
    ///
    /// ```
    /// # use cloze_data::SkipReport;
    /// let mut skipped = SkipReport::default();
    /// skipped.count_at("bad UTF-8", || ("a.csv:14".into(), "not UTF-8 (byte 3 is 0xe9)".into()));
    /// assert_eq!(skipped.among(1_199, "rows"), "1 of 1,200 rows (1 × bad UTF-8): a.csv:14");
    /// ```
    pub fn among(&self, used: u64, unit: &str) -> String {
        let n = self.total();
        if n == 0 {
            return self.to_string();
        }
        let counts = format!("{} of {} {unit} ({self})", grouped(n), grouped(used.saturating_add(n)));
        match self.first_places() {
            places if places.is_empty() => counts,
            places => format!("{counts}: {places}"),
        }
    }

    /// Checks that at most a `share` was left out, or a single part, where so many others were `used`. `unit` names what
    /// is counted, and `setting` is the user's name for the limit.
    ///
    /// # Errors
    /// [`DataError::ManySkipped`].
    pub fn check(&self, used: u64, unit: &str, share: f64, setting: &str) -> Result<()> {
        let n = self.total();
        let all = used.saturating_add(n);
        if n <= 1 || n as f64 <= share * all as f64 {
            return Ok(());
        }
        let first = self.1.first().map_or(String::new(), |Part { place, problem, .. }| {
            let next = self.places(1);
            let next = if next.is_empty() { next } else { format!("; the next: {next}") };
            format!("{place}: {problem}{next}; ")
        });
        let found = format!("{first}{} of {} {unit} ({self}) cannot be used", grouped(n), grouped(all));
        Err(DataError::ManySkipped { found, share, setting: setting.to_owned() })
    }

    /// What was left out, with the first places: `2 × bad UTF-8: a.txt:14, a.txt:20`.
    pub fn with_places(&self) -> String {
        match self.first_places() {
            places if places.is_empty() => self.to_string(),
            places => format!("{self}: {places}"),
        }
    }

    /// The places of the first parts, such as `a.txt:14, a.txt:20`; empty if they are not known.
    pub fn first_places(&self) -> String {
        self.places(0)
    }

    /// The places from the one with index `from` on; each with its reason if there are several reasons.
    fn places(&self, from: usize) -> String {
        let place = |Part { place, reason, .. }: &Part| match self.0.len() {
            1 => place.clone(),
            _ => format!("{place} ({reason})"),
        };
        let mut places: Vec<String> = self.1.iter().skip(from).map(place).collect();
        if !places.is_empty() && self.total() > self.1.len() as u64 {
            places.push("…".to_owned());
        }
        places.join(", ")
    }
}

impl fmt::Display for SkipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|(reason, n)| format!("{} × {reason}", grouped(*n))).collect();
        f.write_str(&parts.join(", "))
    }
}

/// A number with a comma between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A share as percent with as many digits as it needs: `5`, `0.01`.
pub(crate) fn percent(share: f64) -> f64 {
    // The product has digits that the share does not have: 100 · 0.07 is 7.000000000000001.
    const DIGITS: f64 = 1e10;
    (100.0 * share * DIGITS).round() / DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(parts: &[(&str, &str)]) -> SkipReport {
        let mut report = SkipReport::default();
        for (place, reason) in parts {
            report.count_at(reason, || ((*place).to_owned(), format!("it is {reason}")));
        }
        report
    }

    #[test]
    fn the_first_places_are_named() {
        let one = report(&[("a:1", "bad"), ("a:2", "bad")]);
        assert_eq!(one.among(1_998, "rows"), "2 of 2,000 rows (2 × bad): a:1, a:2");
        let two = report(&[("a:1", "bad"), ("a:2", "odd"), ("a:3", "bad"), ("a:4", "bad"), ("a:5", "bad")]);
        assert_eq!(
            two.among(0, "lines"),
            "5 of 5 lines (4 × bad, 1 × odd): a:1 (bad), a:2 (odd), a:3 (bad), a:4 (bad), …"
        );
        let mut unplaced = SkipReport::default();
        unplaced.count("bad");
        assert_eq!(unplaced.among(1, "rows"), "1 of 2 rows (1 × bad)");
        unplaced.add(&one);
        assert_eq!(unplaced.among(7, "rows"), "3 of 10 rows (3 × bad): a:1, a:2, …");
    }

    #[test]
    fn few_may_be_left_out() {
        let skipped = report(&[("a:1", "bad"), ("a:2", "bad")]);
        assert!(skipped.check(38, "rows", 0.05, "`max_skipped`").is_ok());
        let error = |skipped: &SkipReport, share| {
            skipped.check(37, "rows", share, "`max_skipped`").unwrap_err().to_string()
        };
        assert_eq!(
            error(&skipped, 0.05),
            "a:1: it is bad; the next: a:2; 2 of 39 rows (2 × bad) cannot be used, and at most 5 % may be left out: correct \
             them, or raise `max_skipped`"
        );
        // Of a small limit, too, the true number is told.
        assert!(error(&skipped, 0.0005).contains("at most 0.05 % may be left out"));
        assert!(error(&skipped, 0.0).contains("at most 0 % may be left out"));
        assert_eq!([0.07, 0.29, 1.0, 1e-7].map(percent), [7.0, 29.0, 100.0, 1e-5]);
        // One may always be.
        assert!(report(&[("a:1", "bad")]).check(0, "rows", 0.0, "").is_ok());
        // A division leaves nothing out.
        let mut divided = report(&[("a:1", "bad")]);
        (0..9).for_each(|_| divided.count(DIVIDED));
        // Neither does a text that is empty.
        (0..9).for_each(|_| divided.count(EMPTY_TEXT));
        assert_eq!(divided.total(), 1);
        assert!(divided.check(1, "lines", 0.0, "").is_ok());
    }
}
