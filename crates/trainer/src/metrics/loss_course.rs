//! Whether a training loss took a course that only a wrong setting explains.
//!
//! A logged loss is the mean over a few small batches, so single ones rise and fall by chance. What is compared are the means
//! of windows of many of them, and a difference counts only if it exceeds what chance explains: a multiple of its standard
//! error, which follows from the deviations within both windows. A loss that falls throughout a window deviates more, so the
//! judgement errs towards silence.
//!
//! Of fewer losses than two windows have, only a course is told that chance does not explain at all: every loss of the later
//! half is a multiple of the first one. The fewer losses there are, the larger is that multiple.

/// Fewest losses of a window.
const WINDOW: usize = 8;

/// Share of all losses that a window has, if those are more.
const SHARE: usize = 5;

/// A difference of fewer standard errors is chance.
const STANDARD_ERRORS: f64 = 4.0;

/// The loss rose if it ended this much above its beginning, as a share of that.
const RISE: f64 = 0.05;

/// A fall of this share of the first loss is one that can be lost again.
const FALL: f64 = 0.2;

/// A smaller first loss counts as this one: multiples of it are small all the same.
const LEAST_RISE: f64 = 0.5;

/// What is wrong with logged losses, in their order: they rose, or fell and lost half of that again. Of fewer losses than two
/// windows nothing is said but that the last one is not finite, or that the later ones are a multiple of the first one.
pub(crate) fn warning(losses: &[f64]) -> Option<String> {
    if losses.last().is_some_and(|last| !last.is_finite()) {
        return Some("the training loss was not finite at the end: training diverged".into());
    }
    // Steps that were skipped for their loss.
    let losses: Vec<f64> = losses.iter().copied().filter(|loss| loss.is_finite()).collect();
    let window = WINDOW.max(losses.len() / SHARE);
    if losses.len() < 2 * window {
        return multiple(&losses);
    }
    // Windows begin an eighth of their length apart, so that the work grows with the losses and not with their square.
    let mut means: Vec<Mean> = losses.windows(window).step_by(window / WINDOW).map(Mean::of).collect();
    means.push(Mean::of(&losses[losses.len() - window..]));
    let (first, last) = (&means[0], &means[means.len() - 1]);
    if last.exceeds(first) && last.mean > first.mean + RISE * first.mean.abs() {
        let (first, last) = (first.mean, last.mean);
        return Some(format!("the training loss rose from {first:.3} to {last:.3}: training diverged"));
    }
    let least = means.iter().min_by(|a, b| a.mean.total_cmp(&b.mean))?;
    let (fall, rise) = (first.mean - least.mean, last.mean - least.mean);
    let is_lost = fall > FALL * first.mean.abs() && rise > fall / 2.0 && last.exceeds(least);
    is_lost.then(|| {
        format!(
            "the training loss fell from {:.3} to {:.3} and rose to {:.3}: training diverged",
            first.mean, least.mean, last.mean
        )
    })
}

/// What is wrong with losses that are too few for windows.
fn multiple(losses: &[f64]) -> Option<String> {
    let [first, .., last] = losses else { return None };
    let later = &losses[losses.len() / 2..];
    let least = later.iter().copied().min_by(f64::total_cmp)?;
    let factor = match later.len() {
        1 => 5.0,
        2 | 3 => 3.0,
        _ => 2.0,
    };
    // A loss that can be negative has no multiples.
    let rose = *first > 0.0 && least > factor * first.max(LEAST_RISE);
    rose.then(|| format!("the training loss rose from {first:.3} to {last:.3}: training diverged"))
}

/// The mean of a window.
struct Mean {
    mean: f64,
    /// The squared standard error.
    error: f64,
}

impl Mean {
    fn of(losses: &[f64]) -> Self {
        let n = losses.len() as f64;
        let mean = losses.iter().sum::<f64>() / n;
        let squares: f64 = losses.iter().map(|loss| (loss - mean).powi(2)).sum();
        Self { mean, error: squares / (n - 1.0) / n }
    }

    /// Whether it is larger than another one, and not by chance.
    fn exceeds(&self, other: &Self) -> bool {
        self.mean - other.mean > STANDARD_ERRORS * (self.error + other.error).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses along a line between each pair of corners, each this much above or below it in turn.
    fn course(corners: &[f64], each: usize, noise: f64) -> Vec<f64> {
        let sides = corners.array_windows().flat_map(|[from, to]| {
            (0..each).map(move |i| from + (to - from) * (i as f64 + 0.5) / each as f64)
        });
        sides.zip([noise, -noise].into_iter().cycle()).map(|(loss, noise)| loss + noise).collect()
    }

    /// Numbers from 0 to 1, as chance has them.
    fn chance(seed: u64) -> impl Iterator<Item = f64> {
        (0..).map(move |i| {
            let mut bits = ((seed << 32) | i).wrapping_add(0x9E37_79B9_7F4A_7C15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (bits ^ (bits >> 31)) as f64 / u64::MAX as f64
        })
    }

    #[test]
    fn a_loss_that_rises_is_told() {
        let said = |losses: &[f64]| warning(losses).unwrap_or_default();
        let rose = said(&course(&[0.7, 0.7, 1.2, 1.2], 10, 0.1));
        assert_eq!(rose, "the training loss rose from 0.700 to 1.200: training diverged");
        let lost = said(&course(&[0.7, 0.7, 0.1, 0.1, 0.6, 0.6], 10, 0.05));
        assert_eq!(lost, "the training loss fell from 0.700 to 0.100 and rose to 0.600: training diverged");
        assert!(said(&[0.7, 0.3, 0.1, f64::NAN]).contains("not finite"));
        // Of few losses, too.
        for (losses, ends) in [
            (&[0.689, 20.654][..], "from 0.689 to 20.654"),
            (&[0.7, 2.0, 4.0, 3.0, 5.0][..], "from 0.700 to 5.000"),
            (&[4.9, 30.0, 1032.0][..], "from 4.900 to 1032.000"),
            (&[1.0, 1.0, 1.2, 1.5, 2.2, 2.4, 2.3, 2.5][..], "from 1.000 to 2.500"),
        ] {
            assert_eq!(said(losses), format!("the training loss rose {ends}: training diverged"));
        }
    }

    #[test]
    fn noise_is_no_rise() {
        let two_at_the_end = [&course(&[0.7, 0.2], 18, 0.05)[..], &[1.4, 0.9]].concat();
        for fine in [
            course(&[0.7, 0.2], 20, 0.1),
            course(&[0.7, 0.2, 0.3], 12, 0.1),
            two_at_the_end,
            // Too few to say.
            vec![0.7, 2.0, 2.0, 2.0, 3.0],
            vec![0.7, 0.3, 0.1, 0.6],
            vec![0.7, 2.0],
            vec![30.0],
            // Large beside the first one, and small nevertheless.
            vec![0.002, 0.3, 0.1, 0.2],
            vec![0.05, 0.6],
            vec![-0.1, 0.6],
            // Only one of the last losses is large.
            vec![0.7, 0.6, 0.5, 0.6, 0.5, 20.0],
            // Steps without a loss.
            [&[f64::NAN; 3][..], &course(&[0.7, 0.2], 20, 0.1)].concat(),
            Vec::new(),
        ] {
            assert_eq!(warning(&fine), None, "{fine:?}");
        }
    }

    #[test]
    fn chance_alone_is_hardly_ever_told() {
        // A task that cannot be learnt: the loss of small batches stays where it is, with many small and few large values.
        let noisy = |seed| chance(seed).map(|chance| 0.4 - 0.5 * chance.max(1e-9).ln());
        for n in [2, 3, 4, 6, 8, 12, 15, 16, 20, 40, 200] {
            let told = (0..500).filter(|seed| warning(&noisy(*seed).take(n).collect::<Vec<_>>()).is_some());
            assert!(told.count() <= 5, "{n} losses");
        }
    }
}
