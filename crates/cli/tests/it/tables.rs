//! CSV, TSV, Parquet and JSON lines into `predict`, `embed`, `fill-mask` and `rerank`, and the same rows out of them.

use crate::program::{asked, classifier, encoder};
use crate::ran::{Ran, run};
use cloze_model::huggingface::Architecture;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// Rows with a quoted line break, a mark at the beginning, an empty cell and ids that are no numbers.
const REVIEWS: &str =
    "\u{feff}id,review,note\r\n007,\"good, \"\"very\"\"\ngood\",\r\n\r\n8,bad,\"x, y\"\r\n9,fine,z\r\n";

fn values(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A command with a model and a file of these bytes, beside which its output may lie.
fn with_file(command: &str, model: &str, file: (&str, &[u8]), more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file.0);
    fs::write(&path, file.1).unwrap();
    run(&[&[command, "--model", model, "--input", path.to_str().unwrap()], more].concat(), b"")
}

/// What the classifier says of texts that it reads together.
fn answers(model: &str, texts: &[&str]) -> Vec<Value> {
    let lines: Vec<String> = texts.iter().map(|text| Value::from(*text).to_string()).collect();
    values(&run(&["predict", "--model", model], lines.join("\n").as_bytes()).done())
}

/// The cells of an answer, as they stand in CSV with this delimiter.
fn cells(answer: &Value, delimiter: char) -> String {
    let scores = answer["scores"].to_string().replace('"', "\"\"");
    format!("{}{delimiter}{}{delimiter}\"{scores}\"", answer["label"].as_str().unwrap(), answer["score"])
}

#[test]
fn rows_of_csv_are_printed_with_their_predictions() {
    let (folder, model) = classifier();
    let answers = answers(&model, &["good, \"very\"\ngood", "bad", "fine"]);
    let [first, second, third] = [0, 1, 2].map(|row| cells(&answers[row], ','));
    let expected = format!(
        "id,review,note,label,score,scores\n007,\"good, \"\"very\"\"\ngood\",,{first}\n8,bad,\"x, y\",{second}\n\
         9,fine,z,{third}\n"
    );
    let columns = ["--columns", "text=review"];
    let printed = with_file("predict", &model, ("a.csv", REVIEWS.as_bytes()), &columns).done();
    assert_eq!(printed, expected);
    // From standard input, and into a file.
    let output = folder.path().join("out.csv");
    let output = ["--input-format", "csv", "--output", output.to_str().unwrap()];
    let args = [&["predict", "--model", &model][..], &columns, &output].concat();
    assert_eq!(run(&args, REVIEWS.as_bytes()).done(), "");
    assert_eq!(fs::read_to_string(output[3]).unwrap(), expected);
    // What is printed is read again, with another name for what is added.
    let again = ["--columns", "text=review", "--answer-prefix", "new_"];
    let again = with_file("predict", &model, ("b.csv", expected.as_bytes()), &again).done();
    assert!(
        again.starts_with("id,review,note,label,score,scores,new_label,new_score,new_scores\n"),
        "{again}"
    );
    assert!(again.ends_with(&format!("\n9,fine,z,{third},{third}\n")), "{again}");
}

#[test]
fn tables_are_read_however_they_are_laid_out() {
    let (_folder, model) = classifier();
    // UTF-16 with the line ends of old spreadsheets, and quotation marks that are text.
    let utf16: Vec<u8> =
        "\u{feff}text\tn\ra \"b\t1\rc\t2\r".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let printed = with_file("predict", &model, ("a.tsv", &utf16), &[]).done();
    let rows: Vec<String> = answers(&model, &["a \"b", "c"])
        .iter()
        .map(|one| format!("{}\t{}\t{}", one["label"].as_str().unwrap(), one["score"], one["scores"]))
        .collect();
    let header = "text\tn\tlabel\tscore\tscores";
    assert_eq!(printed, format!("{header}\na \"b\t1\t{}\nc\t2\t{}\n", rows[0], rows[1]));

    // Another delimiter, no header.
    let more = ["--delimiter", ";", "--no-header", "--columns", "text=2"];
    let printed = with_file("predict", &model, ("a.csv", b"1;a\n2;b\n"), &more).done();
    let answers = answers(&model, &["a", "b"]);
    let [first, second] = [0, 1].map(|row| cells(&answers[row], ';'));
    assert_eq!(printed, format!("1;a;{first}\n2;b;{second}\n"));
    let empty = with_file("predict", &model, ("a.csv", b"text\n"), &[]).done();
    assert_eq!(empty, "text,label,score,scores\n");

    // A pair has two columns.
    let pair = values(&run(&["predict", "--model", &model], b"{\"text\": \"a\", \"pair\": \"b\"}").done());
    let printed = with_file("predict", &model, ("a.tsv", b"pair\ttext\nb\ta\n"), &[]).done();
    let score = printed.lines().nth(1).unwrap().split('\t').nth(3).unwrap();
    assert_eq!(score, pair[0]["score"].to_string());
}

#[test]
fn objects_keep_their_other_keys() {
    let (_folder, model) = classifier();
    let line = r#"{"id": 12345678901234567890123, "text": "some words", "x": {"n": 1.50}}"#;
    let printed = run(&["predict", "--model", &model], line.as_bytes()).done();
    let alone = answers(&model, &["some words"])[0].to_string();
    assert_eq!(
        printed,
        format!("{},{}\n", line.strip_suffix('}').unwrap(), alone.strip_prefix('{').unwrap())
    );

    let gold = b"{\"title\": \"a\", \"label\": \"yes\"}\n{\"title\": \"b\", \"model_score\": 1}\n";
    let more = ["--columns", "text=title", "--answer-prefix", "model_"];
    let ran = run(&[&["predict", "--model", &model], &more[..]].concat(), gold);
    let keys: Vec<String> = values(&ran.out)[0].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["title", "label", "model_label", "model_score", "model_scores"]);
    let line = ran.error_line(1);
    let problem = "standard input, line 2: the input has a key `model_score` already, as the answer has";
    assert!(line.contains(problem), "{line}");

    // The words that were read are not told twice; those of nothing that was read may not be there.
    let (_folder, tagger) = asked(Architecture::TokenClassification, &["O", "B-x"]);
    let line = b"{\"words\": [\"a\", \"b\"], \"id\": 1}\n{\"text\": \"a b\", \"tags\": 1}\n";
    let ran = run(&["predict", "--model", &tagger], line);
    let tagged = values(&ran.out);
    assert_eq!(
        tagged[0].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["words", "id", "tags", "entities"]
    );
    assert!(ran.error_line(1).contains("line 2: the input has a key `tags` already"), "{}", ran.err);
}

#[test]
fn plain_lines_are_read_without_an_option() {
    let (_folder, model) = classifier();
    let mut expected = answers(&model, &["some words.", "\"b"]);
    expected.insert(1, Value::Null);
    let ran = run(&["predict", "--model", &model], b"some words.\n\n\"b\n");
    assert!(ran.err.contains("standard input: read as lines of text; --input-format names"), "{}", ran.err);
    assert_eq!(values(&ran.done()), expected);
    let ran = with_file("predict", &model, ("a.txt", b"some words.\n\n\"b\n"), &[]);
    assert_eq!(values(&ran.done()), expected);
    // A line of text has no columns.
    let ran = run(&["predict", "--model", &model, "--columns", "text=review"], b"id,review\n1,a\n");
    assert!(ran.error_line(2).contains("lines of text have no columns for --columns"), "{}", ran.err);

    let (_folder, tagger) = asked(Architecture::TokenClassification, &["O", "B-x"]);
    let tagged = values(&run(&["predict", "--model", &tagger], "L\u{e9}o's home (Oslo).".as_bytes()).done());
    assert_eq!(tagged[0]["words"], json!(["L\u{e9}o", "'s", "home", "(", "Oslo", ")", "."]));
    let more = ["--columns", "words=split"];
    let split = with_file("predict", &tagger, ("a.csv", b"id,split\n1,a. b\n"), &more).done();
    assert!(split.starts_with("id,split,words,tags,entities\n1,a. b,\"[\"\"a.\"\",\"\"b\"\"]\","), "{split}");
}

#[test]
fn an_output_is_in_the_format_of_its_name() {
    let (folder, model) = classifier();
    let answers = answers(&model, &["a, b", "c"]);
    let to = |output: &str, input: (&str, &[u8]), more: &[&str]| {
        let path = folder.path().join(output);
        let ran =
            with_file("predict", &model, input, &[&["--output", path.to_str().unwrap()], more].concat());
        (fs::read_to_string(path).unwrap_or_default(), ran)
    };
    let [first, second] = [0, 1].map(|row| cells(&answers[row], ','));
    // Objects as a table: their keys are the columns, and what a row lacks is an empty cell.
    let objects = b"{\"id\": 7, \"text\": \"a, b\", \"more\": [1]}\n\n{\"text\": \"c\", \"id\": \"x\"}\n";
    let (table, ran) = to("a.csv", ("a.jsonl", objects), &[]);
    ran.done();
    let header = "id,text,more,label,score,scores";
    assert_eq!(table, format!("{header}\n7,\"a, b\",[1],{first}\nx,c,,{second}\n"));
    let (_, ran) = to("b.csv", ("a.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"b\", \"new\": 1}\n"), &[]);
    let problem =
        "a.jsonl:2: there is no column for `new`: the first row, whose keys are the columns, lacks it";
    assert!(ran.error_line(1).contains(problem), "{}", ran.err);
    // A text is a column too.
    let (table, ran) = to("c.csv", ("a.txt", b"a, b\nc\n"), &[]);
    ran.done();
    assert_eq!(table, format!("text,label,score,scores\n\"a, b\",{first}\nc,{second}\n"));
    // Cells as objects, with and without names, and between other characters.
    let rows = b"id;review\n1;a, b\n";
    let columns = ["--delimiter", ";", "--columns", "text=review"];
    let (line, ran) = to("d.jsonl", ("a.csv", rows), &columns);
    ran.done();
    let alone = |first: &str| format!("{first},{}\n", answers[0].to_string().strip_prefix('{').unwrap());
    assert_eq!(line, alone(r#"{"id":"1","review":"a, b""#));
    let unnamed = ["--delimiter", ";", "--no-header", "--columns", "text=2"];
    let (line, ran) = to("e.jsonl", ("a.csv", b"1;a, b\n"), &unnamed);
    ran.done();
    assert_eq!(line, alone(r#"{"1":"1","2":"a, b""#));
    let (table, ran) = to("f.tsv", ("a.csv", rows), &columns);
    ran.done();
    assert!(table.starts_with("id\treview\tlabel\tscore\tscores\n1\ta, b\t"), "{table}");
    let (_, ran) = to("g.parquet", ("a.csv", rows), &columns);
    assert!(ran.error_line(2).contains("--output: parquet cannot be written; expected .csv"), "{}", ran.err);
}

#[test]
fn standard_output_has_the_format_that_is_asked_for() {
    let (folder, model) = classifier();
    let answers = answers(&model, &["a, b", "c"]);
    let [first, second] = [0, 1].map(|row| cells(&answers[row], ','));
    let predict = |format: &str, more: &[&str], input: &[u8]| {
        run(&[&["predict", "--model", &model, "--output-format", format], more].concat(), input)
    };
    let table = format!("text,label,score,scores\n\"a, b\",{first}\nc,{second}\n");
    assert_eq!(predict("csv", &[], b"\xEF\xBB\xBFa, b\r\nc\n").done(), table);
    assert_eq!(predict("csv", &[], b"{\"text\": \"a, b\"}\n{\"text\": \"c\"}\n").done(), table);
    let lines = predict("jsonl", &["--input-format", "csv"], b"text\n\"a, b\"\nc\n").done();
    assert_eq!(values(&lines)[1]["label"], answers[1]["label"]);
    assert!(predict("tsv", &[], b"c\n").done().starts_with("text\tlabel\tscore\tscores\nc\t"));
    // The option wins over the file's ending.
    let path = folder.path().join("out.jsonl");
    predict("csv", &["--output", path.to_str().unwrap()], b"a, b\nc\n").done();
    assert_eq!(fs::read_to_string(path).unwrap(), table);
    let npy = ["embed", "--model", &model, "--format", "npy", "--output-format", "csv"];
    assert!(run(&npy, b"a\n").error_line(2).contains("--output-format is for rows"));
}

#[test]
fn choices_have_a_column_each() {
    let (_folder, model) = asked(Architecture::MultipleChoice, &[]);
    let line = b"{\"text\": \"a\", \"choices\": [\"b\", \"c d\"]}\n";
    let expected = values(&run(&["predict", "--model", &model], line).done()).remove(0);
    let more = ["--columns", "text=start,choices=one,choices=two"];
    let printed = with_file("predict", &model, ("a.csv", b"start,one,two\na,b,c d\n"), &more).done();
    let (choice, score, scores) = (&expected["choice"], &expected["score"], &expected["scores"]);
    assert_eq!(
        printed,
        format!("start,one,two,choice,score,scores\na,b,c d,{choice},{score},\"{scores}\"\n")
    );
}

/// A file with a column of 64-bit integers, one of texts, which may lack, and one of dates.
fn parquet(path: &Path) {
    let schema =
        "message m { REQUIRED INT64 id; OPTIONAL BYTE_ARRAY review (STRING); REQUIRED INT32 day (DATE); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[9_007_199_254_740_993, 2], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("a b")], Some(&[1, 0]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[0, 1], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn rows_of_parquet_are_printed_as_objects() {
    let (folder, model) = classifier();
    let path = folder.path().join("a.parquet");
    parquet(&path);
    let args = ["predict", "--model", &model, "--columns", "text=review", "--input", path.to_str().unwrap()];
    let ran = run(&args, b"");
    let printed = values(&ran.out);
    let mut expected = json!({"id": 9_007_199_254_740_993_i64, "review": "a b", "day": "1970-01-01"});
    let answers = answers(&model, &["a b"]);
    expected.as_object_mut().unwrap().extend(answers[0].as_object().unwrap().clone());
    assert_eq!(printed, [expected]);
    let line = ran.error_line(1);
    let problem = "a.parquet:2: column `review` (`--columns text=COLUMN`) is missing; expected a text; correct it, or skip";
    assert!(line.contains(problem), "{line}");
    let args = ["predict", "--model", &model, "--input-format", "parquet"];
    assert!(run(&args, b"").error_line(2).contains("give a file with --input"));
}

#[test]
fn texts_of_tables_are_embedded() {
    let (_folder, model) = encoder();
    let plain = run(&["embed", "--model", &model], b"a b\nc\n").done();
    let vector = |line: usize| values(&plain)[line]["embedding"].to_string();
    let printed = with_file("embed", &model, ("a.csv", b"id,text\n1,a b\n2,c\n"), &[]).done();
    assert_eq!(printed, format!("id,text,embedding\n1,a b,\"{}\"\n2,c,\"{}\"\n", vector(0), vector(1)));
    let lines = b"{\"title\": \"a b\", \"id\": 1}\n\"c\"\n";
    let printed = with_file("embed", &model, ("a.jsonl", lines), &["--columns", "text=title"]).done();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], format!(r#"{{"title": "a b", "id": 1,"embedding":{}}}"#, vector(0)));
    assert_eq!(lines[1], format!(r#"{{"embedding":{}}}"#, vector(1)));
    // A file of lines is what standard input is, and an array has a row for each text.
    assert_eq!(with_file("embed", &model, ("a.txt", b"a b\nc\n"), &[]).done(), plain);
    let folder = tempfile::tempdir().unwrap();
    let [table, array] = ["a.csv", "a.npy"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&table, "text\na b\nc\n").unwrap();
    run(&["embed", "--model", &model, "--format", "npy", "--input", &table, "--output", &array], b"").done();
    assert!(String::from_utf8_lossy(&fs::read(&array).unwrap()).contains("'shape': (2, 24)"));
    let tokens = ["--tokens", "--words", "first"];
    let printed = with_file("embed", &model, ("a.csv", b"text\na b\n"), &tokens).done();
    let (header, row) = printed.split_once('\n').unwrap();
    assert!(header == "text,words" && row.starts_with("a b,\"[{\"\"text\"\":\"\"a\"\","), "{printed}");
    let number = with_file("embed", &model, ("a.jsonl", b"\"a\"\n{\"text\": 7}\n"), &[]);
    assert!(number.error_line(1).contains("a.jsonl:2: `text` is not a string"), "{}", number.err);
    assert_eq!(number.out.lines().count(), 1);
}

#[test]
fn a_limit_without_what_it_limits_is_refused() {
    let (_folder, model) = classifier();
    for more in [&["--max-skipped", "0.5"][..], &["--max-skipped", "0.05", "--on-bad-row", "error"]] {
        let ran = with_file("predict", &model, ("a.csv", b"text\na\n"), more);
        let line = ran.error_line(2);
        assert!(line.contains("--max-skipped is the limit of --on-bad-row skip"), "{line}");
        assert_eq!(ran.out, "");
    }
    with_file("predict", &model, ("a.csv", b"text\na\n"), &["--on-bad-row", "skip", "--max-skipped", "0.5"])
        .done();
}

#[test]
fn an_input_is_never_written_over() {
    let (_folder, model) = classifier();
    let folder = tempfile::tempdir().unwrap();
    let [input, other] = ["a.csv", "b.csv"].map(|name| folder.path().join(name));
    let rows = "text\na\n\" \"\nb\n";
    fs::write(&input, rows).unwrap();
    let [input, other] = [&input, &other].map(|path| path.to_str().unwrap());
    let predict = |to: &str| {
        let skip = ["--on-bad-row", "skip", "--input", input, "--output", to];
        run(&[&["predict", "--model", &model][..], &skip].concat(), b"")
    };
    let mut same = vec![input.to_owned(), format!("{}/./a.csv", folder.path().display())];
    #[cfg(unix)]
    {
        let link = folder.path().join("link.csv");
        std::os::unix::fs::symlink(input, &link).unwrap();
        same.push(link.to_str().unwrap().to_owned());
    }
    for to in same {
        let ran = predict(&to);
        let line = ran.error_line(2);
        assert!(line.contains("this file is read, so it cannot be the output"), "{line}");
        assert_eq!(fs::read_to_string(input).unwrap(), rows);
    }
    let ran = predict(other);
    assert!(
        ran.err.contains("skipped 1 of 3 rows (1 × no text): ") && ran.err.contains("a.csv:3\n"),
        "{}",
        ran.err
    );
    ran.done();
    assert_eq!(fs::read_to_string(other).unwrap().lines().count(), 3);
}

#[test]
fn a_row_without_text_is_unusable_and_a_blank_line_is_none() {
    let (_folder, model) = encoder();
    let embed = |file: (&str, &[u8]), more: &[&str]| with_file("embed", &model, file, more);
    // An array has a row for each line, and a blank one has no vector.
    let ran = embed(("a.txt", b"a\n \nb\n"), &[]);
    assert!(ran.error_line(1).contains("a.txt:2: the line is blank; remove it, or"), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1);
    let ran = embed(("a.txt", b"a\n\nb\n"), &["--on-bad-row", "skip"]);
    assert!(
        ran.err.contains("skipped 1 of 3 rows (1 × blank line): ") && ran.err.contains("a.txt:2\n"),
        "{}",
        ran.err
    );
    assert_eq!(ran.done().lines().count(), 2);
    let csv = &b"text,n\na,1\n\"\",2\n"[..];
    let ran = embed(("a.csv", csv), &[]);
    let problem = "a.csv:3: column `text` is empty; expected a text; correct it, or skip such rows with --on-bad-row skip";
    assert!(ran.error_line(1).ends_with(problem), "{}", ran.err);
    let ran = embed(("a.csv", csv), &["--columns", "text=n"]);
    assert_eq!(ran.done().lines().count(), 3);
    let ran = embed(("a.csv", b"n,review\n1,a\n2,\n"), &["--columns", "text=review"]);
    assert!(
        ran.error_line(1).contains("a.csv:3: column `review` (`--columns text=COLUMN`) is empty"),
        "{}",
        ran.err
    );
    let ran = embed(("a.jsonl", b"\"a\"\n{\"text\": \" \"}\n"), &[]);
    assert!(ran.error_line(1).contains("`text` is empty; expected {\"text\""), "{}", ran.err);
    let ran = embed(("a.jsonl", b"\"a\"\n{\"text\": \" \"}\n"), &["--on-bad-row", "skip"]);
    assert!(ran.err.contains("skipped 1 of 2 rows (1 × no text): "), "{}", ran.err);
    // The one who reads a list of sentences passes over what separates them.
    let masked = crate::lines::masked();
    let masked = masked.path().to_str().unwrap();
    let filled = with_file("fill-mask", masked, ("a.txt", b"a [MASK]\n\n \n[MASK] b\n"), &["--json"]).done();
    assert_eq!(values(&filled).len(), 2);
    let scored = with_file("likelihood", masked, ("a.txt", b"\na b\n\nc\n"), &["--json"]).done();
    let texts: Vec<Value> = values(&scored).into_iter().map(|line| line["text"].clone()).collect();
    assert_eq!(texts, ["a b", "c"]);
    // As does a map, whose rows without text are unusable.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("a.csv"), "text\na\nb\n\" \"\nc\n").unwrap();
    fs::write(path("a.txt"), "a\n\nb\n\nc\n").unwrap();
    let map = |file: &str, more: &[&str]| {
        run(&[&["map", "--method", "pca", "--model", &model, &path(file)][..], more].concat(), b"")
    };
    let ran = map("a.csv", &[]);
    assert!(ran.error_line(1).contains("a.csv:4: the text is empty"), "{}", ran.err);
    map("a.csv", &["--on-bad-row", "skip"]).done();
    map("a.txt", &[]).done();
}

#[test]
fn an_output_is_what_its_name_says() {
    let (_folder, model) = encoder();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let embed = |more: &[&str]| run(&[&["embed", "--model", &model][..], more].concat(), b"a\nb\n");
    embed(&["--output", &path("a.npy")]).done();
    assert!(fs::read(path("a.npy")).unwrap().starts_with(b"\x93NUMPY"));
    embed(&["--output", &path("b.npy"), "--output-format", "jsonl"]).done();
    assert!(fs::read(path("b.npy")).unwrap().starts_with(b"{"));
    let sheet = embed(&["--output", &path("a.xlsx")]);
    let problem = "a.xlsx: a spreadsheet's own format cannot be written; write .csv, which spreadsheets open";
    assert!(sheet.error_line(2).ends_with(problem), "{}", sheet.err);
    assert!(!folder.path().join("a.xlsx").exists());
    fs::write(path("c.txt"), "a\nb\n").unwrap();
    let same = embed(&["--vectors", "int8", "--calibrate", &path("c.txt"), "--output", &path("c.txt")]);
    assert!(same.error_line(2).contains("this file is read, so it cannot be the output"), "{}", same.err);
    assert_eq!(fs::read_to_string(path("c.txt")).unwrap(), "a\nb\n");
}

#[test]
fn unusable_rows_are_left_out_on_request() {
    let (_folder, model) = classifier();
    let skip = ["--on-bad-row", "skip"];
    let csv = with_file("predict", &model, ("a.csv", b"id,text\n1,a\n2\n3,b\n"), &skip);
    assert!(csv.err.contains("a.csv: skipped 1 of 3 rows (1 × number of columns): "), "{}", csv.err);
    assert!(csv.err.contains("a.csv:3\n"), "{}", csv.err);
    let csv = csv.done();
    let rows: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(rows, ["id", "1", "3"]);
    let lines = b"{\"text\": \"a\"}\n{\n{\"text\": 7}\n{\"text\": \"b\"}\n";
    // More than one row of four is more than a twentieth: the others are answered, and the command fails.
    let many = with_file("predict", &model, ("a.jsonl", lines), &skip);
    assert_eq!(values(&many.out).len(), 2);
    let error = many.error_line(1);
    for part in [
        "a.jsonl:2: not JSON",
        "; the next: ",
        "a.jsonl:3 (bad field); 2 of 4 rows (1 × bad JSON, 1 × bad field) cannot be used, and at most 5 % may be left out: correct \
         them, or raise `--max-skipped`",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let jsonl =
        with_file("predict", &model, ("a.jsonl", lines), &["--on-bad-row", "skip", "--max-skipped", "0.5"]);
    assert!(
        jsonl.err.contains("a.jsonl: skipped 2 of 4 rows (1 × bad JSON, 1 × bad field): "),
        "{}",
        jsonl.err
    );
    assert_eq!(values(&jsonl.done()).len(), 2);
    let (_folder, model) = encoder();
    let text = with_file("embed", &model, ("a.txt", b"a b\n\xff\nc\n"), &skip);
    assert!(text.err.contains("a.txt: skipped 1 of 3 rows (1 × bad UTF-8): "), "{}", text.err);
    assert_eq!(text.done(), run(&["embed", "--model", &model], b"a b\nc\n").done());
    // What the model cannot use is left out too.
    let masks = with_file("fill-mask", &model, ("a.csv", b"text\na [MASK]\nno mask\n"), &skip);
    assert!(masks.err.contains("a.csv: skipped 1 of 2 rows (1 × refused by the model): "), "{}", masks.err);
    assert_eq!(masks.done().lines().count(), 2);
}

#[test]
fn rows_of_xml_are_objects() {
    let (_folder, model) = encoder();
    let plain = run(&["embed", "--model", &model], b"a b\nc\n").done();
    let xml = b"<rows><row id=\"1\"><title>a b</title></row><row title=\"c\"/></rows>";
    let printed = with_file("embed", &model, ("a.xml", xml), &["--columns", "text=title"]).done();
    let rows = values(&printed);
    assert_eq!([&rows[0]["title"], &rows[1]["title"]], ["a b", "c"]);
    for (row, text) in rows.iter().zip(values(&plain)) {
        assert_eq!(row["embedding"], text["embedding"]);
    }
}

#[test]
fn masks_of_tables_are_filled() {
    let (_folder, model) = encoder();
    let plain = run(&["fill-mask", "--model", &model, "--json", "--top-k", "1", "a [MASK]"], b"").done();
    let plain = values(&plain).remove(0);
    let file = ("a.tsv", &b"id\ttext\n1\ta [MASK]\n"[..]);
    let printed = with_file("fill-mask", &model, file, &["--top-k", "1"]).done();
    assert_eq!(printed, format!("id\ttext\tmasks\n1\ta [MASK]\t{}\n", plain["masks"]));
    let file = ("a.jsonl", &b"{\"text\": \"a [MASK]\", \"id\": 1}\n"[..]);
    let printed = values(&with_file("fill-mask", &model, file, &["--top-k", "1"]).done()).remove(0);
    assert_eq!(printed, json!({"text": "a [MASK]", "id": 1, "masks": plain["masks"]}));
    let lines = run(&["fill-mask", "--model", &model, "--json", "--top-k", "1"], b"a [MASK]\n").done();
    assert_eq!(values(&lines), [plain]);
    let both = run(&["fill-mask", "--model", &model, "--columns", "text=a", "a [MASK]"], b"");
    assert!(both.error_line(2).contains("cannot be used with"), "{}", both.err);
}

#[test]
fn pairs_of_a_table_get_a_score() {
    let (_folder, model) = classifier();
    let line = b"{\"id\": 7, \"query\": \"a\", \"candidates\": [\"b\", \"c d\"], \"more\": [1]}\n";
    let ranked = values(&run(&["rerank", "--model", &model], line).done()).remove(0);
    assert_eq!(ranked.as_object().unwrap().keys().collect::<Vec<_>>(), ["id", "query", "more", "found"]);
    let score = |text: &str| {
        let found = ranked["found"].as_array().unwrap();
        found.iter().find(|one| one["text"] == text).unwrap()["score"].as_f64().unwrap()
    };
    let file = ("a.csv", &b"question,passage\na,c d\na,b\n"[..]);
    let columns = ["--columns", "query=question,text=passage"];
    let printed = with_file("rerank", &model, file, &columns).done();
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["question", "passage", "score"]);
    for (row, text) in rows[1..].iter().zip(["c d", "b"]) {
        assert_eq!(row[..2], ["a", text]);
        assert!((row[2].parse::<f64>().unwrap() - score(text)).abs() < 1e-5, "{row:?}");
    }
    let pair =
        run(&["rerank", "--model", &model], b"{\"query\": \"a\", \"text\": \"b\", \"id\": 1}\n").done();
    let pair = values(&pair).remove(0);
    assert_eq!(pair.as_object().unwrap().keys().collect::<Vec<_>>(), ["query", "text", "id", "score"]);
    let missing = with_file("rerank", &model, ("a.csv", b"query,passage\na,b\n"), &[]);
    let problem = "no column `text` (the header has: query, passage); set `--columns text=COLUMN`";
    assert!(missing.error_line(1).contains(problem), "{}", missing.err);
}

#[test]
fn tables_that_cannot_be_read_are_one_line() {
    let (_folder, model) = classifier();
    for (file, more, status, problem) in [
        (
            ("a.csv", &b"text,label\na,b\n"[..]),
            &[][..],
            1,
            "a.csv: the input has a column `label` already, as the answer has",
        ),
        (
            ("a.csv", b"text\na\n"),
            &["--columns", "text=title"],
            1,
            "no column `title` (the header has: text)",
        ),
        (("a.csv", b"text\na\n"), &["--columns", "text=2"], 1, "there is 1 column"),
        (("a.csv", b""), &[], 1, "a.csv: it is empty; expected a header and rows"),
        (("a.csv", b"a\n"), &["--no-header"], 1, "give `--columns text=NUMBER`, from 1"),
        (
            ("a.csv", b"text\na\n"),
            &["--columns", "word=text"],
            2,
            "no field `word`; expected one of text, pair",
        ),
        (("a.csv", b"text\na\n"), &["--columns", "text=0"], 2, "columns are counted from 1"),
        (("a.csv", b"text\na\n"), &["--columns", "text=text,text=text"], 2, "`text` is given twice"),
        (("a.csv", b"text\na\n"), &["--delimiter", "ab"], 2, "expected one ASCII character"),
        (("a.jsonl", b"{}\n"), &["--delimiter", ";"], 2, "--delimiter is for CSV and TSV"),
        (("a.jsonl", b"{}\n"), &["--columns", "text=1"], 2, "keys of JSON objects have names"),
        (("a.jsonl", b"7\n"), &[], 1, "a.jsonl:1: neither an object nor a string; expected {\"text\""),
        (
            ("a.txt", b"a\n"),
            &["--input-format", "lines", "--columns", "text=a"],
            2,
            "lines of text have no columns",
        ),
        (("a.parquet", b"text"), &[], 1, "a.parquet: not a readable Parquet file"),
    ] {
        let ran = with_file("predict", &model, file, more);
        assert!(ran.error_line(status).contains(problem), "{problem}: {}", ran.err);
        assert_eq!(ran.out, "", "{problem}");
    }
    // What separates columns is found in the header, and the output has it too.
    let found = with_file("predict", &model, ("a.csv", b"id;text\n1;a, b\n"), &[]);
    assert!(found.err.contains("a.csv: columns between `;`"), "{}", found.err);
    assert!(found.done().starts_with("id;text;label;score;scores\n1;a, b;"));
    // Rows before a bad one have their answers.
    let short = with_file("predict", &model, ("a.csv", b"id,text\n1,a\n2\n3,b\n"), &[]);
    assert!(short.error_line(1).contains("a.csv:3: 1 column, expected 2"), "{}", short.err);
    assert!(short.err.contains("skip such rows with --on-bad-row skip"), "{}", short.err);
    assert_eq!(short.out.lines().count(), 2);
    let (_folder, tagger) = asked(Architecture::TokenClassification, &["O", "B-x"]);
    let none = with_file("predict", &tagger, ("a.csv", b"title\na\n"), &[]);
    let problem =
        "there is no column `text` or `words` (there are: title); name one with --columns FIELD=COLUMN";
    assert!(none.error_line(1).contains(problem), "{}", none.err);
    // TSV has no way to hold a line's end, nor unquoted cells their delimiter.
    let list = with_file("predict", &model, ("a.csv", b"text\na\n"), &["--quoting", "false"]);
    assert!(list.error_line(1).contains("set --quoting true"), "{}", list.err);
}
