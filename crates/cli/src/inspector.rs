//! Looking into a model while it reads.

use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::inspect::{self, InspectRequest, Inspection, Method};

use crate::{Result, names};

/// A model that is looked into while it reads a text: its attention, explanations of its answer, what each layer would answer,
/// and alignments. Can be shared between threads.
///
/// ```no_run
/// use cloze::{InspectRequest, Inspector, Method};
///
/// let device = cloze::device::open(None)?;
/// let inspector = Inspector::load("distilbert/distilbert-base-uncased-finetuned-sst-2-english", &device)?;
/// let methods = vec![Method::IntegratedGradients, Method::Occlusion];
/// let seen = inspector.inspect(&InspectRequest { methods, ..InspectRequest::new("not a bad film") })?;
/// for (token, share) in seen.source.iter().zip(&seen.explanations[0].source) {
///     println!("{share:7.3} {}", token.text);
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Inspector {
    name: String,
    inspector: inspect::Inspector,
}

impl Inspector {
    /// Loads a model folder of any kind, or a model by its hub name (see [`names::find`]).
    ///
    /// # Errors
    /// Those of [`names::find`] and of [`load`](inspect::Inspector::load).
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let name = model.as_ref().display().to_string();
        Ok(Self { name, inspector: inspect::Inspector::load(&names::find(model)?, device)? })
    }

    /// The methods that explain this model's answers; none without a head.
    pub fn methods(&self) -> Vec<Method> {
        self.inspector.methods()
    }

    /// The most tokens of a text that are read, special ones included; longer texts are cut.
    pub fn max_len(&self) -> usize {
        self.inspector.max_len()
    }

    /// The number of layers with attention: of an encoder–decoder, of its greater stack.
    pub fn n_layers(&self) -> usize {
        self.inspector.n_layers()
    }

    /// Reads a text and tells what was seen.
    ///
    /// # Errors
    /// Those of [`inspect`](inspect::Inspector::inspect).
    pub fn inspect(&self, request: &InspectRequest) -> Result<Inspection> {
        let seen = self.inspector.inspect(request)?;
        Ok(Inspection { model: self.name.clone(), ..seen })
    }
}
