//! The cache of prepared corpora: what is damaged is made anew, and never used.

use std::fs;

use anyhow::{Context, Result};

use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::world::RUNS;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let run = &RUNS[0];
    let (whole, _) = case.world.whole(run)?;
    case.world.bring_data(case)?;
    case.bring("unfinished", "run")?;
    case.bring("cache", "cache")?;
    let entries: Vec<_> = fs::read_dir(case.path("cache"))?.flatten().map(|entry| entry.path()).collect();
    for entry in &entries {
        let name = *case.random.pick(&["meta.json", "tokens.bin", "sentences.bin", "documents.bin"]);
        let path = entry.join(name);
        let Ok(seed) = fs::read(&path) else { continue };
        match case.random.below(8) {
            0 => fs::remove_file(&path)?,
            1 => {
                fs::remove_dir_all(entry)?;
                fs::write(entry, "a file")?;
            }
            2 if name == "meta.json" => {
                let seed = serde_json::from_slice(&seed).context("the world's cache cannot be read")?;
                fs::write(&path, mutate::json(&mut case.random, &seed))?;
            }
            _ => fs::write(&path, mutate::bytes(&mut case.random, &seed))?,
        }
    }
    let ran = case.run(run.attempt("run").arg("--resume").seconds(30))?;
    if ran.succeeded() {
        case.expect_same(&whole.join("model"), &case.path("run/model"), "unequal bits after a damaged cache");
    }
    Ok(())
}
