//! A thousand requests of mixed kinds from many threads, each beside its answer alone.

use super::{Queue, Respond};
use crate::embed::{EmbedConfig, EmbedRequest, Embedder, Pooling};
use crate::fill_mask::{FillMask, FillRequest};
use crate::finetune::testing::{encoder, init, saved, tokenizer};
use crate::finetune::{Predictor, TextTask};
use burn::tensor::Device;
use cloze_data::Random;
use cloze_data::labelled::LabelSet;
use cloze_model::bert::MlmHead;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_model::tasks::BertForMaskedLm;
use serde_json::{Value, json};
use std::fmt::Debug;
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

/// A request and its answer alone, or its error's message.
fn alone<R: Respond>(model: &R, request: R::Request) -> Result<R::Answer, String> {
    let unit = model.encode(request).map_err(|error| error.to_string())?;
    model.answer(&[unit]).remove(0).map_err(|error| error.to_string())
}

/// Whether a queue answers a request as its model alone does. Whether there was an error.
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
    let (embedding, filling, classifying) = (
        Queue::new(embedder, 128),
        Queue::new(FillMask::load(filler.path(), &device).unwrap(), 128),
        Queue::new(Predictor::load(classifier.path(), &device, false).unwrap(), 128),
    );
    let of_thread = |thread: u64| {
        let random = &mut Random::new(thread);
        let mut errors = 0;
        for i in 0..OF_THREAD {
            let text = letters(random, 24);
            errors += usize::from(match (thread + i) % 3 {
                0 => {
                    let pooling = [None, Some(Pooling::Cls.into()), Some(Pooling::Max.into())];
                    let pooling = pooling[random.below(3) as usize].clone();
                    let normalize = (random.below(2) == 1).then_some(true);
                    let prompt = (random.below(2) == 1).then(|| "x ".to_owned());
                    same(&embedding, EmbedRequest { text, prompt, pooling, normalize })
                }
                1 => {
                    // One in eight has no mask, and long ones are more than the model takes.
                    let mask = if random.below(8) == 0 { "" } else { " [MASK] b [MASK]" };
                    let top_k = random.below(5) as usize;
                    same(&filling, FillRequest { text: format!("{text}{mask}"), top_k })
                }
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
}
