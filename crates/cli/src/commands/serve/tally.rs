//! What a request did, told by whatever it passes through and read when it is over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

tokio::task_local! {
    static TALLY: Arc<Mutex<Tally>>;
}

/// What a request did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The model that answered.
    pub model: Option<String>,
    pub tokens: u64,
    /// Texts that were cut.
    pub truncated: u64,
    /// In the tokenizer.
    pub encoded: Duration,
    /// The time that its units waited, added up.
    pub waited: Duration,
    /// The time that its units were computed, each with its batch, added up.
    pub computed: Duration,
}

impl Tally {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.truncated += other.truncated;
        self.encoded += other.encoded;
        self.waited += other.waited;
        self.computed += other.computed;
    }
}

/// Changes the tally of the request that this task answers.
pub fn note(change: impl FnOnce(&mut Tally)) {
    // Outside a request nobody counts.
    let _ = TALLY.try_with(|tally| change(&mut tally.lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Answers a request; what it did.
pub async fn counted<F: Future>(answering: F) -> (F::Output, Tally) {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let answer = TALLY.scope(tally.clone(), answering).await;
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (answer, tally)
}
