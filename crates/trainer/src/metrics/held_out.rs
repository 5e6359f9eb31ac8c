//! Whether a language model's loss on held-out text is one that no model would be needed for.

use cloze_evaluation::figures::decimals;

/// What to try where training diverges.
pub(crate) const CALMER: &str =
    "lower `optimizer.lr`, or warm up for longer (`schedule.warmup_fraction`, `schedule.warmup_steps`)";

/// What is wrong with a `loss`, with both figures and what to try. `untrained` is the loss before training; the baseline
/// has its loss and its rule.
pub(crate) fn warning(loss: f64, untrained: Option<f64>, baseline: Option<(f64, &str)>) -> Option<String> {
    let shown = |loss| decimals(loss, 3);
    if !loss.is_finite() {
        return Some(format!("the loss on held-out text is not finite: training diverged; {CALMER}"));
    }
    // A difference that is not shown is none.
    let is_above = |other: f64| loss > other && shown(loss) != shown(other);
    if let Some(untrained) = untrained.filter(|untrained| is_above(*untrained)) {
        let (loss, untrained) = (shown(loss), shown(untrained));
        return Some(format!(
            "the loss on held-out text is {loss}, above that before training, {untrained}; {CALMER}, or train on more text"
        ));
    }
    let (of_rule, rule) = baseline.filter(|(of_rule, _)| is_above(*of_rule))?;
    let (loss, of_rule) = (shown(loss), shown(of_rule));
    Some(format!(
        "the loss on held-out text is {loss}, above the {of_rule} of a baseline without a model ({rule}); train for more steps \
         (`train.steps`), or try another `optimizer.lr`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_needs_no_model_is_told() {
        let rule = Some((6.5, "the frequencies"));
        let said = |loss, untrained| warning(loss, untrained, rule).unwrap_or_default();
        let worse = said(1032.0, Some(4.9));
        assert!(
            worse.starts_with("the loss on held-out text is 1032.000, above that before training, 4.900; "),
            "{worse}"
        );
        assert!(worse.contains("lower `optimizer.lr`"), "{worse}");
        let above = said(6.8, Some(9.0));
        let expected = "the loss on held-out text is 6.800, above the 6.500 of a baseline without a model (the frequencies); train for";
        assert!(above.starts_with(expected), "{above}");
        assert!(said(f64::NAN, None).contains("is not finite"));
        // Better than both; nothing to compare with.
        assert_eq!(warning(6.4, Some(9.0), rule), None);
        assert_eq!(warning(6.8, Some(6.8), None), None);
        assert_eq!(warning(6.8, None, None), None);
    }
}
