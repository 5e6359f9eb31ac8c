//! Whole jobs, as README and book describe them, on files as people have them: byte-order marks, CRLF, other scripts,
//! quoted line breaks, empty lines, ids that occur twice, Windows-1252.
//!
//! What each command does beyond that is its own file's to test, and searching a folder is `search.rs`'s.

use crate::library::{at, models};
use crate::ran::{Ran, run_in};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Texts of many scripts and signs, with what tables, lines and JSON quote.
const ODD: [&str; 8] = [
    "naïve café e\u{301}te\u{301}, \"quoted\" and; 'single'",
    "שלום עולם",
    "👩\u{200d}👩\u{200d}👧 rocks\u{2028}here",
    "彼はボートに乗っている。",
    "tab\there \\n and \\\\ backslash",
    "ﬁne\u{a0}print\u{ad}ing\u{feff}",
    "<b>bold</b> & {\"json\": [1]}",
    "Ω≈ç√∫ ½ № 𝒳",
];

/// A folder in which a job is done, and the path of a model.
fn begin(model: &str) -> (TempDir, String) {
    (tempfile::tempdir().unwrap(), at(model).to_str().unwrap().to_owned())
}

fn config(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name);
    path.to_str().unwrap().to_owned()
}

/// `cloze` with these arguments and `--set` of each of the others.
#[track_caller]
fn train(place: &Path, args: &[&str], sets: &[&str]) -> Ran {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let ran = run_in(place, &args.iter().copied().chain(sets).collect::<Vec<_>>(), b"");
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran
}

/// The names that text in Windows-1252 has for letters beyond ASCII.
fn windows_1252(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

/// A table between semicolons: a mark, CRLF, quoted line breaks and quotation marks, empty lines, and each id twice.
/// Returns also the text and the first line of each row.
fn reviews() -> (String, Vec<(usize, String)>) {
    let (mut table, mut places) = ("\u{feff}id;review text;sentiment\r\n".to_owned(), Vec::new());
    for row in 0..48 {
        let (word, label) = if row % 2 == 0 { ("bad", "no") } else { ("good", "yes") };
        let text = format!("{word} {}\n{row}", ODD[row % ODD.len()]);
        places.push((table.matches('\n').count() + 1, text.clone()));
        table += &format!("{};\"{}\";{label}\r\n", row / 2, text.replace('"', "\"\""));
        if row % 5 == 0 {
            table += "\r\n";
        }
    }
    (table, places)
}

#[test]
fn a_table_is_classified() {
    let (place, model) = begin(models::ENCODER);
    let place = place.path();
    let (table, places) = reviews();
    fs::write(place.join("reviews.csv"), &table).unwrap();
    let columns = ["--columns", "text=review text,label=sentiment"];
    let args = ["train", "classification", "--model", &model, "--data", "reviews.csv", "--out", "run"];
    train(place, &[&args[..], &columns].concat(), &["train.epochs=1", "data.max_len=32"]);

    // The report names the lines of the user's file, compares with a rule, and says so in a sentence.
    let predictions = fs::read_to_string(place.join("run/report/dev/predictions.jsonl")).unwrap();
    let predictions: Vec<Value> =
        predictions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(predictions.len(), 10);
    for prediction in &predictions {
        let line: usize = prediction["line"].as_str().unwrap().parse().unwrap();
        let (_, text) = places.iter().find(|(place, _)| *place == line).unwrap();
        assert_eq!(prediction["text"].as_str(), Some(text.as_str()));
    }
    let page = fs::read_to_string(place.join("run/report/dev/report.html")).unwrap();
    let line = format!("line {}", predictions[0]["line"].as_str().unwrap());
    for part in ["The model's accuracy is ", "that of the baseline, the most frequent class", &line] {
        assert!(page.contains(part), "{part}");
    }
    let eval = ["eval", "--model", "run/model", "run/config.toml"];
    assert!(run_in(place, &eval, b"").done().contains("accuracy"));

    // All columns come back, with ids that occur twice, as CSV on standard output.
    fs::write(place.join("new.txt"), table.replace(";sentiment", "").replace(";yes", "").replace(";no", ""))
        .unwrap();
    let predict = [
        "predict",
        "--model",
        "run/model",
        "--columns",
        "text=review text",
        "--input",
        "new.txt",
        "--input-format",
        "csv",
        "--delimiter",
        ";",
        "--output-format",
        "csv",
    ];
    let out = run_in(place, &predict, b"").done();
    assert!(out.starts_with("id;review text;label;score;scores\n0;"), "{out}");
    fs::write(place.join("out.csv"), &out).unwrap();
    let again = [
        "predict",
        "--model",
        "run/model",
        "--columns",
        "text=review text",
        "--input",
        "out.csv",
        "--delimiter",
        ";",
        "--answer-prefix",
        "second_",
        "--output",
        "again.jsonl",
    ];
    run_in(place, &again, b"").done();
    let again = fs::read_to_string(place.join("again.jsonl")).unwrap();
    let again: Vec<Value> = again.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(again.len(), places.len());
    for (row, (_, text)) in again.iter().zip(&places) {
        assert_eq!((row["review text"].as_str(), &row["label"]), (Some(text.as_str()), &row["second_label"]));
    }

    // An old spreadsheet's encoding is named with the first line that shows it, and a table of it is not thinned out.
    let old = windows_1252("id;review text;sentiment\r\n1;plain;no\r\n2;café noir;yes\r\n3;très bon;no\r\n");
    fs::write(place.join("old.csv"), old).unwrap();
    let args = ["train", "classification", "--model", &model, "--data", "old.csv", "--out", "old"];
    let refused = run_in(place, &[&args[..], &columns].concat(), b"");
    let said = refused.error_line(1);
    assert!(said.contains("old.csv:3: not UTF-8") && said.contains("it looks like Windows-1252"), "{said}");
    let skip = ["--set", "data.train.on_bad_row=\"skip\""];
    let refused = run_in(place, &[&args[..], &columns, &skip].concat(), b"");
    assert!(refused.error_line(1).contains("old.csv"), "{}", refused.err);
}

#[test]
fn raw_text_is_tagged() {
    let (place, model) = begin(models::ENCODER);
    let place = place.path();
    let mut data = "\u{feff}-DOCSTART- -X- O\r\n\r\n".to_owned();
    for i in 0..24 {
        data += &format!(
            "Ann\tB-PER\r\nsaw\tO\r\n{}\tB-LOC\r\n.\tO\r\n \t \r\n\r\n",
            ["Rome", "東京", "Zürich"][i % 3]
        );
    }
    fs::write(place.join("people.conll"), data).unwrap();
    let args = ["train", "tagging", "--model", &model, "--data", "people.conll", "--out", "run"];
    train(
        place,
        &args,
        &["train.epochs=1", "data.max_len=32", "task.long_sentences={ windows = { stride = 8 } }"],
    );
    let texts = [
        "\u{feff}Ann Chen's boat reached \"Zürich.\" (504)\r\n",
        "\r\n",
        "👩\u{200d}👧 saw 東京, e\u{301}te\u{301}!\r\n",
        "שלום Rome\n",
    ];
    fs::write(place.join("new.txt"), texts.concat()).unwrap();
    let predict = ["predict", "--model", "run/model", "--input", "new.txt", "--output", "tagged.jsonl"];
    run_in(place, &predict, b"").done();
    let out = fs::read_to_string(place.join("tagged.jsonl")).unwrap();
    let tagged: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(tagged.len(), texts.len());
    let words: Vec<&str> =
        tagged[0]["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words, ["Ann", "Chen", "'s", "boat", "reached", "\"", "Zürich", ".", "\"", "(", "504", ")"]);
    // Offsets count characters of the line.
    for (of, text) in tagged.iter().zip(texts) {
        let text: Vec<char> = text.trim_start_matches('\u{feff}').trim_end().chars().collect();
        for entity in of["entities"].as_array().into_iter().flatten() {
            let place = |key: &str| entity[key].as_u64().unwrap() as usize;
            let cut: String = text[place("start")..place("end")].iter().collect();
            assert_eq!(Some(cut.as_str()), entity["text"].as_str(), "{entity}");
        }
    }
    let page = fs::read_to_string(place.join("run/report/dev/report.html")).unwrap();
    assert!(page.contains("The model's f1 is ") && page.contains(">line "), "{page}");
}

#[test]
fn sentences_are_translated() {
    let (place, _) = begin(models::ENCODER);
    let place = place.path();
    let mut pairs = "\u{feff}english\tgerman\r\n".to_owned();
    for (i, odd) in ODD.iter().cycle().take(24).enumerate() {
        pairs +=
            &format!("{} {i}\t{} {i}\r\n", odd.replace('\t', " "), odd.replace('\t', " ").to_uppercase());
    }
    fs::write(place.join("pairs.tsv"), pairs + "\r\n").unwrap();
    let data = "parallel.train={files=[\"pairs.tsv\"],columns={source=\"english\",target=\"german\"}}";
    let dev = data.replace("train=", "dev=");
    let sets = [
        data,
        &dev,
        "train.steps=3",
        "schedule.warmup_steps=1",
        "tokenizer.vocab_size=300",
        "model.d_model=32",
        "parallel.on_bad_pair=\"skip\"",
        "eval.beams=2",
    ];
    train(place, &["train", &config("phrases-transformer.toml"), "--out", "run"], &sets);
    let page = fs::read_to_string(place.join("run/report/dev/report.html")).unwrap();
    for part in [
        "the best of a beam search with 2 beams",
        "Worst translations",
        "Random translations",
        ">source<",
        "chrF ",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    let source = ["a text", "", ODD[1], ODD[2]].map(|line| line.replace('\u{2028}', " ") + "\r\n").concat();
    fs::write(place.join("new.en"), source).unwrap();
    let translate = ["translate", "--model", "run/model", "--max-new", "12"];
    let input = fs::read(place.join("new.en")).unwrap();
    let translated = run_in(place, &translate, &input).done();
    assert_eq!(translated.lines().count(), 4, "{translated:?}");
    fs::write(place.join("reference.de"), "ein Text\nnichts\nzwei\ndrei\n").unwrap();
    let score = run_in(place, &["score", "bleu", "--reference", "reference.de"], translated.as_bytes());
    score.done();
}

/// Files of one's own text: documents between blank lines in UTF-8 with CRLF, and in UTF-16.
fn own_text(place: &Path) {
    fs::create_dir_all(place.join("my text")).unwrap();
    let paragraphs = |n: usize| -> String {
        let paragraph =
            |i: usize| format!("the old sea {i} and {}.\r\na boat of bread.\r\n\r\n", ODD[i % ODD.len()]);
        (0..n).map(paragraph).collect()
    };
    fs::write(place.join("my text/a.txt"), format!("\u{feff}{}", paragraphs(40))).unwrap();
    let utf16: Vec<u8> =
        format!("\u{feff}{}", paragraphs(40)).encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(place.join("my text/b.txt"), utf16).unwrap();
    fs::write(place.join("my text/empty.txt"), "\r\n").unwrap();
}

/// The settings of a short run on one's own text.
const SHORT: [&str; 6] = [
    "corpus.files=[\"my text/*.txt\"]",
    "corpus.on_error=\"skip\"",
    "train.steps=3",
    "train.batch_size=2",
    "schedule.warmup_steps=1",
    "eval.heldout_fraction=0.3",
];

#[test]
fn an_encoder_is_pretrained_on_ones_own_text_and_goes_on_with_more() {
    let (place, sentence_encoder) = begin(models::ENCODER);
    let place = place.path();
    own_text(place);
    let pretraining = config("bert-mini-corpus.toml");
    let small =
        ["tokenizer.vocab_size=300", "examples.seq_len=32", "model.preset=\"tiny\"", "eval.max_examples=8"];
    train(place, &["train", &pretraining, "--out", "run"], &[&SHORT[..], &small].concat());
    let filled = run_in(
        place,
        &["fill-mask", "--model", "run/model", "--json", "the old [MASK] שלום 👩\u{200d}👧."],
        b"",
    );
    assert!(filled.done().contains("the old"));

    // A file without text and one of another encoding are named; they are not left out without a word.
    fs::write(place.join("my text/old.txt"), windows_1252("le café noir\r\n\r\nune crème\r\n")).unwrap();
    let strict = ["--set", SHORT[0], "--set", "train.steps=3", "--set", "schedule.warmup_steps=1"];
    let strictly =
        || run_in(place, &[&["train", &pretraining, "--out", "strict"][..], &strict].concat(), b"");
    let refused = strictly();
    assert!(refused.error_line(1).contains("empty.txt: the file has no text"), "{}", refused.err);
    fs::remove_file(place.join("my text/empty.txt")).unwrap();
    let refused = strictly();
    let said = refused.error_line(1);
    assert!(said.contains("old.txt") && said.contains("it looks like Windows-1252"), "{said}");
    fs::remove_file(place.join("my text/old.txt")).unwrap();

    let path = format!("model.path={sentence_encoder:?}");
    let small = [&path[..], "examples.seq_len=32", "eval.max_examples=8", "eval.every=3"];
    train(place, &["train", &config("domain-mlm.toml"), "--out", "domain"], &[&SHORT[..], &small].concat());
    let embedded = run_in(place, &["embed", "--model", "domain/model"], ODD[3].as_bytes()).done();
    assert!(serde_json::from_str::<Value>(&embedded).unwrap()["embedding"].is_array());
}

#[test]
fn embeddings_are_trained_on_pairs() {
    let (place, model) = begin(models::ENCODER);
    let place = place.path();
    let mut pairs = "\u{feff}id,question,passage\r\n".to_owned();
    for i in 0..24 {
        let odd = ODD[i % ODD.len()].replace('"', "\"\"");
        pairs += &format!("{},\"what {i}?\r\n{odd}\",\"it is {i}, {odd}\"\r\n\r\n", i / 2);
    }
    fs::write(place.join("pairs.csv"), pairs).unwrap();
    let args = [
        "train",
        "embedding",
        "--model",
        &model,
        "--data",
        "pairs.csv",
        "--columns",
        "text=question,pair=passage",
        "--out",
        "run",
    ];
    train(place, &args, &["train.epochs=1", "data.max_len=32"]);
    let page = fs::read_to_string(place.join("run/report/dev/report.html")).unwrap();
    assert!(page.contains("The model's mrr is ") && page.contains(">line "), "{page}");
    let index = [
        "search",
        "index",
        "--index",
        "index",
        "--model",
        "run/model",
        "--columns",
        "text=passage,id=id",
        "pairs.csv",
    ];
    // Ids must be unique in an index: the first that is not is named by its line.
    let refused = run_in(place, &index, b"");
    assert!(
        refused
            .error_line(1)
            .contains("pairs.csv:5: the id \"0\" is also that of pairs.csv:2; ids must be unique"),
        "{}",
        refused.err
    );
    let index = [
        "search",
        "index",
        "--index",
        "index-2",
        "--model",
        "run/model",
        "--columns",
        "text=passage,id=question",
        "pairs.csv",
    ];
    assert_eq!(run_in(place, &index, b"").done(), "{\"added\":24}\n");
    let query =
        run_in(place, &["search", "query", "--index", "index-2", "-k", "3", "it is 7, שלום עולם"], b"")
            .done();
    let answer: Value = serde_json::from_str(&query).unwrap();
    assert_eq!(answer["found"].as_array().unwrap().len(), 3);
}

#[test]
fn a_language_model_is_trained_and_writes() {
    let (place, _) = begin(models::ENCODER);
    let place = place.path();
    own_text(place);
    let small = [
        "tokenizer.vocab_size=300",
        "blocks.seq_len=16",
        "model.d_model=32",
        "model.n_layers=1",
        "eval.max_blocks=8",
    ];
    train(
        place,
        &["train", &config("llama-mini-corpus.toml"), "--out", "run"],
        &[&SHORT[..], &small].concat(),
    );
    let generate = ["generate", "--model", "run/model", "--max-new", "8", "--seed", "1", "--json"];
    let prompts = "the old sea\r\nשלום 👩\u{200d}👧\r\n\"quoted\"\r\n";
    let written = run_in(place, &generate, prompts.as_bytes()).done();
    assert_eq!(written.lines().count(), 3, "{written}");
    written.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap()));
    assert_eq!(run_in(place, &generate, prompts.as_bytes()).done(), written);
    let perplexity =
        run_in(place, &["perplexity", "--model", "run/model", "--json", "my text/a.txt"], b"").done();
    assert!(perplexity.contains("perplexity"), "{perplexity}");
}

#[cfg(all(unix, feature = "serve"))]
#[test]
fn a_trained_model_is_served() {
    use crate::ran::spawn;
    use crate::served::Served;
    use serde_json::json;

    let (place, model) = begin(models::ENCODER);
    fs::write(place.path().join("reviews.csv"), reviews().0).unwrap();
    let args = [
        "train",
        "classification",
        "--model",
        &model,
        "--data",
        "reviews.csv",
        "--out",
        "run",
        "--columns",
        "text=review text,label=sentiment",
    ];
    train(place.path(), &args, &["train.epochs=1", "data.max_len=32"]);
    let saved = place.path().join("run/model").to_str().unwrap().to_owned();
    let served = Served::of(spawn(["serve", "--port", "0", "--model", &saved]));
    for odd in ODD {
        let answer = served.post("/predict", &json!({"inputs": odd})).ok();
        let labels: Vec<&str> =
            answer.as_array().unwrap().iter().map(|of| of["label"].as_str().unwrap()).collect();
        assert!(labels.contains(&"yes") && labels.contains(&"no"), "{answer}");
    }
}
