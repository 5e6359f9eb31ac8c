//! `cloze search`: what is found, and failures.

use crate::ran::run;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const TEXTS: [&str; 6] = [
    "the old sea and the old boats",
    "a storm at sea",
    "boats in the harbour",
    "the king and the queen",
    "bread and butter for the king",
    "the harbour at night",
];

/// A folder with two models and files of texts.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = WordPieceTrainer { vocab_size: 90, ..Default::default() }
        .train([TEXTS.join("\n").repeat(9)])
        .unwrap();
    for (name, seed, width) in [("model", 1, 16), ("other", 2, 16), ("wide", 1, 32)] {
        let folder = place.path().join(name);
        let mut config = BertConfig::new(tokenizer.vocab_size(), 1, width);
        (config.n_heads, config.max_positions) = (2, 16);
        let model = config.init_encoder(&mut ParamInit::new(&Device::flex(), seed));
        save_pretrained(&folder, &model, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
        tokenizer.save(&folder).unwrap();
    }
    let object = |(i, text): (usize, &&str)| {
        json!({"id": format!("t{i}"), "text": text, "year": 1999 + i % 2}).to_string()
    };
    let lines: Vec<String> = TEXTS.iter().enumerate().map(object).collect();
    fs::write(place.path().join("texts.jsonl"), lines.join("\n")).unwrap();
    fs::write(place.path().join("more.tsv"), "title\tkey\nthe night sea\tm1\nthe queen at night\t7\n")
        .unwrap();
    fs::write(place.path().join("lines.txt"), "one boat\ntwo boats\n").unwrap();
    fs::write(place.path().join("none.jsonl"), "").unwrap();
    fs::write(
        place.path().join("twice.jsonl"),
        "{\"id\": 1, \"text\": \"a\"}\n{\"id\": \"1\", \"text\": \"b\"}\n",
    )
    .unwrap();
    fs::write(place.path().join("known.jsonl"), "{\"id\": \"t3\", \"text\": \"the queen\"}\n").unwrap();
    place
}

/// `cloze search COMMAND`, with names of files and folders where they are.
fn search(place: &Path, args: &[&str], input: &str) -> crate::ran::Ran {
    let is_path = |arg: &str| {
        ["model", "other", "wide", "index", "more-index", "absent"].contains(&arg)
            || [".jsonl", ".tsv", ".txt", ".csv"].iter().any(|ending| arg.ends_with(ending))
    };
    let mut all = vec!["search".to_owned(), args[0].to_owned()];
    all.extend(args[1..].iter().map(|arg| match is_path(arg) {
        true => place.join(arg).to_str().unwrap().to_owned(),
        false => (*arg).to_owned(),
    }));
    run(&all.iter().map(String::as_str).collect::<Vec<_>>(), input.as_bytes())
}

fn answers(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(answer: &Value) -> Vec<&str> {
    answer["found"].as_array().unwrap().iter().map(|found| found["id"].as_str().unwrap()).collect()
}

#[test]
fn texts_are_found_added_and_deleted() {
    let place = place();
    let place = place.path();
    let made = search(
        place,
        &[
            "index",
            "--index",
            "index",
            "--model",
            "model",
            "--field",
            "year",
            "--recall",
            "--commit-every",
            "4",
            "texts.jsonl",
        ],
        "",
    );
    assert_eq!(made.done(), "{\"added\":4}\n{\"added\":6}\n{\"recall\":1.0}\n");
    // A text is nearest to itself; queries are answered in their order.
    let queries = format!("{}\n{}\n", TEXTS[4], TEXTS[1]);
    for exact in [&[][..], &["--exact"]] {
        let ran =
            search(place, &[&["query", "--index", "index", "-k", "2", "--recall"], exact].concat(), &queries);
        assert!(ran.err.contains("recall at 2: 1.0000 of 2 queries"), "{}", ran.err);
        let found = answers(&ran.done());
        for (answer, (id, text, year)) in found.iter().zip([("t4", TEXTS[4], 1999), ("t1", TEXTS[1], 2000)]) {
            assert_eq!((answer["query"].as_str(), ids(answer).len()), (Some(text), 2));
            let first = &answer["found"][0];
            assert!((first["score"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{first}");
            assert_eq!(
                (&first["id"], &first["text"], &first["fields"]),
                (&json!(id), &json!(text), &json!({"year": year}))
            );
        }
    }
    let found = search(
        place,
        &["query", "--index", "index", "--where", "year=2000", "--where", "year!=1999", TEXTS[0]],
        "",
    )
    .done();
    let mut odd = ids(&answers(&found)[0]).into_iter().map(str::to_owned).collect::<Vec<_>>();
    odd.sort();
    assert_eq!(odd, ["t1", "t3", "t5"]);

    let added = search(place, &["add", "--index", "index", "--columns", "text=title,id=key", "more.tsv"], "");
    assert_eq!(added.done(), "{\"added\":2}\n");
    assert_eq!(search(place, &["add", "--index", "index"], "lines of\ntexts\n").done(), "{\"added\":2}\n");
    assert_eq!(
        search(place, &["add", "--index", "index", "--replace", "known.jsonl"], "").done(),
        "{\"added\":1}\n"
    );
    // The index knows which columns it keeps; a row without one has none.
    fs::write(
        place.join("later.jsonl"),
        "{\"id\":\"u0\",\"text\":\"a\",\"year\":2026}\n{\"id\":\"u1\",\"text\":\"b\"}\n",
    )
    .unwrap();
    assert_eq!(search(place, &["add", "--index", "index", "later.jsonl"], "").done(), "{\"added\":2}\n");
    let found = search(place, &["query", "--index", "index", "--where", "year=2026", "x"], "").done();
    assert_eq!(ids(&answers(&found)[0]), ["u0"]);
    search(place, &["delete", "--index", "index", "u0", "u1"], "").done();
    assert_eq!(search(place, &["delete", "--index", "index", "t0", "7"], "").done(), "{\"deleted\":2}\n");
    assert_eq!(
        search(place, &["delete", "--index", "index", "--ignore-unknown"], "t0\nt1\n").done(),
        "{\"deleted\":1}\n"
    );
    let compacted = search(place, &["compact", "--index", "index"], "").done();
    let compacted: Value = serde_json::from_str(&compacted).unwrap();
    assert_eq!(
        (&compacted["rows"], compacted["removed"].as_u64() > Some(0)),
        (&json!(7), true),
        "{compacted}"
    );
    assert_eq!(
        search(place, &["compact", "--index", "index"], "").done(),
        "{\"rows\":7,\"removed\":0,\"joined\":0}\n"
    );
    let info: Value = serde_json::from_str(&search(place, &["info", "--index", "index"], "").done()).unwrap();
    assert_eq!((&info["rows"], &info["deleted"], &info["parts"]), (&json!(7), &json!(0), &json!(1)));
    let all = search(place, &["query", "--index", "index", "-k", "20", "the queen"], "").done();
    let all = answers(&all);
    assert_eq!((ids(&all[0])[0], ids(&all[0]).len()), ("t3", 7));
    assert!(!ids(&all[0]).iter().any(|id| ["t0", "t1", "7"].contains(id)));
}

#[test]
fn failures_are_one_line_and_change_nothing() {
    let place = place();
    let place = place.path();
    search(place, &["index", "--index", "index", "--model", "model", "texts.jsonl"], "").done();
    let manifest = || fs::read(place.join("index/manifest")).unwrap();
    let before = manifest();
    fs::write(place.join("blank.csv"), "text\na sea\n\" \"\nthe king\n").unwrap();
    for (args, input, status, expected) in [
        (&["query", "--index", "absent", "x"][..], "", 2, "is no index"),
        (&["query", "--index", "index", ""], "", 1, "query 1: the query is empty"),
        (
            &["index", "--index", "more-index", "--model", "model", "twice.jsonl"],
            "",
            1,
            "twice.jsonl:1; ids must be unique: correct one of them, or skip such rows with --on-bad-row skip",
        ),
        (
            &["index", "--index", "more-index", "--model", "model", "blank.csv"],
            "",
            1,
            "blank.csv:3: the text is empty",
        ),
        (
            &["query", "--index", "index", "--model", "other", "x"],
            "",
            1,
            "made with another model: its hash is",
        ),
        (
            &["query", "--index", "index", "--model", "wide", "x"],
            "",
            1,
            "another model: its width is 16, that of this model is 32",
        ),
        (&["query", "--index", "index", "--where", "year", "x"], "", 2, "expected key=value"),
        (
            &["query", "--index", "index", "--where", "year=2", "x"],
            "",
            2,
            "no row of the index has a field \"year\"",
        ),
        (&["query", "--index", "index", "-k", "0", "x"], "", 2, "-k <K>"),
        (&["index", "--index", "index", "--model", "model", "texts.jsonl"], "", 2, "has an index already"),
        (&["index", "--index", "more-index", "--model", "model", "none.jsonl"], "", 1, "no rows to index"),
        (
            &["index", "--index", "more-index", "--model", "model", "more.tsv"],
            "",
            1,
            "no column `text` (the header has: title, key)",
        ),
        (
            &["index", "--index", "more-index", "--model", "model", "--field", "year"],
            "x\n",
            2,
            "lines of text have no columns for --field",
        ),
        (
            &["add", "--index", "index", "twice.jsonl"],
            "",
            1,
            "twice.jsonl:1; ids must be unique: correct one of them, or skip such rows with --on-bad-row skip",
        ),
        (
            &["add", "--index", "index", "known.jsonl"],
            "",
            1,
            "known.jsonl:1: the id \"t3\" is in the index already",
        ),
        (&["add", "--index", "index", "--model", "other", "lines.txt"], "", 1, "made with another model"),
        (&["add", "--index", "index", "absent.jsonl"], "", 1, "absent.jsonl"),
        (&["delete", "--index", "index", "t1", "nobody"], "", 1, "no row with the id \"nobody\""),
    ] {
        let ran = search(place, args, input);
        assert!(ran.error_line(status).contains(expected), "{args:?}: {}", ran.err);
        assert_eq!(manifest(), before, "{args:?}");
    }
    // Nothing that is half made answers.
    assert!(!place.join("more-index").exists());
    let made = ["index", "--index", "more-index", "--model", "model", "--on-bad-row", "skip", "blank.csv"];
    let made = search(place, &made, "");
    let skipped = made.err.lines().find(|line| line.contains("skipped 1 of 3 rows (1 × no text): "));
    assert!(skipped.is_some_and(|line| line.ends_with("blank.csv:3")), "{}", made.err);
    assert_eq!(made.done(), "{\"added\":2}\n");
    // So is a row whose id is that of another, in the same part or in one that is on disk.
    for (every, name) in [("9", "i9"), ("1", "i1")] {
        let made = [
            "index",
            "--index",
            "index",
            "--model",
            "model",
            "--on-bad-row",
            "skip",
            "--commit-every",
            every,
        ];
        let mut args: Vec<String> = made.map(str::to_owned).to_vec();
        args[2] = place.join(name).to_str().unwrap().to_owned();
        args.push("twice.jsonl".into());
        let made = search(place, &args.iter().map(String::as_str).collect::<Vec<_>>(), "");
        let skipped = made.err.lines().find(|line| line.contains("skipped 1 of 2 rows (1 × doubled id): "));
        assert!(skipped.is_some_and(|line| line.ends_with("twice.jsonl:2")), "{}", made.err);
        assert_eq!(made.done(), "{\"added\":1}\n");
    }
    // A blank line is neither a query nor a row, and the next one keeps its number.
    assert_eq!(search(place, &["query", "--index", "index"], "a\n\n \nb\n").done().lines().count(), 2);
    assert_eq!(search(place, &["add", "--index", "more-index"], "a\n\nb\n").done(), "{\"added\":2}\n");
    let texts = place.join("index/000000.texts");
    let mut bytes = fs::read(&texts).unwrap();
    bytes[3] ^= 1;
    fs::write(&texts, bytes).unwrap();
    let ran = search(place, &["query", "--index", "index", "x"], "");
    assert!(
        ran.out.is_empty()
            && ran.error_line(1).contains("000000.texts: its contents are not as they were written")
    );
}

#[test]
fn an_index_without_rows_says_so() {
    let place = place();
    let place = place.path();
    search(place, &["index", "--index", "index", "--model", "model", "lines.txt"], "").done();
    search(place, &["delete", "--index", "index", "0", "1"], "").done();
    let ran = search(place, &["query", "--index", "index", "--json", "x"], "");
    assert!(ran.err.contains("index has no rows, so nothing is found"), "{}", ran.err);
    assert_eq!(answers(&ran.done()), [json!({"query": "x", "found": []})]);
}

#[test]
fn a_field_that_no_column_has_is_told_by_its_option() {
    let place = place();
    let place = place.path();
    for (more, expected) in [
        (&["more.tsv"][..], "no column `nofield` (the header has: title, key); set `--field COLUMN`"),
        (&["--no-header", "more.tsv"], "so `--field` cannot name one"),
    ] {
        let index = ["index", "--index", "index", "--model", "model", "--field", "nofield"];
        let text = if more.len() == 1 { "text=title" } else { "text=1" };
        let ran = search(place, &[&index[..], &["--columns", text], more].concat(), "");
        assert!(ran.error_line(1).contains(expected), "{}", ran.err);
    }
}

/// Another file beside the model changes nothing; another model is used only if its hash is named.
#[test]
fn a_model_is_known_by_what_is_read_of_it() {
    let place = place();
    let place = place.path();
    search(place, &["index", "--index", "index", "--model", "model", "texts.jsonl"], "").done();
    let query = |args: &[&str]| {
        search(place, &[&["query", "--index", "index", "-k", "1"], args, &["the queen"]].concat(), "")
    };
    let before = query(&[]).done();
    fs::write(place.join("model/data_config.json"), "{}").unwrap();
    assert_eq!(query(&[]).done(), before);
    let info: Value = serde_json::from_str(&search(place, &["info", "--index", "index"], "").done()).unwrap();
    assert_eq!(info["config"]["model"]["pooling"], "mean");
    let refused = query(&["--model", "other"]);
    let error = refused.error_line(1);
    let (_, hash) = error.split_once("add --accept-model ").expect(error);
    let hash = &hash[..12];
    let ran = query(&["--model", "other", "--accept-model", hash]);
    assert!(ran.err.contains("is used, as --accept-model says"), "{}", ran.err);
    assert_eq!(answers(&ran.done()).len(), 1);
    let wrong = query(&["--model", "other", "--accept-model", "0123456789ab"]);
    assert!(wrong.error_line(1).contains("made with another model: its hash is"));
    assert!(
        query(&["--accept-model", "best"]).error_line(2).contains("expected 8 hexadecimal digits or more")
    );
    assert!(query(&["--model", "wide", "--accept-model", hash]).error_line(1).contains("its width is 16"));
}

/// A model's folder is found again from wherever a command runs.
#[test]
fn a_relative_folder_of_a_model_is_found_from_elsewhere() {
    let place = place();
    let place = place.path();
    run_in(place, &["search", "index", "--index", "index", "--model", "./model", "texts.jsonl"]).done();
    let found = run_in(&place.join("index"), &["search", "query", "--index", ".", "-k", "1", "the queen"]);
    assert_eq!(answers(&found.done()).len(), 1);
}

#[test]
fn what_could_not_be_read_again_is_refused_with_its_line() {
    let place = place();
    let place = place.path();
    let nested = |levels: usize| "[".repeat(levels) + "1" + &"]".repeat(levels);
    let lines = |levels| format!("{{\"text\":\"a\",\"x\":0}}\n{{\"text\":\"b\",\"x\":{}}}\n", nested(levels));
    fs::write(place.join("deep.jsonl"), lines(126)).unwrap();
    fs::write(place.join("less.jsonl"), lines(120)).unwrap();
    let index = ["index", "--index", "index", "--model", "model", "--field", "x", "deep.jsonl"];
    let ran = search(place, &index, "");
    let error = ran.error_line(1);
    assert!(
        error.contains("deep.jsonl:2: the field \"x\" nests lists or objects more than 125 deep"),
        "{error}"
    );
    assert!(ran.out.is_empty());
    let index = ["index", "--index", "index", "--model", "model", "--field", "x", "less.jsonl"];
    assert_eq!(search(place, &index, "").done(), "{\"added\":2}\n");
    assert_eq!(answers(&search(place, &["query", "--index", "index", "b"], "").done()).len(), 1);
}

/// The ids of an index's rows, sorted, by a query that finds all.
fn all_ids(place: &Path, folder: &str) -> Vec<String> {
    let ran = run_in(place, &["search", "query", "--index", folder, "-k", "1000", "--exact", "the sea"]);
    let mut ids: Vec<String> = ids(&answers(&ran.done())[0]).into_iter().map(str::to_owned).collect();
    ids.sort();
    ids
}

fn run_in(folder: &Path, args: &[&str]) -> crate::ran::Ran {
    crate::ran::run_in(folder, args, b"")
}

/// Files as they are found in a folder: a byte-order mark, CRLF, UTF-16, an empty file, odd names.
fn notes(place: &Path) {
    fs::create_dir_all(place.join("notes/ordner ä")).unwrap();
    fs::create_dir_all(place.join("notes/.git")).unwrap();
    let guide = "\u{feff}# Guide\r\n\r\nthe old sea\r\n\r\n## Sea\r\n\r\n```\r\n# sea\r\n```\r\n\r\n\
                 ## King\r\n\r\nthe king\r\n";
    let utf16 = |text: &str| {
        let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    for (name, bytes) in [
        ("guide.md", guide.as_bytes()),
        ("ordner ä/sturm.TXT", &utf16("the sea\n\nthe king\n")),
        ("leer.txt", b""),
        (".git/x.md", b"hidden"),
        ("photo.png", b"\x89PNG"),
    ] {
        fs::write(place.join("notes").join(name), bytes).unwrap();
    }
}

#[test]
fn a_folder_of_texts_is_searched_by_passages() {
    let place = place();
    let place = place.path();
    notes(place);
    let made = run_in(place, &["search", "index", "--index", "i", "--model", "model", "./notes/"]);
    let said = "skipped 1 × file that is neither .md nor .txt, 1 × file without text: \
                ./notes/photo.png (file that is neither .md nor .txt), notes/leer.txt (file without text)\n";
    assert!(made.err.contains(said), "{}", made.err);
    assert_eq!(made.done(), "{\"added\":4}\n");
    let expected =
        ["notes/guide.md:1", "notes/guide.md:11", "notes/guide.md:5", "notes/ordner ä/sturm.TXT:1"];
    assert_eq!(all_ids(place, "i"), expected);
    let query = ["search", "query", "--index", "i", "-k", "1", "--where", "line=11", "king"];
    let found = run_in(place, &query).done();
    assert_eq!(
        answers(&found)[0]["found"][0]["fields"],
        json!({"path": "notes/guide.md", "line": 11, "heading": "Guide > King"})
    );
    assert_eq!(answers(&found)[0]["found"][0]["text"], "## King\n\nthe king");

    // Where a text has moved, been taken out or come in, the index follows; other rows stay.
    run_in(place, &["search", "add", "--index", "i", "lines.txt"]).done();
    // So does a row of a table that has the fields of passages.
    let own = "{\"id\": \"own\", \"text\": \"a storm\", \"path\": \"notes/guide.md\", \"line\": 7}\n";
    fs::write(place.join("own.jsonl"), own).unwrap();
    run_in(place, &["search", "add", "--index", "i", "own.jsonl"]).done();
    fs::write(place.join("notes/guide.md"), "\n## King\n\nthe queen\n").unwrap();
    fs::remove_file(place.join("notes/ordner ä/sturm.TXT")).unwrap();
    fs::write(place.join("notes/new.markdown"), "the queen").unwrap();
    let changed = run_in(place, &["search", "add", "--index", "i", "--replace", "notes"]);
    assert_eq!(changed.done(), "{\"added\":2}\n{\"deleted\":4}\n");
    let ids = all_ids(place, "i");
    assert_eq!(ids.len(), 5, "{ids:?}");
    assert!(ids.contains(&"own".to_owned()));
    assert!(ids.contains(&"notes/guide.md:2".to_owned()) && ids.contains(&"notes/new.markdown:1".to_owned()));

    // Nothing is deleted that is another folder's of the same name, and what is known by another name is said to be.
    fs::create_dir_all(place.join("x/notes")).unwrap();
    fs::write(place.join("x/notes/a.md"), "a storm").unwrap();
    for around in [".", "notes/../notes", "../x/notes"] {
        let refused = run_in(&place.join("x"), &["search", "add", "--index", "../i", "--replace", around]);
        assert!(refused.error_line(2).contains("--replace finds passages by the path"), "{}", refused.err);
    }
    assert_eq!(all_ids(place, "i"), ids);
    let notes = place.join("notes");
    let again = run_in(place, &["search", "add", "--index", "i", "--replace", notes.to_str().unwrap()]);
    assert!(again.err.contains("the index has no passages of it, so all are new"), "{}", again.err);
    assert_eq!(again.done(), "{\"added\":2}\n");

    // A file of lines is cut if asked; passages have the size that is asked for.
    let words = "boats in the harbour at night ".repeat(30);
    fs::write(place.join("long.txt"), format!("{words}\n{words}\n")).unwrap();
    let cut = [
        "search",
        "index",
        "--index",
        "j",
        "--model",
        "model",
        "--passages",
        "--passage-tokens",
        "16",
        "long.txt",
    ];
    let made = run_in(place, &cut);
    assert!(!made.err.contains("only their beginnings"), "{}", made.err);
    made.done();
    let ids = all_ids(place, "j");
    assert!(ids.len() > 20 && ids.iter().any(|id| id.starts_with("long.txt:1:")), "{ids:?}");
}

#[test]
fn what_is_wrong_with_a_folder_is_told() {
    let place = place();
    let place = place.path();
    fs::create_dir_all(place.join("empty")).unwrap();
    fs::create_dir_all(place.join("notes")).unwrap();
    fs::write(place.join("notes/a.md"), b"the sea\ncaf\xE9 noir\n").unwrap();
    let index = ["search", "index", "--index", "i", "--model", "model"];
    for (args, status, expected) in [
        (&["notes"][..], 1, "notes/a.md:2: not UTF-8 (byte 4 is 0xe9); it looks like Windows-1252"),
        (&["empty"], 1, "there is no .md or .txt file in the folder"),
        (&["--field", "year", "notes"], 2, "passages, which have no columns for --field"),
        (&["--delimiter", ";", "notes"], 2, "--delimiter is for CSV and TSV"),
        (&["--input-format", "csv", "notes"], 2, "notes is a folder; expected a file of texts"),
        (&["--passages"], 2, "standard input is read as lines"),
        (&["--passage-tokens", "3", "notes"], 2, "--passage-tokens"),
        (&["absent.md"], 1, "absent.md"),
    ] {
        let ran = run_in(place, &[&index[..], args].concat());
        assert!(ran.error_line(status).contains(expected), "{args:?}: {}", ran.err);
        assert!(!place.join("i/manifest").exists(), "{args:?}");
    }
    let map = run_in(place, &["map", "--model", "model", "notes"]);
    assert!(map.error_line(2).contains("notes is a folder"), "{}", map.err);
    let made = run_in(place, &[&index[..], &["--on-bad-row", "skip", "notes"]].concat());
    assert!(made.err.contains("(1 × bad UTF-8): notes/a.md:2\n"), "{}", made.err);
    assert_eq!(made.done(), "{\"added\":1}\n");
    // A file that loses all its lines is counted by them alone.
    fs::write(place.join("notes/b.md"), b"caf\xE9\n").unwrap();
    let index = ["search", "index", "--index", "j", "--model", "model", "notes"];
    let made = run_in(place, &[&index[..], &["--on-bad-row", "skip", "--max-skipped", "1"]].concat());
    assert!(made.err.contains("(2 × bad UTF-8): notes/a.md:2, notes/b.md:1\n"), "{}", made.err);
    assert!(!made.err.contains("file without text"), "{}", made.err);
    made.done();
}
