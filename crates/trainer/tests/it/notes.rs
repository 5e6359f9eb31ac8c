//! What a run says.

use cloze_trainer::metrics::progress::RunProgress;

/// Keeps what the run says, a line each.
#[derive(Default)]
pub struct Notes(pub String);

impl RunProgress for Notes {
    fn note(&mut self, text: &str) {
        self.0 += text;
        self.0.push('\n');
    }
}
