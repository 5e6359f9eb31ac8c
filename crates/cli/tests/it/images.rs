//! Runs on images that are interrupted, and images that cannot be used.

use crate::workplace::{Workplace, bitmap};
use cloze_model::huggingface::read_tensors;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

fn cloze(place: &Workplace, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    command.args(args).current_dir(place.root());
    command
}

fn done(mut command: Command) -> Output {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    ran
}

fn has_checkpoint(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
}

/// A run that is killed and resumed, with other workers, gives the model of one that is not.
fn killed_and_resumed(sets: &[&str]) -> Workplace {
    let place = Workplace::new();
    let train = |out: &str, workers: &str, more: &[&str]| {
        let mut command = cloze(&place, &["train", "configs/digits-vit.toml", "--out", out]);
        command.args(sets.iter().flat_map(|set| ["--set", set])).args(["--set", workers]).args(more);
        command
    };
    done(train("runs/whole", "train.workers=1", &[]));
    let mut child = train("runs/killed", "train.workers=3", &[]).stderr(Stdio::null()).spawn().unwrap();
    let checkpoints = place.root().join("runs/killed/checkpoints");
    while !has_checkpoint(&checkpoints) && child.try_wait().unwrap().is_none() {
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it ended before it was killed");
    done(train("runs/killed", "train.workers=2", &["--resume"]));
    let model = |run: &str| fs::read(place.root().join(run).join("model/model.safetensors")).unwrap();
    assert!(model("runs/whole") == model("runs/killed"), "another model after a kill");
    place
}

#[test]
fn a_killed_run_goes_on_with_the_same_bits_and_any_number_of_workers() {
    killed_and_resumed(&[
        "data.fraction=0.2",
        "train.epochs=2",
        "train.batch_size=16",
        "model.stochastic_depth=0.2",
        "model.hidden_dropout=0.1",
        "augment.flip=0.5",
        "augment.rand_augment={}",
        "mix={ mixup_alpha = 0.8, cutmix_alpha = 1.0 }",
        "checkpoint.every=1",
    ]);
}

/// Also that its folder is one that the other commands take, and that begins another run.
#[test]
fn a_residual_network_is_trained_resumed_asked_and_tuned() {
    let network = "model={ kind = \"resnet\", n_blocks = 1, widths = [8, 16], group_width = 4 }";
    let few = ["data.fraction=0.2", "train.epochs=2", "train.batch_size=16", "train.accumulate=2"];
    let sets = [&few[..], &[network, "augment.flip=0.5", "checkpoint.every=1"]].concat();
    let place = killed_and_resumed(&sets);
    let folder = "runs/whole/model";
    let config = fs::read_to_string(place.root().join(folder).join("config.json")).unwrap();
    assert!(config.contains("\"cloze-resnet\""), "{config}");
    let picture = place.root().join("a.bmp");
    fs::write(&picture, bitmap(1)).unwrap();
    fs::write(place.root().join("rows.jsonl"), "\"a.bmp\"\n").unwrap();
    let answer = |more: &[&str]| -> serde_json::Value {
        let args = ["predict", "--model", folder, "--input", "rows.jsonl"];
        serde_json::from_slice(&done(cloze(&place, &[&args[..], more].concat())).stdout).unwrap()
    };
    let (exact, rounded) = (answer(&[]), answer(&["--int8"]));
    assert_eq!(exact["scores"].as_object().unwrap().len(), 10);
    let apart = (exact["score"].as_f64().unwrap() - rounded["score"].as_f64().unwrap()).abs();
    assert!(apart < 0.2, "{exact} {rounded}");
    done(cloze(&place, &["eval", "--model", folder, "configs/digits-vit.toml", "--split", "test"]));
    // The last block and the head alone; in bf16.
    let tuned = format!(
        "model={{ kind = \"pretrained\", path = \"{folder}\", freeze_layers = 1, layer_decay = 0.9 }}"
    );
    let tune = |out: &str, more: &[&str]| {
        let args =
            ["train", "configs/digits-vit.toml", "--out", out, "--set", &tuned, "--set", "train.epochs=1"];
        let mut command = cloze(&place, &args);
        command.args(["--set", "data.fraction=0.05"]).args(more.iter().flat_map(|set| ["--set", set]));
        command
    };
    done(tune("runs/tuned", &["train.precision=\"bf16\""]));
    let tensors = |run: &str| {
        let all = read_tensors(&place.root().join(run).join("model/model.safetensors")).unwrap();
        ["resnet.stem.convolution.weight", "resnet.blocks.1.first.weight"].map(|name| all[name].clone())
    };
    let ([frozen, trained], [stem, block]) = (tensors("runs/whole"), tensors("runs/tuned"));
    assert!(frozen == stem && trained != block, "what is frozen, and what is not");
    let refused = tune("runs/refused", &["model.hidden_dropout=0.1"]).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("model.hidden_dropout"), "{message}");
}

/// A small classifier of digits.
fn classifier(place: &Workplace) -> PathBuf {
    let sets = ["--set", "data.fraction=0.02", "--set", "train.epochs=1", "--set", "model.n_layers=1"];
    let args = ["train", "configs/digits-vit.toml", "--out", "runs/small"];
    done(cloze(place, &[&args[..], &sets].concat()));
    place.root().join("runs/small/model")
}

#[test]
fn images_that_cannot_be_used_are_named_or_left_out() {
    let place = Workplace::new();
    classifier(&place);
    let write = |name: &str, bytes: &[u8]| fs::write(place.root().join(name), bytes).unwrap();
    let good = bitmap(3);
    write("good.bmp", &good);
    write("cut.bmp", &good[..100]);
    write("empty.png", b"");
    write("text.jpg", b"not a picture");
    // A PNG that says that it has 60,000 x 60,000 pixels.
    let mut huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    huge.extend([0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60, 8, 2, 0, 0, 0]);
    huge.extend([0xDE, 0xAD, 0xBE, 0xEF]);
    write("huge.png", &huge);
    let bad = ["cut.bmp", "empty.png", "text.jpg", "huge.png", "missing.png"];
    let predict = ["predict", "--model", "runs/small/model", "--input", "images.jsonl"];
    for name in bad {
        write("images.jsonl", format!("\"good.bmp\"\n{{\"image\": \"{name}\"}}\n").as_bytes());
        let ran = cloze(&place, &predict).output().unwrap();
        let [out, err] = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        // The row before it is answered.
        assert_eq!((ran.status.success(), out.lines().count()), (false, 1), "{name}: {out}");
        let errors: Vec<&str> = err.lines().filter(|line| line.starts_with("error:")).collect();
        assert!(
            errors.len() == 1 && errors[0].contains(name) && errors[0].contains("images.jsonl, line 2"),
            "{err}"
        );
    }
    let lines: Vec<String> =
        ["good.bmp"].iter().chain(&bad).chain(&["good.bmp"]).map(|name| format!("\"{name}\"\n")).collect();
    write("images.jsonl", lines.concat().as_bytes());
    let ran = done(cloze(&place, &[&predict[..], &["--on-bad-row", "skip"]].concat()));
    let out = String::from_utf8(ran.stdout).unwrap();
    let answers: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{out}");
    assert_eq!(answers[0]["scores"], answers[1]["scores"]);
    assert_eq!(answers[0]["scores"].as_object().unwrap().len(), 10);
}

#[test]
fn bad_training_images_are_an_error_or_counted() {
    let place = Workplace::new();
    for (class, number) in [("red", 0), ("green", 1)] {
        let folder = place.root().join("pictures").join(class);
        fs::create_dir_all(&folder).unwrap();
        for copy in 0..4 {
            fs::write(folder.join(format!("{copy}.bmp")), bitmap(number + 4 * copy)).unwrap();
        }
    }
    fs::write(place.root().join("pictures/red/bad.png"), b"no").unwrap();
    let sets = [
        "data={ train = { files = [\"pictures\"] }, size = [8, 8] }",
        "train.epochs=1",
        "model.n_layers=1",
        "train.batch_size=2",
    ];
    let train = |more: &[&str]| {
        let mut command = cloze(&place, &["train", "configs/digits-vit.toml", "--out", "runs/pictures"]);
        command.args(sets.iter().chain(more).flat_map(|set| ["--set", set]));
        command
    };
    let refused = train(&[]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("bad.png"), "{error}");
    let skipped = done(train(&["data.on_bad_image=skip"]));
    let told = String::from_utf8_lossy(&skipped.stderr).into_owned();
    assert!(told.contains("train: skipped 1") && told.contains("green, red"), "{told}");
}
