use crate::{ModelError, Result};
use serde::{Deserialize, Serialize};

/// The ids of special tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SpecialTokens {
    /// The padding piece. As in PyTorch, its embedding is not trained.
    pub pad: usize,
    /// The piece that begins sequences, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<usize>,
    /// The piece that ends sequences.
    pub eos: usize,
    /// The piece that begins every target. It is not part of the output.
    pub decoder_start: usize,
    /// The piece that is always decoded first: `<s>` in BART.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_bos: Option<usize>,
    /// The piece that is decoded last if a target reaches its maximum length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_eos: Option<usize>,
    /// Pieces that decoding never writes: the padding piece in Marian.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<usize>,
}

impl SpecialTokens {
    /// A padding piece, and a piece that both ends sequences and begins targets, as in fairseq.
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

    /// Checks the ids against the number of target pieces.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for an id beyond them, by its key.
    pub(crate) fn validate(&self, vocab_size: usize) -> Result<()> {
        let Self { pad, bos, eos, decoder_start, forced_bos, forced_eos, suppressed } = self;
        let ids = [
            ("tokens.pad", Some(*pad)),
            ("tokens.bos", *bos),
            ("tokens.eos", Some(*eos)),
            ("tokens.decoder_start", Some(*decoder_start)),
            ("tokens.forced_bos", *forced_bos),
            ("tokens.forced_eos", *forced_eos),
        ];
        let suppressed = suppressed.iter().map(|id| ("tokens.suppressed", Some(*id)));
        for (key, id) in ids.into_iter().chain(suppressed) {
            if let Some(id) = id.filter(|id| *id >= vocab_size) {
                let expected = format!("below `vocab_size`, which is {vocab_size}");
                return Err(ModelError::setting(key, id, expected));
            }
        }
        Ok(())
    }

    /// Sets a piece that begins sequences, and targets too.
    pub fn with_bos(mut self, bos: usize) -> Self {
        (self.bos, self.decoder_start) = (Some(bos), bos);
        self
    }

    /// Sets the piece that begins targets.
    pub fn with_decoder_start(mut self, decoder_start: usize) -> Self {
        self.decoder_start = decoder_start;
        self
    }
}
