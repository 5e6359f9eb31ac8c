//! `cloze transfer`: tasks compared by their encoders, and by what they give one another.

use crate::program::encoder;
use crate::ran::run;
use serde_json::Value;
use std::fs;
use std::path::Path;

const SENTENCES: &str = "one more\n\na b c d\nthe old sea\nwho sat by it\ngreen\n";

/// A configuration of a classification of some letters, which are what its label depends on.
fn config(folder: &Path, name: &str, model: &str, letters: &str) -> String {
    let rows = |n: usize, shift: usize| {
        let row = |i: usize| {
            let i = i + shift;
            let word: String = (0..4).map(|j| char::from(b'a' + ((i * 7 + j * 5) % 26) as u8)).collect();
            let label = if word.contains(|c| letters.contains(c)) { "yes" } else { "no" };
            format!("{word} {i}\t{label}\n")
        };
        format!("text\tlabel\n{}", (0..n).map(row).collect::<String>())
    };
    for (split, n, shift) in [("train", 40, 0), ("dev", 12, 40)] {
        fs::write(folder.join(format!("{name}-{split}.tsv")), rows(n, shift)).unwrap();
    }
    let path = |split: &str| folder.join(format!("{name}-{split}.tsv")).to_str().unwrap().to_owned();
    let text = format!(
        "[run]\nname = \"{name}\"\n[task]\nkind = \"classification\"\n[model]\npath = {model:?}\n[data]\n\
         train = {{ files = [{:?}] }}\ndev = [{:?}]\nmax_len = 20\n[train]\nepochs = 1\nbatch_size = 8\n\
         [optimizer]\nlr = 1e-3\n[schedule]\nkind = \"linear\"\n",
        path("train"),
        path("dev")
    );
    let file = folder.join(format!("{name}.toml"));
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn encoders_and_gains_are_compared() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (sentences, out) = (path("sentences.txt"), path("out"));
    fs::write(&sentences, SENTENCES).unwrap();
    let [first, second, third] = [("first", "abc"), ("second", "abc"), ("third", "xyz")]
        .map(|(name, letters)| config(folder.path(), name, &model, letters));
    // One of the tasks is trained before.
    let trained = path("trained");
    run(&["train", &first, "--out", &trained], b"").done();
    let base = format!("base={model}");
    let args =
        ["transfer", "--sentences", &sentences, "--out", &out, &trained, &second, &third, &base, "--json"];
    let more = ["--matrix", "--examples", "16", "--seeds", "1,2"];
    let ran = run(&[&args[..], &more].concat(), b"");
    assert!(ran.err.contains("second: training its encoder"), "{}", ran.err);
    assert!(!ran.err.contains("first: training its encoder"), "{}", ran.err);
    // Every run of the matrix begins with a new head, although all sources have one of the same labels: two encoders, and for
    // each of three targets two seeds from five beginnings.
    let new_heads = ran.err.matches("classifier.weight").count();
    assert_eq!(new_heads, 2 + 3 * 2 * 5, "{}", ran.err);
    let printed = ran.done();
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["names"], serde_json::json!(["first", "second", "third", "base"]));
    assert_eq!(json["facts"]["sentences"], "5");
    let layers = json["layers"].as_object().unwrap();
    for (number, layer) in layers.iter().enumerate() {
        assert_eq!(*layer.0, number.to_string());
        let of = |a: usize, b: usize| layer.1["similarity"][a][b].as_f64().unwrap();
        for a in 0..4 {
            assert!((of(a, a) - 1.0).abs() < 1e-12);
            (0..4).for_each(|b| assert!(of(a, b) == of(b, a) && of(a, b).abs() <= 1.0));
        }
        assert_eq!(layer.1["merges"].as_array().unwrap().len(), 3);
    }
    let transfer = &json["transfer"];
    assert_eq!(transfer["targets"], serde_json::json!(["first", "second", "third"]));
    assert_eq!(transfer["metrics"], serde_json::json!(["accuracy", "accuracy", "accuracy"]));
    // From the checkpoint of the configuration, there is nothing to gain.
    assert_eq!(transfer["gains"][3], serde_json::json!([0.0, 0.0, 0.0]));
    assert_eq!(transfer["agreement"].as_object().unwrap().len(), layers.len());
    let runs = fs::read_dir(folder.path().join("out/matrix/first")).unwrap().count();
    assert_eq!(runs, 5);
    let weights = |folder: &str| {
        let bytes = fs::read(Path::new(folder).join("model.safetensors")).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert!(weights(&path("trained/model")).contains("classifier.weight"));
    for beginning in ["from-first", "from-second", "from-base", "alone-first"] {
        let weights = weights(&path(&format!("out/encoders/{beginning}")));
        assert!(weights.contains("pooler.dense.weight"), "{beginning}");
        assert!(!weights.contains("classifier") && !weights.contains("cls."), "{beginning}");
    }

    // The page shows it, and what was trained is kept.
    let page = fs::read_to_string(folder.path().join("out/transfer.html")).unwrap();
    assert!(page.contains("<polyline") && page.contains("first (accuracy)"));
    let again = run(&[&args[..], &more].concat(), b"");
    // Two encoders, and for each of three targets two seeds from five beginnings.
    assert_eq!(again.err.matches("done before").count(), 2 + 3 * 2 * 5, "{}", again.err);
    assert_eq!(again.done(), printed);

    // Without --json, tables; one layer of them.
    let table = run(&[&args[..args.len() - 1], &["--layers", "-1"]].concat(), b"").done();
    assert!(table.contains("similarity, layer -1") && !table.contains("layer 0"), "{table}");
}

#[test]
fn what_a_configuration_leaves_out_is_chosen_and_long_sentences_are_counted() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (sentences, out) = (path("sentences.txt"), path("out"));
    fs::write(&sentences, SENTENCES).unwrap();
    let short = config(folder.path(), "short", &model, "abc");
    let text = fs::read_to_string(&short).unwrap();
    fs::write(&short, text.split_once("[train]").unwrap().0).unwrap();
    let base = format!("base={model}");
    let args =
        ["transfer", "--sentences", &sentences, "--out", &out, "--max-len", "6", &short, &base, "--json"];
    let ran = run(&[&args[..], &["--set", "train.epochs=1"]].concat(), b"");
    assert!(ran.err.contains("chosen for 40 training examples: batches of 8"), "{}", ran.err);
    // A letter is a piece: only "a b c d" is not longer, with the two special tokens.
    let cut = "4 at 6 tokens by short, 4 at 6 tokens by base";
    assert!(ran.err.contains(&format!("sentences that are too long were cut: {cut}")), "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.done()).unwrap();
    assert_eq!(json["facts"]["sentences cut"], cut);
}

#[test]
fn what_cannot_be_compared_is_told() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (sentences, out) = (path("sentences.txt"), path("out"));
    fs::write(&sentences, SENTENCES).unwrap();
    let two = [format!("a={model}"), format!("b={model}")];
    let transfer = |more: &[&str]| {
        run(&[&["transfer", "--sentences", &sentences, "--out", &out][..], more].concat(), b"")
    };
    let [a, b] = [&*two[0], &*two[1]];
    let same = transfer(&[a, a]);
    assert!(
        same.error_line(2).contains("`tasks` is twice a; expected another name for each"),
        "{}",
        same.err
    );
    let matrix = transfer(&[a, b, "--matrix"]);
    assert!(matrix.error_line(2).contains("given without a configuration"), "{}", matrix.err);
    fs::write(&sentences, "one\n\ntwo\n").unwrap();
    let few = transfer(&[a, b]);
    assert!(
        few.error_line(2).contains("`--sentences` is 2 sentences; expected 3 sentences or more"),
        "{}",
        few.err
    );
    fs::write(&sentences, "\n \n").unwrap();
    assert!(transfer(&[a, b]).error_line(1).contains("it has no sentence"));
    fs::write(&sentences, SENTENCES).unwrap();
    let corpus = path("corpus.toml");
    fs::write(&corpus, "[corpus]\nfiles = [\"a.txt\"]\n").unwrap();
    let other = transfer(&[a, &corpus]);
    assert!(
        other.error_line(2).contains("not a configuration that fine-tunes a text model"),
        "{}",
        other.err
    );
    assert!(!Path::new(&out).exists());
    let layers = transfer(&[a, b, "--layers", "0,7"]);
    assert!(layers.error_line(2).contains("`--layers` is 7; expected a number from 0"), "{}", layers.err);
}
