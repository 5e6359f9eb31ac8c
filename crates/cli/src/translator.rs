//! Translation.

use std::path::Path;

use burn::tensor::Device;
use cloze_model::generate::EnsembleMean;
use cloze_tokenizer::{Error as TokenizerError, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::translate::{self, TranslateConfig, Translation};

use crate::{Error, Result, names};

/// Tokenizers and a translation model. Can be shared between threads.
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
    /// Loads a model folder, or a model by its hub name (see [`names::find`]).
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder.
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Self::load_with(model, TranslateConfig::default(), device)
    }

    /// [`load`](Self::load) with decoding settings that override the folder's.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and an invalid `config`.
    pub fn load_with(model: impl AsRef<Path>, config: TranslateConfig, device: &Device) -> Result<Self> {
        Ok(translate::Translator::load(&names::find(model)?, config, device)?.into())
    }

    /// Loads several models that write each translation together: their probabilities of each next token are combined.
    /// They may be of any architectures, but need one target vocabulary.
    ///
    /// ```no_run
    /// use cloze::Translator;
    /// use cloze_model::generate::EnsembleMean;
    /// use cloze_trainer::translate::TranslateConfig;
    ///
    /// let device = cloze::device::open(None)?;
    /// let folders = ["runs/seed-1/model", "runs/seed-2/model"];
    /// let translator = Translator::ensemble(&folders, EnsembleMean::Log, TranslateConfig::default(), &device)?;
    /// println!("{}", translator.translate(&["A man rides a bicycle."])?[0].text);
    /// # Ok::<(), cloze::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`load_with`](Self::load_with), and target vocabularies that differ.
    ///
    /// # Panics
    /// If there is no model.
    pub fn ensemble(
        models: &[impl AsRef<Path>],
        mean: EnsembleMean,
        config: TranslateConfig,
        device: &Device,
    ) -> Result<Self> {
        let load = |model| Ok(translate::Translator::load(&names::find(model)?, config.clone(), device)?);
        let members: Vec<translate::Translator> = models.iter().map(load).collect::<Result<_>>()?;
        Ok(translate::Translator::ensemble(members, mean)?.into())
    }

    /// The best translation of each text, in order. Texts longer than [`max_len`](Self::max_len) are translated
    /// without their ends.
    ///
    /// # Errors
    /// Those of [`translate_n`](Self::translate_n).
    pub fn translate<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Translation>> {
        let all = self.translate_n(texts)?;
        Ok(all.into_iter().filter_map(|translations| translations.into_iter().next()).collect())
    }

    /// [`TranslateConfig::n_best`] translations of each text, the best first.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the tokenizer fails on, or whose outputs are not finite.
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

    /// The maximum tokens of a text, special tokens included.
    pub fn max_len(&self) -> usize {
        self.0.max_len()
    }
}

impl From<translate::Translator> for Translator {
    fn from(translator: translate::Translator) -> Self {
        Self(translator)
    }
}
