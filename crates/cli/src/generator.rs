//! Text generation.

use std::path::Path;

use burn::tensor::Device;
use cloze_model::generate::EnsembleMean;
use cloze_tokenizer::Error as TokenizerError;
use cloze_trainer::TrainerError;
use cloze_trainer::generate::{self, Continuation, GenerateConfig};

use crate::{Error, Result, names};

/// A tokenizer and a language model that continues texts. Can be shared between threads.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let generator = cloze::Generator::load("openai-community/gpt2", &device)?;
/// println!("{}", generator.generate(&["The old man sat by"])?[0].text);
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Generator(generate::Generator);

impl Generator {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]), with greedy decoding of up to 64
    /// tokens.
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder.
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Self::load_with(model, GenerateConfig::default(), device)
    }

    /// [`load`](Self::load) with custom settings.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and an invalid `config`.
    pub fn load_with(model: impl AsRef<Path>, config: GenerateConfig, device: &Device) -> Result<Self> {
        Ok(generate::Generator::load(&names::find(model)?, config, device)?.into())
    }

    /// Loads several models that write each text together: their probabilities of each next token are combined. They may be of
    /// any architectures, but need one vocabulary.
    ///
    /// # Errors
    /// Those of [`load_with`](Self::load_with), and vocabularies that differ.
    ///
    /// # Panics
    /// If there is no model.
    pub fn ensemble(
        models: &[impl AsRef<Path>],
        mean: EnsembleMean,
        config: GenerateConfig,
        device: &Device,
    ) -> Result<Self> {
        let load = |model| Ok(generate::Generator::load(&names::find(model)?, config.clone(), device)?);
        let members: Vec<generate::Generator> = models.iter().map(load).collect::<Result<_>>()?;
        Ok(generate::Generator::ensemble(members, mean)?.into())
    }

    /// The continuation of each text, in order: the best of several, or the first one sampled. Texts longer
    /// than the model's maximum lose their beginnings.
    ///
    /// # Errors
    /// Those of [`generate_n`](Self::generate_n).
    pub fn generate<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Continuation>> {
        let all = self.generate_n(texts)?;
        Ok(all.into_iter().filter_map(|continuations| continuations.into_iter().next()).collect())
    }

    /// [`GenerateConfig::n`] continuations of each text.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the tokenizer fails on, or whose outputs are not finite.
    pub fn generate_n<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<Continuation>>> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let continuations = self.0.generate(&texts, None).map_err(|error| match error {
            TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. }) => {
                Error::Input { place: index, source: TrainerError::Tokenizer(*source) }
            }
            error => error.into(),
        })?;
        let placed = continuations.enumerate();
        placed.map(|(place, found)| found.map_err(|source| Error::Input { place, source })).collect()
    }
}

impl From<generate::Generator> for Generator {
    fn from(generator: generate::Generator) -> Self {
        Self(generator)
    }
}
