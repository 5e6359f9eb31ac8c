//! A thousand requests of mixed kinds from many threads, each compared with its answer alone.

use super::{GenerateRequest, Listener, Queue, Respond, TranslateRequest};
use crate::embed::{EmbedConfig, EmbedRequest, Embedder, Pooling};
use crate::fill_mask::{FillMask, FillRequest};
use crate::finetune::testing::{encoder, init, saved, tokenizer};
use crate::finetune::{Predictor, TextTask};
use crate::generate::{GenerateConfig, GenerateSettings, Generator};
use crate::translate::{TranslateConfig, TranslateSettings, Translator};
use burn::tensor::Device;
use cloze_data::Random;
use cloze_data::labelled::LabelSet;
use cloze_model::Sequences;
use cloze_model::bert::MlmHead;
use cloze_model::blocks::pack_weights;
use cloze_model::generate::{BeamSearch, LanguageModel, NextToken, Sampling, Search, StepOutput};
use cloze_model::gpt::{Gpt, GptConfig, GptState};
use cloze_model::huggingface::{Architecture, FloatType, SaveConfig, save_pretrained, save_published};
use cloze_model::seq2seq::TransformerConfig;
use cloze_model::tasks::BertForMaskedLm;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tempfile::TempDir;

const THREADS: u64 = 64;
const OF_THREAD: u64 = 16;

fn masked_lm() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (config, init) = (encoder(), &mut init());
    let model = BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
    save_pretrained(folder.path(), &model, &config, &SaveConfig::new(Architecture::MaskedLm)).unwrap();
    tokenizer().save(folder.path()).unwrap();
    folder
}

/// Letters with spaces between them.
fn letters(random: &mut Random, most: u64) -> String {
    let n = 1 + random.below(most);
    let letter = |_| char::from(b'a' + random.below(26) as u8).to_string();
    (0..n).map(letter).collect::<Vec<_>>().join(" ")
}

/// A language model that panics on prompts that begin with [`PANICS`], and counts its steps.
#[derive(Debug)]
struct Watched {
    gpt: Gpt,
    steps: Arc<AtomicUsize>,
}

/// A single-token word for which [`Watched`] panics.
const PANICS: &str = "zz";

impl NextToken for Watched {
    type State = GptState;

    fn step(&self, tokens: &[i32], state: &mut GptState) -> StepOutput {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.gpt.step(tokens, state)
    }

    fn select(&self, state: &mut GptState, rows: &[usize]) {
        self.gpt.select(state, rows);
    }

    fn join(&self, state: &mut GptState, other: GptState) {
        self.gpt.join(state, other);
    }

    fn max_tokens(&self) -> Option<usize> {
        self.gpt.max_tokens()
    }
}

impl LanguageModel for Watched {
    fn read(&self, prompts: &Sequences, device: &Device) -> (GptState, StepOutput) {
        let panics: Vec<i32> =
            tokenizer().encode_ids(PANICS, false).unwrap().iter().map(|id| *id as i32).collect();
        assert!(!prompts.iter().any(|prompt| prompt.windows(panics.len()).any(|ids| ids == panics)), "zz");
        self.gpt.read(prompts, device)
    }
}

/// A generator, and a counter of its model's steps.
fn generator() -> (Generator, Arc<AtomicUsize>) {
    let mut config = GptConfig::gpt2(tokenizer().vocab_size(), 2, 32);
    config.max_positions = 2_048;
    let mut gpt = config.init(&mut init());
    pack_weights(&mut gpt);
    let steps = Arc::<AtomicUsize>::default();
    let model = Watched { gpt, steps: steps.clone() };
    let end = tokenizer().token_to_id("[SEP]").unwrap() as i32;
    (
        Generator::new(tokenizer(), model, vec![end], GenerateConfig::default(), &Device::flex()).unwrap(),
        steps,
    )
}

fn translator() -> Translator {
    let folder = tempfile::tempdir().unwrap();
    let config = TransformerConfig::new(tokenizer().vocab_size(), 1, 64).with_d_ff(64);
    save_published(folder.path(), &config.init(&mut init()), &config, FloatType::F32).unwrap();
    tokenizer().save(folder.path()).unwrap();
    Translator::load(folder.path(), TranslateConfig::default(), &Device::flex()).unwrap()
}

/// Random generation settings: greedy, sampled, with a beam, or with a NaN temperature.
fn generate_settings(random: &mut Random) -> GenerateSettings {
    let mut settings = GenerateSettings::default();
    let mut sampling = Sampling::default();
    (sampling.temperature, sampling.top_k) = (0.8, 9);
    match random.below(7) {
        0 | 1 => settings.search = Some(Search::Sample(sampling)),
        2 | 3 => settings.search = Some(Search::Beam(BeamSearch::new(3))),
        4 => settings.decoding.temperature = Some(0.5),
        5 => {
            sampling.temperature = f32::NAN;
            settings.search = Some(Search::Sample(sampling));
        }
        _ => {}
    }
    settings.n = settings.search.is_some().then(|| 1 + random.below(3) as usize);
    settings.decoding.max_new = Some(1 + random.below(9) as usize);
    settings.decoding.repetition_penalty = (random.below(4) == 0).then_some(1.3);
    settings.seed = Some(random.below(4));
    settings
}

fn translate_settings(random: &mut Random) -> TranslateSettings {
    let mut settings = TranslateSettings::default();
    settings.decoding.max_new = Some(1 + random.below(8) as usize);
    settings.decoding.beams = (random.below(2) == 0).then(|| 1 + random.below(5) as usize);
    settings.alignment = (random.below(3) == 0).then_some(true);
    settings.n_best = (random.below(4) == 0).then_some(2);
    settings.prefix = if random.below(5) == 0 { "a b".into() } else { String::new() };
    settings
}

/// A request's answer alone, or its error's message.
fn alone<R: Respond>(model: &R, request: R::Request) -> Result<R::Answer, String> {
    let unit = model.encode(request).map_err(|error| error.to_string())?;
    match catch_unwind(AssertUnwindSafe(|| model.answer(&[&unit]).remove(0))) {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(panic) => {
            let reason = panic.downcast_ref::<&str>().unwrap().to_string();
            Err(crate::TrainerError::Panicked { reason }.to_string())
        }
    }
}

/// Checks that a queue answers a request like its model alone. Returns whether there was an error.
fn same<R: Respond<Request: Clone + Debug, Answer: PartialEq + Debug>>(
    queue: &Queue<R>,
    request: R::Request,
) -> bool {
    let answer = queue.ask(request.clone()).map_err(|error| error.to_string());
    assert_eq!(answer, alone(queue.model(), request.clone()), "{request:?}");
    answer.is_err()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn mixed_requests_have_the_bits_of_each_alone() {
    let device = Device::flex();
    let classes = LabelSet::given(["no", "yes", "maybe"]).unwrap();
    let (classifier, filler) = (saved(TextTask::new(Some(classes), None), 20), masked_lm());
    let embedder = Embedder::load(filler.path(), EmbedConfig::default(), &device).unwrap();
    let (embedding, filling, classifying, generating, translating) = (
        Queue::new(embedder, 128),
        Queue::new(FillMask::load(filler.path(), &device).unwrap(), 128),
        Queue::new(Predictor::load(classifier.path(), &device, false).unwrap(), 128),
        Queue::new(generator().0, 256),
        Queue::new(translator(), 256),
    );
    let panicked = AtomicUsize::new(0);
    let of_thread = &|thread: u64| {
        let random = &mut Random::new(thread);
        let mut errors = 0;
        for i in 0..OF_THREAD {
            let text = letters(random, 24);
            errors += usize::from(match (thread + i) % 5 {
                0 => {
                    let pooling = [None, Some(Pooling::Cls.into()), Some(Pooling::Max.into())];
                    let pooling = pooling[random.below(3) as usize].clone();
                    let normalize = (random.below(2) == 1).then_some(true);
                    let prompt = (random.below(2) == 1).then(|| "x ".to_owned());
                    same(&embedding, EmbedRequest { prompt, pooling, normalize, ..EmbedRequest::of(text) })
                }
                1 => {
                    // One in eight has no mask, and long ones are more than the model takes.
                    let mask = if random.below(8) == 0 { "" } else { " [MASK] b [MASK]" };
                    let top_k = random.below(5) as usize;
                    same(&filling, FillRequest::of(format!("{text}{mask}"), top_k))
                }
                2 => {
                    let panics = random.below(16) == 0;
                    let text = if panics { format!("{text} {PANICS}") } else { text };
                    let settings = generate_settings(random);
                    let failed = same(&generating, GenerateRequest { text, settings, listener: None });
                    panicked.fetch_add(usize::from(panics && failed), Ordering::Relaxed);
                    failed
                }
                3 => same(&translating, TranslateRequest { text, settings: translate_settings(random) }),
                _ => {
                    let line: Value = if random.below(8) == 0 { json!({ "txt": text }) } else { json!(text) };
                    same(&classifying, line)
                }
            });
        }
        errors
    };
    let errors: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(errors > 50 && errors < 500, "{errors}");
    let panicked = panicked.into_inner();
    assert!(panicked > 3, "{panicked}");
}

/// A request for exactly `n` tokens after a text.
fn exactly(n: usize) -> GenerateRequest {
    let mut settings = GenerateSettings::default();
    (settings.decoding.max_new, settings.decoding.min_new) = (Some(n), Some(n));
    GenerateRequest { text: "a b".into(), settings, listener: None }
}

#[test]
fn a_cancelled_text_makes_room_before_the_next_step() {
    let (generator, steps) = generator();
    // Room for one of the long texts.
    let queue = Queue::new(generator, 1_000);
    let long = queue.submit(exactly(950)).unwrap();
    while steps.load(Ordering::SeqCst) < 3 {
        thread::yield_now();
    }
    let short = queue.submit(exactly(100)).unwrap();
    drop(long);
    let before = steps.load(Ordering::SeqCst);
    assert_eq!(short.wait().unwrap()[0].n_tokens, 100);
    // Its first token needs no step; a step may have been under way.
    let steps = steps.load(Ordering::SeqCst) - before;
    assert!(steps <= 99 + 2, "{steps}");
    // What was cancelled before it began does not begin.
    let waiting = [queue.submit(exactly(900)).unwrap(), queue.submit(exactly(900)).unwrap()];
    drop(waiting);
    assert_eq!(queue.ask(exactly(1)).unwrap()[0].n_tokens, 1);
}

#[test]
fn a_text_joins_those_under_way() {
    let (generator, steps) = generator();
    let queue = Queue::new(generator, 4_096);
    let long = queue.submit(exactly(700)).unwrap();
    while steps.load(Ordering::SeqCst) < 3 {
        thread::yield_now();
    }
    assert_eq!(queue.ask(exactly(10)).unwrap()[0].n_tokens, 10);
    assert!(steps.load(Ordering::SeqCst) < 699, "the short text waited for the long one");
    assert_eq!(long.wait().unwrap()[0].n_tokens, 700);
}

#[test]
fn pieces_are_weighed() {
    let folder = masked_lm();
    let filler = FillMask::load(folder.path(), &Device::flex()).unwrap();
    let queue = Queue::new(filler, 128);
    let request = |text: &str| FillRequest { weighs: true, ..FillRequest::of(text, 1) };
    let found = queue.ask(request("a b c")).unwrap();
    assert!(found.masks.is_empty() && !found.weights.is_empty());
    assert!(found.weights.iter().all(|(_, weight)| *weight > 0.0));
    assert!(found.weights.array_windows().all(|[a, b]| a.0 < b.0));
    // A mask's best candidate has the greatest logit at its place, which the text's greatest is no less than.
    let text = "a [MASK] c";
    let best = queue.model().fill(text, 1).unwrap()[0][0].id;
    let weights = queue.ask(request(text)).unwrap().weights;
    assert!(weights.is_empty() || weights.iter().any(|(id, _)| *id == best), "{best}: {weights:?}");
    assert!(!same(&queue, request("d e f")));
}

#[test]
fn a_text_is_heard_as_it_grows() {
    let queue = Queue::new(generator().0, 4_096);
    let heard = Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let said = heard.clone();
    let listener = Listener::new(move |sample, text| {
        assert_eq!(sample, 0);
        said.lock().unwrap().push(text.to_owned());
    });
    let written = queue.ask(GenerateRequest { listener: Some(listener), ..exactly(40) }).unwrap().remove(0);
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 10, "{heard:?}");
    assert!(written.text.starts_with(&heard.concat()), "{heard:?} of {:?}", written.text);
    assert_eq!(written, queue.ask(exactly(40)).unwrap()[0]);
}

#[test]
fn a_dropped_queue_answers_what_was_submitted() {
    let queue = Queue::new(generator().0, 64);
    let tickets: Vec<_> = (1..9).map(|n| queue.submit(exactly(n)).unwrap()).collect();
    drop(queue);
    for (ticket, n) in tickets.into_iter().zip(1..) {
        assert_eq!(ticket.wait().unwrap()[0].n_tokens, n);
    }
}
