//! The answer that is explained.

use super::explained::Score;
use super::lens::{best, rows};
use super::model::{Asked, Input, Model};
use super::open::{Kind, Opened};
use super::{InspectRequest, refuse};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_evaluation::inspection::{Answer, Choice, Side, Token};
use cloze_tokenizer::Tokenizer;

/// The choices that are named of many.
const CHOICES: usize = 5;

/// The most spans that start and end tokens are combined to.
const SPANS: usize = 20;

/// An answer, and its score.
pub(super) struct Found {
    pub answer: Answer,
    pub score: Score,
    /// What the model reads for it: of an encoder–decoder the target up to the token that is answered.
    pub input: Input,
}

/// What is read, as tokens.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub input: &'a Input,
    pub source: &'a [Token],
    pub texts: [&'a str; 2],
    /// The target after the token that begins it, with what ends it if it ends; empty for other models.
    pub written: &'a [i32],
}

/// One of several answers that exclude each other, or not.
#[derive(Clone, Copy)]
enum Probability {
    Softmax,
    Sigmoid,
}

impl Opened {
    /// The answer that a request asks for; none of a model without a head, or of a text without anything to answer if no
    /// answer is asked for.
    ///
    /// # Errors
    /// A label or a place that is not there; an answer that is not finite.
    pub fn answer(
        &self,
        request: &InspectRequest,
        reading: Reading<'_>,
        device: &Device,
    ) -> Result<Option<Found>> {
        let input = reading.input.clone();
        match &self.kind {
            Kind::Encoder => Ok(None),
            Kind::Number { sigmoid } => {
                if let Some(label) = request.label.as_ref().or(request.against.as_ref()) {
                    return Err(refuse(format!(
                        "`{label}` is no label of the model, which predicts a number"
                    )));
                }
                no_place(request)?;
                let outputs = self.outputs(&input, Asked::Text, device)?;
                let value = f64::from(outputs[0]);
                let probability = sigmoid.then(|| 1.0 / (1.0 + (-value).exp()));
                let choice = Choice { name: "value".into(), score: value, probability };
                let answer = Answer {
                    kind: "number".into(),
                    place: None,
                    explained: choice.name.clone(),
                    choices: vec![choice],
                    against: None,
                };
                Ok(Some(self.found(answer, input, Asked::Text, [vec![0], Vec::new()], &outputs)))
            }
            Kind::Classes(names) => {
                no_place(request)?;
                self.one_of("class", request, names, input, (Asked::Text, None), Probability::Softmax, device)
            }
            Kind::Labels(names) => {
                no_place(request)?;
                self.one_of("label", request, names, input, (Asked::Text, None), Probability::Sigmoid, device)
            }
            Kind::Tags(names) => {
                let token = self.token(request, reading.source)?;
                let place = Some((Side::Source, token));
                self.one_of(
                    "tag",
                    request,
                    names,
                    input,
                    (Asked::Token(token), place),
                    Probability::Softmax,
                    device,
                )
            }
            Kind::Masked => {
                let mask = self.tokenizer.special_ids().mask.map(|id| id as i32);
                let token = match request.place {
                    Some(place) => within(place, reading.source.len())?,
                    None => match input.source.input_ids.iter().position(|id| Some(*id) == mask) {
                        Some(place) => place,
                        None if request.asks_for_answer() => {
                            let mask =
                                mask.and_then(|id| self.tokenizer.id_to_token(id as u32)).unwrap_or("[MASK]");
                            return Err(refuse(format!(
                                "the text has no {mask} whose piece could be explained; write one, or name a place"
                            )));
                        }
                        None => return Ok(None),
                    },
                };
                let place = Some((Side::Source, token));
                self.piece("masked token", request, input, (Asked::Token(token), place), None, device)
            }
            Kind::Writer => {
                let n = reading.source.len();
                let (token, place, said) = match request.place {
                    None => (n - 1, None, None),
                    Some(0) => {
                        return Err(refuse(
                            "the first token is predicted from nothing; expected a later place".into(),
                        ));
                    }
                    Some(place) => {
                        let place = within(place, n)?;
                        (place - 1, Some((Side::Source, place)), Some(input.source.input_ids[place]))
                    }
                };
                self.piece("next token", request, input, (Asked::Token(token), place), said, device)
            }
            Kind::Translator => {
                let place = request.place.unwrap_or(1);
                let n = reading.written.len();
                if place == 0 || place > n {
                    return Err(refuse(format!(
                        "there is no token {place} in the target; expected 1 to {n}"
                    )));
                }
                let mut input = input;
                input.target.truncate(place);
                let said = Some(reading.written[place - 1]);
                let asked = (Asked::Token(place - 1), Some((Side::Target, place)));
                self.piece("token of the target", request, input, asked, said, device)
            }
            Kind::Spans { max_answer } => {
                no_place(request)?;
                self.span(request, reading, *max_answer, device).map(Some)
            }
        }
    }

    /// The token that is answered for.
    fn token(&self, request: &InspectRequest, tokens: &[Token]) -> Result<usize> {
        let token = match request.place {
            Some(place) => within(place, tokens.len())?,
            None => tokens.iter().position(|token| !token.special).unwrap_or_default(),
        };
        if tokens[token].special {
            let name = &tokens[token].text;
            return Err(refuse(format!("the token {token}, {name}, belongs to no word and has no tag")));
        }
        // A word's tag is that of its first piece.
        let word = tokens[token].word;
        Ok(tokens.iter().position(|other| other.word == word && !other.special).unwrap_or(token))
    }

    /// The scores of one input's answers.
    fn outputs(&self, input: &Input, asked: Asked, device: &Device) -> Result<Vec<f32>> {
        let outputs = rows(self.model.outputs(input, asked, 1, device)).remove(0);
        match outputs.iter().all(|output| output.is_finite()) {
            true => Ok(outputs),
            false => Err(TrainerError::OutputNotFinite),
        }
    }

    fn found(
        &self,
        answer: Answer,
        input: Input,
        asked: Asked,
        [plus, minus]: [Vec<usize>; 2],
        outputs: &[f32],
    ) -> Found {
        let read_from = self.model.read_from(asked, input.source.len());
        Found { answer, score: Score::new(asked, plus, minus, read_from, outputs), input }
    }

    /// One of a few names.
    #[allow(clippy::too_many_arguments, reason = "each is another thing")]
    fn one_of(
        &self,
        kind: &str,
        request: &InspectRequest,
        names: &[String],
        input: Input,
        (asked, place): (Asked, Option<(Side, usize)>),
        probability: Probability,
        device: &Device,
    ) -> Result<Option<Found>> {
        let outputs = self.outputs(&input, asked, device)?;
        let number = |name: &String| {
            names.iter().position(|known| known == name).ok_or_else(|| {
                refuse(format!("`{name}` is no {kind} of the model; expected one of {}", names.join(", ")))
            })
        };
        let explained = match &request.label {
            Some(label) => number(label)?,
            None => best(&outputs, 1)[0],
        };
        let against = request.against.as_ref().map(number).transpose()?;
        differ(explained, against, request)?;
        let shares = probabilities(&outputs, probability);
        let choice = |id: usize| Choice {
            name: names[id].clone(),
            score: f64::from(outputs[id]),
            probability: Some(shares(id)),
        };
        let answer = Answer {
            kind: kind.into(),
            place,
            choices: best(&outputs, outputs.len()).into_iter().map(choice).collect(),
            explained: names[explained].clone(),
            against: against.map(|id| names[id].clone()),
        };
        Ok(Some(self.found(answer, input, asked, [vec![explained], against.into_iter().collect()], &outputs)))
    }

    /// One of all pieces; `said` is the one that stands there.
    fn piece(
        &self,
        kind: &str,
        request: &InspectRequest,
        input: Input,
        (asked, place): (Asked, Option<(Side, usize)>),
        said: Option<i32>,
        device: &Device,
    ) -> Result<Option<Found>> {
        let outputs = self.outputs(&input, asked, device)?;
        let tokenizer = self.writing();
        let number = |name: &String| match piece(tokenizer, name)? {
            Some(id) if id < outputs.len() => Ok(id),
            _ => Err(refuse(format!(
                "`{name}` is no piece of the model's vocabulary; expected one piece, as in the answers"
            ))),
        };
        let explained = match (&request.label, said) {
            (Some(label), _) => number(label)?,
            (None, Some(said)) => said as usize,
            (None, None) => best(&outputs, 1)[0],
        };
        let against = request.against.as_ref().map(number).transpose()?;
        differ(explained, against, request)?;
        let shares = probabilities(&outputs, Probability::Softmax);
        let name = |id: usize| tokenizer.id_to_token(id as u32).unwrap_or_default().to_owned();
        let mut ids = best(&outputs, CHOICES);
        for id in [Some(explained), against].into_iter().flatten() {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let choice = |id: usize| Choice {
            name: name(id),
            score: f64::from(outputs[id]),
            probability: Some(shares(id)),
        };
        let answer = Answer {
            kind: kind.into(),
            place,
            choices: ids.into_iter().map(choice).collect(),
            explained: name(explained),
            against: against.map(name),
        };
        Ok(Some(self.found(answer, input, asked, [vec![explained], against.into_iter().collect()], &outputs)))
    }

    /// The tokenizer of the pieces that the model answers.
    pub fn writing(&self) -> &Tokenizer {
        self.target.as_ref().map_or(&self.tokenizer, |target| &target.tokenizer)
    }

    /// A span of the second text.
    fn span(
        &self,
        request: &InspectRequest,
        reading: Reading<'_>,
        max_answer: usize,
        device: &Device,
    ) -> Result<Found> {
        let outputs = self.outputs(reading.input, Asked::Text, device)?;
        let n = reading.source.len();
        let (starts, ends) = outputs.split_at(n);
        let inside: Vec<usize> =
            (0..n).filter(|i| reading.source[*i].part == 1 && !reading.source[*i].special).collect();
        let text = |(first, last): (usize, usize)| {
            let (start, end) = (reading.source[first].start, reading.source[last].end);
            let text = reading.texts[1];
            let bytes = text.floor_char_boundary(start)..text.ceil_char_boundary(end);
            text.get(bytes).unwrap_or_default().trim().to_owned()
        };
        let score = |(first, last): (usize, usize)| f64::from(starts[first]) + f64::from(ends[last]);
        let likely = |scores: &[f32]| {
            let of_inside: Vec<f32> = inside.iter().map(|i| scores[*i]).collect();
            best(&of_inside, SPANS).into_iter().map(|place| inside[place]).collect::<Vec<_>>()
        };
        let lasts = likely(ends);
        let fits = |first: usize, last: usize| last >= first && last - first < max_answer;
        let mut spans: Vec<(usize, usize)> = likely(starts)
            .into_iter()
            .flat_map(|first| {
                lasts.iter().filter(move |last| fits(first, **last)).map(move |last| (first, *last))
            })
            .collect();
        spans.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(a.cmp(b)));
        let of = |name: &String| {
            let all = inside.iter().flat_map(|first| inside.iter().map(move |last| (*first, *last)));
            let fitting =
                all.filter(|(first, last)| fits(*first, *last) && text((*first, *last)) == name.trim());
            fitting.max_by(|a, b| score(*a).total_cmp(&score(*b))).ok_or_else(|| {
                refuse(format!("`{name}` is no span of the text's tokens; expected words of the second text"))
            })
        };
        let explained = match &request.label {
            Some(label) => of(label)?,
            None => *spans
                .first()
                .ok_or_else(|| refuse("the second text has no token that could be an answer".into()))?,
        };
        let against = request.against.as_ref().map(of).transpose()?;
        if against == Some(explained) {
            return Err(same(request));
        }
        let [of_starts, of_ends] = [starts, ends].map(|scores| {
            let greatest = inside.iter().map(|i| scores[*i]).fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = inside.iter().map(|i| f64::from(scores[*i] - greatest).exp()).sum();
            move |i: usize| f64::from(scores[i] - greatest).exp() / sum
        });
        let choice = |span: (usize, usize)| Choice {
            name: text(span),
            score: score(span),
            probability: Some(of_starts(span.0) * of_ends(span.1)),
        };
        spans.truncate(CHOICES);
        for span in [Some(explained), against].into_iter().flatten() {
            if !spans.contains(&span) {
                spans.push(span);
            }
        }
        let answer = Answer {
            kind: "span".into(),
            place: Some((Side::Source, explained.0)),
            choices: spans.into_iter().map(choice).collect(),
            explained: text(explained),
            against: against.map(text),
        };
        let columns = |(first, last): (usize, usize)| vec![first, n + last];
        let mut read_from = vec![explained.0, explained.1];
        read_from.dedup();
        let minus = against.map(columns).unwrap_or_default();
        let score = Score::new(Asked::Text, columns(explained), minus, read_from, &outputs);
        Ok(Found { answer, score, input: reading.input.clone() })
    }
}

impl Model {
    /// Whether it answers at all.
    pub fn has_head(&self) -> bool {
        !matches!(self, Self::Encoder(_))
    }
}

/// The id of a piece: by its name in the vocabulary, or as a text of one piece.
fn piece(tokenizer: &Tokenizer, name: &str) -> Result<Option<usize>> {
    if let Some(id) = tokenizer.token_to_id(name) {
        return Ok(Some(id as usize));
    }
    for text in [name.to_owned(), format!(" {name}")] {
        if let [id] = tokenizer.encode_ids(&text, false)?[..] {
            return Ok(Some(id as usize));
        }
    }
    Ok(None)
}

fn probabilities(outputs: &[f32], probability: Probability) -> impl Fn(usize) -> f64 + '_ {
    let greatest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = outputs.iter().map(|output| f64::from(output - greatest).exp()).sum();
    move |id| match probability {
        Probability::Softmax => f64::from(outputs[id] - greatest).exp() / sum,
        Probability::Sigmoid => 1.0 / (1.0 + (-f64::from(outputs[id])).exp()),
    }
}

/// Checks that a token is there.
fn within(place: usize, n: usize) -> Result<usize> {
    match place < n {
        true => Ok(place),
        false => Err(refuse(format!("there is no token {place}; expected 0 to {}", n.saturating_sub(1)))),
    }
}

/// Checks that no place is given where the whole text is answered for.
fn no_place(request: &InspectRequest) -> Result<()> {
    match request.place {
        Some(place) => {
            Err(refuse(format!("the place {place} is given, but the model answers for the whole text")))
        }
        None => Ok(()),
    }
}

fn differ(explained: usize, against: Option<usize>, request: &InspectRequest) -> Result<()> {
    match against == Some(explained) {
        true => Err(same(request)),
        false => Ok(()),
    }
}

fn same(request: &InspectRequest) -> TrainerError {
    let name = request.against.clone().unwrap_or_default();
    refuse(format!("`{name}` is explained against itself; expected another answer"))
}
