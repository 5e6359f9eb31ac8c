//! Mask filling.

use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::fill_mask::{Candidate, FillMask};

use crate::{Error, Result, names};

/// A tokenizer and a masked language model. Can be shared between threads.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let filler = cloze::MaskFiller::load("google-bert/bert-base-uncased", &device)?;
/// for masks in filler.fill(&["The [MASK] of the United States."], 3)? {
///     println!("{}", masks[0][0].filled);
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct MaskFiller(FillMask);

impl MaskFiller {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]). For 8-bit weights, construct one
    /// `from` a [`FillMask`].
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder; a model without a masked-LM head; a
    /// tokenizer without a mask token.
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Ok(FillMask::load(&names::find(model)?, device)?.into())
    }

    /// For each text, for each mask in it, the `top_k` most probable pieces, best first. Each mask is filled
    /// independently; the others stay masked.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that has no mask or too many tokens.
    pub fn fill<T: AsRef<str>>(&self, texts: &[T], top_k: usize) -> Result<Vec<Vec<Vec<Candidate>>>> {
        let fill = |(place, text): (usize, &T)| {
            self.0.fill(text.as_ref(), top_k).map_err(|source| Error::Input { place, source })
        };
        texts.iter().enumerate().map(fill).collect()
    }

    /// The mask token as written in a text, `[MASK]` or `<mask>`.
    pub fn mask_token(&self) -> &str {
        self.0.mask_token()
    }
}

impl From<FillMask> for MaskFiller {
    fn from(filler: FillMask) -> Self {
        Self(filler)
    }
}
