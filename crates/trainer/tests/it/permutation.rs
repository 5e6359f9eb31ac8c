//! XLNet in training: what it learns, where a run may stop, what it leaves.

use crate::bench::Bench;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::huggingface::load_published;
use cloze_model::xlnet::XlnetConfig;
use cloze_tokenizer::Tokenizer;
use cloze_trainer::config::PermutationConfig;
use cloze_trainer::engine::Outcome;
use cloze_trainer::permutation::figure;

const CONFIG: &str = r#"
objective.kind = "permutation"
tokenizer = { kind = "train-wordpiece", vocab_size = 160 }
segments = { seq_len = 24, memory_len = 8 }
model = { n_layers = 2, d_model = 32, n_heads = 2, d_ff = 64, init_std = 0.1, dropout = 0.0 }
train = { steps = 8, batch_size = 4 }
optimizer.lr = 5e-3
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_blocks = 40 }
log.every = 1
"#;

fn bench() -> Bench<PermutationConfig> {
    Bench::new(CONFIG, |i| format!("The ship number {i} sailed.\nNo ship sank.\n"))
}

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = bench();
    for (number, sets) in [
        vec!["model.dropout=0.1", "train.workers=2"],
        vec!["segments.memory_len=0", "train.precision=bf16", "train.accumulate=2"],
    ]
    .into_iter()
    .enumerate()
    {
        bench.assert_same_bits_after_a_stop(&number.to_string(), &sets);
    }
}

#[test]
fn a_model_learns_its_text_and_is_gone_on_with() {
    let _generator = crate::generator();
    let bench = bench();
    let loss = |outcome: &Outcome, name| outcome.figures("heldout").unwrap().get(name).unwrap();
    let done = bench.run("first", &["train.steps=150", "eval.every=200"]).unwrap();
    let after = loss(&done, figure::LOSS);
    // The numbers of ships are hard to tell, all else is not.
    assert!(after < 1.5, "{after}");
    assert!((loss(&done, figure::PERPLEXITY) - after.exp()).abs() < 1e-9);

    // What the run leaves is a folder in Hugging Face's format.
    let folder = bench.path("first/model");
    let (config, _, report) =
        load_published::<XlnetConfig>(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
    assert!(report.unexpected.is_empty(), "{report:?}");
    assert_eq!((config.memory_len, config.n_layers), (Some(8), 2));
    let separator = Tokenizer::load(&folder).unwrap().token_to_id("[SEP]").unwrap();
    assert_eq!(config.end_token_id, Some(separator as usize));

    let path = format!("model.path={:?}", folder.display().to_string());
    let sets = [&path, "tokenizer.kind=checkpoint", "train.steps=1", "optimizer.lr=1e-9"];
    let again = bench.run("second", &sets).unwrap();
    assert!((loss(&again, figure::LOSS) - after).abs() < 1e-4);
}

#[test]
fn what_does_not_fit_the_text_is_said_before_the_first_step() {
    let bench = bench();
    let error = |sets: &[&str]| bench.run("refused", sets).unwrap_err().to_string();
    let message = error(&["segments.seq_len=5000"]);
    assert!(message.starts_with("the text has ") && message.contains("needs at least 5009"), "{message}");
    let message = error(&["segments.end=\"<gone>\""]);
    assert!(message.contains("`segments.end` is \"<gone>\""), "{message}");
}
