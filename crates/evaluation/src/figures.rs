//! The result of an evaluation: named figures in a fixed order, one of them the main one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::table;
use crate::{EvaluationError, Result};

/// The results of an evaluation. Shares are from 0 to 1; a figure that could not be computed is NaN,
/// null in JSON.
///
/// ```
/// # use cloze_evaluation::figures::Figures;
/// let figures = Figures::new(872, [("accuracy", 0.9151), ("f1", 0.9172)]);
/// let json = r#"{"examples":872,"main":"accuracy","figures":{"accuracy":0.9151,"f1":0.9172}}"#;
/// assert_eq!(serde_json::to_string(&figures).unwrap(), json);
/// assert_eq!(figures.with_main("f1").unwrap().main().1, 0.9172);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Figures {
    examples: usize,
    main: String,
    #[serde(with = "in_order")]
    figures: Vec<(String, f64)>,
}

/// [`Figures`] as read, whose main one may be missing.
#[derive(Deserialize)]
struct Unchecked {
    examples: usize,
    main: String,
    #[serde(with = "in_order")]
    figures: Vec<(String, f64)>,
}

impl TryFrom<Unchecked> for Figures {
    type Error = EvaluationError;

    fn try_from(read: Unchecked) -> Result<Self> {
        Self { examples: read.examples, main: String::new(), figures: read.figures }.with_main(&read.main)
    }
}

/// Whether higher or lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Higher is better.
    Higher,
    /// Lower is better: losses and errors.
    Lower,
}

impl Better {
    /// The direction of the figure `name`: lower for `mse`, `mae`, `perplexity` and names that end in `loss`,
    /// higher for all others.
    pub fn of(name: &str) -> Self {
        let falls = matches!(name, "mse" | "mae") || name.ends_with("loss") || name.ends_with("perplexity");
        if falls { Self::Lower } else { Self::Higher }
    }

    /// Whether `new` is better than `old`. NaN is never better, and any number is better than NaN.
    pub fn improves(self, new: f64, old: f64) -> bool {
        match self {
            _ if old.is_nan() => !new.is_nan(),
            Self::Higher => new > old,
            Self::Lower => new < old,
        }
    }
}

impl Figures {
    /// The figures of `examples` examples; the first is the main one.
    ///
    /// # Panics
    /// If there are no figures.
    pub fn new<N: Into<String>>(examples: usize, figures: impl IntoIterator<Item = (N, f64)>) -> Self {
        let figures: Vec<(String, f64)> =
            figures.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let main = figures.first().expect("an evaluation measures something").0.clone();
        Self { examples, main, figures }
    }

    /// The same with another main figure.
    ///
    /// # Errors
    /// [`EvaluationError::NoFigure`], with the available names.
    pub fn with_main(mut self, name: &str) -> Result<Self> {
        if self.get(name).is_none() {
            let known = self.figures.into_iter().map(|(name, _)| name).collect();
            return Err(EvaluationError::NoFigure { name: name.into(), known });
        }
        self.main = name.into();
        Ok(self)
    }

    /// Examples evaluated.
    pub fn examples(&self) -> usize {
        self.examples
    }

    /// Name and value of the main figure: used for early stopping and to choose the best checkpoint.
    pub fn main(&self) -> (&str, f64) {
        let value = self.get(&self.main).expect("the main figure is one of the figures");
        (&self.main, value)
    }

    /// Whether the main figure is better than that of `other`. NaN never is.
    pub fn better_than(&self, other: &Self) -> bool {
        Better::of(&self.main).improves(self.main().1, other.main().1)
    }

    /// A figure's value.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// All figures on one line, the main one first: `accuracy 0.9151 · f1 0.9172`.
    pub fn line(&self) -> String {
        let main = self.main();
        let rest = self.iter().filter(|(name, _)| *name != main.0);
        let shown = std::iter::once(main).chain(rest).map(|(name, value)| format!("{name} {value:.4}"));
        shown.collect::<Vec<_>>().join(" · ")
    }

    /// All figures in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.figures.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// A table, the main figure with a star.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let examples = format!("{} examples", self.examples);
        let rows = self.iter().map(|(name, value)| [starred(name, name == self.main), shown(value)]);
        f.write_str(&table::numbers(["figure", &examples], rows))
    }
}

/// A figure's name, with a star for the main one.
pub(crate) fn starred(name: &str, main: bool) -> String {
    if main { format!("{name} *") } else { name.into() }
}

/// A figure with four decimals, as in scikit-learn's reports; a dash for NaN.
pub fn shown(value: f64) -> String {
    if value.is_nan() { "–".into() } else { decimals(value, 4) }
}

/// A number with so many decimals; one of more than seven digits before them as `1.23e9`.
///
/// ```
/// use cloze_evaluation::figures::decimals;
///
/// assert_eq!([12.347, 9_876_543.21, 1.234e70].map(|value| decimals(value, 2)), ["12.35", "9876543.21", "1.23e70"]);
/// ```
pub fn decimals(value: f64, digits: usize) -> String {
    const MOST: f64 = 1e7;
    if value.is_finite() && value.abs() >= MOST {
        format!("{value:.digits$e}")
    } else {
        format!("{value:.digits$}")
    }
}

/// Named numbers as an ordered JSON object. Non-finite numbers are written as null, and null is read as
/// NaN.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Losses(#[serde(with = "cloze_evaluation::figures::in_order")] Vec<(String, f64)>);
///
/// let losses = Losses(vec![("pair".into(), 0.5), ("masked".into(), f64::NAN)]);
/// assert_eq!(serde_json::to_string(&losses).unwrap(), r#"{"pair":0.5,"masked":null}"#);
/// ```
pub mod in_order {
    use std::fmt;

    use serde::de::{Deserializer, Error, MapAccess, Visitor};
    use serde::ser::Serializer;

    /// Serializes the figures.
    ///
    /// # Errors
    /// Those of `serializer`.
    pub fn serialize<S: Serializer>(figures: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(figures.iter().map(|(name, value)| (name, value.is_finite().then_some(*value))))
    }

    /// Deserializes the figures.
    ///
    /// # Errors
    /// Those of `deserializer`, and a repeated name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, f64)>, D::Error> {
        deserializer.deserialize_map(InOrder)
    }

    struct InOrder;

    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, f64)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of numbers")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut figures: Self::Value = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, Option<f64>>()? {
                if figures.iter().any(|(known, _)| *known == name) {
                    return Err(A::Error::custom(format!("the figure `{name}` twice")));
                }
                figures.push((name, value.unwrap_or(f64::NAN)));
            }
            Ok(figures)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_marks_the_main_figure() {
        let figures = Figures::new(12, [("zeta", 0.5), ("alpha", f64::NAN), ("loss", 1.0 / 3.0)]);
        let expected = "
┌────────┬─────────────┐
│ figure ┆ 12 examples │
╞════════╪═════════════╡
│ zeta * ┆      0.5000 │
│ alpha  ┆           – │
│ loss   ┆      0.3333 │
└────────┴─────────────┘";
        assert_eq!(figures.to_string(), expected.trim_start());
    }

    #[test]
    fn json_keeps_order_and_nan() {
        let figures = Figures::new(1, [("zeta", 0.1 + 0.2), ("alpha", f64::NAN)]);
        let json = serde_json::to_string(&figures).unwrap();
        assert_eq!(
            json,
            r#"{"examples":1,"main":"zeta","figures":{"zeta":0.30000000000000004,"alpha":null}}"#
        );
        let read: Figures = serde_json::from_str(&json).unwrap();
        assert_eq!(read.main(), ("zeta", 0.1 + 0.2));
        assert!(read.get("alpha").unwrap().is_nan());
        assert_eq!(read.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["zeta", "alpha"]);
        for bad in [
            r#"{"examples":1,"main":"f1","figures":{}}"#,
            r#"{"examples":1,"main":"a","figures":{"a":1,"a":2}}"#,
            r#"{"examples":1,"main":"a","figures":{"a":"x"}}"#,
        ] {
            assert!(serde_json::from_str::<Figures>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_main_figure_decides() {
        let figures = |accuracy, loss| Figures::new(1, [("accuracy", accuracy), ("loss", loss)]);
        assert!(figures(0.9, 0.5).better_than(&figures(0.8, 0.1)));
        assert!(!figures(0.8, 0.5).better_than(&figures(0.8, 0.9)));
        let by_loss = |loss| figures(0.5, loss).with_main("loss").unwrap();
        assert!(by_loss(0.1).better_than(&by_loss(0.2)));
        assert!(by_loss(9.0).better_than(&by_loss(f64::NAN)));
        assert!(!by_loss(f64::NAN).better_than(&by_loss(9.0)));
        assert!(!by_loss(f64::NAN).better_than(&by_loss(f64::NAN)));

        let error = figures(0.5, 0.5).with_main("acuracy").unwrap_err();
        assert_eq!(error.to_string(), "this evaluation has no figure `acuracy`; it has accuracy, loss");
    }
}
