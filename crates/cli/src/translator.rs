//! Texts in one language to texts in another.

use std::path::Path;

use burn::tensor::Device;
use cloze_tokenizer::{Error as TokenizerError, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::translate::{self, TranslateConfig, Translation};

use crate::{Error, Result, names};

/// Tokenizers and a model that translates. Threads may share one.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let translator = cloze::Translator::load("runs/multi30k/model", &device)?;
/// println!("{}", translator.translate(&["A man rides a bicycle."])?[0].text);
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Translator(translate::Translator);

impl Translator {
    /// Loads a model's folder, or a model by its name on the hub (see [`names::find`]).
    ///
    /// # Errors
    /// As [`names::find`], and whatever is missing or damaged in the folder, by name.
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Self::load_with(model, TranslateConfig::default(), device)
    }

    /// [`load`](Self::load), to decode otherwise than the folder says.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and an invalid `config`.
    pub fn load_with(model: impl AsRef<Path>, config: TranslateConfig, device: &Device) -> Result<Self> {
        Ok(translate::Translator::load(&names::find(model)?, config, device)?.into())
    }

    /// The best translation of each text, in their order. Texts longer than [`max_len`](Self::max_len) are translated
    /// without their ends.
    ///
    /// # Errors
    /// As [`translate_n`](Self::translate_n).
    pub fn translate<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Translation>> {
        let all = self.translate_n(texts)?;
        Ok(all.into_iter().filter_map(|translations| translations.into_iter().next()).collect())
    }

    /// As many translations of each text as [`TranslateConfig::n_best`] says, the best first.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the tokenizer fails on, or whose output is not finite.
    pub fn translate_n<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<Translation>>> {
        let texts: Vec<Sequence> = texts.iter().map(|text| Sequence::Text(text.as_ref())).collect();
        let translations = self.0.translate(&texts, &[]).map_err(|error| match error {
            TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. }) => {
                Error::Input { place: index, source: TrainerError::Tokenizer(*source) }
            }
            error => error.into(),
        })?;
        let placed = translations.enumerate();
        placed.map(|(place, found)| found.map_err(|source| Error::Input { place, source })).collect()
    }

    /// The most tokens of a text, special ones among them.
    pub fn max_len(&self) -> usize {
        self.0.max_len()
    }
}

impl From<translate::Translator> for Translator {
    fn from(translator: translate::Translator) -> Self {
        Self(translator)
    }
}
