//! ELMo in training: what it learns, where a run may stop, what it leaves.

use crate::bench::Bench;
use burn::tensor::Device;
use cloze_model::elmo::ElmoConfig;
use cloze_model::huggingface::load_published;
use cloze_model::{ParamInit, Sequences};
use cloze_tokenizer::Tokenizer;
use cloze_trainer::config::ElmoRunConfig;
use cloze_trainer::engine::Outcome;

const CONFIG: &str = r#"
objective.kind = "bidirectional-language-model"
tokenizer = { kind = "train-byte-bpe", vocab_size = 300 }
blocks.seq_len = 16
model = { max_characters = 10, d_character = 6, filters = [[1, 8], [2, 16], [3, 16]], n_highway = 1, d_hidden = 32, d_projection = 20, dropout = 0.0 }
train = { steps = 8, batch_size = 4 }
optimizer.lr = 5e-3
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_blocks = 40 }
log.every = 1
"#;

fn bench() -> Bench<ElmoRunConfig> {
    Bench::new(CONFIG, |i| format!("The ship number {i} sailed.\nNo ship sank.\n"))
}

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = bench();
    for (number, sets) in [
        vec!["model.dropout=0.1", "train.workers=2"],
        vec!["blocks.documents=apart", "train.accumulate=2", "average={ kind = \"ema\", decay = 0.5 }"],
    ]
    .into_iter()
    .enumerate()
    {
        bench.assert_same_bits_after_a_stop(&number.to_string(), &sets);
    }
}

#[test]
fn a_model_learns_its_text_both_ways_and_is_gone_on_with() {
    let _generator = crate::generator();
    let bench = bench();
    let loss = |outcome: &Outcome, name| outcome.figures("heldout").unwrap().get(name).unwrap();
    let untrained = loss(&bench.run("short", &["train.steps=1", "optimizer.lr=1e-9"]).unwrap(), "loss");
    let done = bench.run("first", &["train.steps=150", "eval.every=200"]).unwrap();
    let after = loss(&done, "loss");
    // The numbers of ships are hard to tell, all else is not.
    assert!(after < 0.4 * untrained, "{after} from {untrained}");
    assert!((loss(&done, "perplexity") - after.exp()).abs() < 1e-9);
    let metrics = std::fs::read_to_string(bench.path("first/metrics.jsonl")).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let last = lines.filter(|line| line.get("losses").is_some()).last().unwrap();
    let [forward, backward] = ["forward", "backward"].map(|term| last["losses"][term].as_f64().unwrap());
    assert!((last["loss"].as_f64().unwrap() - 0.5 * (forward + backward)).abs() < 1e-5, "{last}");
    // Both directions learn.
    assert!(forward < 0.5 * untrained && backward < 0.5 * untrained, "{forward}, {backward} of {untrained}");

    // What the run leaves has the tokenizer's pieces in bytes, and reads its ids.
    let folder = bench.path("first/model");
    let device = Device::flex();
    let (config, model, report) =
        load_published::<ElmoConfig>(&folder, &mut ParamInit::new(&device, 1)).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    let tokenizer = Tokenizer::load(&folder).unwrap();
    assert_eq!(config.vocab_size(), tokenizer.vocab_size());
    let ids: Vec<i32> =
        tokenizer.encode_ids("No ship sank.", false).unwrap().into_iter().map(|id| id as i32).collect();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| config.pieces.get(*id).to_vec()).collect();
    assert_eq!(bytes, b"No ship sank.");
    let text: Sequences = [ids.as_slice()].into_iter().collect();
    let mean = model.losses(&text, &device).previous.mean().into_scalar::<f32>();
    assert!(f64::from(mean) < 0.4 * untrained, "{mean}");

    let path = format!("model={{ path = {:?} }}", folder.display().to_string());
    let sets = [&path, "tokenizer={ kind = \"checkpoint\" }", "train.steps=1", "optimizer.lr=1e-9"];
    let again = bench.run("second", &sets).unwrap();
    assert!((loss(&again, "loss") - after).abs() < 1e-4);
}

#[test]
fn what_does_not_fit_is_said_before_the_first_step() {
    let bench = bench();
    let tokenizer = bench.path("characters.json");
    let characters = Tokenizer::characters(('a'..='z').chain([' ']), Vec::<String>::new(), None).unwrap();
    std::fs::write(&tokenizer, characters.to_json()).unwrap();
    let error = |sets: &[&str]| bench.run("refused", sets).unwrap_err().to_string();
    let message =
        error(&[&format!("tokenizer={{ kind = \"load\", path = {:?} }}", tokenizer.display().to_string())]);
    assert!(
        message.contains("characters.json; expected a tokenizer of bytes")
            && message.contains("`tokenizer.path`")
            && message.contains("`objective.kind` = \"bidirectional-language-model\""),
        "{message}"
    );
    let message = error(&["blocks.end=\"<gone>\""]);
    assert!(message.contains("`blocks.end` is \"<gone>\""), "{message}");
}
