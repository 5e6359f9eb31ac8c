//! Boundaries inside words beside the right ones.

/// Adds up boundaries found in words and the right ones.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BoundaryScore {
    words: u64,
    found: u64,
    gold: u64,
    hits: u64,
    /// Sums of the words' own precision and recall.
    precisions: f64,
    recalls: f64,
}

/// Precision, recall and F1 of boundaries. NaN without a word; micro ones also where there is nothing to divide by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundaryFigures {
    /// The share of all boundaries found that are right.
    pub micro_precision: f64,
    /// The share of all right boundaries that are found.
    pub micro_recall: f64,
    /// Their harmonic mean.
    pub micro_f1: f64,
    /// The mean over words of the word's precision, which is 1 for a word without a boundary found; as in
    /// `morfessor-evaluate` (Virpioja et al. 2011).
    pub macro_precision: f64,
    /// The mean over words of the word's recall, which is 1 for a word without a right boundary.
    pub macro_recall: f64,
    /// The harmonic mean of both.
    pub macro_f1: f64,
}

impl BoundaryScore {
    /// Adds a word: the places of the boundaries found and of the right ones, both ascending and without repetition.
    pub fn add(&mut self, found: &[usize], gold: &[usize]) {
        let hits = found.iter().filter(|place| gold.binary_search(place).is_ok()).count() as u64;
        let (n_found, n_gold) = (found.len() as u64, gold.len() as u64);
        let share = |of: u64| if of == 0 { 1.0 } else { hits as f64 / of as f64 };
        self.words += 1;
        self.found += n_found;
        self.gold += n_gold;
        self.hits += hits;
        self.precisions += share(n_found);
        self.recalls += share(n_gold);
    }

    /// Words added.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// The figures.
    pub fn figures(&self) -> BoundaryFigures {
        let over = |part: f64, all: u64| part / all as f64;
        let f1 = |precision: f64, recall: f64| match precision + recall {
            0.0 => 0.0,
            sum => 2.0 * precision * recall / sum,
        };
        let hits = self.hits as f64;
        let (micro_precision, micro_recall) = (over(hits, self.found), over(hits, self.gold));
        let (macro_precision, macro_recall) =
            (over(self.precisions, self.words), over(self.recalls, self.words));
        BoundaryFigures {
            micro_precision,
            micro_recall,
            micro_f1: f1(micro_precision, micro_recall),
            macro_precision,
            macro_recall,
            macro_f1: f1(macro_precision, macro_recall),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_boundaries_count_in_the_means_alone() {
        let mut score = BoundaryScore::default();
        score.add(&[], &[]);
        score.add(&[2, 5], &[5]);
        score.add(&[], &[3]);
        let figures = score.figures();
        assert_eq!((figures.micro_precision, figures.micro_recall, figures.micro_f1), (0.5, 0.5, 0.5));
        assert_eq!((figures.macro_precision, figures.macro_recall), (2.5 / 3.0, 2.0 / 3.0));
        assert!(BoundaryScore::default().figures().micro_f1.is_nan());
    }
}
