//! Precision, recall and F1 from counts, and their averages over classes.

/// The value of a quotient with a zero denominator: the precision of a class that was never predicted, the
/// recall of one that never occurs, the F1 of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroDivision {
    /// 0, the default of scikit-learn and seqeval.
    #[default]
    Zero,
    /// 1.
    One,
    /// NaN, which averages leave out.
    Nan,
}

impl ZeroDivision {
    fn divide(self, numerator: u64, denominator: u64) -> f64 {
        match (denominator, self) {
            (0, Self::Zero) => 0.0,
            (0, Self::One) => 1.0,
            (0, Self::Nan) => f64::NAN,
            _ => numerator as f64 / denominator as f64,
        }
    }
}

/// How to average the scores of several classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// The scores of the summed counts.
    Micro,
    /// The mean of the classes' scores.
    Macro,
    /// The mean, weighted by each class's number of examples.
    Weighted,
}

/// The counts of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Examples of the class that are predicted as it.
    pub correct: u64,
    /// Examples predicted as the class.
    pub predicted: u64,
    /// Examples of the class.
    pub gold: u64,
}

impl Counts {
    /// The class's scores. F1 is `2·correct / (gold + predicted)`.
    pub fn scores(self, zero: ZeroDivision) -> Scores {
        Scores {
            precision: zero.divide(self.correct, self.predicted),
            recall: zero.divide(self.correct, self.gold),
            f1: zero.divide(2 * self.correct, self.gold + self.predicted),
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, counts| Self {
            correct: sum.correct + counts.correct,
            predicted: sum.predicted + counts.predicted,
            gold: sum.gold + counts.gold,
        })
    }
}

/// Precision, recall and F1: from 0 to 1, or NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The share of predictions that are correct.
    pub precision: f64,
    /// The share of gold that was predicted.
    pub recall: f64,
    /// Their harmonic mean.
    pub f1: f64,
}

/// The averaged scores of several classes, as in scikit-learn; NaN without any class.
pub fn average(classes: &[Counts], average: Average, zero: ZeroDivision) -> Scores {
    if average == Average::Micro {
        return classes.iter().copied().sum::<Counts>().scores(zero);
    }
    let mean = |score: fn(&Scores) -> f64| {
        let scores = classes.iter().map(|counts| (score(&counts.scores(zero)), counts.gold as f64));
        let scores: Vec<(f64, f64)> = scores.filter(|(score, _)| !score.is_nan()).collect();
        let total: f64 = scores.iter().map(|(_, gold)| gold).sum();
        if average == Average::Macro || total == 0.0 {
            scores.iter().map(|(score, _)| score).sum::<f64>() / scores.len() as f64
        } else {
            scores.iter().map(|(score, gold)| score * gold).sum::<f64>() / total
        }
    };
    Scores { precision: mean(|s| s.precision), recall: mean(|s| s.recall), f1: mean(|s| s.f1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_leave_nan_out() {
        let never_predicted = Counts { correct: 0, predicted: 0, gold: 2 };
        let classes = [Counts { correct: 3, predicted: 4, gold: 6 }, never_predicted];
        let precision = |how, zero| average(&classes, how, zero).precision;
        assert_eq!(precision(Average::Macro, ZeroDivision::Zero), 0.375);
        assert_eq!(precision(Average::Macro, ZeroDivision::One), 0.875);
        assert_eq!(precision(Average::Macro, ZeroDivision::Nan), 0.75);
        assert_eq!(precision(Average::Weighted, ZeroDivision::Zero), 0.5625);
        assert_eq!(precision(Average::Weighted, ZeroDivision::Nan), 0.75);
        assert_eq!(precision(Average::Micro, ZeroDivision::Zero), 0.75);
        assert!(average(&[], Average::Macro, ZeroDivision::Zero).f1.is_nan());
    }
}
