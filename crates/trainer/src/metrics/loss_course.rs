//! Whether a training loss took a course that only a wrong setting explains.

/// Fewer logged losses say nothing.
const FEWEST: usize = 4;

/// The loss rose if it ended this much above its beginning, as a share of that.
const RISE: f64 = 0.05;

/// A fall of this share of the first loss is more than noise.
const FALL: f64 = 0.2;

/// What is wrong with logged losses, in their order: they rose, or fell and lost half of that again.
///
/// Losses are compared as means of an eighth of them each, as single ones are noisy.
pub(crate) fn warning(losses: &[f64]) -> Option<String> {
    if losses.len() < FEWEST {
        return None;
    }
    let means: Vec<f64> = losses.chunks(losses.len().div_ceil(8)).map(mean).collect();
    let (first, last) = (means[0], *means.last()?);
    if !last.is_finite() {
        return Some("the training loss was not finite at the end: training diverged".into());
    }
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    if last > first + RISE * first.abs() {
        return Some(format!("the training loss rose from {first:.3} to {last:.3}: training diverged"));
    }
    let (fall, rise) = (first - least, last - least);
    let is_lost = fall > FALL * first.abs() && rise > fall / 2.0;
    is_lost.then(|| {
        format!(
            "the training loss fell from {first:.3} to {least:.3} and rose to {last:.3}: training diverged"
        )
    })
}

fn mean(losses: &[f64]) -> f64 {
    losses.iter().sum::<f64>() / losses.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_rises_is_told() {
        let said = |losses: &[f64]| warning(losses).unwrap_or_default();
        assert_eq!(
            said(&[0.7, 0.8, 1.0, 1.2]),
            "the training loss rose from 0.700 to 1.200: training diverged"
        );
        let lost = said(&[0.7, 0.3, 0.1, 0.6]);
        assert_eq!(lost, "the training loss fell from 0.700 to 0.100 and rose to 0.600: training diverged");
        assert!(said(&[0.7, 0.3, 0.1, f64::NAN]).contains("not finite"));
    }

    #[test]
    fn noise_is_no_rise() {
        for fine in [
            &[0.7, 0.6, 0.5, 0.4][..],
            &[0.7, 0.69, 0.71, 0.72],
            &[0.7, 0.65, 0.6, 0.66],
            &[0.7, 2.0, 2.0],
            &[0.7, 0.3, 0.1, 0.2],
            &[],
        ] {
            assert_eq!(warning(fine), None, "{fine:?}");
        }
        // Sixteen losses are eight means: the outlier at the end is half of one.
        let mut losses = [0.5; 16];
        losses[15] = 0.54;
        assert_eq!(warning(&losses), None);
    }
}
