//! `cloze prune`.

use crate::program::classifier;
use crate::ran;
use std::fs;
use std::path::Path;

const TEXTS: &[u8] = b"\"some words\"\n\"b\"\n{\"text\": \"a\"}\n";

fn run(args: &[&str]) -> ran::Ran {
    ran::run(args, b"")
}

#[test]
fn a_pruned_model_is_read_by_the_other_commands() {
    let (folder, model) = classifier();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let rows = "text\tlabel\nsome words\tyes\nb\tno\nq r s\tyes\na b\tno\n";
    fs::write(place("data.tsv"), rows).unwrap();
    let config = format!(
        "task.kind = \"classification\"\nmodel.path = \"none\"\noptimizer.lr = 1e-3\n\
         train = {{ epochs = 1, batch_size = 1 }}\nschedule.kind = \"constant\"\n[data]\nmax_len = 16\n\
         train.files = [{0:?}]\ndev = [{0:?}]\n",
        place("data.tsv")
    );
    fs::write(place("run.toml"), config).unwrap();
    let config = place("run.toml");
    let prune = |out: &str, more: &[&str]| {
        let out = place(out);
        run(&[&["prune", "--model", &model, "--out", &out], more].concat())
    };
    let predict = |name: &str| ran::run(&["predict", "--model", &place(name)], TEXTS).done();
    let scores = |name: &str| -> Vec<f64> {
        let lines: Vec<serde_json::Value> =
            predict(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().map(|line| line["scores"]["yes"].as_f64().unwrap()).collect()
    };
    let half = ["--data", &config, "--heads", "0.5", "--neurons", "0.5"];
    let small = prune("small", &half);
    for part in ["heads", "4 → 2", "48 → 24", "accuracy", "parameters"] {
        assert!(small.err.contains(part), "{part}: {}", small.err);
    }
    assert_eq!(small.done(), format!("{}\n", place("small")));
    let padded = prune("padded", &[&half[..], &["--padded"]].concat());
    assert!(padded.err.contains("zeros make no matrix smaller and no product faster"), "{}", padded.err);
    for (small, padded) in scores("small").iter().zip(scores("padded")) {
        assert!((small - padded).abs() < 1e-5, "{small} {padded}");
    }
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(Path::new(&place(name)).join("config.json")).unwrap()).unwrap()
    };
    assert_eq!(
        (&json("small")["intermediate_size"], &json("padded")["intermediate_size"]),
        (&12.into(), &24.into())
    );
    assert!(json("small")["pruned_heads"].is_object() && json("padded")["pruned_heads"].is_null());
    let page = fs::read_to_string(Path::new(&place("small")).join("pruning.html")).unwrap();
    assert!(page.contains("<del>"), "removed heads are marked");

    // Layers and pieces need no data.
    assert!(prune("layer", &["--layers", "1"]).err.contains("layers kept"));
    assert_eq!(json("layer")["num_hidden_layers"], 1);
    predict("layer");
    fs::write(place("texts.txt"), "some words\nb\na c\n").unwrap();
    let fewer = prune("pieces", &["--vocabulary", &place("texts.txt")]);
    assert!(fewer.err.contains("pieces"), "{}", fewer.err);
    assert!(json("pieces")["vocab_size"].as_u64() < Some(57));
    let before: Vec<serde_json::Value> = ran::run(&["predict", "--model", &model], TEXTS)
        .done()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (after, before) in scores("pieces").iter().zip(&before) {
        assert!((after - before["scores"]["yes"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn what_cannot_be_pruned_is_one_line_and_leaves_nothing() {
    let (folder, model) = classifier();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let out = place("out");
    let prune = |more: &[&str]| run(&[&["prune", "--model", &model, "--out", &out], more].concat());
    assert!(prune(&[]).error_line(2).contains("nothing to remove: give --heads, --neurons"));
    assert!(prune(&["--heads", "0.5"]).error_line(2).contains("--data"));
    assert!(prune(&["--heads", "1.5", "--data", "x"]).error_line(2).contains("a share above 0 and below 1"));
    assert!(prune(&["--layers", "7"]).error_line(2).contains("`layers` is [7], expected layers from 0 to 1"));
    assert!(prune(&["--layers", "0", "--n-layers", "1"]).error_line(2).contains("cannot be used with"));
    assert!(prune(&["--vocabulary", &place("none.txt")]).error_line(1).contains("none.txt"));
    fs::write(place("empty.txt"), "\n").unwrap();
    assert!(prune(&["--vocabulary", &place("empty.txt")]).error_line(2).contains("the files have no text"));
    fs::write(place("x.toml"), "[run]\nname = \"x\"\n").unwrap();
    let none = prune(&["--n-layers", "1", "--data", &place("x.toml")]);
    assert!(none.error_line(2).contains("it has no [task]"));
    assert!(!Path::new(&out).exists());
    let left = fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".cloze-"));
    assert_eq!(left.count(), 0, "no unfinished folder stays");
}
