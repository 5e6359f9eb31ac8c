//! Labelled data: every format gives the same examples, and every bad row an exact message or a count.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::labelled::{
    Answer, AnswerConfig, ChoiceExample, EntityTags, LabelSet, LabelledSource, Labels, Loaded, LongSentences,
    OnBadRow, Question, TagScheme, TaggedSentence, Target, TextExample, WindowScores, Windows, best_answer,
    choices, encode_questions, encode_tags, encode_texts, entity_sentences, questions, sentences, tag_spans,
    tagged_sentences, texts,
};
use cloze_tokenizer::Tokenizer;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

fn folder(name: &str, bytes: impl AsRef<[u8]>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), bytes).unwrap();
    folder
}

fn source(json: serde_json::Value) -> LabelledSource {
    serde_json::from_value(json).unwrap()
}

fn example(text: &str, pair: Option<&str>, target: Target) -> TextExample {
    TextExample { text: text.into(), pair: pair.map(Into::into), target }
}

/// What is wrong with a file of texts, after the path, under `error`; and how many examples and which counts
/// there are under `skip`.
fn bad_texts(name: &str, bytes: &[u8], settings: serde_json::Value, labels: Labels) -> (String, String) {
    let folder = folder(name, bytes);
    let mut settings = settings;
    settings["files"] = json!([name]);
    let mut source = source(settings);
    let message = texts(&source, folder.path(), labels).unwrap_err().to_string();
    (source.on_bad_row, source.max_skipped) = (OnBadRow::Skip, Some(1.0));
    let skipped = match texts(&source, folder.path(), labels) {
        Ok((loaded, _)) => format!("{} + {}", loaded.examples.len(), loaded.skipped),
        Err(error) => without_path(&error.to_string(), folder.path()),
    };
    (without_path(&message, folder.path()), skipped)
}

fn without_path(message: &str, folder: &Path) -> String {
    message.replace(&format!("{}{}", folder.display(), std::path::MAIN_SEPARATOR), "")
}

#[test]
fn delimited_files_have_quotes_as_set() {
    let text = "\u{FEFF}id,label,a,b\r\n1,x,\"one, \"\"two\"\"\r\nthree\",4\r\n\r\n2,y,\"five\" six,7\r\n";
    let folder = folder("a.csv", text);
    let source = source(json!({"files": ["a.csv"], "columns": {"text": "a", "pair": 4}}));
    let (loaded, set) = texts(&source, folder.path(), Labels::Found).unwrap();
    assert_eq!(set.unwrap().names(), ["x", "y"]);
    let expected = [
        example("one, \"two\"\nthree", Some("4"), Target::Class(0)),
        example("five six", Some("7"), Target::Class(1)),
    ];
    assert_eq!(loaded.examples, expected);

    let tabs = "1\t\"bare\n0\t \"quotes\" \n";
    fs::write(folder.path().join("a.tsv"), tabs).unwrap();
    let settings = json!({"files": ["a.tsv"], "header": false, "columns": {"label": 1, "text": 2}});
    let (loaded, _) = texts(&self::source(settings), folder.path(), Labels::Values).unwrap();
    let expected =
        [example("\"bare", None, Target::Value(1.0)), example(" \"quotes\" ", None, Target::Value(0.0))];
    assert_eq!(loaded.examples, expected);
}

#[test]
fn one_set_of_examples_comes_from_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.csv"), "text,pair,label\n\"a\tb\",\"c,d\",1\né,f,0\n").unwrap();
    fs::write(path("a.tsv"), "pair\ttext\tlabel\n\"c,d\"\t\"a\tb\"\t 1 \nf\té\t0\n").unwrap();
    let lines = "{\"text\":\"a\\tb\",\"pair\":\"c,d\",\"label\":1}\n\n{\"label\":\"0\",\"pair\":\"f\",\"text\":\"é\",\"x\":[]}\n";
    fs::write(path("a.jsonl"), lines).unwrap();
    let mut gzip =
        flate2::write::GzEncoder::new(File::create(path("a.ndjson.gz")).unwrap(), Default::default());
    std::io::Write::write_all(&mut gzip, lines.as_bytes()).unwrap();
    gzip.finish().unwrap();
    text_parquet(&path("a.parquet"));
    for (name, quoting) in [
        ("a.csv", None),
        ("a.tsv", Some(true)),
        ("a.jsonl", None),
        ("a.ndjson.gz", None),
        ("a.parquet", None),
    ] {
        let mut settings = json!({"files": [name], "columns": {"pair": "pair"}});
        if let Some(quoting) = quoting {
            settings["quoting"] = json!(quoting);
        }
        let (loaded, set) = texts(&source(settings), folder.path(), Labels::Found).unwrap();
        assert_eq!(set.unwrap().names(), ["0", "1"], "{name}");
        let expected =
            [example("a\tb", Some("c,d"), Target::Class(1)), example("é", Some("f"), Target::Class(0))];
        assert_eq!(loaded.examples, expected, "{name}");
    }
    let all = source(json!({"files": ["a.*"], "columns": {"pair": "pair"}, "quoting": true}));
    let (loaded, _) = texts(&all, folder.path(), Labels::Unread).unwrap();
    assert_eq!(loaded.examples.len(), 10);
    assert!(loaded.examples.iter().all(|example| example.target == Target::None));
}

/// The examples in Parquet, the label an integer, with a column beside them.
fn text_parquet(path: &Path) {
    let schema = "message m { REQUIRED BYTE_ARRAY text (STRING); OPTIONAL DOUBLE other; OPTIONAL BYTE_ARRAY \
                  pair (STRING); REQUIRED INT32 label; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    for (text, pair, label) in [("a\tb", "c,d", 1), ("é", "f", 0)] {
        let mut group = writer.next_row_group().unwrap();
        let mut bytes = |text: &str, levels: Option<&[i16]>| {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&[ByteArray::from(text)], levels, None).unwrap();
            column.close().unwrap();
        };
        bytes(text, None);
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&[], Some(&[0]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&[ByteArray::from(pair)], Some(&[1]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[label], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

#[test]
fn parquet_gives_lists_numbers_and_names_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let schema = "message m { REQUIRED group tokens (LIST) { REPEATED group list { REQUIRED BYTE_ARRAY element \
                  (STRING); } } REQUIRED group tags (LIST) { REPEATED group list { REQUIRED INT32 element; } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = File::create(folder.path().join("a.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let words = ["Ann", "runs", "Go"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&words, Some(&[1; 3]), Some(&[0, 1, 0])).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 0, 0], Some(&[1; 3]), Some(&[0, 1, 0])).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let settings = json!({"files": ["a.parquet"], "columns": {"words": "tokens"}});
    let names = ["O".to_owned(), "B-PER".to_owned()];
    let loaded = tagged_sentences(&source(settings.clone()), folder.path(), true, &names).unwrap();
    let sentence = |words: &[&str], tags: &[&str]| TaggedSentence {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    };
    let expected = [sentence(&["Ann", "runs"], &["B-PER", "O"]), sentence(&["Go"], &["O"])];
    assert_eq!(loaded.examples, expected);
    let error = tagged_sentences(&source(settings), folder.path(), true, &[]).unwrap_err().to_string();
    assert!(error.contains("a.parquet:1: column `tags`: tag 1, expected a name"), "{error}");
    let error = texts(&source(json!({"files": ["a.parquet"]})), folder.path(), Labels::Unread).unwrap_err();
    let expected = "a.parquet: no column `text` (the file has: tokens, tags); set `columns.text`";
    assert_eq!(without_path(&error.to_string(), folder.path()), expected);
}

/// A file's name and contents, settings, how labels are read, the error, and what comes of skipping.
type BadRow<'a> = (&'a str, &'a [u8], serde_json::Value, Labels<'a>, &'a str, &'a str);

#[test]
fn bad_rows_have_their_place_or_are_counted() {
    let known = LabelSet::given(["no", "yes"]).unwrap();
    let hint = "; correct it, or set `on_bad_row = \"skip\"` to skip such rows";
    let of = Labels::Of(&known);
    let columns = json!({"columns": {"label": "class"}});
    let cases: [BadRow; 17] = [
        (
            "a.csv",
            b"text,class\na,yes\nb,maybe\n",
            columns.clone(),
            of,
            "a.csv:3: column `class` (`columns.label`): `maybe`, expected one of no, yes",
            "1 + 1 × unknown label",
        ),
        (
            "a.csv",
            b"text,label\na,1e3\nb,inf\n",
            json!({}),
            Labels::Values,
            "a.csv:3: column `label`: `inf`, expected a finite number",
            "1 + 1 × label is not a number",
        ),
        (
            "a.csv",
            b"text,label\na,\nb,1\n",
            json!({}),
            Labels::Found,
            "a.csv:2: column `label`: empty, expected a label",
            "1 + 1 × no label",
        ),
        (
            "a.csv",
            b"text,label\na,1\n\"b,1\nc,1\n",
            json!({}),
            Labels::Found,
            "a.csv:3: a quoted field is not closed; set `quoting = false` if quotation marks \
             are text in this file",
            "2 + 1 × unclosed quote",
        ),
        (
            "a.csv",
            b"text,label\na,1\n\"b,1\nc,1\n\"d\",1\ne,2\n",
            json!({}),
            Labels::Found,
            "a.csv:3: a quoted field is not closed: the next quotation mark is within the text of line 5; close it, or set \
             `quoting = false` if quotation marks are text in this file",
            "4 + 1 × unclosed quote",
        ),
        // The lines before the mark are of the row's first cell.
        (
            "a.csv",
            b"text,label\n\"a\nb,1\nc\",\"oops\nd,2\n\"e\",3\n",
            json!({}),
            Labels::Found,
            "a.csv:4: a quoted field is not closed: the next quotation mark is within the text of line 6; close it, or set \
             `quoting = false` if quotation marks are text in this file",
            "2 + 1 × unclosed quote",
        ),
        (
            "a.tsv",
            b"text\tlabel\na\nb\t1\nc\t1\t\n",
            json!({}),
            Labels::Found,
            "a.tsv:2: 1 column, expected 2 as in the file's first row",
            "2 + 1 × number of columns",
        ),
        (
            "a.tsv",
            b"text\tlabel\na\xFF\t1\nb\t1\n",
            json!({}),
            Labels::Found,
            "a.tsv:2: not UTF-8 (byte 2 is 0xff); it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8",
            "1 + 1 × bad UTF-8",
        ),
        (
            "a.tsv",
            b"text\tlabel\naaaaaaaaaaaaaaaaaaaa\t1\nb\t1\n",
            json!({"max_line_bytes": 12}),
            Labels::Found,
            "a.tsv:2: the line is longer than `max_line_bytes` = 12",
            "1 + 1 × long line",
        ),
        (
            "a.jsonl",
            b"{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"lab",
            json!({}),
            of,
            "a.jsonl:2: not a JSON object: EOF while parsing a string at column 18",
            "1 + 1 × bad JSON",
        ),
        (
            "a.jsonl",
            b"{\"text\": \"a\", \"label\": 2}\n{\"text\": \"b\", \"label\": 1}",
            json!({}),
            of,
            "a.jsonl:1: column `label`: `2`, expected one of no, yes",
            "1 + 1 × unknown label",
        ),
        (
            "a.jsonl",
            b"{\"text\": 5, \"label\": true}\n{\"text\": \"b\", \"label\": true}",
            json!({}),
            Labels::Found,
            "a.jsonl:1: column `text`: a number, expected a string",
            "1 + 1 × column without text",
        ),
        (
            "a.jsonl",
            b"{\"txt\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 1}",
            json!({}),
            of,
            "a.jsonl:1: no column `text` (it has: txt, label); set `columns.text`",
            "1 + 1 × missing column",
        ),
        (
            "a.jsonl",
            b"{\"text\": \"a\", \"label\": null}\n{\"text\": \"b\", \"label\": 1}",
            json!({}),
            of,
            "a.jsonl:1: column `label`: null, expected a string or a number",
            "1 + 1 × no label",
        ),
        (
            "a.tsv",
            b"A:b text one\nA text\n",
            json!({"delimiter": " ", "header": false, "n_columns": 2, "label_before": ":",
                "columns": {"label": 1, "text": 2}}),
            Labels::Found,
            "a.tsv:2: column 1 (`columns.label`): `A`, expected `:` after the label",
            "1 + 1 × label without separator",
        ),
        (
            "a.tsv",
            b"text\tlabel\nx\ty\n",
            json!({}),
            of,
            "a.tsv:2: column `label`: `y`, expected one of no, yes",
            "a.tsv: no row of the files is usable; skipped: 1 × unknown label",
        ),
        (
            "a.csv",
            b"text,label\n\"a,1\n\"b,1\n",
            json!({"max_line_bytes": 8}),
            Labels::Found,
            "the line is longer than `max_line_bytes` = 8",
            "the line is longer than `max_line_bytes` = 8",
        ),
    ];
    for (name, bytes, settings, labels, message, skipped) in cases {
        let found = bad_texts(name, bytes, settings.clone(), labels);
        match message.starts_with("the line") {
            // The header itself: nothing can be read without it.
            true => assert_eq!(found, (format!("{name}:1: {message}"), format!("{name}:1: {message}"))),
            false => assert_eq!(found, (format!("{message}{hint}"), skipped.to_owned()), "{settings}"),
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_errors_either_way() {
    let cases: [(&str, &[u8], serde_json::Value, &str); 10] = [
        ("a.csv", b"", json!({}), "a.csv: it has no examples: it is empty or has only a header"),
        ("a.tsv", b"\n\n", json!({}), "a.tsv: it has no examples: it is empty or has only a header"),
        ("a.tsv", b"text\tlabel\n", json!({}), "a.tsv: it has no examples: it is empty or has only a header"),
        (
            "a.jsonl",
            b"\xEF\xBB\xBF",
            json!({}),
            "a.jsonl: it has no examples: it is empty or has only a header",
        ),
        ("a.parquet", b"", json!({}), "a.parquet: the file is empty: it has no example"),
        (
            "a.csv",
            b"a,label\nx,y\n",
            json!({}),
            "a.csv:1: no column `text` (the header has: a, label); set `columns.text`",
        ),
        (
            "a.csv",
            b"a,b\nx,y\n",
            json!({"columns": {"label": "class"}}),
            "a.csv:1: no column `text` (the header has: a, b); set `columns.text`; also no column `class` (`columns.label`)",
        ),
        (
            "a.csv",
            b"x,y\n",
            json!({"header": false}),
            "a.csv:1: columns have no names if `header = false`: set `columns.text` to a number from 1",
        ),
        (
            "a.csv",
            b"x,y\n",
            json!({"columns": {"text": 3}}),
            "a.csv:1: no column 3 (`columns.text`): there are 2 columns",
        ),
        ("a.csv", b"text,text\nx,y\n", json!({}), "a.csv:1: two columns have the name `text`"),
    ];
    for (name, bytes, settings, message) in cases {
        let found = bad_texts(name, bytes, settings, Labels::Found);
        assert_eq!(found, (message.to_owned(), message.to_owned()));
    }
    let damaged = bad_texts("a.parquet", b"PAR1 no PAR1", json!({}), Labels::Found);
    assert!(damaged.0.starts_with("a.parquet: not a readable Parquet file: "), "{}", damaged.0);
    let cut = bad_texts("a.csv", &[0x1F, 0x8B, 8, 0], json!({}), Labels::Found);
    assert!(cut.1.contains("reading failed part way"), "{}", cut.1);
    let folder = folder("a.csv", "x");
    let error = texts(&LabelledSource::new(["b.csv"]), folder.path(), Labels::Found).unwrap_err();
    assert!(error.to_string().starts_with("no file matches `b.csv`"), "{error}");
}

#[test]
fn multiple_choice_comes_in_columns_or_lists() {
    let expected = ChoiceExample {
        context: "c".into(),
        choices: vec!["x".into(), "y".into(), "z".into()],
        label: Some(1),
    };
    let columns = json!({"context": "q", "choices": ["a", "b", 4], "label": "right"});
    let csv = folder("a.csv", "q,a,b,c,right\nc,x,y,z,2\n");
    let read = |settings, folder: &TempDir, labelled| choices(&source(settings), folder.path(), labelled);
    let settings = json!({"files": ["a.csv"], "columns": columns, "first_choice": 1});
    assert_eq!(read(settings, &csv, true).unwrap().examples, std::slice::from_ref(&expected));

    let lines = folder("a.jsonl", r#"{"context": "c", "choices": ["x", "y", "z"], "label": "B"}"#);
    let settings = json!({"files": ["a.jsonl"]});
    assert_eq!(read(settings.clone(), &lines, true).unwrap().examples, std::slice::from_ref(&expected));
    let unlabelled = read(settings, &lines, false).unwrap().examples;
    assert_eq!(unlabelled, [ChoiceExample { label: None, ..expected }]);

    let message = |line: &str| {
        let lines = folder("a.jsonl", line);
        let error = read(json!({"files": ["a.jsonl"]}), &lines, true).unwrap_err().to_string();
        without_path(&error, lines.path())
    };
    let wrong = message(r#"{"context": "c", "choices": ["x", "y"], "label": 2}"#);
    assert!(
        wrong.starts_with("a.jsonl:1: column `label`: `2`, expected one of 0 to 1, or a letter"),
        "{wrong}"
    );
    let few = message(r#"{"context": "c", "choices": ["x"], "label": 0}"#);
    assert!(few.starts_with("a.jsonl:1: column `choices`: 1 choices, expected two or more"), "{few}");
    assert!(message(r#"{"context": "c", "choices": "x", "label": 0}"#).contains("a string, expected a list"));
}

#[test]
fn conll_columns_are_read_with_comments_and_document_starts() {
    let text = "\u{FEFF}-DOCSTART- -X- O O\r\n\r\n# text = Ann runs\r\nAnn NNP I-NP B-PER\r\n# CD I-NP O\r\n\r\n\r\n#go VB O O\r\n";
    let folder = folder("a.conll", text);
    let read = |settings: serde_json::Value, labelled| {
        let mut settings = settings;
        settings["files"] = json!(["a.conll"]);
        tagged_sentences(&source(settings), folder.path(), labelled, &[])
    };
    let pairs = |loaded: Loaded<TaggedSentence>| -> Vec<(String, String)> {
        loaded.examples.iter().map(|s| (s.words.join(" "), s.tags.join(" "))).collect()
    };
    let expect = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    assert_eq!(pairs(read(json!({}), true).unwrap()), expect(&[("Ann #", "B-PER O"), ("#go", "O")]));
    assert_eq!(
        pairs(read(json!({"columns": {"words": 1, "tags": 2}}), true).unwrap()),
        expect(&[("Ann #", "NNP CD"), ("#go", "VB")])
    );
    assert_eq!(
        pairs(read(json!({"comment": "#"}), true).unwrap()),
        expect(&[("Ann", "B-PER")]),
        "as the user says"
    );
    assert_eq!(pairs(read(json!({}), false).unwrap())[0], ("Ann #".to_owned(), String::new()));
    let message =
        without_path(&read(json!({"columns": {"tags": 5}}), true).unwrap_err().to_string(), folder.path());
    assert!(message.starts_with("a.conll:4: 4 columns, expected the tag in column 5; "), "{message}");
    let skipped = read(json!({"columns": {"tags": 4, "words": 2}, "on_bad_row": "skip"}), true).unwrap();
    assert_eq!(skipped.examples.len(), 2);
    let named = read(json!({"columns": {"tags": "ner"}}), true).unwrap_err().to_string();
    assert!(named.contains("a number from 1 in place of `ner`"), "{named}");
}

/// A line of CoNLL-U.
fn word(id: &str, form: &str, upos: &str) -> String {
    format!("{id}\t{form}\t{}\t{upos}\tX{upos}\t_\t0\troot\t_\tSpaceAfter=No\n", form.to_lowercase())
}

#[test]
fn conllu_has_words_by_the_names_of_its_columns() {
    let text = [
        "# sent_id = 1\n# text = Zum See # hin\n",
        "1-2\tZum\t_\t_\t_\t_\t_\t_\t_\t_\n",
        &word("1", "Zu", "ADP"),
        &word("2", "dem", "DET"),
        &word("3", "See", "NOUN"),
        &word("4", "#", "SYM"),
        "4.1\tfahren\tfahren\tVERB\t_\t_\t_\t_\t0:root\t_\n",
        &word("5", "hin nach", "ADV"),
        "\n# sent_id = 2\r\n",
        &word("1", "Ja", "INTJ").replace('\n', "\r\n"),
    ];
    let folder = folder("a.conllu", text.concat());
    let read = |columns: serde_json::Value, labelled| {
        let settings = json!({"files": ["a.conllu"], "columns": columns});
        tagged_sentences(&source(settings), folder.path(), labelled, &[])
    };
    let loaded = read(json!({}), true).unwrap().examples;
    assert_eq!(loaded.len(), 2);
    assert_eq!(loaded[0].words, ["Zu", "dem", "See", "#", "hin nach"], "a form may have a space");
    assert_eq!(loaded[0].tags, ["ADP", "DET", "NOUN", "SYM", "ADV"]);
    let others = read(json!({"words": "lemma", "tags": "xpos"}), true).unwrap().examples;
    assert_eq!((&others[0].words[0][..], &others[0].tags[0][..]), ("zu", "XADP"));
    let numbered = read(json!({"words": 2, "tags": 8}), true).unwrap().examples;
    assert_eq!((&numbered[1].words[0][..], &numbered[1].tags[0][..]), ("Ja", "root"));
    assert!(read(json!({}), false).unwrap().examples.iter().all(|sentence| sentence.tags.is_empty()));
    for column in [json!("pos"), json!(11)] {
        let message = read(json!({"tags": column}), true).unwrap_err().to_string();
        assert!(
            message.contains("(`columns.tags`); CoNLL-U has the columns id, form, lemma, upos, "),
            "{message}"
        );
    }
    let comment = source(json!({"files": ["a.conllu"], "comment": "#"}));
    let message = tagged_sentences(&comment, folder.path(), true, &[]).unwrap_err().to_string();
    assert!(message.starts_with("`comment` of the labelled data"), "{message}");
}

#[test]
fn bad_lines_of_conllu_have_their_place() {
    let good = word("1", "Ja", "INTJ");
    for (bad, expected) in [
        ("2\tNein\tnein\tINTJ\n".to_owned(), "a.conllu:2: 4 columns between tabs, expected 10; "),
        (word("3", "Nein", "INTJ"), "a.conllu:2: column `id` is `3`, expected 2, the word's number; "),
        (word("x-y", "Nein", "INTJ"), "a.conllu:2: column `id` is `x-y`, expected 2, the word's number; "),
        (word("2", "", "INTJ"), "a.conllu:2: column `form` is empty, expected the word; "),
        (word("2", "Nein", "_"), "a.conllu:2: column `upos` is `_` (no value), expected the tag; "),
    ] {
        let text = format!("{good}{bad}{}\n{good}", word("3", "so", "ADV"));
        let folder = folder("a.conllu", &text);
        let mut source = LabelledSource::new(["a.conllu"]);
        let message = tagged_sentences(&source, folder.path(), true, &[]).unwrap_err().to_string();
        assert!(without_path(&message, folder.path()).starts_with(expected), "{message}");
        source.on_bad_row = OnBadRow::Skip;
        let loaded = tagged_sentences(&source, folder.path(), true, &[]).unwrap();
        assert_eq!((loaded.examples.len(), loaded.skipped.0.values().sum::<u64>()), (1, 1), "{bad}");
    }
}

#[test]
fn classes_of_words_may_be_any_that_training_had() {
    let folder = folder("a.conllu", [word("1", "Ja", "INTJ"), word("2", "O", "O")].concat());
    let source = LabelledSource::new(["a.conllu"]);
    let read = |labels: Option<&LabelSet>| {
        let expected = EntityTags { scheme: Some(TagScheme::Words), labels, ..EntityTags::default() };
        entity_sentences(&source, folder.path(), expected)
    };
    assert_eq!(read(None).unwrap().examples[0].tags, ["INTJ", "O"]);
    let labels = LabelSet::given(["INTJ", "NOUN"]).unwrap();
    let message = read(Some(&labels)).unwrap_err().to_string();
    let expected = "a.conllu:1: word 2: tag `O`, expected one of INTJ, NOUN; ";
    assert!(without_path(&message, folder.path()).starts_with(expected), "{message}");
}

#[test]
fn a_tag_that_writes_no_entity_has_its_place() {
    let folder = folder("a.conll", "# one\na\tO\n\nb\tB-x\nc\tX-x\n\n\nd\tE-x\n");
    let mut source = LabelledSource::new(["a.conll"]);
    let message = entity_sentences(&source, folder.path(), EntityTags::default()).unwrap_err().to_string();
    let expected = "a.conll:4: word 2: `X-x` is not an entity tag; expected `O`, or a prefix (B, I, E, S, L or U), \
                    a hyphen and a kind, or `scheme` = \"words\" if tags are classes of words; correct it, ";
    assert!(without_path(&message, folder.path()).starts_with(expected), "{message}");
    (source.on_bad_row, source.max_skipped) = (OnBadRow::Skip, Some(1.0));
    let read = |labels: &[&str]| {
        let labels = LabelSet::given(labels.iter().copied()).unwrap();
        let expected = EntityTags { labels: Some(&labels), ..EntityTags::default() };
        entity_sentences(&source, folder.path(), expected).unwrap()
    };
    let of_kind = read(&["O", "B-x", "I-x"]);
    assert_eq!((of_kind.examples.len(), of_kind.skipped.to_string()), (2, "1 × unknown tag".to_owned()));
    assert_eq!(read(&["O", "B-y", "I-y"]).examples.len(), 1);
    (source.on_bad_row, source.max_skipped) = (OnBadRow::Error, None);
    let labels = LabelSet::given(["O", "B-y"]).unwrap();
    let expected = EntityTags { labels: Some(&labels), ..EntityTags::default() };
    let message = entity_sentences(&source, folder.path(), expected).unwrap_err().to_string();
    let expected = "a.conll:4: word 1: tag `B-x`, expected one of ";
    assert!(without_path(&message, folder.path()).starts_with(expected), "{message}");

    // Tags of a scheme, but not of the one that is to be kept to.
    fs::write(folder.path().join("a.conll"), "a\tO\n\nb\tI-x\n").unwrap();
    let expected = EntityTags { scheme: Some(TagScheme::Bio), ..EntityTags::default() };
    let message = entity_sentences(&source, folder.path(), expected).unwrap_err().to_string();
    let start = "a.conll:3: tag 1 `I-x` is not valid in BIO here: `I-` must continue an entity of its kind (the \
                 `scheme` is set); correct it, ";
    assert!(without_path(&message, folder.path()).starts_with(start), "{message}");
    source.on_bad_row = OnBadRow::Skip;
    let loaded = entity_sentences(&source, folder.path(), expected).unwrap();
    assert_eq!(
        (loaded.examples.len(), loaded.skipped.to_string()),
        (1, "1 × tag invalid in the scheme".to_owned())
    );
}

#[test]
fn few_rows_may_be_left_out() {
    // Two of 42 rows, and then three, in the encoding of old spreadsheets.
    let rows = |n_bad: usize| {
        let bad: Vec<u8> = b"caf\xE9 noir,1\n".repeat(n_bad);
        [b"text,label\n".to_vec(), b"tea,0\n".repeat(42 - n_bad), bad].concat()
    };
    let read = |n_bad, max_skipped| {
        let folder = folder("a.csv", rows(n_bad));
        let source =
            LabelledSource { on_bad_row: OnBadRow::Skip, max_skipped, ..LabelledSource::new(["a.csv"]) };
        let read = texts(&source, folder.path(), Labels::Found);
        read.map(|(loaded, _)| loaded.examples.len())
            .map_err(|error| without_path(&error.to_string(), folder.path()))
    };
    assert_eq!(read(2, None), Ok(40));
    assert_eq!(
        read(3, None).unwrap_err(),
        "a.csv:41: not UTF-8 (byte 4 is 0xe9); it looks like Windows-1252: save it as UTF-8, or run iconv -f \
         WINDOWS-1252 -t UTF-8; the next: a.csv:42, a.csv:43; 3 of 42 rows (3 × bad UTF-8) cannot be used, and at most 5 % \
         may be left out: correct them, or raise `max_skipped`"
    );
    assert_eq!(read(3, Some(0.1)), Ok(39));
    // One may always be.
    assert_eq!(read(1, Some(0.0)), Ok(41));
    assert!(read(2, Some(0.0)).is_err());
    assert!(
        read(0, Some(1.5)).unwrap_err().contains("`max_skipped` of the labelled data: expected a number")
    );
    let unread = LabelledSource { max_skipped: Some(0.1), ..LabelledSource::new(["a.csv"]) };
    let folder = folder("a.csv", rows(0));
    let message = texts(&unread, folder.path(), Labels::Found).unwrap_err().to_string();
    assert!(message.contains("`max_skipped` of the labelled data: only used with"), "{message}");
}

#[test]
fn a_bad_line_takes_its_sentence_with_it() {
    let folder = folder("a.conll", b"a\tO\nb\nc\tO\n\nd\tO\n\xFF\tO\n\n\tO\n\ne\tB-x\n");
    let mut source = LabelledSource::new(["a.conll"]);
    let message = tagged_sentences(&source, folder.path(), true, &[]).unwrap_err().to_string();
    assert!(
        without_path(&message, folder.path())
            .starts_with("a.conll:2: 1 column, expected the tag in column 2; correct it"),
        "{message}"
    );
    (source.on_bad_row, source.max_skipped) = (OnBadRow::Skip, Some(1.0));
    let loaded = tagged_sentences(&source, folder.path(), true, &[]).unwrap();
    assert_eq!(loaded.examples.len(), 1);
    assert_eq!(loaded.skipped.to_string(), "1 × bad UTF-8, 2 × missing column");
}

#[test]
fn xml_has_its_cells_in_attributes_and_elements() {
    let rte = json!({"columns": {"text": "t", "pair": "h", "label": "entailment"}});
    let text = "\u{FEFF}<?xml version=\"1.0\"?>\r\n<!DOCTYPE corpus SYSTEM \"rte.dtd\">\r\n<corpus>\r\n\
        <pair id=\"1\" entailment=\"YES\">\r\n <t>\r\n A &amp; <b>B</b> don&apos;t &#233;.\r\n </t><h><![CDATA[<x>]]></h></pair>\r\n\
        <!-- <pair/> --><pair entailment=\"NO\"><h>d</h><t>c</t></pair></corpus>";
    let folder = folder("a.xml", text);
    let mut settings = rte.clone();
    settings["files"] = json!(["a.xml"]);
    let (loaded, labels) = texts(&source(settings), folder.path(), Labels::Found).unwrap();
    assert_eq!(
        loaded.examples,
        [example("A & B don't é.", Some("<x>"), Target::Class(1)), example("c", Some("d"), Target::Class(0))]
    );
    assert_eq!(labels.unwrap().names(), ["NO", "YES"]);

    let bad = |text: &str| bad_texts("a.xml", text.as_bytes(), rte.clone(), Labels::Found);
    let (message, skipped) = bad(
        "<c>\n<pair entailment=\"NO\"><t>a</t><h>b</h></pair>\n<pair entailment=\"NO\" id=\"2\"><t/></pair></c>",
    );
    assert!(
        message.starts_with(
            "a.xml:3: <pair> has no attribute or element `h` (it has: entailment, id, t); \
             set `columns.pair`"
        ),
        "{message}"
    );
    assert_eq!(skipped, "1 + 1 × missing column");
    let (message, skipped) = bad("<c>\n<pair>\n</c>");
    assert!(message.starts_with("a.xml:3: invalid XML: "), "{message}");
    assert_eq!(skipped, message, "the whole file is lost");
    assert!(bad(" \n").0.contains("the file is empty"));
    assert!(bad("<c/>").0.contains("it has no examples"));
    // Entities that grow, and elements deeper than any stack.
    let bomb =
        "<!DOCTYPE c [<!ENTITY a \"0123456789\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">]><c><p>&b;";
    assert!(bad(bomb).0.contains("invalid XML"));
    let deep = format!("<c>{}", "<p>".repeat(300_000));
    assert!(bad(&deep).0.contains("invalid XML"));
    let deep = format!("<c>{}{}</c>", "<p>".repeat(300_000), "</p>".repeat(300_000));
    let (message, _) = bad(&deep);
    assert!(message.starts_with("a.xml:1: "), "{message}");
}

#[test]
fn squad_comes_in_both_versions_and_as_rows() {
    let context = "Ünser Haus ist grün.";
    let expected = |id: &str, answers: Vec<Answer>| Question {
        id: id.into(),
        title: "T".into(),
        context: context.into(),
        question: "q?".into(),
        is_impossible: answers.is_empty(),
        answers,
    };
    let answer = Answer { start: 16, text: "grün".into() };
    let all = [expected("1", vec![answer]), expected("2", vec![])];
    let squad = json!({"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": context, "qas": [
        {"id": "1", "question": "q?", "answers": [{"text": "grün", "answer_start": 15}], "is_impossible": false},
        {"id": "2", "question": "q?", "answers": [], "is_impossible": true,
            "plausible_answers": [{"text": "Haus", "answer_start": 6}]},
    ]}]}]});
    let rows = [
        json!({"id": "1", "title": "T", "context": context, "question": "q?",
            "answers": {"text": ["grün"], "answer_start": [15]}}),
        json!({"id": "2", "title": "T", "context": context, "question": "q?", "answers": []}),
    ];
    let folder = folder("a.json", format!("\u{FEFF}{squad}"));
    fs::write(folder.path().join("a.jsonl"), rows.map(|row| row.to_string()).join("\n")).unwrap();
    for name in ["a.json", "a.jsonl"] {
        let source = LabelledSource::new([name]);
        assert_eq!(questions(&source, folder.path(), true).unwrap().examples, all, "{name}");
        let unlabelled = questions(&source, folder.path(), false).unwrap().examples;
        assert!(unlabelled.iter().all(|question| question.answers.is_empty() && !question.is_impossible));
    }
}

#[test]
fn bad_questions_have_their_place() {
    let message = |qa: serde_json::Value| {
        let good = json!({"id": "0", "question": "q", "answers": [{"text": "b", "answer_start": 1}]});
        let squad = json!({"data": [{"paragraphs": [{"context": "abc", "qas": [good, qa]}]}]});
        let folder = folder("a.json", squad.to_string());
        let mut source = LabelledSource::new(["a.json"]);
        let message = questions(&source, folder.path(), true).unwrap_err().to_string();
        source.on_bad_row = OnBadRow::Skip;
        let loaded = questions(&source, folder.path(), true).unwrap();
        assert_eq!((loaded.examples.len(), loaded.skipped.0.len()), (1, 1));
        without_path(&message, folder.path())
    };
    let wrong = message(json!({"id": "x", "question": "q", "answers": [{"text": "b", "answer_start": 2}]}));
    let expected = "a.json: data[0].paragraphs[0].qas[1] (id \"x\"): the answer `b` is not at character 2, where \
                    `c` is; correct it, or set `on_bad_row = \"skip\"` to skip such rows";
    assert_eq!(wrong, expected);
    assert!(message(json!({"id": "x", "question": "q", "answers": []})).contains("no answer, expected one"));
    assert!(
        message(json!({"id": "x", "answers": [], "is_impossible": true})).contains("a string `question`")
    );
    assert!(message(json!({"id": "x", "question": "q"})).contains("expected a list `answers`"));
    let beyond = json!({"id": "x", "question": "q", "answers": [{"text": "", "answer_start": 4}]});
    assert!(message(beyond).contains("`answer_start` 4 is beyond the context"));

    let folder = folder("a.json", "{\"data\": [\n{\"paragraphs\": [");
    let source = LabelledSource { on_bad_row: OnBadRow::Skip, ..LabelledSource::new(["a.json"]) };
    let error = questions(&source, folder.path(), true).unwrap_err().to_string();
    assert_eq!(
        without_path(&error, folder.path()),
        "a.json:2: not JSON in SQuAD's format: EOF while parsing a list at line 2 column 16"
    );
}

/// Reads a file of any bytes in every way there is.
fn read_every_way(path: &Path, base: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    for on_bad_row in ["error", "skip"] {
        for format in ["csv", "tsv", "jsonl", "parquet", "xml", "conll", "squad"] {
            for header in [true, false] {
                let mut settings = json!({"files": [name], "format": format, "on_bad_row": on_bad_row,
                    "max_line_bytes": 60});
                if matches!(format, "csv" | "tsv") {
                    settings["header"] = json!(header);
                    settings["columns"] = json!({"text": 1, "label": 2});
                }
                let source = source(settings);
                for labels in [Labels::Found, Labels::Values, Labels::Unread] {
                    if let Err(error) = texts(&source, base, labels) {
                        assert!(!error.to_string().contains('\n'), "{error}");
                    }
                }
                let _ = choices(&source, base, true);
                let _ = tagged_sentences(&source, base, true, &[]);
                let _ = questions(&source, base, true);
            }
        }
    }
}

/// A field with a text in it.
fn field(pattern: &'static str) -> impl Strategy<Value = String> {
    pattern.prop_filter("no text", |text: &String| !text.trim().is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_panic(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "(text|label|[a-c,\t\"\n\r #é]|O|B-x|\\{\"text\":|\"label\": ?1\\}){0,40}".prop_map(String::into_bytes),
        "PAR1.{0,40}PAR1".prop_map(String::into_bytes),
    ]) {
        let folder = folder("any", bytes);
        read_every_way(&folder.path().join("any"), folder.path());
    }

    #[test]
    fn a_damaged_parquet_file_does_not_panic(at in 0usize..2_000, byte: u8) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any");
        text_parquet(&path);
        let mut bytes = fs::read(&path).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        fs::write(&path, bytes).unwrap();
        let source = source(json!({"files": ["any"], "format": "parquet", "columns": {"pair": "pair"}}));
        let _ = texts(&source, folder.path(), Labels::Found);
    }

    #[test]
    fn quoted_fields_come_back(
        rows in prop::collection::vec((field("[a-c,\"\t\né ]{0,9}"), field("[a-c,\"\né]{0,9}")), 1..9),
        crlf: bool,
    ) {
        let quote = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
        let end = if crlf { "\r\n" } else { "\n" };
        let lines = rows.iter().map(|(a, b)| format!("{},{}{end}", quote(a), quote(b)));
        let folder = folder("a.csv", lines.collect::<String>());
        let settings = json!({"files": ["a.csv"], "header": false, "columns": {"text": 1, "pair": 2}});
        let (loaded, _) = texts(&source(settings), folder.path(), Labels::Unread).unwrap();
        let found: Vec<_> =
            loaded.examples.into_iter().map(|example| (example.text, example.pair.unwrap())).collect();
        prop_assert_eq!(found, rows);
    }
}

/// Windows, labels, pairs and answers equal transformers', see `tests/fixtures/labelled_features/export.py`.
#[test]
fn features_and_answers_are_those_of_transformers() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/labelled_features");
    let golden: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(fixture.join("golden.json")).unwrap()).unwrap();
    let tokenizer = Tokenizer::load(fixture.join("tokenizer.json")).unwrap();
    let list = |key: &str| golden[key].as_array().unwrap().clone();
    let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
    let strings =
        |value: &serde_json::Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };

    let questions: Vec<Question> = list("questions")
        .iter()
        .enumerate()
        .map(|(id, question)| {
            let context = golden["contexts"][number(&question["context"])].as_str().unwrap();
            let start = context.char_indices().nth(number(&question["start"])).unwrap().0;
            Question {
                id: id.to_string(),
                title: String::new(),
                context: context.into(),
                question: question["question"].as_str().unwrap().into(),
                answers: vec![Answer { start, text: question["answer"].as_str().unwrap().into() }],
                is_impossible: false,
            }
        })
        .collect();
    let (max_len, stride) = (number(&golden["max_len"]), number(&golden["stride"]));
    let features =
        encode_questions(&tokenizer, &questions, Windows { max_len, stride, max_question: 27 }).unwrap();
    let found: Vec<serde_json::Value> = features
        .iter()
        .map(|window| {
            let context = &questions[window.question].context;
            let chars = |byte: usize| context[..byte].chars().count();
            let offsets: Vec<_> = window.offsets.iter().map(|(a, b)| (chars(*a), chars(*b))).collect();
            json!({"question": window.question, "input_ids": window.sequence.input_ids,
                "token_type_ids": window.sequence.token_type_ids, "answer": window.answer,
                "context": [window.context.start, window.context.end], "offsets": offsets})
        })
        .collect();
    assert_eq!(found, list("windows"));

    let scores: Vec<[Vec<f32>; 2]> = features
        .iter()
        .enumerate()
        .map(|(window, feature)| {
            [1, 2].map(|k| {
                let hash = |j| (window * 7_919 + j * 104_729 + k * 1_299_709 + j * j * 31) % 10_007;
                (0..feature.sequence.len()).map(|j| hash(j) as f32 / 64.0).collect()
            })
        })
        .collect();
    for (id, expected) in list("answers").iter().enumerate() {
        let windows: Vec<WindowScores> = features
            .iter()
            .zip(&scores)
            .filter(|(window, _)| window.question == id)
            .map(|(window, [starts, ends])| WindowScores { window, starts, ends })
            .collect();
        let config = AnswerConfig { max_answer: 5, ..AnswerConfig::default() };
        let answer = best_answer(&questions[id], &windows, config);
        let found = json!({"text": answer.text, "score": answer.candidates[0].score,
            "null_difference": answer.null_difference});
        assert_eq!(&found, expected);
        let threshold = answer.null_difference.unwrap() - 0.01;
        let config = AnswerConfig { null_threshold: Some(threshold), ..config };
        assert_eq!(best_answer(&questions[id], &windows, config).text, "");
    }

    let sentences: Vec<TaggedSentence> = list("sentences")
        .iter()
        .map(|sentence| TaggedSentence {
            words: strings(&sentence["words"]),
            tags: strings(&sentence["tags"]),
        })
        .collect();
    let labels = TagScheme::Bio.label_set(&sentences).unwrap();
    assert_eq!(labels.names(), strings(&golden["names"]));
    let (features, _) = encode_tags(&tokenizer, &sentences, &labels, 14, LongSentences::Truncate).unwrap();
    let found: Vec<_> = features
        .iter()
        .map(|feature| json!({"input_ids": feature.sequence.input_ids, "labels": feature.labels}))
        .collect();
    assert_eq!(found, list("tagged"));

    let pairs: Vec<TextExample> = list("pairs")
        .iter()
        .map(|pair| {
            let pair = strings(&pair["pair"]);
            example(&pair[0], Some(&pair[1]), Target::None)
        })
        .collect();
    for (feature, expected) in encode_texts(&tokenizer, &pairs, 12).unwrap().iter().zip(list("pairs")) {
        assert_eq!(json!(feature.sequence.input_ids), expected["input_ids"]);
        assert_eq!(json!(feature.sequence.token_type_ids), expected["token_type_ids"]);
    }
}

fn shared() -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !shared.is_dir() {
        println!("skipped: no shared/data beside the repository");
        return None;
    }
    Some(shared)
}

/// A folder, settings, the splits' examples, and the first split's examples of each class.
type Set<'a> = (&'a str, serde_json::Value, &'a [(&'a str, usize)], &'a [usize]);

/// The counts are those of Python's `str.split` and `csv` on the same files.
#[test]
fn development_sets_have_their_counts() {
    let Some(shared) = shared() else { return };
    let sst2 = json!({"columns": {"text": "sentence"}});
    let cola = json!({"header": false, "columns": {"text": 4, "label": 2}});
    let mrpc = json!({"columns": {"text": "#1 String", "pair": "#2 String", "label": "Quality"}});
    let sick =
        json!({"columns": {"text": "sentence_A", "pair": "sentence_B", "label": "entailment_judgment"}});
    let trec = json!({"format": "tsv", "delimiter": " ", "header": false, "n_columns": 2, "label_before": ":",
        "columns": {"label": 1, "text": 2}});
    let rte = json!({"columns": {"text": "t", "pair": "h", "label": "entailment"}});
    let cases: [Set; 6] = [
        ("rte", rte, &[("rte2_*.xml", 1_200), ("rte3_dev.xml", 800), ("rte3_test.xml", 800)], &[590, 610]),
        ("sst2", sst2, &[("train.tsv", 6_920), ("dev.tsv", 872), ("test.tsv", 1_821)], &[3_310, 3_610]),
        (
            "cola",
            cola,
            &[("in_domain_train.tsv", 8_551), ("in_domain_dev.tsv", 527), ("out_of_domain_dev.tsv", 516)],
            &[2_528, 6_023],
        ),
        ("mrpc", mrpc, &[("train.tsv", 3_576), ("val.tsv", 500), ("test.tsv", 1_725)], &[1_169, 2_407]),
        (
            "sick",
            sick,
            &[("train.tsv", 4_500), ("trial.tsv", 500), ("test.tsv", 4_927)],
            &[665, 1_299, 2_536],
        ),
        ("trec", trec, &[("train.txt", 5_452), ("test.txt", 500)], &[86, 1_162, 1_250, 1_223, 835, 896]),
    ];
    for (name, settings, splits, classes) in cases {
        let mut set: Option<LabelSet> = None;
        for (file, count) in splits {
            let source = source(settings.clone()).with_files([format!("{name}/{file}")]);
            let labels = set.as_ref().map_or(Labels::Found, Labels::Of);
            let (loaded, found) = texts(&source, &shared, labels).unwrap();
            assert_eq!(loaded.examples.len(), *count, "{name}/{file}");
            if set.is_none() {
                let mut counts = vec![0; classes.len()];
                for example in &loaded.examples {
                    let Target::Class(class) = example.target else { panic!("{example:?}") };
                    counts[class] += 1;
                }
                assert_eq!(counts, classes, "{name}");
                set = found;
            }
        }
    }
    let sts = json!({"header": false, "columns": {"label": 1, "text": 2, "pair": 3}, "on_bad_row": "skip", "max_skipped": 0.5});
    for (file, count, skipped) in [("train", 3_000, 0), ("val", 750, 0), ("test", 6_750, 5_500)] {
        let source = source(sts.clone()).with_files([format!("sts2015/{file}.tsv")]);
        let (loaded, _) = texts(&source, &shared, Labels::Values).unwrap();
        let left_out: u64 = loaded.skipped.0.values().sum();
        assert_eq!((loaded.examples.len(), left_out), (count, skipped), "{file}: {}", loaded.skipped);
    }
}

#[test]
fn development_sets_of_entities_have_their_counts() {
    let Some(shared) = shared() else { return };
    let cases = [
        ("wikigold/wikigold.conll.txt", TagScheme::Iob1, 1_696, 39_007, 3_558),
        ("wnut17/train.conll", TagScheme::Bio, 3_394, 62_730, 1_975),
        ("wnut17/dev.conll", TagScheme::Bio, 1_009, 15_733, 836),
        ("wnut17/test.conll", TagScheme::Bio, 1_287, 23_394, 1_079),
    ];
    for (file, scheme, sentences, words, entities) in cases {
        let mut loaded = tagged_sentences(&LabelledSource::new([file]), &shared, true, &[]).unwrap();
        let tags = loaded.examples.iter().map(|sentence| &sentence.tags[..]);
        assert_eq!(TagScheme::detect(tags).unwrap(), scheme, "{file}");
        let found = |sentences: &[TaggedSentence]| -> usize {
            sentences.iter().map(|sentence| tag_spans(&sentence.tags).len()).sum()
        };
        let n_words: usize = loaded.examples.iter().map(|sentence| sentence.words.len()).sum();
        let counts = (loaded.examples.len(), n_words, found(&loaded.examples));
        assert_eq!(counts, (sentences, words, entities), "{file}");
        scheme.convert(&mut loaded.examples, TagScheme::Bioes, false).unwrap();
        assert_eq!(found(&loaded.examples), entities, "{file}");
    }
}

#[test]
fn treebanks_have_their_counts() {
    let Some(shared) = shared() else { return };
    for (file, sentences, words, classes) in [
        ("ud-ewt/train", 12_544, 204_577, 17),
        ("ud-de/test", 977, 16_499, 17),
        ("ud-fr/test", 416, 10_018, 16),
    ] {
        let source = LabelledSource::new([format!("{file}.conllu")]);
        let loaded = tagged_sentences(&source, &shared, true, &[]).unwrap().examples;
        let n_words: usize = loaded.iter().map(|sentence| sentence.words.len()).sum();
        let labels = TagScheme::Words.label_set(&loaded).unwrap();
        assert_eq!((loaded.len(), n_words, labels.len()), (sentences, words, classes), "{file}");
    }
}

#[test]
fn development_sets_of_questions_have_their_counts() {
    let Some(shared) = shared() else { return };
    for (file, count) in [("train", 8_578), ("dev", 1_987)] {
        let source = LabelledSource::new([format!("squad/{file}-v1.1.json")]);
        let loaded = questions(&source, &shared, true).unwrap();
        assert_eq!(loaded.examples.len(), count);
        for question in &loaded.examples {
            for answer in &question.answers {
                assert!(question.context[answer.start..].starts_with(&answer.text));
            }
        }
    }
}

#[test]
fn a_row_without_text_cannot_be_used() {
    // Of three rows one has no text, and another no second text.
    let csv = b"text,pair,label\na,b,x\n \t,b,x\nc,,y\n";
    let (message, skipped) = bad_texts("a.csv", csv, json!({}), Labels::Found);
    assert_eq!(
        message,
        "a.csv:3: column `text`: empty, expected a text; correct it, or set `on_bad_row = \"skip\"` to skip such rows"
    );
    assert_eq!(skipped, "1 + 2 × no text");
    // They count like other bad rows.
    let folder = folder("a.csv", csv);
    let skipping = LabelledSource { on_bad_row: OnBadRow::Skip, ..LabelledSource::new(["a.csv"]) };
    let message = texts(&skipping, folder.path(), Labels::Found).unwrap_err().to_string();
    assert!(
        message.contains("the next: ") && message.contains("2 of 3 rows (2 × no text) cannot be used"),
        "{message}"
    );

    let lines = "{\"text\": \"a\", \"pair\": \"b\", \"negatives\": [\"c\", \"\"]}\n";
    fs::write(folder.path().join("a.jsonl"), lines).unwrap();
    let columns = json!({"files": ["a.jsonl"], "columns": {"pair": "pair", "negatives": "negatives"}});
    let message = sentences(&source(columns), folder.path()).unwrap_err().to_string();
    assert!(message.contains("a.jsonl:1: column `negatives`: text 2 is empty, expected a text"), "{message}");
}

#[test]
fn a_quotation_mark_is_suspected_where_there_is_one() {
    let message = |name: &str, bytes: &str, quoting| {
        let folder = folder(name, bytes);
        let mut settings = json!({"files": [name]});
        if let Some(quoting) = quoting {
            settings["quoting"] = json!(quoting);
        }
        texts(&source(settings), folder.path(), Labels::Found).unwrap_err().to_string()
    };
    let hint = "quoting = ";
    for bytes in ["text,label\na,b,c\n", "text,label\na\n"] {
        let without = message("a.csv", bytes, None);
        assert!(without.contains(", expected 2 as in") && !without.contains(hint), "{without}");
        assert!(!message("a.csv", bytes, Some(false)).contains(hint));
    }
    assert!(
        message("a.csv", "text,label\na,b,\"c\"\n", None)
            .contains("quote fields that contain the delimiter, or set `quoting = false`")
    );
    assert!(
        message("a.csv", "text,label\n\"a\"\n", None)
            .contains("set `quoting = false` if quotation marks are text")
    );
    assert!(
        message("a.csv", "text,label\n\"a,b\",c\n", Some(false))
            .contains("set `quoting = true` if fields are quoted")
    );
}

#[test]
fn a_column_called_pair_makes_pairs() {
    let csv = folder("a.csv", "text,pair,label\na,b,x\nc,d,y\n");
    let (loaded, _) = texts(&source(json!({"files": ["a.csv"]})), csv.path(), Labels::Found).unwrap();
    let pairs: Vec<_> = loaded.examples.iter().map(|example| example.pair.as_deref()).collect();
    assert_eq!(pairs, [Some("b"), Some("d")]);

    let lines = "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"pair\": \"b\", \"label\": 2}\n";
    let (message, skipped) = bad_texts("a.jsonl", lines.as_bytes(), json!({}), Labels::Found);
    assert_eq!(
        message,
        "a.jsonl:2: a `pair`, but the rows before have none; expected pairs alone or single texts alone; correct it, or set \
         `on_bad_row = \"skip\"` to skip such rows"
    );
    assert_eq!(skipped, "1 + 1 × pairs beside single texts");
    // A null is none.
    let lines = folder("a.jsonl", "{\"text\": \"a\", \"pair\": null, \"label\": 1}\n");
    let (loaded, _) = texts(&source(json!({"files": ["a.jsonl"]})), lines.path(), Labels::Found).unwrap();
    assert_eq!(loaded.examples[0].pair, None);
}

#[test]
fn a_no_break_space_is_part_of_its_word() {
    let words = |name: &str, text: &str, settings: serde_json::Value| {
        let folder = folder(name, text);
        let mut settings = settings;
        settings["files"] = json!([name]);
        let loaded = tagged_sentences(&source(settings), folder.path(), true, &[]).unwrap();
        loaded.examples.into_iter().map(|sentence| sentence.words).collect::<Vec<_>>()
    };
    let numbers = [["10\u{a0}000", "men"], ["\u{3000}", "in"]].map(|words| words.map(str::to_owned).to_vec());
    let text = "10\u{a0}000 O\nmen   O \n \t\n\u{3000} O\nin\u{20}O\n";
    assert_eq!(words("a.conll", text, json!({})), numbers);
    assert_eq!(words("a.conll", &text.replace(" O", "\tO"), json!({})), numbers);
    assert_eq!(words("a.conll", &text.replace(" O", "|O"), json!({"delimiter": "|"})), numbers);
    let line = |id: &str, form: &str| word(id, form, "NUM");
    let text = format!(
        "{}{}\n{}{}",
        line("1", "10\u{a0}000"),
        line("2", "men"),
        line("1", "\u{3000}"),
        line("2", "in")
    );
    assert_eq!(words("a.conllu", &text, json!({})), numbers);
}

#[test]
fn json_documents_are_rows() {
    let list =
        "[\n {\n  \"text\": \"a\",\n  \"label\": \"x\"\n },\n {\"text\": \"b\", \"label\": \"y\"}\n]\n";
    let of_data = format!("{{\"version\": {{\"n\": 1}},\n\"data\": {list}}}");
    let expected = [example("a", None, Target::Class(0)), example("b", None, Target::Class(1))];
    for (name, text) in [("a.json", list), ("b.jsonl", &of_data)] {
        let folder = folder(name, text);
        let (loaded, _) = texts(&source(json!({"files": [name]})), folder.path(), Labels::Found).unwrap();
        assert_eq!(loaded.examples, expected);
    }
    let bad = list.replace("\"text\": \"b\", ", "");
    let (message, skipped) = bad_texts("a.json", bad.as_bytes(), json!({}), Labels::Found);
    assert!(message.starts_with("a.json:6: no column `text` (it has: label)"), "{message}");
    assert_eq!(skipped, "1 + 1 × missing column");
    let (message, _) = bad_texts("a.json", &list.as_bytes()[..40], json!({}), Labels::Found);
    assert!(message.starts_with("a.json:6: not JSON: "), "{message}");
    let (message, _) = bad_texts("a.json", b"[]", json!({}), Labels::Found);
    assert!(message.contains("no examples"), "{message}");
}

#[test]
fn ids_of_squad_may_be_numbers() {
    let text = r#"{"data": [{"paragraphs": [{"context": "Ann lives in Rome.", "qas": [
        {"id": 7, "question": "Where?", "answers": [{"text": "Rome", "answer_start": 13}]}]}]}]}"#;
    let folder = folder("a.json", text);
    let loaded = questions(&source(json!({"files": ["a.json"]})), folder.path(), true).unwrap();
    assert_eq!(loaded.examples[0].id, "7");
}

#[test]
fn what_spreadsheets_write_is_read_or_told() {
    let expected = [example("a; b", None, Target::Class(0)), example("é", None, Target::Class(1))];
    let read = |name: &str, bytes: &[u8], settings: serde_json::Value| {
        let folder = folder(name, bytes);
        let mut settings = settings;
        settings["files"] = json!([name]);
        texts(&source(settings), folder.path(), Labels::Found).unwrap().0.examples
    };
    let text = "\u{FEFF}text,label\n\"a; b\",x\né,y\n";
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read("a.csv", &utf16, json!({})), expected);
    assert_eq!(read("a.csv", text.replace('\n', "\r").as_bytes(), json!({})), expected);
    assert_eq!(read("a.csv", text.trim_end().replace('\n', "\r").as_bytes(), json!({})), expected);
    let semicolons = "\"text\";\"label\"\r\n\"a; b\";x;;\r\né;y\r\n";
    assert_eq!(read("a.csv", semicolons.as_bytes(), json!({"delimiter": ";"})), expected);
    // Surplus cells with something in them are still told.
    let (message, _) = bad_texts("a.csv", b"text,label\na,x,b\n", json!({}), Labels::Found);
    assert!(message.starts_with("a.csv:2: 3 columns, expected 2"), "{message}");

    for (name, text, hint) in [
        (
            "a.csv",
            "id;review text;stars\n1;a;2\n",
            "set `delimiter = \";\"` if that separates these, or `columns.text`",
        ),
        (
            "a.csv",
            "text\tlabel\na\tb\n",
            "set `delimiter = \"\\t\"` if that separates these, or `columns.text`",
        ),
        ("a.tsv", "text,label\na,b\n", "set `delimiter = \",\"` if that separates these, or `columns.text`"),
        (
            "a.tsv",
            "\"text\"\t\"label\"\na\tb\n",
            "set `quoting = true` if fields are quoted, or `columns.text`",
        ),
        ("a.csv", "id,review\n1,a\n", "(the header has: id, review); set `columns.text`"),
    ] {
        let (message, _) = bad_texts(name, text.as_bytes(), json!({}), Labels::Found);
        let first = message.strip_suffix("; also no column `label`").unwrap_or(&message);
        assert!(first.ends_with(hint), "{message}");
    }
}

#[test]
fn a_text_may_have_any_number_of_labels() {
    let read = |name: &str, text: &str, settings: serde_json::Value, set: Option<&LabelSet>| {
        let folder = folder(name, text);
        let mut settings = settings;
        settings["files"] = json!([name]);
        let (loaded, set) = texts(&source(settings), folder.path(), Labels::Several(set)).unwrap();
        let labels = loaded.examples.into_iter().map(|example| match example.target {
            Target::Labels(labels) => labels,
            other => panic!("{other:?}"),
        });
        (labels.collect::<Vec<_>>(), set.unwrap().names().join(" "))
    };
    let expected = (vec![vec![0, 1], vec![], vec![1]], "a b".to_owned());
    let lines = r#"{"text": "x", "labels": ["b", "a", "b"]}
{"text": "y", "labels": []}
{"text": "z", "labels": ["b"]}
"#;
    assert_eq!(read("a.jsonl", lines, json!({}), None), expected);
    let csv = "text,labels\nx,\"b, a\"\ny,\nz,b\n";
    assert_eq!(read("a.csv", csv, json!({}), None), expected);
    let bars = csv.replace("\"b, a\"", "b|a");
    assert_eq!(read("a.csv", &bars, json!({"label_delimiter": "|"}), None), expected);
    let columns = "text,b,a\nx,1,1\ny,0,0\nz,1,0\n";
    let settings = json!({"columns": {"labels": ["a", "b"]}});
    assert_eq!(read("a.csv", columns, settings.clone(), None), expected);
    let given = LabelSet::given(["b", "a", "c"]).unwrap();
    let of_given = (vec![vec![0, 1], vec![], vec![0]], "b a c".to_owned());
    assert_eq!(read("a.csv", columns, settings.clone(), Some(&given)), of_given);
    assert_eq!(read("a.jsonl", lines, json!({}), Some(&given)), of_given);

    let message = |name: &str, text: &str, settings: serde_json::Value, set: Option<&LabelSet>| {
        bad_texts(name, text.as_bytes(), settings, Labels::Several(set)).0
    };
    let unknown = LabelSet::given(["a", "c"]).unwrap();
    let found = message("a.jsonl", lines, json!({}), Some(&unknown));
    assert!(found.starts_with("a.jsonl:1: column `labels`: `b`, expected one of a, c"), "{found}");
    let found = message("a.csv", &columns.replace("z,1", "z,2"), settings, None);
    assert!(found.starts_with("a.csv:4: column `b` (`columns.labels`): `2`, expected 1 or 0"), "{found}");
    let found = message("a.jsonl", "{\"text\": \"x\", \"labels\": [0.5]}", json!({}), None);
    assert!(found.contains("0.5, expected the names"), "{found}");
    let found = message("a.csv", csv, json!({"columns": {"label": "labels"}}), None);
    assert!(found.contains("expected one of text, pair, labels"), "{found}");
}
