//! Confusion matrices and the classification metrics computed from them.

use super::scores::{self, Average, Counts, Scores, ZeroDivision};

/// Counts of predicted classes for each gold class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    n_classes: usize,
    /// Rows are gold classes, columns predicted ones.
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// An empty matrix of `n_classes` classes.
    pub fn new(n_classes: usize) -> Self {
        Self { n_classes, counts: vec![0; n_classes * n_classes] }
    }

    /// Counts an example.
    ///
    /// # Panics
    /// If a class is not below the matrix's number of classes.
    pub fn add(&mut self, gold: usize, predicted: usize) {
        let n = self.n_classes;
        assert!(gold < n && predicted < n, "class {gold} or {predicted} of {n} classes");
        self.counts[gold * n + predicted] += 1;
    }

    /// Number of classes, including those that never occurred.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Number of examples of class `gold` predicted as `predicted`.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn count(&self, gold: usize, predicted: usize) -> u64 {
        self.row(gold)[predicted]
    }

    /// How often each class was predicted for the class `gold`.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn row(&self, gold: usize) -> &[u64] {
        &self.counts[gold * self.n_classes..][..self.n_classes]
    }

    /// Examples counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The counts of one class against the others.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn class(&self, class: usize) -> Counts {
        Counts {
            correct: self.count(class, class),
            predicted: (0..self.n_classes).map(|gold| self.count(gold, class)).sum(),
            gold: self.row(class).iter().sum(),
        }
    }

    /// Share of examples classified correctly; NaN without examples.
    pub fn accuracy(&self) -> f64 {
        let correct: u64 = (0..self.n_classes).map(|class| self.count(class, class)).sum();
        correct as f64 / self.total() as f64
    }

    /// The scores over the classes that occur, gold or predicted, averaged as in scikit-learn by default;
    /// NaN without examples.
    pub fn average(&self, average: Average, zero: ZeroDivision) -> Scores {
        let zero = if self.total() == 0 { ZeroDivision::Nan } else { zero };
        let classes: Vec<Counts> = (0..self.n_classes)
            .map(|class| self.class(class))
            .filter(|counts| counts.gold + counts.predicted > 0)
            .collect();
        scores::average(&classes, average, zero)
    }

    /// The scores over `classes` alone, such as all but a negative one (scikit-learn's `labels`).
    ///
    /// # Panics
    /// If there is no such class.
    pub fn average_over(&self, classes: &[usize], average: Average, zero: ZeroDivision) -> Scores {
        let classes: Vec<Counts> = classes.iter().map(|class| self.class(*class)).collect();
        scores::average(&classes, average, zero)
    }

    /// Matthews' correlation of gold and predicted classes, from -1 to 1, for any number of classes
    /// (Gorodkin 2004, eq. 8). 0 if either is constant, as in scikit-learn; NaN without examples.
    pub fn matthews(&self) -> f64 {
        if self.total() == 0 {
            return f64::NAN;
        }
        let classes: Vec<Counts> = (0..self.n_classes).map(|class| self.class(class)).collect();
        let sum = |product: fn(&Counts) -> f64| -> f64 { classes.iter().map(product).sum() };
        let total = self.total() as f64;
        let covariance = sum(|c| c.correct as f64) * total - sum(|c| c.gold as f64 * c.predicted as f64);
        let of_gold = total * total - sum(|c| (c.gold as f64).powi(2));
        let of_predicted = total * total - sum(|c| (c.predicted as f64).powi(2));
        if of_gold == 0.0 || of_predicted == 0.0 {
            return 0.0;
        }
        covariance / (of_gold * of_predicted).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_examples_have_no_accuracy() {
        let empty = ConfusionMatrix::new(3);
        assert!(empty.accuracy().is_nan() && empty.matthews().is_nan());
        for average in [Average::Micro, Average::Macro, Average::Weighted] {
            assert!(empty.average(average, ZeroDivision::Zero).f1.is_nan());
        }
        assert_eq!(empty.class(2).scores(ZeroDivision::Zero).f1, 0.0);
        assert!(ConfusionMatrix::new(0).accuracy().is_nan());
    }

    #[test]
    fn rows_are_gold() {
        let mut matrix = ConfusionMatrix::new(2);
        for (gold, predicted) in [(0, 1), (0, 1), (1, 1)] {
            matrix.add(gold, predicted);
        }
        assert_eq!((matrix.row(0), matrix.row(1)), (&[0, 2][..], &[0, 1][..]));
        assert_eq!(matrix.class(1), Counts { correct: 1, predicted: 3, gold: 1 });
        assert_eq!(matrix.average_over(&[1], Average::Micro, ZeroDivision::Zero).recall, 1.0);
    }
}
