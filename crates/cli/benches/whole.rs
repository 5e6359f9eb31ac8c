//! What the program makes of files, by the library alone: texts in memory, a model that is loaded.
//!
//!     cargo bench -p cloze --bench whole -- encode|decode|embed|predict|fill-mask MODEL FILE ROUNDS
//!     cargo bench -p cloze --bench whole -- models ENCODER OUT
//!
//! FILE has a text on each line, for `decode` the ids of one, and for `predict` a JSON string. Prints one JSON line.
//! `models` puts a classifier and a masked language model with heads of random weights on an encoder, for want of
//! trained ones: OUT/classifier and OUT/masked. `cargo xtask bench whole` runs it beside the program.
#![allow(missing_docs)]

use cloze::Device;
use cloze::model::ParamInit;
use cloze::model::bert::MlmHead;
use cloze::model::huggingface::{
    Architecture, Family, PretrainedFolder, ProblemType, SaveConfig, save_pretrained,
};
use cloze::model::tasks::{BertForMaskedLm, BertForSequenceClassification};
use cloze::tokenizer::Tokenizer;
use cloze::trainer::embed::{EmbedConfig, Embedder};
use cloze::trainer::fill_mask::FillMask;
use cloze::trainer::finetune::Predictor;
use rayon::prelude::*;
use std::path::Path;
use std::time::Instant;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["models", encoder, out] => models(encoder.as_ref(), out.as_ref()),
        [work, model, file, rounds] => {
            join_pool();
            let text = std::fs::read_to_string(file).expect("a file of lines");
            measure(work, model.as_ref(), &text, rounds.parse().expect("a number of rounds"));
        }
        // A bare `cargo bench` runs every benchmark.
        _ => println!("whole: encode|decode|embed|predict|fill-mask MODEL FILE ROUNDS"),
    }
}

/// As the program does.
fn join_pool() {
    let n_threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok());
    let n_threads = n_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if n_threads > 1 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).use_current_thread();
        pool.build_global().expect("threads");
    }
}

fn measure(work: &str, model: &Path, text: &str, rounds: usize) {
    let device = Device::flex();
    let lines: Vec<&str> = text.lines().collect();
    let tokenizer = || {
        let mut tokenizer = Tokenizer::load(model).expect("a tokenizer");
        tokenizer.set_padding(None).expect("no padding");
        tokenizer
    };
    match work {
        "encode" => {
            let tokenizer = tokenizer();
            timed(rounds, || drop(tokenizer.encode_ids_batch(&lines, true).expect("ids")));
        }
        "decode" => {
            let tokenizer = tokenizer();
            let ids = |line: &&str| line.split_whitespace().map(|id| id.parse().expect("an id")).collect();
            let ids: Vec<Vec<u32>> = lines.par_iter().map(ids).collect();
            timed(rounds, || {
                let texts = ids.par_iter().map(|ids| tokenizer.decode(ids, true).expect("a text"));
                drop(texts.collect::<Vec<String>>());
            });
        }
        "embed" => {
            let embedder = Embedder::load(model, EmbedConfig::default(), &device).expect("a model");
            timed(rounds, || drop(embedder.embed(&lines).expect("embeddings")));
        }
        "predict" => {
            let predictor = Predictor::load(model, &device, false).expect("a model");
            timed(rounds, || drop(predictor.predict(&lines, &mut |_| {}).expect("predictions")));
        }
        "fill-mask" => {
            let filler = FillMask::load(model, &device).expect("a model");
            timed(rounds, || lines.iter().for_each(|line| drop(filler.fill(line, 5).expect("candidates"))));
        }
        other => panic!("`{other}` is not encode, decode, embed, predict or fill-mask"),
    }
}

/// Prints the median time of some rounds, after one that is not measured.
fn timed(rounds: usize, mut work: impl FnMut()) {
    work();
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..rounds).map(round).collect();
    times.sort_by(f64::total_cmp);
    let median = f64::midpoint(times[(times.len() - 1) / 2], times[times.len() / 2]);
    println!("{{\"ms\":{:.3}}}", median * 1e3);
}

/// Models for texts and for masks, of an encoder's weights.
fn models(encoder: &Path, out: &Path) {
    let tokenizer = Tokenizer::load(encoder).expect("a tokenizer");
    let init = &mut ParamInit::new(&Device::flex(), 1);
    let mut bert =
        || PretrainedFolder::open(encoder).expect("a model").load_encoder(init).expect("an encoder");
    let (config, classified, _) = bert();
    let (_, masked, _) = bert();
    let architecture = Architecture::SequenceClassification;
    let head = architecture.sequence_head(Family::default(), &config, 2, 0.1, init);
    let classifier = BertForSequenceClassification::new(classified, head);
    let labels = ["no", "yes"].map(String::from).to_vec();
    let problem_type = Some(ProblemType::SingleLabel);
    let masked = BertForMaskedLm { bert: masked, mlm: MlmHead::new(&config, init) };
    let [at_classifier, at_masked] = ["classifier", "masked"].map(|name| out.join(name));
    let save = SaveConfig::new(architecture).with_labels(labels).with_problem_type(problem_type);
    save_pretrained(&at_classifier, &classifier, &config, &save).expect("a classifier");
    save_pretrained(&at_masked, &masked, &config, &SaveConfig::new(Architecture::MaskedLm))
        .expect("a masked language model");
    for folder in [at_classifier, at_masked] {
        tokenizer.save(folder).expect("a tokenizer");
    }
}
