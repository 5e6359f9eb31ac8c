//! `cloze likelihood` and `cloze knowledge`: figures, reports and failures.

use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The small models of the golden files.
fn model(name: &str) -> String {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/likelihood");
    fixtures.join(name).canonicalize().unwrap().display().to_string()
}

fn cloze(args: &[&str], folder: &Path, input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    command
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What a command that succeeds prints.
fn printed(args: &[&str], folder: &Path, input: &str) -> String {
    let (code, out, err) = cloze(args, folder, input);
    assert_eq!(code, Some(0), "{args:?}: {err}");
    out
}

fn object(args: &[&str], folder: &Path) -> Value {
    serde_json::from_str(&printed(args, folder, "")).unwrap()
}

#[test]
fn sentences_are_scored_in_lines_and_tables() {
    let place = tempfile::tempdir().unwrap();
    let (bert, t5) = (model("bert"), model("t5"));
    let lines = "The old sailor sails.\nBoats sink\n";
    let out = printed(&["likelihood", "--model", &bert, "--json"], place.path(), lines);
    let scored: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(scored[1]["text"], "Boats sink");
    let of = |score: &Value, key: &str| score[key].as_f64().unwrap();
    for score in &scored {
        let pieces = score["pieces"].as_array().unwrap();
        let sum: f64 = pieces.iter().map(|piece| of(piece, "log_prob")).sum();
        assert!((sum - of(score, "sum")).abs() < 1e-9 && sum < 0.0);
        assert_eq!(of(score, "n_pieces") as usize, pieces.len());
        assert!((of(score, "mean") - sum / pieces.len() as f64).abs() < 1e-9);
    }
    assert!((of(&scored[1], "per_word") - of(&scored[1], "sum") / 2.0).abs() < 1e-9);
    assert!((of(&scored[1], "per_byte") - of(&scored[1], "sum") / 10.0).abs() < 1e-9);
    // The same figures as text and as cells.
    let out = printed(&["likelihood", "--model", &bert], place.path(), lines);
    let cells: Vec<&str> = out.lines().nth(1).unwrap().split('\t').collect();
    assert_eq!(out.lines().next(), Some("sum\tmean\tper_word\tper_byte\tn_pieces\ttext"));
    assert_eq!((cells[0], cells[5]), (&*format!("{:.4}", of(&scored[0], "sum")), "The old sailor sails."));
    fs::write(place.path().join("a.csv"), "id,s\n7,Boats sink\n8,\n").unwrap();
    let args =
        ["likelihood", "--model", &bert, "--columns", "text=s", "--on-bad-row", "skip", "--input", "a.csv"];
    let out = printed(&args, place.path(), "");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        (rows.len(), &rows[0][..3], &rows[1][..2]),
        (2, &["id", "s", "sum"][..], &["7", "Boats sink"][..])
    );
    assert!((rows[1][2].parse::<f64>().unwrap() - of(&scored[1], "sum")).abs() < 1e-4);
    // Words of several pieces score less if their later pieces are hidden too.
    let plain = printed(&["likelihood", "--model", &bert, "--metric", "pll", "--json"], place.path(), lines);
    assert_ne!(plain, printed(&["likelihood", "--model", &bert, "--json"], place.path(), lines));
    // A target given its source.
    let out = printed(&["likelihood", "--model", &t5, "--json"], place.path(), "sea\tBoats sink\n");
    let score: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&score["source"], &score["text"]), (&json!("sea"), &json!("Boats sink")));
    assert_eq!(score["pieces"].as_array().unwrap().last().unwrap()["token"], "</s>");
}

/// XLNet has no maximum, but memory has.
#[test]
fn a_text_for_xlnet_is_not_too_long() {
    let place = tempfile::tempdir().unwrap();
    let lines = format!("Boats sink\n{}\n", "Boats sink ".repeat(3_000));
    let (code, _, err) = cloze(&["likelihood", "--model", &model("xlnet")], place.path(), &lines);
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("line 2") && err.contains("expected at most 4096: divide it"), "{err}");
}

#[test]
fn minimal_pairs_are_counted_by_paradigm() {
    let place = tempfile::tempdir().unwrap();
    let line = |good: &str, bad: &str, uid: &str| {
        json!({"sentence_good": good, "sentence_bad": bad, "UID": uid, "linguistics_term": "ellipsis"})
            .to_string()
    };
    fs::create_dir(place.path().join("suite")).unwrap();
    let (one, other) = ("Boats sink", "Boats sinks");
    let first = format!("{}\n{}\n", line(one, other, "a"), line(other, one, "a"));
    fs::write(place.path().join("suite/a.jsonl"), first).unwrap();
    fs::write(place.path().join("suite/b.jsonl"), line("sea", "old", "b")).unwrap();
    for name in ["bert", "gpt2", "xlnet"] {
        let model = model(name);
        let figures = object(
            &["knowledge", "pairs", "--model", &model, "--json", "--out", name, "suite"],
            place.path(),
        );
        let paradigms = figures["paradigms"].as_array().unwrap();
        assert_eq!((paradigms.len(), &paradigms[0]["accuracy"]), (2, &json!(0.5)));
        let items = fs::read_to_string(place.path().join(name).join("items.jsonl")).unwrap();
        let items: Vec<Value> = items.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(items[0]["good_score"], items[1]["bad_score"]);
        let right = items.iter().filter(|item| item["right"] == true).count();
        assert!(
            (figures["overall"]["accuracy"].as_f64().unwrap() - (right as f64 - 1.0 + 0.5) / 2.0).abs()
                < 1e-12
        );
        let page = fs::read_to_string(place.path().join(name).join("report.html")).unwrap();
        assert!(page.contains("Minimal pairs by phenomenon") && page.contains("Transformer-XL"));
        let table = printed(&["knowledge", "pairs", "--model", &model, "suite"], place.path(), "");
        assert!(table.contains("36.9") && table.contains("│ overall"), "{table}");
    }
}

#[test]
fn choices_facts_and_values_are_measured() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("cats/wsc.txt", "1\u{1}The sea\u{1}The port\r\n0\u{1}sea\u{1}port\u{1}boats\r\n");
    write("cats/swap.txt", "0\u{1}sea\u{1}port\u{1}1\u{1}port\u{1}sea\n");
    let (bert, gpt2, xlnet) = (model("bert"), model("gpt2"), model("xlnet"));
    let found = object(&["knowledge", "choices", "--model", &bert, "--json", "cats"], place.path());
    assert_eq!((&found["single"][0]["items"], &found["dual"][0]["items"]), (&json!(2), &json!(1)));
    // The second choice is the first the other way round, so both are right or both wrong.
    assert_eq!(found["dual"][0]["consistency"], json!(1.0));

    let patterns =
        "{\"pattern\": \"The capital of [X] is [Y].\"}\n{\"pattern\": \"[Y] is the capital of [X].\"}\n";
    write("facts/patterns/P36.jsonl", patterns);
    let facts = [("the country", "port"), ("sailors", "sea"), ("boats", "sea"), ("the old", "languages")];
    let facts =
        facts.map(|(subject, object)| json!({"sub_label": subject, "obj_label": object}).to_string() + "\n");
    write("facts/objects/P36.jsonl", &facts.concat());
    let relation = |args: &[&str]| {
        let all = [&["knowledge", "facts", "--json", "--out", "facts-out", "facts"], args].concat();
        object(&all, place.path())
    };
    let found = relation(&["--model", &bert]);
    assert_eq!(
        (&found["relations"][0]["facts"], &found["left_out"]["object of several pieces"]),
        (&json!(3), &json!(1))
    );
    for model in [&bert, &gpt2] {
        let found = relation(&["--model", model, "--candidates", "objects"]);
        let figures = &found["relations"][0];
        assert_eq!(
            (&figures["facts"], &figures["patterns"], &figures["p_at_10"]),
            (&json!(4), &json!(2), &json!(1.0))
        );
        assert_eq!(figures["most_frequent"], json!(0.5));
        let items = fs::read_to_string(place.path().join("facts-out/items.jsonl")).unwrap();
        let ranks: Vec<u64> = items
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["rank"].as_u64().unwrap())
            .collect();
        assert_eq!(ranks.len(), 8);
        let mrr = ranks.iter().map(|rank| 1.0 / *rank as f64).sum::<f64>() / 8.0;
        assert!((figures["mrr"].as_f64().unwrap() - mrr).abs() < 1e-12);
    }
    let found = relation(&["--model", &gpt2, "--candidates", "objects", "--per-relation", "2"]);
    let items = fs::read_to_string(place.path().join("facts-out/items.jsonl")).unwrap();
    // The second and the last, in two patterns, among all three objects.
    assert_eq!(found["relations"][0]["facts"], json!(2));
    assert_eq!(found["relations"][0]["most_frequent"], json!(0.5));
    let subjects = items.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["subject"].clone());
    assert_eq!(subjects.collect::<Vec<_>>(), ["sailors", "the old", "sailors", "the old"]);
    write("words.txt", "sea\nport\nthe\n");
    let found = relation(&["--model", &bert, "--candidates", "words.txt"]);
    assert_eq!(found["left_out"]["object that is no candidate"], json!(1));
    write("words.txt", "boats\n");
    let args = ["knowledge", "facts", "--model", &bert, "--candidates", "words.txt", "facts"];
    let (code, _, err) = cloze(&args, place.path(), "");
    assert!(code == Some(1) && err.contains("P36: left out, as none of its facts can be ranked"), "{err}");
    assert!(err.contains("all facts were left out"), "{err}");

    write(
        "probes/wvs/en.csv",
        "\t0\t1\t2\t3\n0\t1\tThe sea is [MASK]\told\tthe\n1\t2\tA [MASK] port\told\tdeepest\n",
    );
    write("survey.csv", "language,question,score\nen,1,2\nen,2,1\n");
    for model in [&bert, &gpt2, &xlnet] {
        let args = ["knowledge", "values", "--model", model, "--json", "--survey", "survey.csv", "probes"];
        let found = object(&args, place.path());
        let odds: Vec<f64> = found["questions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["log_odds"].as_f64().unwrap())
            .collect();
        assert_eq!(odds.len(), 2);
        let mean = found["dimensions"][0]["score"].as_f64().unwrap();
        assert!((mean - (odds[0] + odds[1]) / 2.0).abs() < 1e-9);
        let expected = if odds[0] > odds[1] { 1.0 } else { -1.0 };
        assert!((found["agreement"][0]["spearman"].as_f64().unwrap() - expected).abs() < 1e-9);
    }
    // Scores of nothing that was asked are counted, and refused if all are.
    let args = ["knowledge", "values", "--model", &bert, "--json", "--survey", "survey.csv", "probes"];
    write("survey.csv", "language,question,score\nen,1,2\nxx,2,1\nen,Happiness,1\n");
    let (code, _, err) = cloze(&args, place.path(), "");
    let expected = "survey.csv:3: 2 of 3 scores are of nothing that was asked, the first of `2` in language `xx`; expected a \
                    question's number or a dimension (social values";
    assert!(code == Some(0) && err.contains(expected), "{err}");
    write("survey.csv", "language,question,score\nxx,1,2\n");
    let (code, _, err) = cloze(&args, place.path(), "");
    assert!(code == Some(1) && err.contains("survey.csv:2: 1 of 1 scores are of nothing"), "{err}");
    write("survey.csv", "language,question,score\nen,1,2\nen,1,3\n");
    let (code, _, err) = cloze(&args, place.path(), "");
    assert!(code == Some(1) && err.contains("survey.csv:3: a second score of `1` in language `en`"), "{err}");
    // The columns are fixed: no option can name others.
    for (file, table, expected) in [
        (
            "survey.csv",
            "language,question,rating\nen,1,2\n",
            "survey.csv:1: no column `score` (the header has: language, question, rating); expected it",
        ),
        (
            "survey.csv",
            "language;question;score\nen;1;2\n",
            "(the header has: language;question;score); expected it, and `,` between columns in place of `;`",
        ),
        (
            "survey.tsv",
            "\"language\"\n",
            "(the header has: \"language\"); expected it without quotation marks",
        ),
        (
            "survey.jsonl",
            "{\"language\": \"en\"}\n",
            "survey.jsonl:1: no column `score` (it has: language); expected it",
        ),
        (
            "survey",
            "en 1\n",
            "survey: the file's extension does not tell the format; expected .csv, .tsv, .jsonl, .parquet or .xml",
        ),
    ] {
        write(file, table);
        let args = ["knowledge", "values", "--model", &bert, "--survey", file, "probes"];
        let (code, _, err) = cloze(&args, place.path(), "");
        assert!(code == Some(1) && err.contains(expected) && !err.contains("--columns"), "{err}");
        fs::remove_file(place.path().join(file)).unwrap();
    }
    write("survey.csv", "language,question,score\nen,1,2\nen,2,1\n");
    // Of two surveys, a score says which it is of.
    write("probes/hofstede/en.csv", "0\t1\tThe sea is [MASK]\told\tthe\n");
    let args = ["knowledge", "values", "--model", &bert, "--json", "--survey", "survey.csv", "probes"];
    let (code, _, err) = cloze(&args, place.path(), "");
    let expected = "survey.csv:2: there is no survey, but the probes are of hofstede and wvs";
    assert!(code == Some(1) && err.contains(expected) && err.lines().count() == 1, "{err}");
    write("survey.csv", "survey,language,question,score\nwvs,en,1,2\nwvs,en,2,1\n");
    let found = object(&args, place.path());
    let agreement = found["agreement"].as_array().unwrap();
    assert!(agreement.len() == 3 && agreement.iter().all(|found| found["survey"] == "wvs"), "{found}");
}

#[test]
fn failures_are_one_line() {
    let place = tempfile::tempdir().unwrap();
    let (bert, gpt2, t5) = (model("bert"), model("gpt2"), model("t5"));
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write("equal.jsonl", "{\"sentence_good\": \"a\", \"sentence_bad\": \"a\"}\n");
    write("pattern.jsonl", "{\"pattern\": \"[X] is [Y] [Y].\"}\n");
    write("fact.jsonl", "{\"pattern\": \"[X] is [Y].\"}\n{\"sub_label\": \"sea\", \"obj_label\": \"Ω\"}\n");
    write(
        "mask.jsonl",
        "{\"pattern\": \"[X] is [Y].\"}\n{\"sub_label\": \"[MASK]\", \"obj_label\": \"sea\"}\n",
    );
    write("half.csv", &"1\tA [MASK] port\told\tdeepest\n2\tA port\told\tdeepest\n".repeat(2));
    write("probe.csv", "1\tThe sea is old\told\tdeep\n");
    write("two.csv", "1\t[MASK] is [MASK]\told\tdeep\n");
    write("empty.txt", "\n");
    write("label.txt", "3\u{1}a\u{1}b\n");
    write("blank.zip", "no archive");
    for (args, input, code, expected) in [
        (
            &["likelihood", "--model", &bert][..],
            "\n \n\u{200b}\n",
            1,
            "standard input, line 3: the sentence has no piece to predict",
        ),
        (&["likelihood", "--model", &t5], "sea\n", 1, "there is no source; expected a source and a target"),
        (
            &["likelihood", "--model", &gpt2, "--metric", "pll"],
            "sea\n",
            2,
            "`--metric` is pll; expected none",
        ),
        (
            &["likelihood", "--model", &bert, "--first-piece", "given"],
            "sea\n",
            2,
            "`--first-piece` is given; expected none",
        ),
        (&["likelihood", "--model", "./absent"], "", 1, "absent"),
        (
            &["knowledge", "pairs", "--model", &bert, "equal.jsonl"],
            "",
            1,
            "equal.jsonl:1: `sentence_good` and",
        ),
        (&["knowledge", "pairs", "--model", &bert, "blank.zip"], "", 1, "not a readable zip archive"),
        (
            &["knowledge", "choices", "--model", &bert, "empty.txt"],
            "",
            1,
            "empty.txt: there is nothing to score",
        ),
        (
            &["knowledge", "choices", "--model", &bert, "label.txt"],
            "",
            1,
            "label.txt:1: the label 3 of 2 sentences",
        ),
        (&["knowledge", "facts", "--model", &bert, "pattern.jsonl"], "", 1, "pattern.jsonl:1: the pattern"),
        (&["knowledge", "facts", "--model", &bert, "fact.jsonl"], "", 1, "fact.jsonl:2: \"Ω\" has no piece"),
        (
            &["knowledge", "facts", "--model", &bert, "mask.jsonl"],
            "",
            1,
            "mask.jsonl:2: the text has 1 masks of its own",
        ),
        (&["knowledge", "facts", "--model", &gpt2, "fact.jsonl"], "", 2, "--candidates objects"),
        (
            &["knowledge", "facts", "--model", &bert, "--candidates", "no", "fact.jsonl"],
            "",
            1,
            "cannot read no",
        ),
        (&["knowledge", "values", "--model", &bert, "probe.csv"], "", 1, "there is nothing to score"),
        (
            &["knowledge", "values", "--model", &bert, "two.csv"],
            "",
            1,
            "two.csv:1: the sentence \"[MASK] is [MASK]\" has 2",
        ),
        (
            &["knowledge", "values", "--model", &t5, "two.csv"],
            "",
            2,
            "an encoder–decoder scores a target given",
        ),
        (&["knowledge", "pairs", "--model", &bert], "", 2, "<FILE>"),
    ] {
        let (found, out, err) = cloze(args, place.path(), input);
        assert_eq!(found, Some(code), "{args:?}: {err}");
        assert!(!out.contains('{') && err.contains(expected), "{args:?}: {err}");
        assert!(err.lines().count() == 1, "{args:?}: {err}");
    }
    let skipped = ["knowledge", "pairs", "--model", &bert, "--on-bad-row", "skip", "equal.jsonl"];
    let (code, _, err) = cloze(&skipped, place.path(), "");
    assert!(code == Some(1) && err.contains("1 × equal sentences"), "{err}");
    let skipped = ["knowledge", "facts", "--model", &bert, "--on-bad-row", "skip", "fact.jsonl"];
    let (code, _, err) = cloze(&skipped, place.path(), "");
    assert!(code == Some(1) && err.contains("1 × object without a piece: left out"), "{err}");
    let skipped = ["knowledge", "values", "--model", &bert, "--on-bad-row", "skip", "half.csv"];
    let (code, _, err) = cloze(&skipped, place.path(), "");
    let expected = "half.csv:2: the sentence";
    assert!(code == Some(1) && err.contains(expected), "{err}");
    assert!(
        err.contains("the next: half.csv:4; 2 of 4 rows (2 × ")
            && err.trim_end().ends_with("raise `--max-skipped`"),
        "{err}"
    );
    printed(&[&skipped[..], &["--max-skipped", "0.5"]].concat(), place.path(), "");
}
