//! Published accuracies on BLiMP.

/// The columns of [`PUBLISHED`].
pub(super) const MODELS: [&str; 5] = ["5-gram", "LSTM", "Transformer-XL", "GPT-2", "human"];

/// Accuracy in percent by phenomenon: the mean of its paradigms in the authors' results (alexwarstadt/blimp,
/// `raw_results/summary`; Warstadt et al. 2020, Table 3, with GPT-2 as the authors corrected it).
pub(super) const PUBLISHED: [(&str, [f64; 5]); 12] = [
    ("anaphor_agreement", [47.9, 91.7, 94.1, 99.3, 97.5]),
    ("argument_structure", [71.9, 73.2, 72.2, 81.8, 90.0]),
    ("binding", [64.4, 73.5, 74.7, 80.9, 87.3]),
    ("control_raising", [68.5, 67.0, 71.5, 81.9, 83.9]),
    ("determiner_noun_agreement", [70.1, 85.4, 83.0, 95.8, 92.2]),
    ("ellipsis", [36.9, 67.6, 77.2, 89.4, 85.0]),
    ("filler_gap_dependency", [60.2, 73.9, 66.6, 81.3, 86.9]),
    ("irregular_forms", [79.5, 89.1, 78.2, 91.9, 97.0]),
    ("island_effects", [57.2, 46.6, 48.3, 72.7, 84.9]),
    ("npi_licensing", [45.5, 51.7, 55.2, 76.8, 88.1]),
    ("quantifiers", [53.5, 64.5, 69.3, 79.0, 86.6]),
    ("subject_verb_agreement", [60.3, 80.1, 76.0, 86.4, 90.9]),
];

/// The mean over BLiMP's 67 paradigms, in percent.
pub(super) const OVERALL: [f64; 5] = [61.2, 69.8, 69.6, 83.0, 88.6];

/// The phenomenon by which the authors count a paradigm: the files call two paradigms of argument structure `s-selection`.
pub(super) fn counted_as(phenomenon: &str) -> &str {
    match phenomenon {
        "s-selection" => "argument_structure",
        other => other,
    }
}

/// The published accuracies of a phenomenon.
pub(super) fn of(phenomenon: &str) -> Option<[f64; 5]> {
    PUBLISHED.iter().find(|(name, _)| *name == phenomenon).map(|(_, accuracies)| *accuracies)
}
