//! A probe's figures.

use super::OnlineCode;

/// A probe's accuracy, selectivity and code length on a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeScore {
    /// The share of examples predicted correctly.
    pub accuracy: f64,
    /// Its accuracy on the control task, where each word type has its own random label.
    pub control: Option<f64>,
    /// The code of the training labels.
    pub code: OnlineCode,
}

impl ProbeScore {
    /// The accuracy minus that on the control task (Hewitt & Liang 2019, §2.3). High if the probe reads the
    /// states instead of memorising each word's label.
    pub fn selectivity(&self) -> Option<f64> {
        self.control.map(|control| self.accuracy - control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectivity_is_what_the_control_task_leaves() {
        let score = ProbeScore { accuracy: 0.9, control: Some(0.65), code: OnlineCode::new(2, 1) };
        assert!((score.selectivity().unwrap() - 0.25).abs() < 1e-12);
        assert_eq!(ProbeScore { control: None, ..score }.selectivity(), None);
    }
}
