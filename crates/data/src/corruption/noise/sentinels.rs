//! Sentinels: pieces that stand for missing spans.

use cloze_tokenizer::Tokenizer;

/// Pieces that identify spans, in the order of use: T5's `<extra_id_0>`, `<extra_id_1>` and so on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sentinels(Vec<u32>);

impl Sentinels {
    /// These pieces.
    pub fn new(ids: Vec<u32>) -> Self {
        Self(ids)
    }

    /// The tokenizer's sentinels in T5's spelling: `<extra_id_0>` and up, to the first gap.
    pub fn find(tokenizer: &Tokenizer) -> Self {
        Self((0..).map_while(|n| tokenizer.token_to_id(&Self::name(n))).collect())
    }

    /// T5's spelling of the sentinel with this number.
    pub fn name(number: usize) -> String {
        format!("<extra_id_{number}>")
    }

    /// The pieces.
    pub fn ids(&self) -> &[u32] {
        &self.0
    }

    /// Number of sentinels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::Vocab;

    #[test]
    fn sentinels_are_found_up_to_a_gap() {
        let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<extra_id_1>", "<extra_id_0>", "<extra_id_3>"];
        let tokenizer = Tokenizer::bert(Vocab::from_tokens(names).unwrap(), true).unwrap();
        assert_eq!(Sentinels::find(&tokenizer).ids(), [5, 4]);
        let none = Vocab::from_tokens(names[..4].iter().copied()).unwrap();
        assert!(Sentinels::find(&Tokenizer::bert(none, true).unwrap()).is_empty());
    }
}
