//! Token-by-token generation with per-request settings: requests join those in progress, and leave when done.

use super::{Respond, Session};
use crate::Result;
use crate::generate::{Continuation, EncodedPrompt, GenerateSettings, Generator, Growing};
use crate::translate::{EncodedSource, TranslateSettings, Translation, Translator};
use cloze_model::generate::{DecodeConfig, Decoding, Hypothesis, Request, WrittenToken};
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::ops::{ControlFlow, Deref};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Called as the continuations of a text grow, with a continuation's index and the added text: whole characters.
/// Runs on the compute thread, which it should not hold up. Beams are not heard.
#[derive(Clone)]
pub struct Listener(Arc<Listen>);

type Listen = dyn Fn(usize, &str) + Send + Sync;

impl Listener {
    /// A listener that calls this function.
    pub fn new(listen: impl Fn(usize, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listen))
    }
}

impl Debug for Listener {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// The same function, not an equal one.
impl PartialEq for Listener {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A text to continue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateRequest {
    /// The text.
    pub text: String,
    /// How to continue it, if different from the generator's settings.
    pub settings: GenerateSettings,
    /// Who hears the continuations as they grow.
    pub listener: Option<Listener>,
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

    /// Who hears a unit's texts as they grow, and the texts that end them; none if nobody does and nothing ends them.
    fn heard(_unit: &Self::Unit) -> Option<(Option<Listener>, Arc<[String]>)> {
        None
    }

    /// What the tokens after a prompt add to a text that grows up to one of `stops`, if they add anything.
    fn grow(
        &self,
        _prompt: &[i32],
        _tokens: &[i32],
        _stops: &[String],
        _growing: &mut Growing,
    ) -> Option<String> {
        None
    }

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
    /// The tokens of inputs that the next step reads.
    unread: usize,
    heard: Arc<Mutex<HashMap<usize, Heard>>>,
}

/// A text whose continuations are heard as they grow, or end at a stop.
struct Heard {
    listener: Option<Listener>,
    stops: Arc<[String]>,
    prompt: Vec<i32>,
    growing: HashMap<usize, Growing>,
}

fn locked(heard: &Mutex<HashMap<usize, Heard>>) -> MutexGuard<'_, HashMap<usize, Heard>> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells a listener what a token added; breaks if the text ends with it.
fn tell<R: Writes>(
    model: &R,
    heard: &Mutex<HashMap<usize, Heard>>,
    written: &WrittenToken<'_>,
) -> ControlFlow<()> {
    let mut heard = locked(heard);
    let Some(Heard { listener, stops, prompt, growing }) = heard.get_mut(&written.request) else {
        return ControlFlow::Continue(());
    };
    let growing = growing.entry(written.sample).or_default();
    let new = model.grow(prompt, written.tokens, stops, growing);
    if let (Some(listener), Some(new)) = (listener, new) {
        (listener.0)(written.sample, &new);
    }
    growing.flow()
}

impl<'r, R: Writes, U: Deref<Target = R::Unit>> Writing<'r, R, U> {
    fn new(model: &'r R) -> Self {
        // Whoever submits has a budget.
        let heard = Arc::<Mutex<HashMap<usize, Heard>>>::default();
        let decodings = [false, true].map(|alignment| {
            let heard = heard.clone();
            let listen = move |written: WrittenToken<'_>| tell(model, &heard, &written);
            model.decoding(alignment).with_batch(usize::MAX).with_listener(listen)
        });
        Self { model, decodings, units: HashMap::new(), unread: 0, heard }
    }

    fn add(&mut self, id: usize, unit: U) -> Result<()> {
        let (request, config) = R::parts(&unit);
        let decoding = &mut self.decodings[usize::from(config.needs_alignment())];
        decoding.submit(id, request.clone(), config)?;
        if let Some((listener, stops)) = R::heard(&unit) {
            let prompt = request.input.clone();
            locked(&self.heard).insert(id, Heard { listener, stops, prompt, growing: HashMap::new() });
        }
        self.unread += request.input.len();
        self.units.insert(id, unit);
        Ok(())
    }

    /// Generates one more token of each text.
    fn write(&mut self) -> Vec<(usize, Result<R::Answer>)> {
        let Self { model, decodings, units, unread, heard } = self;
        *unread = 0;
        let under_way = decodings.iter_mut().filter(|decoding| !decoding.is_empty());
        let done = under_way.flat_map(Decoding::step).filter_map(|(id, found)| {
            let unit = units.remove(&id)?;
            locked(heard).remove(&id);
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

    fn next_tokens(&self) -> usize {
        let width = |unit: &Rc<R::Unit>| R::parts(unit).1.width();
        self.unread + self.units.values().map(width).sum::<usize>()
    }

    fn cancel(&mut self, id: usize) {
        for decoding in &mut self.decodings {
            decoding.cancel(id);
        }
        locked(&self.heard).remove(&id);
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
        let prompt = self.encode_text(&request.text, &request.settings)?;
        Ok(EncodedPrompt { listener: request.listener, ..prompt })
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

    fn heard(prompt: &EncodedPrompt) -> Option<(Option<Listener>, Arc<[String]>)> {
        let is_heard = prompt.listener.is_some() || !prompt.stops.is_empty();
        is_heard.then(|| (prompt.listener.clone(), prompt.stops.clone()))
    }

    fn grow(
        &self,
        prompt: &[i32],
        tokens: &[i32],
        stops: &[String],
        growing: &mut Growing,
    ) -> Option<String> {
        Self::grow(self, prompt, tokens, stops, growing)
    }

    fn parts(prompt: &EncodedPrompt) -> (&Request, &Arc<DecodeConfig>) {
        (&prompt.request, &prompt.decode)
    }

    fn written(
        &self,
        prompt: &EncodedPrompt,
        found: cloze_model::Result<Vec<Hypothesis>>,
    ) -> Result<Vec<Continuation>> {
        self.continuations(prompt, found)
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
