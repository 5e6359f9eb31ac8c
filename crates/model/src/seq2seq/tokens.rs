use serde::{Deserialize, Serialize};

/// The ids of tokens that mean something to the model or to who decodes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SpecialTokens {
    /// The padding piece. As in PyTorch, looking up its embedding does not train it.
    pub pad: usize,
    /// The piece that begins sequences, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<usize>,
    /// The piece that ends sequences.
    pub eos: usize,
    /// The piece that a target begins with. It is not written.
    pub decoder_start: usize,
    /// The piece that decoding writes first, whatever the model says: `<s>` in BART.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_bos: Option<usize>,
    /// The piece that decoding writes last when a target gets as long as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_eos: Option<usize>,
    /// Pieces that decoding never writes: the padding piece in Marian.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<usize>,
}

impl SpecialTokens {
    /// Padding, and a piece that ends sequences and that targets begin with, as in fairseq.
    pub fn new(pad: usize, eos: usize) -> Self {
        Self {
            pad,
            bos: None,
            eos,
            decoder_start: eos,
            forced_bos: None,
            forced_eos: None,
            suppressed: Vec::new(),
        }
    }

    /// A piece that begins sequences, and targets too.
    pub fn with_bos(mut self, bos: usize) -> Self {
        (self.bos, self.decoder_start) = (Some(bos), bos);
        self
    }

    /// Another piece that targets begin with.
    pub fn with_decoder_start(mut self, decoder_start: usize) -> Self {
        self.decoder_start = decoder_start;
        self
    }
}
