//! Looks into a model while it reads a text: its attention, explanations of its answer, what each layer would answer.
//!
//! An [`Inspector`] opens the folder of any model of texts, and fills an [`Inspection`].
//!
//! | file | what is inside |
//! | --- | --- |
//! | `open` | which kind of model a folder holds |
//! | `model` | what each kind reads, and its scores |
//! | `answer` | the answer that is explained |
//! | `explained` | the answer's score as a function of word embeddings, and its gradients |
//! | `rollout`, `gradient_times_input`, `integrated_gradients`, `gradient_weighted`, `occlusion` | a method each |
//! | `attention`, `lens`, `alignment` | what is seen without an answer |

mod alignment;
mod answer;
mod attention;
mod explained;
mod gradient_times_input;
mod gradient_weighted;
mod integrated_gradients;
mod lens;
mod matrix;
mod model;
mod occlusion;
mod open;
mod rollout;
#[cfg(test)]
mod tests;
mod tokens;

use crate::translate::{TranslateConfig, Translator};
use crate::{Result, TrainerError};
use answer::{Found, Reading};
use attention::Wanted;
use burn::tensor::Device;
use cloze_data::TokenSequence;
use cloze_evaluation::inspection::{Explanation, MapKind, Side, Token};
pub use cloze_evaluation::inspection::{Inspection, Method};
use cloze_tokenizer::{Encoding, OffsetUnit, Sequence, Tokenizer, Truncation, TruncationStrategy};
pub use explained::Baseline;
use explained::{Explained, no_gradient};
use model::{Input, Model};
use open::{Kind, Opened};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use tokens::Words;

/// A text, and what to see of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InspectRequest {
    /// The text; the question, of a model that finds answers.
    pub text: String,
    /// The second text of a pair; the text in which an answer is found.
    pub pair: Option<String>,
    /// What an encoder–decoder is to have written. Default: what it writes.
    pub target: Option<String>,
    /// The answer to explain: a label, a piece, or words of the second text. Default: the best one; of a left-to-right model
    /// at a [place](Self::place), and of an encoder–decoder, what stands there.
    pub label: Option<String>,
    /// The answer to explain it against: the difference of their scores is explained.
    pub against: Option<String>,
    /// The token that is answered for, from 0. Default: the first mask, the first word, the token after the text, or the
    /// first token that is written, which is 1; the token that ends a target is the one after its last.
    pub place: Option<usize>,
    /// How to explain the answer.
    pub methods: Vec<Method>,
    /// What takes the place of tokens, for [`Method::IntegratedGradients`] and [`Method::Occlusion`].
    pub baseline: Baseline,
    /// The layers whose attention is kept, from 0. Default all.
    pub layers: Option<Range<usize>>,
    /// Whether attention is left out.
    pub without_attention: bool,
    /// The most tokens of a side at which what scores are made of is kept: queries, keys and positions. Default 0, not at all.
    pub neurons_up_to: usize,
    /// Whether to see what each layer would answer, of models that answer with pieces.
    pub lens: bool,
}

impl InspectRequest {
    /// All that there is to see of a text, without explanations.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Whether it asks for more of the answer than to be named.
    fn asks_for_answer(&self) -> bool {
        !self.methods.is_empty() || self.label.is_some() || self.against.is_some() || self.place.is_some()
    }
}

/// A model that is looked into while it reads texts.
///
/// ```no_run
/// use burn::tensor::Device;
/// use cloze_trainer::inspect::{InspectRequest, Inspector, Method};
///
/// # fn main() -> cloze_trainer::Result<()> {
/// let inspector = Inspector::load("my-classifier".as_ref(), &Device::default())?;
/// let methods = vec![Method::IntegratedGradients];
/// let seen = inspector.inspect(&InspectRequest { methods, ..InspectRequest::new("not so bad") })?;
/// for (token, share) in seen.source.iter().zip(&seen.explanations[0].source) {
///     println!("{share:7.3} {}", token.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Inspector {
    opened: Opened,
    device: Device,
    /// Writes what an encoder–decoder is not given; loaded when it is first asked for.
    translator: OnceLock<Translator>,
}

impl Inspector {
    /// Opens a model's folder: an encoder with or without a head, a left-to-right model, an encoder–decoder, or a recurrent
    /// classifier or tagger. `device` must be one without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; a model without the head that its task needs; one that nothing can be seen of.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let opened = Opened::open(folder, device)?;
        Ok(Self { opened, device: device.clone(), translator: OnceLock::new() })
    }

    /// The methods that explain this model's answers; none without a head.
    pub fn methods(&self) -> Vec<Method> {
        METHODS.into_iter().filter(|method| self.check(*method).is_ok()).collect()
    }

    /// Checks that a method explains this model's answers.
    fn check(&self, method: Method) -> Result<()> {
        let Opened { model, tracked, .. } = &self.opened;
        let n_layers = model.n_layers();
        if !model.has_head() {
            return Err(refuse(
                "explanations are of an answer, and the model has no head; expected a model for a task, or one that fills \
                 masks or writes"
                    .into(),
            ));
        }
        let has_heads = n_layers[3] == 0 && n_layers.iter().sum::<usize>() > 0;
        match method {
            Method::Rollout if matches!(model, Model::Translator(_)) => {
                Err(refuse("attention rollout is for models of one side; expected another method".into()))
            }
            Method::Rollout | Method::GradientWeightedAttention if !has_heads => Err(refuse(
                "the model is recurrent or convolutional and has no attention heads; expected another method"
                    .into(),
            )),
            Method::GradientTimesInput | Method::IntegratedGradients | Method::GradientWeightedAttention
                if tracked.is_none() =>
            {
                Err(no_gradient())
            }
            _ => Ok(()),
        }
    }

    /// The most tokens of a text that are read, special ones included; longer ones are cut.
    pub fn max_len(&self) -> usize {
        self.opened.max_len
    }

    /// The number of layers with attention: of the greatest stack.
    pub fn n_layers(&self) -> usize {
        self.opened.model.n_layers().into_iter().max().unwrap_or(0)
    }

    /// Reads a text and tells what was seen.
    ///
    /// # Errors
    /// [`TrainerError::BadInput`]: an empty text; a pair where the model reads single texts, or the reverse; a target where it
    /// writes none; a label, layer or place that is not there; a method that does not explain such a model.
    /// [`TrainerError::OutputNotFinite`].
    pub fn inspect(&self, request: &InspectRequest) -> Result<Inspection> {
        let Opened { folder, name, kind, model, tokenizer, target, .. } = &self.opened;
        self.check_request(request)?;
        let mut notes = Vec::new();
        let words = if target.is_some() { Words::BySpace } else { Words::OfTokenizer };
        let encoding = self.encode(request, &mut notes)?;
        let texts = [request.text.as_str(), request.pair.as_deref().unwrap_or_default()];
        let mut source = tokens::tokens(tokenizer, &encoding, texts, words);
        if matches!(kind, Kind::Tags(_)) {
            of_words(&mut source, &request.text);
        }
        let mut input = Input { source: TokenSequence::from(&encoding), target: Vec::new() };
        if matches!(kind, Kind::Writer) && source.len() > 1 && encoding.special_tokens_mask.last() == Some(&1)
        {
            // It says that nothing follows.
            source.pop();
            input.source.input_ids.pop();
            input.source.token_type_ids.pop();
        }
        let (written, target) = match self.target(request, &mut notes)? {
            Some(Written { tokens, ids, end }) => {
                input.target = ids.clone();
                (ids[1..].iter().copied().chain(end).collect(), Some(tokens))
            }
            None => (Vec::new(), None),
        };

        let special = |tokens: &[Token]| tokens.iter().map(|token| token.special).collect::<Vec<bool>>();
        let special = [special(&source), target.as_deref().map(special).unwrap_or_default()];
        let n_layers = self.n_layers();
        let layers = request.layers.clone().unwrap_or(0..n_layers);
        let attention = match request.without_attention {
            true => Vec::new(),
            false => {
                let longest = source.len().max(target.as_ref().map_or(0, Vec::len));
                let neurons = longest <= request.neurons_up_to;
                let wanted = Wanted { layers, neurons, special: special.clone() };
                attention::attention(model, &input, wanted, &self.device)
            }
        };
        if attention
            .iter()
            .flat_map(|maps| &maps.layers)
            .flat_map(|layer| &layer.heads)
            .any(|head| !head.entropy.is_finite())
        {
            return Err(TrainerError::OutputNotFinite);
        }
        if n_layers == 0 {
            notes.push("The model has no attention.".into());
        }

        let reading = Reading { input: &input, source: &source, texts, written: &written };
        let found = self.opened.answer(request, reading, &self.device)?;
        let explanations = match &found {
            Some(found) => self.explain(request, found, &special, &mut notes)?,
            None => Vec::new(),
        };
        let lens = match request.lens {
            true => {
                let name = |id| self.opened.writing().id_to_token(id).unwrap_or_default().to_owned();
                lens::lens(model, &input, name, &self.device)
            }
            false => None,
        };
        let alignment = target.as_deref().and_then(|target| {
            let kind = if model.n_layers()[3] > 0 { MapKind::Align } else { MapKind::Cross };
            let layers = attention::means(model, &input, kind, &self.device);
            layers.last().map(|last| alignment::alignment(last, &source, target))
        });
        Ok(Inspection {
            model: folder.display().to_string(),
            kind: name.clone(),
            source,
            target,
            notes,
            attention,
            answer: found.map(|found| found.answer),
            explanations,
            lens,
            alignment,
        })
    }

    fn check_request(&self, request: &InspectRequest) -> Result<()> {
        if request.text.trim().is_empty() {
            return Err(refuse("the text is empty; expected words to look at".into()));
        }
        match (self.opened.pairs, &request.pair) {
            (Some(false), Some(_)) => {
                return Err(refuse("a second text is given, but the model reads single texts".into()));
            }
            (Some(true), None) => {
                return Err(refuse("the second text is missing, but the model reads pairs of texts".into()));
            }
            _ => {}
        }
        if request.target.is_some() && self.opened.target.is_none() {
            return Err(refuse("a target is given, but the model writes no translation".into()));
        }
        if let Some(layers) = &request.layers {
            let n = self.n_layers();
            if layers.is_empty() || layers.end > n {
                let expected = match n {
                    0 => "none: the model has no attention".to_owned(),
                    n => format!("some of 0 to {}", n - 1),
                };
                let last = layers.end.saturating_sub(1);
                return Err(refuse(format!(
                    "there are no layers {} to {last}; expected {expected}",
                    layers.start
                )));
            }
        }
        if !self.opened.model.has_head() && request.asks_for_answer() {
            self.check(Method::Occlusion)?;
        }
        request.methods.iter().try_for_each(|method| self.check(*method))
    }

    fn encode(&self, request: &InspectRequest, notes: &mut Vec<String>) -> Result<Encoding> {
        let Opened { kind, tokenizer, max_len, .. } = &self.opened;
        let words: Vec<&str> = request.text.split_whitespace().collect();
        let encode = |tokenizer: &Tokenizer| match (&request.pair, kind) {
            (Some(pair), _) => tokenizer.encode_pair(&request.text, pair, true),
            (None, Kind::Tags(_)) => tokenizer.encode_input(Sequence::Words(&words), true, OffsetUnit::Bytes),
            (None, _) => tokenizer.encode(&request.text, true),
        };
        let mut encoding = encode(tokenizer)?;
        let n = encoding.len();
        if n > *max_len {
            let mut cutting = tokenizer.clone();
            let strategy = match kind {
                Kind::Spans { .. } => TruncationStrategy::OnlySecond,
                _ => TruncationStrategy::LongestFirst,
            };
            cutting.set_truncation(Some(Truncation { strategy, ..Truncation::to(*max_len) }))?;
            encoding = encode(&cutting)?;
            notes.push(format!("The text has {n} tokens and was cut: the model reads {max_len} at most."));
        }
        match encoding.ids.is_empty() {
            true => Err(refuse("the text has no tokens; expected words to look at".into())),
            false => Ok(encoding),
        }
    }

    /// What an encoder–decoder is to have written, or writes.
    fn target(&self, request: &InspectRequest, notes: &mut Vec<String>) -> Result<Option<Written>> {
        let Some(target) = &self.opened.target else { return Ok(None) };
        let (mut tokens, mut ids, end) = match &request.target {
            Some(text) => {
                if text.trim().is_empty() {
                    return Err(refuse(
                        "the target is empty; expected words, or none for what the model writes".into(),
                    ));
                }
                let encoding = target.tokenizer.encode(text, true)?;
                let tokens = tokens::tokens(&target.tokenizer, &encoding, [text, ""], Words::BySpace);
                let ids: Vec<i32> = encoding.ids.iter().map(|id| *id as i32).collect();
                let ends = encoding.special_tokens_mask.last() == Some(&1);
                (tokens, ids, ends)
            }
            None => {
                let translator = self.translator()?;
                let texts = [Sequence::Text(&request.text)];
                let mut translations = translator.translate(&texts, &[])?;
                let best = translations.next().transpose()?.and_then(|best| best.into_iter().next());
                let pieces = best.map(|best| best.tokens).unwrap_or_default();
                let ids: Vec<u32> =
                    pieces.iter().filter_map(|piece| target.tokenizer.token_to_id(piece)).collect();
                let (tokens, _) = tokens::written(&target.tokenizer, &ids)?;
                (tokens, ids.into_iter().map(|id| id as i32).collect(), false)
            }
        };
        let end = end.then(|| {
            tokens.pop();
            ids.pop()
        });
        let mut end = end.flatten();
        let first = target.tokenizer.id_to_token(target.first as u32).unwrap_or_default().to_owned();
        ids.insert(0, target.first);
        tokens.insert(0, Token { text: first, word: None, special: true, part: 0, start: 0, end: 0 });
        if ids.len() > target.most {
            notes.push(format!(
                "The target has {} tokens and was cut: the model reads {} at most.",
                ids.len(),
                target.most
            ));
            ids.truncate(target.most);
            tokens.truncate(target.most);
            end = None;
        }
        if ids.len() == 1 && end.is_none() {
            notes.push("The model writes nothing for this text.".into());
        }
        Ok(Some(Written { tokens, ids, end }))
    }

    fn translator(&self) -> Result<&Translator> {
        if let Some(translator) = self.translator.get() {
            return Ok(translator);
        }
        let loaded = Translator::load(&self.opened.folder, TranslateConfig::default(), &self.device)?;
        Ok(self.translator.get_or_init(|| loaded))
    }

    fn explain(
        &self,
        request: &InspectRequest,
        found: &Found,
        special: &[Vec<bool>; 2],
        notes: &mut Vec<String>,
    ) -> Result<Vec<Explanation>> {
        let Opened { model, tracked, tokenizer, .. } = &self.opened;
        let Found { score, input, .. } = found;
        let special_ids = tokenizer.special_ids();
        let (kept, filler) = match request.baseline {
            Baseline::Piece => {
                let target = special[1][..input.target.len()].to_vec();
                let filler = special_ids.mask.filter(|_| self.opened.target.is_none()).or(special_ids.pad);
                ([special[0].clone(), target], filler.map(|id| id as i32))
            }
            Baseline::Zeros => ([vec![false; input.source.len()], vec![false; input.target.len()]], None),
        };
        let replaces = |method: &Method| matches!(method, Method::IntegratedGradients | Method::Occlusion);
        if filler.is_none() && request.baseline == Baseline::Piece && request.methods.iter().any(replaces) {
            notes
                .push("The tokenizer has neither a mask nor padding: zeros take the place of tokens.".into());
        }
        let most_copies = model.most_copies(input);
        let explained = Explained {
            model,
            tracked: tracked.as_ref(),
            device: &self.device,
            input,
            score,
            kept,
            filler,
            most_copies,
        };
        let explain = |method: &Method| {
            let mut completeness = None;
            let [source, target] = match method {
                Method::Rollout => {
                    let layers = attention::means(model, input, MapKind::Own(Side::Source), &self.device);
                    [rollout::rollout(&layers, &score.read_from), Vec::new()]
                }
                Method::GradientTimesInput => gradient_times_input::gradient_times_input(&explained)?,
                Method::IntegratedGradients => {
                    let (values, found) = integrated_gradients::integrated_gradients(&explained)?;
                    completeness = Some(found);
                    values
                }
                Method::GradientWeightedAttention => gradient_weighted::gradient_weighted(&explained)?,
                Method::Occlusion => occlusion::occlusion(&explained),
            };
            let signed = !matches!(method, Method::Rollout | Method::GradientWeightedAttention);
            if source.iter().chain(&target).any(|value| !value.is_finite()) {
                return Err(TrainerError::OutputNotFinite);
            }
            Ok(Explanation { method: *method, source, target, signed, completeness })
        };
        request.methods.iter().map(explain).collect()
    }
}

/// All methods, in the order in which they are shown.
const METHODS: [Method; 5] = [
    Method::Rollout,
    Method::GradientTimesInput,
    Method::IntegratedGradients,
    Method::GradientWeightedAttention,
    Method::Occlusion,
];

/// The tokens that an encoder–decoder reads of its target.
struct Written {
    tokens: Vec<Token>,
    ids: Vec<i32>,
    /// The token that ends it, which is written and not read.
    end: Option<i32>,
}

/// Moves places in words to places in the text that has them.
fn of_words(tokens: &mut [Token], text: &str) {
    let starts: Vec<usize> =
        text.split_whitespace().map(|word| word.as_ptr() as usize - text.as_ptr() as usize).collect();
    for token in tokens.iter_mut() {
        if let Some(start) = token.word.and_then(|word| starts.get(word)) {
            token.start += start;
            token.end += start;
        }
    }
}

/// The error of a request that cannot be met.
fn refuse(problem: String) -> TrainerError {
    TrainerError::BadInput { problem }
}
