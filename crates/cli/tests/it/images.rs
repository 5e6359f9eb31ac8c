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

/// Hard attention carries its baseline from step to step, and draws places.
#[test]
fn a_killed_run_of_captions_goes_on_with_the_same_bits() {
    let place = Workplace::new();
    let sets = [
        "data.source={ kind = \"scenes\", train = 48, dev = 4, test = 0 }",
        "train.epochs=3",
        "train.batch_size=6",
        "train.accumulate=2",
        "model.encoder.widths=[8, 16]",
        "model.decoder.dropout=0.2",
        "data.captions_per_image=2",
        "checkpoint.every=1",
    ];
    let train = |out: &str, workers: &str, more: &[&str]| {
        let mut command = cloze(&place, &["train", "configs/scenes-hard.toml", "--out", out]);
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
}

/// Pictures with a caption each: a colour.
fn captioned(place: &Workplace) {
    let mut rows = String::from("image,caption\n");
    for number in 0..12 {
        fs::write(place.root().join(format!("{number}.bmp")), bitmap(number)).unwrap();
        let colour = ["red", "green", "blue", "grey"][number % 4];
        rows += &format!("{number}.bmp,\"A {colour} picture.\"\n");
    }
    fs::write(place.root().join("captions.csv"), rows).unwrap();
}

#[test]
fn a_table_of_captions_becomes_a_model_that_writes_some() {
    let place = Workplace::new();
    captioned(&place);
    let table =
        "data.source={ kind = \"tables\", train = { files = [\"captions.csv\"] }, dev_fraction = 0.25 }";
    let sets =
        [table, "data.size=[16, 16]", "train.epochs=2", "train.batch_size=4", "schedule.warmup_steps=1"];
    for (config, encoder) in [
        ("scenes-soft", "model.encoder.widths=[8, 16]"),
        ("scenes-hard", "model.encoder.widths=[8, 16]"),
        ("scenes-no-attention", "model.encoder.widths=[8, 16]"),
        (
            "scenes-transformer",
            "model.encoder={ kind = \"vit\", patch_size = 8, n_layers = 1, d_model = 32, n_heads = 2, d_ff = 64 }",
        ),
    ] {
        let (path, out) = (format!("configs/{config}.toml"), format!("runs/{config}"));
        let mut command = cloze(&place, &["train", &path, "--out", &out]);
        command.args(sets.iter().chain([&encoder]).flat_map(|set| ["--set", set]));
        done(command);
        let model = format!("{out}/model");
        let page = format!("{config}.html");
        let args = [
            "caption",
            "--model",
            &model,
            "--beam",
            "2",
            "--n-best",
            "2",
            "--json",
            "--attention",
            &page,
            "0.bmp",
            "5.bmp",
        ];
        let ran = done(cloze(&place, &args));
        let out = String::from_utf8(ran.stdout).unwrap();
        let lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{out}");
        for line in &lines {
            let captions = line["captions"].as_array().unwrap();
            assert_eq!(captions.len(), 2);
            assert!(captions[0]["score"].as_f64() >= captions[1]["score"].as_f64());
            let places = line["grid"][0].as_u64().unwrap() * line["grid"][1].as_u64().unwrap();
            for word in captions.iter().flat_map(|caption| caption["words"].as_array().unwrap()) {
                let Some(attention) = word["attention"].as_array() else {
                    assert_eq!(config, "scenes-no-attention");
                    continue;
                };
                let sum: f64 = attention.iter().map(|share| share.as_f64().unwrap()).sum();
                assert!(attention.len() as u64 == places && (sum - 1.0).abs() < 1e-4, "{sum}");
            }
        }
        let page = fs::read_to_string(place.root().join(page)).unwrap();
        assert!(
            page.contains("5.bmp") && page.contains("data:image/png;base64,") && !page.contains("<script")
        );
        // One image alone is described as among others, and lines are plain without --json.
        let alone = done(cloze(&place, &["caption", "--model", &model, "--beam", "2", "5.bmp"]));
        let alone = String::from_utf8(alone.stdout).unwrap();
        assert_eq!(alone, format!("5.bmp\t{}\n", lines[1]["captions"][0]["text"].as_str().unwrap()));
    }
    // A model is measured as training measures it.
    let args =
        ["eval", "--model", "runs/scenes-soft/model", "runs/scenes-soft/config.toml", "--json", "--cost"];
    let ran = done(cloze(&place, &args));
    let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let text = fs::read_to_string(place.root().join("runs/scenes-soft/report/dev/figures.json")).unwrap();
    let reported: serde_json::Value = serde_json::from_str(&text).unwrap();
    for name in ["cider", "bleu_4", "rouge_l", "distinct", "attention_moves"] {
        assert_eq!(found["figures"][name], reported["figures"][name], "{name}: {found}, {reported}");
    }
    assert!(found["cost"]["parameters"].as_u64() > Some(1_000), "{found}");
    let ran = cloze(&place, &[&args[..4], &["--split", "test"]].concat()).output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(2) && err.contains("names no images in `data.source.test`"), "{err}");
    // A checkpoint goes on with its own vocabulary.
    let model =
        "model={ kind = \"pretrained\", path = \"runs/scenes-soft/model\", freeze = [\"encoder.*\"] }";
    let text = fs::read_to_string(place.root().join("configs/scenes-soft.toml")).unwrap();
    let (before, rest) = text.split_once("[model]").unwrap();
    let (_, after) = rest.split_once("[data]").unwrap();
    fs::write(
        place.root().join("again.toml"),
        format!("{before}[model]\nkind = \"pretrained\"\npath = \"x\"\n\n[data]{after}"),
    )
    .unwrap();
    let mut command = cloze(&place, &["train", "again.toml", "--out", "runs/again", "--set", model]);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    done(command);
    let read = |run: &str| fs::read(place.root().join(run).join("model/tokenizer.json")).unwrap();
    assert_eq!(read("runs/again"), read("runs/scenes-soft"));
    // Another captioner, and a classifier, begin with its encoder.
    let encoder = "{ kind = \"pretrained\", path = \"runs/scenes-soft/model\", freeze = [\"encoder.*\"] }";
    let mut command = cloze(&place, &["train", "configs/scenes-transformer.toml", "--out", "runs/other"]);
    let encoder_of = format!("model.encoder={encoder}");
    command.args(sets.iter().chain([&&*encoder_of]).flat_map(|set| ["--set", set]));
    done(command);
    let mut command = cloze(&place, &["train", "configs/digits-vit.toml", "--out", "runs/classes"]);
    command.args(["--set", "train.epochs=1", "--set", &format!("model={encoder}")]);
    done(command);
    let maps = |run: &str, encoder: &str| {
        let all = read_tensors(&place.root().join(run).join("model/model.safetensors")).unwrap();
        ["stem.convolution.weight", "blocks.1.first.weight"]
            .map(|name| all[&format!("{encoder}.{name}")].clone())
    };
    let own = maps("runs/scenes-soft", "encoder");
    assert!(maps("runs/other", "encoder") == own && maps("runs/classes", "resnet") == own);
}

#[test]
fn what_cannot_be_described_is_told_in_one_line() {
    let place = Workplace::new();
    captioned(&place);
    let write = |name: &str, text: &str| fs::write(place.root().join(name), text).unwrap();
    write("bad.csv", "image,caption\n0.bmp,fine\n1.bmp, \n");
    write("missing.csv", "image,caption\n0.bmp,fine\nnone.bmp,gone\n");
    write("broken.csv", "image,caption\n0.bmp,fine\nbroken.png,no picture\n");
    write("broken.png", "no");
    let table =
        |file: &str| format!("data.source={{ kind = \"tables\", train = {{ files = [\"{file}\"] }} }}");
    let [bad, missing, broken, good] = ["bad.csv", "missing.csv", "broken.csv", "captions.csv"].map(table);
    let cases: [(&[&str], &str); 11] = [
        (&[&bad], "bad.csv"),
        (&[&missing], "none.bmp"),
        (&[&broken], "broken.png"),
        (&[&good, "data.max_len=3"], "`data.max_len` is 3; expected at least"),
        (&["data.source={ kind = \"scenes\", train = 20001 }"], "`data.source.train` is 20001"),
        (&["augment.flip=0.5"], "`augment.flip` is 0.5; expected 0"),
        (
            &["model.encoder={ kind = \"pretrained\", path = \"x\", pooling = \"mean\" }"],
            "`model.encoder.pooling` is mean; expected it to be absent",
        ),
        (&["task.reward=1"], "`task.reward` is 1; expected it to be absent"),
        (&["model.decoder.attention=\"loud\""], "loud"),
        (&["model.decoder.d_model=0"], "`model.decoder.d_model` is 0; expected at least 1"),
        (
            &[
                "eval.metric=\"accuracy\"",
                "data.source={ kind = \"scenes\", train = 8, dev = 4, test = 0 }",
                "train.epochs=1",
            ],
            "accuracy",
        ),
    ];
    for (sets, expected) in cases {
        let mut command = cloze(&place, &["train", "configs/scenes-soft.toml", "--out", "runs/none"]);
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        let ran = command.output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        let errors: Vec<&str> = err.lines().filter(|line| line.starts_with("error:")).collect();
        assert!(
            !ran.status.success() && errors.len() == 1 && errors[0].contains(expected),
            "{sets:?}: {err}"
        );
    }
    classifier(&place);
    let ran = cloze(&place, &["caption", "--model", "runs/small/model", "0.bmp"]).output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(2) && err.contains("it does not describe images"), "{err}");
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
            errors.len() == 1 && errors[0].contains(name) && errors[0].contains("images.jsonl:2"),
            "{err}"
        );
    }
    let lines: Vec<String> =
        ["good.bmp"].iter().chain(&bad).chain(&["good.bmp"]).map(|name| format!("\"{name}\"\n")).collect();
    write("images.jsonl", lines.concat().as_bytes());
    let ran = done(cloze(&place, &[&predict[..], &["--on-bad-row", "skip", "--max-skipped", "1"]].concat()));
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
    assert!(told.contains("train: skipped 1"), "{told}");
    // The classes, before training.
    for class in ["green", "red"] {
        let row = told.lines().find(|line| line.starts_with(&format!("│ {class} "))).unwrap();
        assert!(row.contains(" 4 "), "{told}");
    }
    let rare =
        "classes with fewer than 5 training examples, of which to expect little: `green` (4), `red` (4)";
    assert!(told.contains(rare), "{told}");
}
