//! Texts that are written token by token, each with its own settings.

use super::Respond;
use crate::Result;
use crate::generate::{Continuation, EncodedPrompt, GenerateSettings, Generator};
use crate::translate::{EncodedSource, TranslateSettings, Translation, Translator};
use cloze_model::generate::{DecodeConfig, Decoding, Hypothesis, Request};
use std::sync::Arc;

/// A text that goes on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateRequest {
    /// The text.
    pub text: String,
    /// How it goes on, where not as the generator says.
    pub settings: GenerateSettings,
}

/// A text to translate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TranslateRequest {
    /// The text.
    pub text: String,
    /// How it is translated, where not as the translator says.
    pub settings: TranslateSettings,
}

/// A kind of requests that a [`Decoding`] answers.
trait Writes: Respond {
    /// A decoding that returns the model's attention, or one that does not.
    fn decoding(&self, alignment: bool) -> Decoding<'_>;

    /// What is decoded.
    fn parts(unit: &Self::Unit) -> (&Request, &Arc<DecodeConfig>);

    /// The answer to a unit.
    fn written(&self, unit: &Self::Unit, found: cloze_model::Result<Vec<Hypothesis>>)
    -> Result<Self::Answer>;
}

/// Writes all units to their ends, those without attention apart from the others.
fn written<K: Writes>(kind: &K, units: &[K::Unit]) -> Vec<Result<K::Answer>> {
    let mut decodings = [false, true].map(|alignment| kind.decoding(alignment).with_batch(usize::MAX));
    let mut answers = Vec::with_capacity(units.len());
    for (id, unit) in units.iter().enumerate() {
        let (request, config) = K::parts(unit);
        let decoding = &mut decodings[usize::from(config.needs_alignment())];
        if let Err(error) = decoding.submit(id, request.clone(), config) {
            answers.push((id, Err(error.into())));
        }
    }
    for decoding in &mut decodings {
        while !decoding.is_empty() {
            let done = decoding.step().into_iter();
            answers.extend(done.map(|(id, found)| (id, kind.written(&units[id], found))));
        }
    }
    answers.sort_by_key(|(id, _)| *id);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

impl Respond for Generator {
    type Request = GenerateRequest;
    type Unit = EncodedPrompt;
    type Answer = Vec<Continuation>;

    fn encode(&self, request: GenerateRequest) -> Result<EncodedPrompt> {
        self.encode_text(&request.text, &request.settings)
    }

    fn cost(&self, prompt: &EncodedPrompt) -> usize {
        prompt.n_tokens()
    }

    fn answer(&self, prompts: &[EncodedPrompt]) -> Vec<Result<Vec<Continuation>>> {
        written(self, prompts)
    }
}

impl Writes for Generator {
    fn decoding(&self, _: bool) -> Decoding<'_> {
        self.decoding()
    }

    fn parts(prompt: &EncodedPrompt) -> (&Request, &Arc<DecodeConfig>) {
        (&prompt.request, &prompt.decode)
    }

    fn written(
        &self,
        prompt: &EncodedPrompt,
        found: cloze_model::Result<Vec<Hypothesis>>,
    ) -> Result<Vec<Continuation>> {
        self.continuations(&prompt.request.input, found)
    }
}

impl Respond for Translator {
    type Request = TranslateRequest;
    type Unit = EncodedSource;
    type Answer = Vec<Translation>;

    fn encode(&self, request: TranslateRequest) -> Result<EncodedSource> {
        self.encode_text(&request.text, &request.settings)
    }

    fn cost(&self, source: &EncodedSource) -> usize {
        source.n_tokens()
    }

    fn answer(&self, sources: &[EncodedSource]) -> Vec<Result<Vec<Translation>>> {
        written(self, sources)
    }
}

impl Writes for Translator {
    fn decoding(&self, alignment: bool) -> Decoding<'_> {
        self.decoding(alignment)
    }

    fn parts(source: &EncodedSource) -> (&Request, &Arc<DecodeConfig>) {
        (&source.request, &source.decode)
    }

    fn written(
        &self,
        source: &EncodedSource,
        found: cloze_model::Result<Vec<Hypothesis>>,
    ) -> Result<Vec<Translation>> {
        self.translations(source, found)
    }
}
