//! Continuations of texts: `/v1/completions` as OpenAI has it, and `/generate`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use cloze::Continuation;
use cloze_model::generate::{Sampling, Search};
use cloze_trainer::generate::{EncodedPrompt, GenerateSettings, Generator, ScoredToken};
use cloze_trainer::requests::{GenerateRequest, Listener, Queue, Ticket};
use futures_core::Stream;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Answer, Shared, json as response, with_counts};
use crate::commands::serve::asking::{Asking, too_long};
use crate::commands::serve::fields::{Fields, MAX_WHOLE, Read, texts, wrong};
use crate::commands::serve::models::{Kind, Served};
use crate::commands::serve::refusal::{Refusal, Shape, Why};
use crate::commands::serve::tally::note;

/// The most continuations of a text.
const MAX_N: usize = 32;

/// The most tokens of a continuation.
pub const MAX_NEW: usize = 8_192;

/// The least `top_p`.
const LEAST_P: f64 = 1e-6;

/// The most alternatives to a token.
const MAX_ALTERNATIVES: usize = 20;

fn generates(served: &Served) -> bool {
    matches!(served.kind, Kind::Generates(_))
}

/// What is asked for.
struct Wanted {
    prompts: Vec<String>,
    settings: GenerateSettings,
    /// Continuations of each prompt.
    n: usize,
    refuses_long: bool,
}

/// A text that ends a continuation, or several.
fn stops(fields: &mut Fields) -> Read<Option<Vec<String>>> {
    let Some(value) = fields.take("stop") else { return Ok(None) };
    let (stops, _) = texts("stop", value)?;
    match stops.iter().any(String::is_empty) {
        true => Err(Refusal::field("stop", "an empty text")),
        false => Ok(Some(stops)),
    }
}

/// How tokens are drawn at a temperature, of which 0 is the most likely each time.
fn search(temperature: f64, top_k: Option<usize>, top_p: Option<f64>, n: usize) -> Search {
    let mut sampling = Sampling::default();
    if temperature == 0.0 {
        if n == 1 {
            return Search::Greedy;
        }
        // The same text several times.
        sampling.top_k = 1;
        return Search::Sample(sampling);
    }
    sampling.temperature = temperature as f32;
    sampling.top_k = top_k.unwrap_or(0);
    sampling.top_p = top_p.unwrap_or(1.0) as f32;
    Search::Sample(sampling)
}

/// A seed that nobody chose.
fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// A number from `least` to `most`.
fn within(fields: &mut Fields, name: &str, least: f64, most: f64) -> Read<Option<f64>> {
    match fields.number(name)? {
        Some(found) if !(least..=most).contains(&found) => {
            Err(wrong(name, &format!("a number from {least} to {most}"), &json!(found)))
        }
        found => Ok(found),
    }
}

pub async fn completions(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/v1/completions", "generation", generates)?.clone();
    let (prompts, _) = texts("prompt", fields.required("prompt")?)?;
    let max_new = fields.count("max_tokens", 1, MAX_NEW)?.unwrap_or(16);
    let temperature = within(&mut fields, "temperature", 0.0, 100.0)?.unwrap_or(1.0);
    let top_p = within(&mut fields, "top_p", LEAST_P, 1.0)?;
    let n = fields.count("n", 1, MAX_N)?.unwrap_or(1);
    let seed = fields.count("seed", 0, MAX_WHOLE)?;
    let stops = stops(&mut fields)?;
    let alternatives = fields.count("logprobs", 0, MAX_ALTERNATIVES)?;
    let is_streamed = fields.flag("stream")?.unwrap_or(false);
    if is_streamed && alternatives.is_some() {
        return Err(Refusal::field("logprobs", "not supported with `stream`"));
    }
    let echoes = fields.flag("echo")?.unwrap_or(false);
    let mut options = fields.object("stream_options", "stream_options.")?;
    let counts = options.flag("include_usage")?.unwrap_or(false);
    options.end()?;
    fields.only("best_of", &[json!(1), json!(n)])?;
    for name in ["presence_penalty", "frequency_penalty"] {
        fields.only(name, &[json!(0), json!(0.0)])?;
    }
    fields.only("logit_bias", &[json!({})])?;
    fields.only("suffix", &[json!("")])?;
    fields.text("user")?;
    fields.end()?;
    if echoes && alternatives.is_some() {
        // The prompt's tokens would need theirs too.
        return Err(Refusal::field("logprobs", "not supported with `echo`"));
    }
    let mut settings = GenerateSettings::default();
    settings.search = Some(search(temperature, None, top_p, n));
    settings.decoding.max_new = Some(max_new);
    settings.n = Some(n);
    settings.stops = stops;
    settings.alternatives = alternatives;
    settings.seed = Some(seed.map_or_else(any_seed, |seed| seed as u64));
    let wanted = Wanted { prompts, settings, n, refuses_long: service.refuses_long };
    let head = Head { id: service.id(), created: any_seed() / 1_000_000_000, model: served.name.clone() };
    if is_streamed {
        let echo = echoes.then(|| wanted.prompts.clone());
        return streamed(served, wanted, move |event| open_ai_event(&head, echo.as_deref(), counts, event))
            .await;
    }
    let prompts = wanted.prompts.clone();
    let (found, prompt_tokens, truncated) = written(&served, wanted).await?;
    let mut completion_tokens = 0;
    let choices: Vec<Value> = found
        .iter()
        .enumerate()
        .map(|(index, one)| {
            completion_tokens += one.n_tokens;
            let prompt = if echoes { prompts.get(index / n).map_or("", String::as_str) } else { "" };
            let text = format!("{prompt}{}", one.text);
            let scores = alternatives.map(|_| log_probs(&one.tokens));
            json!({ "index": index, "text": text, "logprobs": scores, "finish_reason": reason(one) })
        })
        .collect();
    let body = head.body(choices, Some((prompt_tokens, completion_tokens)));
    Ok(with_counts(response(&body), prompt_tokens, truncated))
}

/// What all parts of an answer have in common.
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn body(&self, choices: Vec<Value>, usage: Option<(usize, usize)>) -> Value {
        let mut body = json!({ "id": self.id, "object": "text_completion", "created": self.created,
            "model": self.model, "choices": choices });
        if let Some((prompt, written)) = usage {
            body["usage"] = json!({ "prompt_tokens": prompt, "completion_tokens": written,
                "total_tokens": prompt + written });
        }
        body
    }
}

pub async fn generate(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let served = service.model(&mut fields, "/generate", "generation", generates)?.clone();
    let prompt = match fields.required("inputs")? {
        Value::String(text) => text,
        other => return Err(wrong("inputs", "a text", &other)),
    };
    let mut parameters = fields.object("parameters", "parameters.")?;
    let is_streamed = fields.flag("stream")?.unwrap_or(false);
    fields.end()?;
    let mut settings = GenerateSettings::default();
    settings.decoding.max_new = parameters.count("max_new_tokens", 1, MAX_NEW)?;
    settings.decoding.repetition_penalty =
        within(&mut parameters, "repetition_penalty", 0.01, 100.0)?.map(|penalty| penalty as f32);
    let temperature = within(&mut parameters, "temperature", 0.0, 100.0)?;
    let top_k = parameters.count("top_k", 0, 1_000_000)?;
    let top_p = within(&mut parameters, "top_p", LEAST_P, 1.0)?;
    let samples = parameters.flag("do_sample")?;
    match samples.unwrap_or(temperature.is_some() || top_k.is_some() || top_p.is_some()) {
        true => settings.search = Some(search(temperature.unwrap_or(1.0), top_k, top_p, 1)),
        false if samples == Some(false) => settings.search = Some(Search::Greedy),
        false => {}
    }
    let seed = parameters.count("seed", 0, MAX_WHOLE)?;
    settings.seed = Some(seed.map_or_else(any_seed, |seed| seed as u64));
    settings.stops = stops(&mut parameters)?;
    let returns_all = parameters.flag("return_full_text")?.unwrap_or(false);
    parameters.end()?;
    settings.n = Some(1);
    let before = if returns_all { prompt.clone() } else { String::new() };
    let wanted = Wanted { prompts: vec![prompt], settings, n: 1, refuses_long: service.refuses_long };
    if is_streamed {
        let mut text = before;
        return streamed(served, wanted, move |event| match event {
            Event::Text { text: new, .. } => {
                text.push_str(&new);
                vec![json!({ "text": new }).to_string()]
            }
            Event::Over { reason, .. } => {
                vec![json!({ "text": "", "generated_text": text, "finish_reason": reason }).to_string()]
            }
            Event::Done { .. } => Vec::new(),
            Event::Failed(refusal) => vec![refusal.body(Shape::Tei)],
        })
        .await;
    }
    let (mut found, tokens, truncated) = written(&served, wanted).await?;
    let internal = || Refusal::new(Why::Internal, "no continuation");
    let one = found.pop().ok_or_else(internal)?;
    let body = json!({ "generated_text": before + &one.text, "finish_reason": reason(&one), "tokens": one.n_tokens });
    Ok(with_counts(response(&body), tokens, truncated))
}

/// Why a continuation ended, as OpenAI has it.
fn reason(one: &Continuation) -> &'static str {
    if one.ended { "stop" } else { "length" }
}

/// OpenAI's `logprobs`: offsets count characters.
fn log_probs(tokens: &[ScoredToken]) -> Value {
    let lengths = tokens.iter().map(|token| token.text.chars().count());
    let offsets = lengths.scan(0, |offset, length| Some(std::mem::replace(offset, *offset + length)));
    let offsets: Vec<usize> = offsets.collect();
    let best = |token: &ScoredToken| -> Map<String, Value> {
        let mut best = Map::new();
        for (text, log_prob) in &token.best {
            // Of several tokens with the same text the most likely one comes first.
            best.entry(text.as_str()).or_insert_with(|| json!(log_prob));
        }
        best
    };
    json!({
        "tokens": tokens.iter().map(|token| token.text.as_str()).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.log_prob).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(best).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

/// The continuations of all prompts, the tokens of the prompts, and how many of these were cut.
async fn written(served: &Served, wanted: Wanted) -> Read<(Vec<Continuation>, usize, usize)> {
    let Kind::Generates(queue) = &served.kind else { return Err(served.misfit("this route", "generation")) };
    let Wanted { prompts, settings, refuses_long, .. } = wanted;
    let is_single = prompts.len() == 1;
    let field = |i: usize| if is_single { "prompt".into() } else { format!("prompt[{i}]") };
    let prompt_tokens = std::sync::atomic::AtomicUsize::new(0);
    let is_cut = |prompt: &EncodedPrompt| {
        prompt_tokens.fetch_add(prompt.prompt_tokens(), std::sync::atomic::Ordering::Relaxed);
        prompt.is_cut
    };
    let bytes = prompts.iter().map(String::len).sum();
    let refuses_cut = queue.model().max_len().filter(|_| refuses_long);
    let requests = prompts.into_iter();
    let requests = requests.map(|text| GenerateRequest { text, settings: settings.clone(), listener: None });
    let asking = Asking { queue, field: &field, is_cut: &is_cut, refuses_cut, bytes };
    let found = asking.all(requests.collect()).await?;
    served.count_truncated(found.truncated);
    let all = found.answers.into_iter().flatten().collect();
    Ok((all, prompt_tokens.into_inner(), found.truncated))
}

/// Something that happens while texts are written.
enum Event {
    /// A continuation grew.
    Text {
        choice: usize,
        text: String,
        is_first: bool,
    },
    /// A continuation ended.
    Over {
        choice: usize,
        reason: &'static str,
    },
    /// All ended.
    Done {
        prompt_tokens: usize,
        completion_tokens: usize,
    },
    Failed(Refusal),
}

/// The data of an event in OpenAI's shape.
fn open_ai_event(head: &Head, echo: Option<&[String]>, counts: bool, event: Event) -> Vec<String> {
    let chunk = |index: usize, text: &str, reason: Option<&str>| {
        let choice = json!({ "index": index, "text": text, "logprobs": null, "finish_reason": reason });
        head.body(vec![choice], None).to_string()
    };
    match event {
        Event::Text { choice, text, is_first } => {
            let before = echo.filter(|_| is_first).and_then(|prompts| prompts.first());
            vec![chunk(choice, &format!("{}{text}", before.map_or("", String::as_str)), None)]
        }
        Event::Over { choice, reason } => vec![chunk(choice, "", Some(reason))],
        Event::Done { prompt_tokens, completion_tokens } => {
            let usage = Some((prompt_tokens, completion_tokens));
            let usage = counts.then(|| head.body(Vec::new(), usage).to_string());
            usage.into_iter().chain(["[DONE]".to_owned()]).collect()
        }
        Event::Failed(refusal) => vec![refusal.body(Shape::OpenAi)],
    }
}

/// Events as a body of `data:` lines.
struct Lines(UnboundedReceiver<String>);

impl Stream for Lines {
    type Item = Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

/// The response that shows continuations of one prompt as they are written.
async fn streamed(
    served: Arc<Served>,
    wanted: Wanted,
    shape: impl FnMut(Event) -> Vec<String> + Send + 'static,
) -> Answer {
    let Kind::Generates(queue) = &served.kind else { return Err(served.misfit("this route", "generation")) };
    let Wanted { prompts, settings, n, refuses_long } = wanted;
    let Ok([text]) = <[String; 1]>::try_from(prompts) else {
        return Err(Refusal::field("prompt", "several texts are not supported with `stream`"));
    };
    let (said, heard) = unbounded_channel();
    let listener = Listener::new(move |choice, text| drop(said.send((choice, text.to_owned()))));
    let request = GenerateRequest { text, settings, listener: Some(listener) };
    let encoding = queue.clone();
    let encode = tokio::task::spawn_blocking(move || encoding.encode(request));
    let ended = |_| Refusal::new(Why::Internal, "the tokenizer's thread has ended");
    let begun = Instant::now();
    let prompt = encode.await.map_err(ended)?.map_err(|error| Refusal::of_model("prompt", error))?;
    let (is_cut, prompt_tokens) = (prompt.unit.is_cut, prompt.unit.prompt_tokens());
    if let Some(max) = queue.model().max_len().filter(|_| is_cut && refuses_long) {
        return Err(too_long("prompt", max));
    }
    note(|tally| {
        tally.encoded += begun.elapsed();
        tally.tokens += prompt_tokens as u64;
    });
    served.count_truncated(usize::from(is_cut));
    let ticket = queue.enqueue(prompt, &queue.turn());
    let (sender, lines) = unbounded_channel();
    let show = Show { sender, shape, n, prompt_tokens };
    tokio::spawn(show.all(heard, ticket, queue.clone()));
    let mut response = Response::new(Body::from_stream(Lines(lines)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(with_counts(response, prompt_tokens, usize::from(is_cut)))
}

/// Who reads the lines is gone.
struct Gone;

struct Show<F> {
    sender: UnboundedSender<String>,
    shape: F,
    n: usize,
    prompt_tokens: usize,
}

impl<F: FnMut(Event) -> Vec<String>> Show<F> {
    fn send(&mut self, event: Event) -> Result<(), Gone> {
        for data in (self.shape)(event) {
            self.sender.send(format!("data: {data}\n\n")).map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// Shows the continuations until they end, or the reader leaves: the ticket is dropped with this future.
    async fn all(
        mut self,
        heard: UnboundedReceiver<(usize, String)>,
        ticket: Ticket<Vec<Continuation>>,
        // A queue that nobody holds would stop.
        _queue: Arc<Queue<Generator>>,
    ) {
        // A reader that is gone needs no more.
        let _ = self.until_over(heard, ticket).await;
    }

    async fn until_over(
        &mut self,
        mut heard: UnboundedReceiver<(usize, String)>,
        mut ticket: Ticket<Vec<Continuation>>,
    ) -> Result<(), Gone> {
        // The bytes that were shown of each continuation.
        let mut shown = vec![0; self.n];
        let found = loop {
            let sender = self.sender.clone();
            tokio::select! {
                biased;
                Some((choice, text)) = heard.recv() => {
                    let Some(shown) = shown.get_mut(choice) else { continue };
                    let is_first = *shown == 0;
                    *shown += text.len();
                    self.send(Event::Text { choice, text, is_first })?;
                }
                found = &mut ticket => break found,
                () = sender.closed() => return Err(Gone),
            }
        };
        let all = match found {
            Ok(all) => all,
            Err(error) => return self.send(Event::Failed(Refusal::of_model("prompt", error))),
        };
        for ((choice, one), shown) in all.iter().enumerate().zip(shown) {
            let text = one.text.get(shown..).unwrap_or_default().to_owned();
            if !text.is_empty() || shown == 0 {
                self.send(Event::Text { choice, text, is_first: shown == 0 })?;
            }
            self.send(Event::Over { choice, reason: reason(one) })?;
        }
        let completion_tokens = all.iter().map(|one| one.n_tokens).sum();
        self.send(Event::Done { prompt_tokens: self.prompt_tokens, completion_tokens })
    }
}
