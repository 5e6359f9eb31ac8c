//! Parallel data in every format, damaged, and the configuration of a translation run.

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::formats::{self, parquet};
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::{SHORT, pairs};

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    let rows = pairs(12);
    let side = |at: usize| rows.iter().map(|row| row[at].clone() + "\n").collect::<String>();
    let table = |delimiter: &str| rows.iter().map(|row| row.join(delimiter) + "\n").collect::<String>();
    let lines = || {
        let line = |row: &Vec<String>| serde_json::json!({"translation": {"en": row[0], "de": row[1]}});
        rows.iter().map(|row| line(row).to_string() + "\n").collect::<String>()
    };
    let one = |name: &str| format!("{{files=[{name:?}]}}");
    let (name, file, files) = match case.random.below(6) {
        0 => ("p.tsv", mutate::text(&mut case.random, &table("\t")), one("p.tsv")),
        1 => ("p.csv", mutate::text(&mut case.random, &table(",")), one("p.csv")),
        2 => {
            let columns = "{source=\"translation.en\",target=\"translation.de\"}";
            let files = format!("{{files=[\"p.jsonl\"],columns={columns}}}");
            ("p.jsonl", mutate::text(&mut case.random, &lines()), files)
        }
        3 => {
            let bytes = mutate::bytes(&mut case.random, &parquet::file(&["en", "de"], &rows));
            ("p.parquet", bytes, one("p.parquet"))
        }
        4 => {
            let files = "{source=[\"p.en.gz\"],target=[\"seeds/train.de\"]}".to_owned();
            ("p.en.gz", formats::gzip(&mutate::text(&mut case.random, &side(0))), files)
        }
        _ => {
            let files = "{source=[\"seeds/train.en\"],target=[\"p.de\"]}".to_owned();
            ("p.de", mutate::text(&mut case.random, &side(1)), files)
        }
    };
    case.write(name, file)?;
    let split = *case.random.pick(&["train", "train", "dev", "test"]);
    let mut attempt = Attempt::new(["train", "seeds/translation.toml", "--out", "out", "--set", SHORT.0]);
    attempt = attempt.arg("--set").arg(format!("parallel.{split}={files}"));
    if case.random.one_in(2) {
        attempt = attempt.arg("--set").arg("parallel.on_bad_pair=\"skip\"");
    }
    if case.random.one_in(6) {
        let key = *case.random.pick(&[
            "parallel.max_len",
            "train.batch_tokens",
            "train.label_smoothing",
            "average.checkpoints",
            "average.every",
            "tokenizer.vocab_size",
            "eval.beams",
            "model.n_decoder_layers",
        ]);
        attempt = attempt.arg("--set").arg(format!("{key}={}", mutate::extreme(&mut case.random)));
    }
    case.run(attempt.seconds(60))?;
    Ok(())
}
