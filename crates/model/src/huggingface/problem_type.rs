use super::fields::Fields;
use super::names::{listed, name_of, of_name};
use crate::Result;

/// The kind of a sequence's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemType {
    /// Numbers.
    Regression,
    /// One of several classes.
    SingleLabel,
    /// Any number of classes.
    MultiLabel,
}

impl ProblemType {
    const NAMES: [(Self, &str); 3] = [
        (Self::Regression, "regression"),
        (Self::SingleLabel, "single_label_classification"),
        (Self::MultiLabel, "multi_label_classification"),
    ];

    /// Its name in files.
    pub(super) fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }

    /// The kind of labels, if the file states it.
    pub(super) fn read(fields: &Fields) -> Result<Option<Self>> {
        let Some(name) = fields.text("problem_type")? else { return Ok(None) };
        let refused = || {
            let known = Self::NAMES.iter().map(|(_, name)| *name);
            fields.refuse("problem_type", &name.into(), &listed(known))
        };
        of_name(&Self::NAMES, name).ok_or_else(refused).map(Some)
    }
}
