//! Token-by-token generation with per-request settings: requests join those in progress, and leave when done.

use super::{Respond, Session};
use crate::Result;
use crate::generate::{Continuation, EncodedPrompt, GenerateSettings, Generator};
use crate::translate::{EncodedSource, TranslateSettings, Translation, Translator};
use cloze_model::generate::{DecodeConfig, Decoding, Hypothesis, Request};
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// A text to continue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateRequest {
    /// The text.
    pub text: String,
    /// How to continue it, if different from the generator's settings.
    pub settings: GenerateSettings,
}

/// A text to translate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TranslateRequest {
    /// The text.
    pub text: String,
    /// How to translate it, if different from the translator's settings.
    pub settings: TranslateSettings,
}

/// A kind of request that a [`Decoding`] answers.
trait Writes: Respond {
    /// A decoding, with or without the model's attention.
    fn decoding(&self, alignment: bool) -> Decoding<'_>;

    /// What is decoded.
    fn parts(unit: &Self::Unit) -> (&Request, &Arc<DecodeConfig>);

    /// The answer to a unit.
    fn written(&self, unit: &Self::Unit, found: cloze_model::Result<Vec<Hypothesis>>)
    -> Result<Self::Answer>;
}

/// Decodes units, separately those with attention and those without.
struct Writing<'r, R, U> {
    model: &'r R,
    decodings: [Decoding<'r>; 2],
    units: HashMap<usize, U>,
}

impl<'r, R: Writes, U: Deref<Target = R::Unit>> Writing<'r, R, U> {
    fn new(model: &'r R) -> Self {
        // Whoever submits has a budget.
        let decodings = [false, true].map(|alignment| model.decoding(alignment).with_batch(usize::MAX));
        Self { model, decodings, units: HashMap::new() }
    }

    fn add(&mut self, id: usize, unit: U) -> Result<()> {
        let (request, config) = R::parts(&unit);
        let decoding = &mut self.decodings[usize::from(config.needs_alignment())];
        decoding.submit(id, request.clone(), config)?;
        self.units.insert(id, unit);
        Ok(())
    }

    /// Generates one more token of each text.
    fn write(&mut self) -> Vec<(usize, Result<R::Answer>)> {
        let Self { model, decodings, units } = self;
        let under_way = decodings.iter_mut().filter(|decoding| !decoding.is_empty());
        let done = under_way.flat_map(Decoding::step).filter_map(|(id, found)| {
            let unit = units.remove(&id)?;
            Some((id, model.written(&unit, found)))
        });
        done.collect()
    }
}

impl<R: Writes> Session<R> for Writing<'_, R, Rc<R::Unit>> {
    fn submit(&mut self, id: usize, unit: Rc<R::Unit>) -> Result<()> {
        self.add(id, unit)
    }

    fn step(&mut self) -> Vec<(usize, Result<R::Answer>)> {
        self.write()
    }

    fn cancel(&mut self, id: usize) {
        for decoding in &mut self.decodings {
            decoding.cancel(id);
        }
        self.units.remove(&id);
    }
}

/// Decodes all units to their ends.
fn written<R: Writes>(model: &R, units: &[&R::Unit]) -> Vec<Result<R::Answer>> {
    let mut writing = Writing::new(model);
    let mut answers = Vec::with_capacity(units.len());
    for (id, unit) in units.iter().enumerate() {
        if let Err(error) = writing.add(id, *unit) {
            answers.push((id, Err(error)));
        }
    }
    while answers.len() < units.len() {
        answers.extend(writing.write());
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

    fn answer(&self, prompts: &[&EncodedPrompt]) -> Vec<Result<Vec<Continuation>>> {
        written(self, prompts)
    }

    fn session(&self) -> Box<dyn Session<Self> + '_> {
        Box::new(Writing::new(self))
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

    fn answer(&self, sources: &[&EncodedSource]) -> Vec<Result<Vec<Translation>>> {
        written(self, sources)
    }

    fn session(&self) -> Box<dyn Session<Self> + '_> {
        Box::new(Writing::new(self))
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
