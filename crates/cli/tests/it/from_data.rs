//! `cloze train TASK --data FILE`: a first model without a config file.

use crate::program::encoder;
use crate::ran::run;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Reviews between semicolons, as some spreadsheets write them, with a mark at the beginning.
fn reviews(rows: usize) -> String {
    let mut text = "\u{feff}id;review text;sentiment\r\n".to_owned();
    for row in 0..rows {
        let (word, sentiment) = if row % 3 == 0 { ("bad", "no") } else { ("good", "yes") };
        write!(text, "{row};\"{word}; {}\";{sentiment}\r\n", char::from(b'a' + (row % 26) as u8)).unwrap();
    }
    text
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_spreadsheet_becomes_a_model() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [data, out, again] = ["reviews.csv", "out", "again"].map(|name| path(folder.path(), name));
    fs::write(&data, reviews(60)).unwrap();
    let columns = ["--columns", "text=review text,label=sentiment"];
    let sets = ["--set", "data.max_len=20", "--set", "train.epochs=2"];
    let args = [
        &["train", "classification", "--model", &model, "--data", &data, "--out", &out][..],
        &columns,
        &sets,
    ];
    let ran = run(&args.concat(), b"");
    assert!(ran.err.contains("columns between `;`, 60 rows, labels yes 40, no 20"), "{}", ran.err);
    assert!(ran.err.contains("20 % held out"), "{}", ran.err);
    assert!(
        ran.err.contains("chosen for 48 training examples: batches of 8, learning rate 1e-4, warm-up"),
        "{}",
        ran.err
    );
    assert_eq!(ran.done().trim_end(), path(folder.path(), "out/model"));
    // The run's config is one to be edited: it makes the same model.
    let config = path(folder.path(), "out/config.toml");
    run(&["train", &config, "--out", &again], b"").done();
    let weights = |run: &str| fs::read(folder.path().join(run).join("model/model.safetensors")).unwrap();
    assert_eq!(weights("out"), weights("again"));
    let more = ["--columns", "text=review text"];
    let saved = path(folder.path(), "out/model");
    let printed = run(&[&["predict", "--model", &saved, "--input", &data][..], &more].concat(), b"").done();
    assert!(printed.starts_with("id;review text;sentiment;label;score;scores\n"), "{printed}");
}

#[test]
fn six_lines_are_a_config() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [config, data, out, other] =
        ["six.toml", "reviews.csv", "out", "other"].map(|name| path(folder.path(), name));
    fs::write(&data, reviews(60)).unwrap();
    let six = format!(
        "task.kind = \"classification\"\nmodel.path = {model:?}\n\
         data.train = {{ files = [{data:?}], delimiter = \";\", columns = {{ text = \"review text\", label = \"sentiment\" }} }}\n\
         data.dev_fraction = 0.2\ndata.max_len = 20\n"
    );
    fs::write(&config, &six).unwrap();
    let short = ["--set", "checkpoint.every=7"];
    let ran = run(&[&["train", &config, "--out", &out][..], &short].concat(), b"");
    assert!(
        ran.err.contains(
            "chosen for 48 training examples: 20 epochs, batches of 8, learning rate 1e-4, warm-up over 10 % of the steps, \
             linear decay; the run's config.toml has all of it"
        ),
        "{}",
        ran.err
    );
    ran.done();
    let whole = fs::read_to_string(folder.path().join("out/config.toml")).unwrap();
    for line in ["epochs = 20", "batch_size = 8", "lr = 0.0001", "warmup_fraction = 0.1", "kind = \"linear\""]
    {
        assert!(whole.contains(line), "{line} in {whole}");
    }
    // The same choice again, so that the run is the same.
    let again = run(&["train", &config, "--out", &out, "--resume"], b"");
    assert!(again.err.contains("chosen for 48 training examples"), "{}", again.err);
    again.done();
    // What evaluates does not train.
    let model = path(folder.path(), "out/model");
    let measured = run(&["eval", "--model", &model, &config], b"").done();
    assert!(measured.contains("accuracy"), "{measured}");
    let more = ["--set", "train.epochs=1", "--set", "schedule.warmup_steps=2"];
    let ran = run(&[&["train", &config, "--out", &other][..], &more].concat(), b"");
    assert!(
        ran.err.contains("chosen for 48 training examples: batches of 8, learning rate 1e-4, linear decay;"),
        "{}",
        ran.err
    );
    ran.done();
    // Longer than the run, of whose six steps only the data tells.
    let long = [
        "--set",
        "train.epochs=1",
        "--set",
        "schedule.warmup_steps=7",
        "--out",
        &path(folder.path(), "long"),
    ];
    let failed = run(&[&["train", &config][..], &long].concat(), b"");
    let line = failed.error_line(2);
    assert!(
        line.contains("`schedule.warmup_steps` is 7; expected at most 6, the steps of the run"),
        "{line}"
    );
}

#[test]
fn data_that_cannot_be_used_names_the_keys_of_the_config() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [config, data, out] = ["run.toml", "rows.csv", "out"].map(|name| path(folder.path(), name));
    fs::write(&data, "text,label\na,yes\nb,\nc,no\nd,\ne,\n").unwrap();
    let text = format!(
        "task.kind = \"classification\"\nmodel.path = {model:?}\ndata.train.files = [{data:?}]\ndata.max_len = 20\n"
    );
    let line = |more: &str| {
        fs::write(&config, format!("{text}{more}")).unwrap();
        run(&["train", &config, "--out", &out], b"").error_line(1).to_owned()
    };
    let bad = line("");
    assert!(bad.contains("rows.csv:3: column `label`: empty"), "{bad}");
    assert!(
        bad.ends_with("correct it, or set `data.train.on_bad_row = \"skip\"` to skip such rows"),
        "{bad}"
    );
    let many = line("data.train.on_bad_row = \"skip\"\n");
    assert!(many.contains("3 of 5 rows (3 × ") && many.ends_with("raise `data.train.max_skipped`"), "{many}");
}

#[test]
fn development_files_of_set_are_used_in_place_of_a_share() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [config, data, dev, out, other] =
        ["six.toml", "reviews.csv", "dev.csv", "out", "other"].map(|name| path(folder.path(), name));
    fs::write(&data, reviews(60)).unwrap();
    fs::write(&dev, reviews(6)).unwrap();
    let set = format!("data.dev=[{dev:?}]");
    let short = ["--set", &set, "--set", "data.max_len=20", "--set", "train.epochs=1"];
    let columns = ["--columns", "text=review text,label=sentiment"];
    let args =
        [&["train", "classification", "--model", &model, "--data", &data, "--out", &out][..], &columns];
    let ran = run(&[&args.concat()[..], &short].concat(), b"");
    assert!(!ran.err.contains("held out") && ran.err.contains("6 examples"), "{}", ran.err);
    ran.done();
    // Of a file too, which is said once.
    let six = format!(
        "task.kind = \"classification\"\nmodel.path = {model:?}\n\
         data.train = {{ files = [{data:?}], delimiter = \";\", columns = {{ text = \"review text\", label = \"sentiment\" }} }}\n\
         data.dev_fraction = 0.2\n"
    );
    fs::write(&config, six).unwrap();
    let ran = run(&[&["train", &config, "--out", &other][..], &short].concat(), b"");
    let told = "`data.dev` is given by --set: `data.dev_fraction` of ";
    assert_eq!(ran.err.matches(told).count(), 1, "{}", ran.err);
    assert!(ran.err.contains("six.toml:4 is not used"), "{}", ran.err);
    ran.done();
    // The table and the result have what the most frequent class of the training rows scores.
    let result = fs::read_to_string(folder.path().join("other/result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    let baseline = &result["dev"]["baseline"];
    assert_eq!(baseline["rule"], "the most frequent class of the training data, `yes`, for every example");
    assert_eq!(baseline["figures"]["accuracy"], 4.0 / 6.0);
    assert_eq!(result["dev"]["examples"], 6);
}

#[test]
fn the_baseline_is_the_training_data_s() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [data, dev, out] = ["train.csv", "dev.csv", "out"].map(|name| path(folder.path(), name));
    let rows =
        |yes: usize, no: usize| format!("text,label\n{}{}", "good,yes\n".repeat(yes), "bad,no\n".repeat(no));
    fs::write(&data, rows(30, 10)).unwrap();
    // Here the other class is the most frequent.
    fs::write(&dev, rows(2, 6)).unwrap();
    let args = ["train", "classification", "--model", &model, "--data", &data, "--dev", &dev, "--out", &out];
    let short = ["--set", "data.max_len=20", "--set", "train.epochs=1"];
    let ran = run(&[&args[..], &short].concat(), b"");
    let row = ran.err.lines().find(|line| line.starts_with("│ accuracy *")).unwrap_or_default();
    assert!(row.ends_with("┆   0.2500 │"), "{row}: {}", ran.err);
    assert!(
        ran.err.contains("baseline: the most frequent class of the training data, `yes`, for every example"),
        "{}",
        ran.err
    );
    ran.done();
}

#[test]
fn all_keys_that_are_missing_or_unknown_are_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = path(folder.path(), "bad.toml");
    fs::write(&config, "[task]\nlabls = [\"a\"]\nkind = \"classification\"\n\n[data]\nmaxlen = 3\n").unwrap();
    let failed = run(&["train", &config], b"");
    let line = failed.error_line(2);
    let told = [
        "bad.toml:6: unknown key `data.maxlen`; did you mean `data.max_len`?",
        "bad.toml:2: unknown key `task.labls`; did you mean `task.labels`?",
        "bad.toml: missing keys, which have no default: ",
        "`train` in `[data]`",
        "`path` in `[model]`",
    ];
    for part in told {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn classes_are_told_before_training() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [data, out] = ["reviews.csv", "out"].map(|name| path(folder.path(), name));
    let rows = |label: &str, n: usize| format!("good {label},{label}\n").repeat(n);
    fs::write(&data, format!("text,label\n{}{}{}", rows("yes", 40), rows("Yes", 20), rows("odd", 3)))
        .unwrap();
    let sets = ["--set", "data.max_len=20", "--set", "train.epochs=1"];
    let args = [&["train", "classification", "--model", &model, "--data", &data, "--out", &out][..], &sets];
    let ran = run(&args.concat(), b"");
    let counts = |class: &str| -> u64 {
        let row = ran.err.lines().find(|line| line.starts_with(&format!("│ {class} "))).unwrap();
        row.split(['│', '┆']).filter_map(|cell| cell.trim().parse::<u64>().ok()).sum()
    };
    assert_eq!(["yes", "Yes", "odd"].map(counts), [40, 20, 3], "{}", ran.err);
    assert!(ran.err.contains("warning: `Yes` and `yes` are different classes"), "{}", ran.err);
    assert!(
        ran.err.contains(
            "warning: classes with fewer than 5 training examples, of which to expect little: `odd` ("
        ),
        "{}",
        ran.err
    );
    ran.done();
}

#[test]
fn a_row_that_cannot_be_used_is_told_whatever_separates_columns() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let [data, out] = ["reviews.csv", "out"].map(|name| path(folder.path(), name));
    fs::write(&data, reviews(20) + "20;\"fine; z\";\r\n21;good;YES\r\n").unwrap();
    let columns = ["--columns", "text=review text,label=sentiment"];
    let args =
        [&["train", "classification", "--model", &model, "--data", &data, "--out", &out][..], &columns];
    let ran = run(&args.concat(), b"");
    let failed = ran.error_line(1);
    assert!(
        failed.contains(
            "reviews.csv:22: column `sentiment` (`--columns label=COLUMN`): empty, expected a label"
        ),
        "{failed}"
    );
    assert!(failed.contains("--on-bad-row skip"), "{failed}");
    let skipping = ["--on-bad-row", "skip", "--set", "data.max_len=20", "--set", "train.epochs=1"];
    let ran = run(&[&args.concat()[..], &skipping].concat(), b"");
    assert!(ran.err.contains("columns between `;`, 21 rows, labels yes 13, no 7, YES 1"), "{}", ran.err);
    // Once, however many look at the labels.
    assert_eq!(ran.err.matches("YES` and `yes`").count(), 1, "{}", ran.err);
    assert_eq!(ran.err.matches("differ in case").count(), 1, "{}", ran.err);
    ran.done();
    // The column's name is wrong, and not what separates columns.
    let wrong = ["--columns", "text=review text,label=Sentiment"];
    let args = [&["train", "classification", "--model", &model, "--data", &data, "--out", &out][..], &wrong];
    let ran = run(&args.concat(), b"");
    let failed = ran.error_line(1);
    assert!(
        failed.contains("no column `Sentiment` (the header has: id, review text, sentiment)"),
        "{failed}"
    );
}

#[test]
fn the_columns_choose_what_embeddings_are_trained_by() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let rows: String =
        (0..30).map(|row| format!("a b\tc {}\t{}\n", char::from(b'a' + row), row % 5)).collect();
    let data = path(folder.path(), "pairs.tsv");
    fs::write(&data, rows).unwrap();
    for (name, columns, loss) in [
        ("scored", "text=1,pair=2,label=3", "cosent"),
        ("pairs", "text=1,pair=2", "in-batch-negatives"),
        ("single", "text=1", "simcse"),
    ] {
        let out = path(folder.path(), name);
        let args =
            ["train", "embedding", "--model", &model, "--data", &data, "--no-header", "--columns", columns];
        let more = ["--out", &out, "--set", "data.max_len=20", "--set", "train.epochs=1"];
        let ran = run(&[&args[..], &more].concat(), b"");
        assert!(ran.err.contains(&format!("30 rows, trained by {loss}")), "{}", ran.err);
        ran.done();
    }
}

#[test]
fn what_is_missing_is_named() {
    let (_model, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let data = path(folder.path(), "reviews.csv");
    fs::write(&data, reviews(9)).unwrap();
    let line = |args: &[&str], status| run(&[&["train"], args].concat(), b"").error_line(status).to_owned();
    assert!(line(&["classification"], 2).contains("needs --model MODEL"));
    assert!(line(&["classification", "--model", &model], 2).contains("needs --data FILE"));
    let task = ["classification", "--model", &model, "--data", &data];
    // The header is told as the ending has it.
    assert!(line(&task, 1).contains("no column `text`"));
    let columns = ["--columns", "text=review text,label=sentiment"];
    let few = line(&[&task[..], &columns].concat(), 1);
    assert!(few.contains("has 9 rows; expected 20 at least"), "{few}");
    let config = path(folder.path(), "a.toml");
    fs::write(&config, "").unwrap();
    assert!(line(&[&config, "--data", &data], 2).contains("go with a task in the place of CONFIG"));
    assert!(line(&["clasification"], 2).contains("clasification"));
}
