//! `cloze glue`: a folder as GLUE distributes it, with a few rows of each task.

use crate::program::encoder;
use crate::ran::run;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of all tasks, `rows` rows each, with the columns of the real ones.
fn files(rows: usize) -> Vec<(&'static str, String)> {
    let table = |header: &str, row: &dyn Fn(usize) -> String| {
        let rows = (0..rows).map(|i| row(i) + "\n").collect::<String>();
        if header.is_empty() { rows } else { format!("{header}\n{rows}") }
    };
    // Quotation marks are text in GLUE's files, and stand alone.
    let word = |i: usize| format!("{} \"word", ["good", "bad", "so so"][i % 3]);
    let either = |i: usize| i % 2;
    let entailment = |i: usize| ["entailment", "not_entailment"][i % 2];
    let three = |i: usize| ["entailment", "neutral", "contradiction"][i % 3];
    let pair = |i: usize| format!("{i}\t{}\t{}", word(i), word(i + 1));
    let mut files = Vec::new();
    for name in ["CoLA/train.tsv", "CoLA/dev.tsv"] {
        files.push((name, table("", &|i| format!("gj04\t{}\t*\t{}", either(i), word(i)))));
    }
    files.push(("CoLA/test.tsv", table("index\tsentence", &|i| format!("{i}\t{}", word(i)))));
    for name in ["SST-2/train.tsv", "SST-2/dev.tsv"] {
        files.push((name, table("sentence\tlabel", &|i| format!("{}\t{}", word(i), either(i)))));
    }
    files.push(("SST-2/test.tsv", table("index\tsentence", &|i| format!("{i}\t{}", word(i)))));
    let header = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String";
    let paraphrase =
        |i: usize| format!("{}\t{}\t{}\t{}\t{}", either(i), 2 * i, 2 * i + 1, word(i), word(i + 1));
    files.push(("MRPC/msr_paraphrase_train.txt", table(header, &paraphrase)));
    files.push(("MRPC/dev_ids.tsv", "0\t1\n2\t3\n".into()));
    files.push(("MRPC/msr_paraphrase_test.txt", table(header, &paraphrase)));
    let header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";
    let similar = |i: usize| format!("{i}\tmain\tfile\t2012\t{i}\ta\tb\t{}\t{}", word(i), word(i + 1));
    for name in ["STS-B/train.tsv", "STS-B/dev.tsv"] {
        files.push((name, table(&format!("{header}\tscore"), &|i| format!("{}\t{}.25", similar(i), i % 5))));
    }
    files.push(("STS-B/test.tsv", table(header, &similar)));
    for name in ["QQP/train.tsv", "QQP/dev.tsv"] {
        let header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate";
        let mut text = table(header, &|i| format!("{i}\t1\t2\t{}\t{}\t{}", word(i), word(i + 1), either(i)));
        // As in the real training data: a row that is cut in the middle.
        if name.contains("train") {
            text.push_str("99\t1\t2\tbroken\n");
        }
        files.push((name, text));
    }
    files.push(("QQP/test.tsv", table("id\tquestion1\tquestion2", &pair)));
    let header = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t\
                  sentence2_parse\tsentence1\tsentence2";
    let parsed = |i: usize| {
        format!("{i}\t1\t1e\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\t{}\t{}", word(i), word(i + 1))
    };
    for name in ["MNLI/train.tsv", "MNLI/dev_matched.tsv", "MNLI/dev_mismatched.tsv"] {
        let labels = format!("{header}\tlabel1\tgold_label");
        files.push((name, table(&labels, &|i| format!("{}\tneutral\t{}", parsed(i), three(i)))));
    }
    files.push(("MNLI/test_matched.tsv", table(header, &parsed)));
    files.push(("MNLI/test_mismatched.tsv", table(header, &parsed)));
    let header = "index\tquestion\tsentence";
    for name in ["QNLI/train.tsv", "QNLI/dev.tsv"] {
        files
            .push((name, table(&format!("{header}\tlabel"), &|i| format!("{}\t{}", pair(i), entailment(i)))));
    }
    files.push(("QNLI/test.tsv", table(header, &pair)));
    let header = "index\tsentence1\tsentence2";
    for name in ["RTE/train.tsv", "RTE/dev.tsv"] {
        files
            .push((name, table(&format!("{header}\tlabel"), &|i| format!("{}\t{}", pair(i), entailment(i)))));
    }
    files.push(("RTE/test.tsv", table(header, &pair)));
    for name in ["WNLI/train.tsv", "WNLI/dev.tsv"] {
        files.push((name, table(&format!("{header}\tlabel"), &|i| format!("{}\t{}", pair(i), either(i)))));
    }
    files.push(("WNLI/test.tsv", table(header, &pair)));
    files.push(("diagnostic/diagnostic.tsv", table(header, &pair)));
    files
}

fn lay_out(folder: &Path, files: &[(&str, String)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// A folder for data and one for runs, as words of a command line.
fn folders() -> (tempfile::TempDir, String, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("GLUE"), folder.path().join("out"));
    fs::create_dir(&data).unwrap();
    (folder, data.to_str().unwrap().to_owned(), out)
}

const SHORT: [&str; 4] = ["--set", "data.max_len=20", "--set", "train.epochs=1"];

#[test]
fn every_task_is_trained_once_and_answered() {
    const ROWS: usize = 6;
    let (_model, model) = encoder();
    let (_folder, data, out) = folders();
    lay_out(Path::new(&data), &files(ROWS));
    let args =
        [&["glue", "--data", &data, "--model", &model, "--out", out.to_str().unwrap()][..], &SHORT].concat();
    let first = run(&args, b"");
    let table = first.out.clone();
    let seen = first.err.clone();
    first.done();
    for row in [
        "CoLA matthews",
        "SST-2 accuracy",
        "MRPC f1",
        "MRPC accuracy",
        "STS-B pearson",
        "STS-B spearman",
        "QQP f1",
        "MNLI-m accuracy",
        "MNLI-mm accuracy",
        "QNLI accuracy",
        "RTE accuracy",
        "WNLI accuracy",
        "average of 9 tasks",
        "average without WNLI",
    ] {
        assert!(table.contains(&format!("│ {row} ")), "{row}: {table}");
    }
    assert!(seen.contains("train: skipped 1 of "), "{seen}");
    assert!(seen.contains("RTE/test.tsv has 6 rows, and the one that GLUE distributes 3,000"), "{seen}");

    let binary = ["0", "1"];
    let entailment = ["entailment", "not_entailment"];
    let three = ["entailment", "neutral", "contradiction"];
    let labels: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("AX", &three[..]),
        ("CoLA", &binary),
        ("MNLI-m", &three),
        ("MNLI-mm", &three),
        ("MRPC", &binary),
        ("QNLI", &entailment),
        ("QQP", &binary),
        ("RTE", &entailment),
        ("SST-2", &binary),
        ("WNLI", &binary),
    ]);
    let submission = fs::read(out.join("submission.zip")).unwrap();
    for name in labels.keys().copied().chain(["STS-B"]) {
        let text = fs::read_to_string(out.join(format!("submission/{name}.tsv"))).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("index\tprediction"), "{name}");
        for i in 0..ROWS {
            let (index, prediction) = lines.next().unwrap().split_once('\t').unwrap();
            assert_eq!(index, i.to_string(), "{name}");
            match labels.get(name) {
                Some(labels) => assert!(labels.contains(&prediction), "{name}: {prediction}"),
                None => {
                    let (_, decimals) = prediction.split_once('.').unwrap();
                    let score: f64 = prediction.parse().unwrap();
                    assert!(decimals.len() == 3 && (0.0..=5.0).contains(&score), "{prediction}");
                }
            }
        }
        assert_eq!(lines.next(), None, "{name}");
        let file = format!("{name}.tsv");
        assert!(submission.windows(file.len()).any(|bytes| bytes == file.as_bytes()), "{name}");
    }

    // What is done is not done again, and what is not is.
    fs::remove_dir_all(out.join("RTE")).unwrap();
    fs::remove_file(out.join("submission/AX.tsv")).unwrap();
    let again = run(&args, b"");
    assert_eq!(again.err.matches("done before").count(), 8, "{}", again.err);
    // RTE's model is the same again, so its answers are those of before.
    assert_eq!(again.err.matches("answered before").count(), 10, "{}", again.err);
    assert_eq!(again.done(), table);
    assert_eq!(fs::read(out.join("submission.zip")).unwrap(), submission);

    let json = run(&[&args[..], &["--json"]].concat(), b"").done();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["averaged_tasks"], 9);
    assert_eq!(json["seeds"], serde_json::json!([42]));
    let saved = fs::read_to_string(out.join("glue.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&saved).unwrap(), json);

    // A file that was emptied is told.
    fs::write(out.join("submission/RTE.tsv"), "").unwrap();
    let emptied = run(&args, b"");
    let error = emptied.error_line(1);
    assert!(error.contains("RTE.tsv has 0 rows and") && error.contains("remove the first"), "{error}");
}

#[test]
fn a_rate_is_chosen_by_the_first_seed() {
    let (_model, model) = encoder();
    let (_folder, data, out) = folders();
    lay_out(Path::new(&data), &files(8));
    let out = out.to_str().unwrap();
    let args =
        ["glue", "--data", &data, "--model", &model, "--tasks", "WNLI", "--seeds", "1,2", "--out", out];
    let more = ["--rates", "1e-3,2e-3", "--no-submission", "--json"];
    let printed = run(&[&args[..], &SHORT, &more].concat(), b"").done();
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let rate = json["learning_rates"]["wnli"].as_f64().unwrap();
    assert_eq!(json["tasks"]["WNLI"]["accuracy"]["runs"].as_array().unwrap().len(), 2);
    let of_seeds = |rate: &str| fs::read_dir(Path::new(out).join(format!("WNLI/lr-{rate}"))).unwrap();
    let seeds = |rate| {
        let names = of_seeds(rate).map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("seed-")).count()
    };
    let expected = if rate == 1e-3 { [2, 1] } else { [1, 2] };
    assert_eq!(["1e-3", "2e-3"].map(seeds), expected);
    assert!(!Path::new(out).join("submission.zip").exists());
}

#[test]
fn mistakes_are_told_before_training() {
    let (_model, model) = encoder();
    let (_folder, data, out) = folders();
    let out = out.to_str().unwrap();
    let glue = |more: &[&str]| {
        let args = ["glue", "--data", &data, "--model", &model, "--out", out];
        run(&[&args[..], &SHORT, more].concat(), b"")
    };
    let mut some = files(6);
    some.retain(|(name, _)| {
        !name.starts_with("QNLI") && *name != "RTE/dev.tsv" && !name.ends_with("dev_ids.tsv")
    });
    lay_out(Path::new(&data), &some);
    let ran = glue(&[]);
    let error = ran.error_line(1);
    for part in [
        "MRPC/train.tsv is missing (nor msr_paraphrase_train.txt and dev_ids.tsv)",
        "no folder QNLI",
        "RTE/dev.tsv is missing",
        "--tasks",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(glue(&["--tasks", "ax"]).error_line(2).contains("`--tasks` is ax without mnli; expected mnli"));
    assert!(
        glue(&["--tasks", "cola", "--rates", "x"]).error_line(2).contains("--rates: `x`; expected a number")
    );
    let unknown = glue(&["--tasks", "cola,snli"]);
    assert_eq!(unknown.status, 2);
    assert!(unknown.err.contains("expected one of cola, sst2, mrpc"), "{}", unknown.err);
    let another = glue(&["--tasks", "cola", "--set", "rte:train.epochs=1"]);
    let expected = "--set rte:train.epochs=1` is for a task that is not trained; expected one of the tasks that are: cola";
    assert!(another.status != 0 && another.err.contains(expected), "{}", another.err);
    assert!(!Path::new(out).exists());

    // A label that the task does not have; the tasks before it are not trained.
    let [(_, wnli)] = [files(6).into_iter().find(|(name, _)| *name == "WNLI/train.tsv").unwrap()];
    lay_out(Path::new(&data), &[("WNLI/train.tsv", wnli.replacen("\t1\n", "\tmaybe\n", 1))]);
    let refused = || glue(&["--tasks", "cola,wnli", "--no-submission"]).error_line(1).to_owned();
    let error = refused();
    assert!(error.contains("WNLI/train.tsv:3: column `label`: `maybe`, expected one of 0, 1"), "{error}");
    let header = wnli.lines().next().unwrap();
    lay_out(Path::new(&data), &[("WNLI/train.tsv", wnli.clone()), ("WNLI/dev.tsv", format!("{header}\n"))]);
    let error = refused();
    assert!(error.contains("WNLI/dev.tsv"), "{error}");
    assert!(!Path::new(out).join("CoLA").exists());
}
