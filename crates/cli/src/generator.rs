//! How texts go on.

use std::path::Path;

use burn::tensor::Device;
use cloze_tokenizer::Error as TokenizerError;
use cloze_trainer::TrainerError;
use cloze_trainer::generate::{self, Continuation, GenerateConfig};

use crate::{Error, Result, names};

/// A tokenizer and a language model that writes on from texts. Threads may share one.
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
    /// Loads a model's folder, or a model by its name on the hub (see [`names::find`]): it writes up to 64 tokens, the most
    /// likely one each time.
    ///
    /// # Errors
    /// As [`names::find`], and whatever is missing or damaged in the folder, by name.
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Self::load_with(model, GenerateConfig::default(), device)
    }

    /// [`load`](Self::load), to write otherwise.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and an invalid `config`.
    pub fn load_with(model: impl AsRef<Path>, config: GenerateConfig, device: &Device) -> Result<Self> {
        Ok(generate::Generator::load(&names::find(model)?, config, device)?.into())
    }

    /// How each text goes on, in their order: of several continuations the best one, or the first one drawn. Texts that
    /// are longer than the model takes lose their beginnings.
    ///
    /// # Errors
    /// As [`generate_n`](Self::generate_n).
    pub fn generate<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Continuation>> {
        let all = self.generate_n(texts)?;
        Ok(all.into_iter().filter_map(|continuations| continuations.into_iter().next()).collect())
    }

    /// As many continuations of each text as [`GenerateConfig::n`] says.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the tokenizer fails on, or whose output is not finite.
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
