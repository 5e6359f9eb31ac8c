//! `cloze glue`: odd folders of GLUE.

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::sentence;

/// Rows of two sentences, with a label if asked for.
fn pairs(n: usize, is_labelled: bool) -> String {
    let mut text = "index\tsentence1\tsentence2".to_owned();
    text.push_str(if is_labelled { "\tlabel\n" } else { "\n" });
    for i in 0..n {
        let label = ["entailment", "not_entailment"][i % 2];
        let label = if is_labelled { format!("\t{label}") } else { String::new() };
        text.push_str(&format!("{i}\t{}\t{}{label}\n", sentence(i), sentence(2 * i)));
    }
    text
}

/// Sentences with a label, in CoLA's four columns.
fn sentences(n: usize) -> String {
    (0..n).map(|i| format!("gj04\t{}\t\t{}\n", i % 2, sentence(i))).collect()
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let tests: String = (0..4).map(|i| format!("{i}\t{}\n", sentence(i))).collect();
    let mut files = [
        ("GLUE/RTE/train.tsv", pairs(8, true)),
        ("GLUE/RTE/dev.tsv", pairs(4, true)),
        ("GLUE/RTE/test.tsv", pairs(4, false)),
        ("GLUE/CoLA/train.tsv", sentences(8)),
        ("GLUE/CoLA/dev.tsv", sentences(4)),
        ("GLUE/CoLA/test.tsv", format!("index\tsentence\n{tests}")),
    ]
    .map(|(name, text)| (name, text.into_bytes()));
    let at = case.random.below(files.len() + 1);
    let is_missing = case.random.one_in(4);
    if let Some((_, text)) = files.get_mut(at) {
        let whole = String::from_utf8_lossy(text).into_owned();
        *text = mutate::text(&mut case.random, &whole);
    }
    for (place, (name, text)) in files.iter().enumerate() {
        if place != at || !is_missing {
            case.write(name, text)?;
        }
    }
    let call = ["glue", "--data", "GLUE", "--model", "model", "--tasks", "cola,rte", "--out", "out"];
    let sets = ["--set", "train.epochs=1", "--set", "data.max_len=16"];
    let ran = case.run(Attempt::new(call.into_iter().chain(sets)).seconds(60))?;
    case.expect(ran.succeeded() || at < files.len(), "a whole folder is refused");
    if ran.succeeded() {
        case.expect(case.path("out/submission.zip").is_file(), "exit status 0 without a submission");
    }
    Ok(())
}
