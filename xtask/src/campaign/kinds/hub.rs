//! The cache of the hub, without the hub.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::program::Attempt;

const MODEL: &str = "hf/hub/models--someone--mini";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Lays out the cache as a download leaves it.
fn lay_out(case: &Case<'_>) -> Result<()> {
    let snapshot = case.path(format!("{MODEL}/snapshots/{COMMIT}"));
    fs::create_dir_all(&snapshot)?;
    case.write(format!("{MODEL}/refs/main"), COMMIT)?;
    for (i, name) in ["config.json", "model.safetensors", "tokenizer.json"].iter().enumerate() {
        let blob = format!("blob{i}");
        case.bring(&format!("models/mlm/{name}"), &format!("{MODEL}/blobs/{blob}"))?;
        symlink(format!("../../blobs/{blob}"), snapshot.join(name))?;
    }
    Ok(())
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    lay_out(case)?;
    let snapshot = case.path(format!("{MODEL}/snapshots/{COMMIT}"));
    let name = *case.random.pick(&["config.json", "model.safetensors", "tokenizer.json"]);
    let outside = case.path("outside.txt");
    fs::write(&outside, "not the model's")?;
    match case.random.below(10) {
        0 => {
            let reference = *case.random.pick(&["", "\n", "../../..", "x/../../etc", "zzzz", "\0", "-"]);
            case.write(format!("{MODEL}/refs/main"), reference)?;
        }
        1 => {
            let blob = format!("{MODEL}/blobs/blob{}", case.random.below(3));
            fs::remove_file(case.path(blob))?;
        }
        2 => {
            let link = snapshot.join(name);
            fs::remove_file(&link)?;
            let target = *case.random.pick(&[
                "config.json",
                "model.safetensors",
                ".",
                "/",
                "../../../../outside.txt",
                "nowhere",
            ]);
            symlink(target, link)?;
        }
        3 => {
            fs::remove_file(snapshot.join(name))?;
            fs::create_dir(snapshot.join(name))?;
        }
        4 => {
            fs::remove_dir_all(&snapshot)?;
            symlink(*case.random.pick(&[".", "../snapshots", "/tmp", "nowhere"]), &snapshot)?;
        }
        5 => symlink("..", snapshot.join("more"))?,
        6 => fs::write(snapshot.join("odd\x1b[31m\nname"), "x")?,
        7 => {
            fs::remove_dir_all(case.path(MODEL))?;
            fs::write(case.path(MODEL), "a file")?;
        }
        _ => {
            let blob = format!("{MODEL}/blobs/blob{}", case.random.below(3));
            case.damage(&blob)?;
        }
    }
    let names = [
        "someone/mini",
        "someone/mini",
        "someone/mini@main",
        "someone/mini@../..",
        "someone/mini@0123",
        "no/such",
        "a/b/c",
        "someone/mini\x1b[31m",
    ];
    let model = *case.random.pick(&names);
    let attempt = match case.random.below(4) {
        0 => Attempt::new(["pull", model, "--out", "copy"]),
        1 => Attempt::new(["pull", model]),
        2 => Attempt::new(["fill-mask", "--model", model, "the [MASK]"]),
        _ => Attempt::new(["embed", "--model", model]).input("the law\n"),
    };
    let attempt = attempt.environment("HF_HOME", "hf").environment("HF_HUB_OFFLINE", "1").seconds(20);
    case.run(attempt)?;
    case.expect(fs::read(&outside)? == b"not the model's", "a file outside of the cache was written to");
    Ok(())
}
