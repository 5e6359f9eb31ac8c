//! Corpora: every format gives the same documents, and every bad place an exact message or a count.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::{CorpusConfig, Format, OnError, documents};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const DOCUMENTS: [&str; 3] =
    ["First line.\nSecond line: äöü.", "Alone.", "Third document, 日本語.\nIts end."];

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn config(file: &str) -> CorpusConfig {
    CorpusConfig { files: vec![file.into()], ..Default::default() }
}

/// The documents up to the first error, that error, and what was left out.
fn read(config: &CorpusConfig, base: &Path) -> (Vec<String>, Option<String>, String) {
    let mut source = match documents(config, base) {
        Ok(source) => source,
        Err(error) => return (Vec::new(), Some(error.to_string()), String::new()),
    };
    let mut texts = Vec::new();
    let mut failure = None;
    for document in &mut source {
        match document {
            Ok(document) => texts.push(document.paragraphs().collect::<Vec<_>>().join("\n")),
            Err(error) => {
                assert!(failure.is_none(), "nothing comes after an error");
                failure = Some(error.to_string());
            }
        }
    }
    if failure.is_none() {
        assert_eq!(source.bytes_read(), source.bytes_total());
    }
    (texts, failure, source.skipped().to_string())
}

/// Asserts the message under `fail` (after the path), and documents and counts under `skip`.
#[track_caller]
fn assert_bad(
    name: &str,
    bytes: &[u8],
    change: impl Fn(&mut CorpusConfig),
    message: &str,
    rest: &[&str],
    count: &str,
) {
    let folder = folder(&[(name, bytes)]);
    let mut config = config(name);
    change(&mut config);
    let (_, failure, _) = read(&config, folder.path());
    let expected = format!(
        "{}{message}; correct it, or set `corpus.on_error = \"skip\"` to skip such parts",
        folder.path().join(name).display()
    );
    assert_eq!(failure.as_deref(), Some(expected.as_str()));
    (config.on_error, config.max_skipped) = (OnError::Skip, Some(1.0));
    let (texts, failure, skipped) = read(&config, folder.path());
    assert_eq!((texts, failure), (rest.iter().map(|text| text.to_string()).collect(), None));
    assert_eq!(skipped, count);
}

fn plain() -> String {
    DOCUMENTS.join("\n\n") + "\n"
}

fn jsonl(column: &str) -> String {
    let line = |text: &&str| serde_json::json!({ "id": 7, column: text }).to_string() + "\n";
    DOCUMENTS.iter().map(line).collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 3).unwrap()
}

/// A Parquet file of a column `id` and the column declared as `schema`, in groups of two rows.
fn parquet(schema: &str, texts: &[Option<&[u8]>], compression: Compression) -> Vec<u8> {
    let schema = parse_message_type(&format!("message rows {{ REQUIRED INT64 id; {schema} }}")).unwrap();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).unwrap();
    for texts in texts.chunks(2) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let ids: Vec<i64> = (0..texts.len() as i64).collect();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> =
            texts.iter().flatten().map(|text| ByteArray::from(text.to_vec())).collect();
        let levels: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn some(texts: &[&'static str]) -> Vec<Option<&'static [u8]>> {
    texts.iter().map(|text| Some(text.as_bytes())).collect()
}

#[test]
fn every_format_gives_the_same_documents() {
    let windows = "\u{FEFF}".to_string() + &plain().replace('\n', "\r\n");
    let blank = "\n \n\n".to_string() + &DOCUMENTS.join("\n\t\n\n");
    let zstd_pages = Compression::ZSTD(ZstdLevel::default());
    let texts = some(&DOCUMENTS);
    let two_members = [gzip(&plain()[..20]), gzip(&plain()[20..])].concat();
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("plain.txt", plain().into()),
        ("no-ending", plain().into()),
        ("windows.txt", windows.into()),
        ("blank.txt", blank.into()),
        ("a.txt.gz", gzip(&plain())),
        ("members.gz", two_members),
        ("a.txt.zst", zstd(&plain())),
        ("unexpected-ending.txt", zstd(&plain())),
        ("a.jsonl", jsonl("text").into()),
        ("a.ndjson.gz", gzip(&jsonl("text"))),
        ("A.JSON.ZST", zstd(&jsonl("text"))),
        ("strings.parquet", parquet("OPTIONAL BYTE_ARRAY text (STRING);", &texts, Compression::UNCOMPRESSED)),
        ("bytes.parquet", parquet("OPTIONAL BYTE_ARRAY text;", &texts, Compression::SNAPPY)),
        ("required.parquet", parquet("REQUIRED BYTE_ARRAY text (UTF8);", &texts, zstd_pages)),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    let folder = folder(&files);
    for (name, _) in &files {
        let (texts, failure, skipped) = read(&config(name), folder.path());
        assert_eq!((failure, skipped.as_str()), (None, ""), "{name}");
        assert_eq!(texts, DOCUMENTS, "{name}");
    }
    // The format can be told where the ending does not.
    let told = CorpusConfig { format: Format::Text, ..config("a.jsonl") };
    assert_eq!(read(&told, folder.path()).0.len(), 1);
}

#[test]
fn folders_and_patterns_list_files_by_name() {
    let folder = folder(&[
        ("in/b.txt", b"b"),
        ("in/a.txt", b"a"),
        ("in/.hidden.txt", b"hidden"),
        ("in/sub/c.txt", b"c"),
        ("in/sub/d.md", b"d"),
        ("z[1].txt", b"z"),
    ]);
    let texts = |files: &[&str]| {
        let files = files.iter().map(|file| file.to_string()).collect();
        let (texts, failure, _) = read(&CorpusConfig { files, ..Default::default() }, folder.path());
        assert_eq!(failure, None);
        texts.concat()
    };
    assert_eq!(texts(&["in"]), "abcd");
    assert_eq!(texts(&["in/*.txt"]), "ab");
    assert_eq!(texts(&["in/**/*.txt"]), "abc", "no hidden file, as in a folder");
    assert_eq!(texts(&["in/s*", "in/b.txt", "in/b.txt"]), "cdbb");
    assert_eq!(texts(&["z[1].txt"]), "z", "a file of that name comes before a pattern");
    let absolute = folder.path().join("in/a.txt");
    assert_eq!(texts(&[absolute.to_str().unwrap()]), "a");
}

#[test]
fn a_pattern_is_one_also_below_a_folder_with_brackets() {
    let outer = folder(&[("runs [1]/a.txt", b"a")]);
    assert_eq!(read(&config("*.txt"), &outer.path().join("runs [1]")).0, ["a"]);
}

#[cfg(unix)]
#[test]
fn a_link_to_a_folder_above_is_not_followed() {
    let folder = folder(&[("in/sub/a.txt", b"a")]);
    std::os::unix::fs::symlink(folder.path().join("in"), folder.path().join("in/sub/up")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("in/sub"), folder.path().join("in/twin")).unwrap();
    assert_eq!(read(&config("in"), folder.path()).0, ["a", "a"], "once itself, once through `twin`");
}

#[test]
fn no_files_is_an_error_that_says_where() {
    let folder = folder(&[("a.txt", b"a"), ("empty/.keep", b"")]);
    let base = folder.path().display();
    for pattern in ["*.jsonl", "missing.txt", "empty"] {
        let expected =
            format!("the corpus has no file `{pattern}` (looked in {base}): correct `corpus.files`");
        assert_eq!(read(&config(pattern), folder.path()).1, Some(expected));
    }
    let none = CorpusConfig::default();
    let expected =
        format!("the corpus has no file `(none listed)` (looked in {base}): correct `corpus.files`");
    assert_eq!(read(&none, folder.path()).1, Some(expected));
    let message = read(&config("a***"), folder.path()).1.unwrap();
    assert!(message.starts_with("corpus file pattern `a***` is not valid: "), "{message}");
}

#[test]
fn bad_utf8_loses_its_line_only() {
    let message = ":3: not UTF-8 (byte 3 is 0xff); it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8";
    let texts = ["one\nfour", "five"];
    assert_bad(
        "a.txt",
        b"one\n\nab\xFFc\nfour\n\nfive\n",
        |_| {},
        message,
        &["one", "four", "five"],
        "1 × bad UTF-8",
    );
    assert_bad(
        "b.txt",
        b"one\n\xC3\xA4\nab\xC3\n",
        |_| {},
        ":3: not UTF-8 (byte 3 is 0xc3)",
        &["one\nä"],
        "1 × bad UTF-8",
    );
    let lines = b"one\nxx\xF0\nfour\n\nfive";
    assert_bad("c.txt", lines, |_| {}, ":2: not UTF-8 (byte 3 is 0xf0)", &texts, "1 × bad UTF-8");
    let lines = b"{\"text\": \"one\"}\n{\"text\": \"\xFF\"}\n{\"text\": \"three\"}\n";
    assert_bad(
        "a.jsonl",
        lines,
        |_| {},
        ":2: not UTF-8 (byte 11 is 0xff); it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8",
        &["one", "three"],
        "1 × bad UTF-8",
    );
}

#[test]
fn an_empty_file_is_reported() {
    for bytes in [&b""[..], b"\n \n\t\n"] {
        assert_bad("a.txt", bytes, |_| {}, ": the file has no text", &[], "1 × empty file");
        assert_bad("a.jsonl", bytes, |_| {}, ": the file has no text", &[], "1 × empty file");
    }
    assert_bad("a.parquet", b"", |_| {}, ": the file has no row", &[], "1 × empty file");
    let no_rows = parquet("OPTIONAL BYTE_ARRAY text (STRING);", &[], Compression::UNCOMPRESSED);
    assert_bad("b.parquet", &no_rows, |_| {}, ": the file has no row", &[], "1 × empty file");
}

#[test]
fn a_long_line_is_left_out() {
    let short = |config: &mut CorpusConfig| config.max_line_bytes = 8;
    let message = ":2: the line is longer than `corpus.max_line_bytes` = 8";
    for text in [
        "one\n123456789\nthree\n",
        "one\n123456789\r\nthree",
        "one\n1234567890\nthree",
        "one\r\n12345678\r9\nthree",
    ] {
        assert_bad("a.txt", text.as_bytes(), short, message, &["one\nthree"], "1 × long line");
    }
    assert_bad("a.txt", b"one\n12345678901234567890", short, message, &["one"], "1 × long line");
    // As long as allowed, whatever ends the line.
    for text in ["12345678", "12345678\n", "12345678\r\n"] {
        let folder = folder(&[("a.txt", text.as_bytes())]);
        let mut config = config("a.txt");
        short(&mut config);
        assert_eq!(read(&config, folder.path()), (vec!["12345678".into()], None, String::new()));
    }
}

/// Bytes of memory in use and the most ever.
#[cfg(target_os = "linux")]
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn an_endless_line_takes_no_memory() {
    // 256 MiB on one line, in a few kilobytes.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt.zst");
    let mut encoder = zstd::Encoder::new(File::create(&path).unwrap(), 1).unwrap();
    encoder.write_all(b"one\n").unwrap();
    for _ in 0..256 {
        encoder.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    encoder.write_all(b"\nthree\n").unwrap();
    encoder.finish().unwrap();
    let before = peak_kib();
    let config = CorpusConfig { on_error: OnError::Skip, ..config("a.txt.zst") };
    assert_eq!(read(&config, folder.path()), (vec!["one\nthree".into()], None, "1 × long line".into()));
    let grown = peak_kib() - before;
    assert!(grown < 64 << 10, "{grown} KiB more");
}

#[test]
fn few_lines_may_be_left_out() {
    // Of 60 lines three are in another encoding, and one more in a second file.
    let lines: Vec<u8> = (0..60)
        .flat_map(|i| if i % 20 == 7 { b"caf\xE9 noir\n".to_vec() } else { b"tea\n\n".to_vec() })
        .collect();
    let folder = folder(&[("a.txt", &lines), ("b.txt", b"tr\xE8s bon\n")]);
    let read = |files: &[&str], max_skipped| {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        let config = CorpusConfig { files, on_error: OnError::Skip, max_skipped, ..Default::default() };
        let (texts, failure, _) = read(&config, folder.path());
        (texts.len(), failure.map(|told| told.replace(&format!("{}/", folder.path().display()), "")))
    };
    // The documents go on where a line is left out.
    assert_eq!(read(&["a.txt"], None).1, None);
    let (n, failure) = read(&["a.txt", "b.txt"], None);
    assert!(n > 50);
    let failure = failure.unwrap();
    assert!(
        failure.starts_with("a.txt:15: not UTF-8 (byte 4 is 0xe9); it looks like Windows-1252"),
        "{failure}"
    );
    assert!(
        failure.ends_with(
            "b.txt:1; 4 of 61 lines (4 × bad UTF-8) cannot be used, and at most 5 % may be left out: correct them, or raise \
             `corpus.max_skipped`"
        ),
        "{failure}"
    );
    assert_eq!(read(&["a.txt", "b.txt"], Some(0.1)).1, None);
    assert!(read(&["a.txt"], Some(0.01)).1.unwrap().contains("at most 1 % may be left out"));
    // One may always be.
    fs::write(folder.path().join("c.txt"), b"a\n\xFF\n").unwrap();
    assert_eq!(read(&["c.txt"], Some(0.0)).1, None);
    assert_eq!(read(&["c.txt"], Some(1.5)).1.unwrap(), "`corpus.max_skipped`: expected a number from 0 to 1");
    let unread = CorpusConfig { max_skipped: Some(0.1), ..config("a.txt") };
    assert!(refusal(&unread, folder.path()).contains("only used with `corpus.on_error = \"skip\"`"));
    // Of tables it is the rows.
    let rows = "{\"text\": \"a\"}\n".repeat(3) + "{\n{\n";
    fs::write(folder.path().join("d.jsonl"), rows).unwrap();
    assert!(read(&["d.jsonl"], None).1.unwrap().contains("2 of 5 lines (2 × bad JSON) cannot be used"));
}

/// The error of opening a corpus.
fn refusal(config: &CorpusConfig, base: &Path) -> String {
    documents(config, base).err().unwrap().to_string()
}

#[test]
fn a_long_document_is_divided_and_nothing_lost() {
    let lines: Vec<String> = (0..100).map(|i| format!("line {i} of a document without end")).collect();
    let text = lines.join("\n");
    let rows = serde_json::json!({ "text": text }).to_string();
    let folder = folder(&[("a.txt", text.as_bytes()), ("a.jsonl", rows.as_bytes())]);
    for name in ["a.txt", "a.jsonl"] {
        let config = CorpusConfig { max_document_bytes: 500, ..config(name) };
        let (texts, failure, skipped) = read(&config, folder.path());
        assert_eq!(failure, None);
        assert!(texts.len() > 5 && texts.iter().all(|text| text.len() <= 500), "{name}");
        assert_eq!(texts.join("\n"), text, "{name}");
        assert_eq!(skipped, format!("{} × long document divided", texts.len() - 1), "{name}");
        // Less than a line: divided at white space, never within a character, nothing lost.
        for max_document_bytes in [0, 1, 7] {
            let config = CorpusConfig { max_document_bytes, ..config.clone() };
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(letters(&read(&config, folder.path()).0.concat()), letters(&text), "{name}");
        }
    }
}

#[test]
fn json_lines_that_are_not() {
    let good = "{\"text\": \"one\"}\n";
    let case = |line: &str, message: &str, count: &str| {
        let text = format!("{good}\n{line}\n{good}");
        assert_bad("a.jsonl", text.as_bytes(), |_| {}, &format!(":3: {message}"), &["one", "one"], count);
    };
    case("{\"text\": ", "not a JSON object: EOF while parsing a value at column 9", "1 × bad JSON");
    case("[1]", "not a JSON object: invalid type: sequence, expected a map at column 0", "1 × bad JSON");
    case("plain", "not a JSON object: expected value at column 1", "1 × bad JSON");
    let deep = "[".repeat(100_000);
    case(
        &format!("{{\"a\": {deep}"),
        "not a JSON object: recursion limit exceeded at column 133",
        "1 × bad JSON",
    );
    case(
        "{\"title\": \"x\", \"body\": \"y\"}",
        "no column `text` (it has: title, body); set `corpus.text_column`",
        "1 × missing column",
    );
    for (value, what) in [
        ("null", "null"),
        ("true", "true or false"),
        ("3", "a number"),
        ("[]", "a list"),
        ("{}", "an object"),
    ] {
        let message = format!("column `text` is {what}, expected a string");
        case(&format!("{{\"text\": {value}}}"), &message, "1 × column without text");
    }
    // Blank texts are no problem, and no documents; how many there are is told.
    let folder = folder(&[("a.jsonl", format!("{{\"text\": \" \"}}\n{good}").as_bytes())]);
    assert_eq!(read(&config("a.jsonl"), folder.path()), (vec!["one".into()], None, "1 × empty text".into()));
    // However many they are, no limit on what is left out is exceeded.
    let rows = "{\"text\": \"\"}\n".repeat(30) + good;
    let empty = self::folder(&[("a.jsonl", rows.as_bytes())]);
    let skip = CorpusConfig { on_error: OnError::Skip, ..config("a.jsonl") };
    assert_eq!(read(&skip, empty.path()), (vec!["one".into()], None, "30 × empty text".into()));
}

#[test]
fn a_missing_column_lists_a_few_others() {
    let row: serde_json::Map<_, _> = (0..500).map(|i| (format!("c{i}"), "x".into())).collect();
    let folder = folder(&[("a.jsonl", serde_json::to_string(&row).unwrap().as_bytes())]);
    let message = read(&config("a.jsonl"), folder.path()).1.unwrap();
    assert!(message.contains("c18, c19, …)") && !message.contains("c20"), "{message}");
}

#[test]
fn parquet_columns_that_are_not() {
    let schema = "OPTIONAL BYTE_ARRAY body (STRING);";
    let bytes = parquet(schema, &some(&DOCUMENTS), Compression::UNCOMPRESSED);
    let message = ": no column `text` (it has: id, body); set `corpus.text_column`";
    assert_bad("a.parquet", &bytes, |_| {}, message, &[], "1 × missing column");
    let id = |config: &mut CorpusConfig| config.text_column = "id".into();
    assert_bad(
        "a.parquet",
        &bytes,
        id,
        ": column `id` does not hold strings",
        &[],
        "1 × column without text",
    );
    let nested = "OPTIONAL GROUP text { OPTIONAL BYTE_ARRAY text (STRING); }";
    let schema = parse_message_type(&format!("message rows {{ {nested} }}")).unwrap();
    let writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Default::default()).unwrap();
    let bytes = writer.into_inner().unwrap();
    assert_bad(
        "b.parquet",
        &bytes,
        |_| {},
        ": column `text` does not hold strings",
        &[],
        "1 × column without text",
    );
}

#[test]
fn parquet_rows_that_are_not() {
    let schema = "OPTIONAL BYTE_ARRAY text (STRING);";
    let rows = [Some(&b"one"[..]), None, Some(b"three"), Some(b" \n "), Some(b"five")];
    let bytes = parquet(schema, &rows, Compression::SNAPPY);
    let message = ":2: column `text` is null, expected a string";
    let count = "1 × column without text, 1 × empty text";
    assert_bad("a.parquet", &bytes, |_| {}, message, &["one", "three", "five"], count);
    let bytes =
        parquet(schema, &[Some(b"one"), Some(b"two"), Some(b"ab\xFF"), Some(b"four")], Compression::SNAPPY);
    let message = ":3: not UTF-8 (byte 3 is 0xff)";
    assert_bad("b.parquet", &bytes, |_| {}, message, &["one", "two", "four"], "1 × bad UTF-8");
}

#[test]
fn a_damaged_parquet_file_is_reported() {
    let many: Vec<String> = (0..2_000).map(|i| format!("Document {i}, which has its own text.")).collect();
    let rows: Vec<Option<&[u8]>> = many.iter().map(|text| Some(text.as_bytes())).collect();
    let bytes = parquet("OPTIONAL BYTE_ARRAY text (STRING);", &rows, Compression::UNCOMPRESSED);
    let folder = folder(&[("a.parquet", &bytes[..bytes.len() / 2]), ("b.parquet", b"not Parquet at all")]);
    for name in ["a.parquet", "b.parquet"] {
        let message = read(&config(name), folder.path()).1.unwrap();
        let path = folder.path().join(name);
        let start = format!("{}: not a readable Parquet file: ", path.display());
        assert!(message.starts_with(&start), "{message}");
        let skip = CorpusConfig { on_error: OnError::Skip, ..config(name) };
        assert_eq!(read(&skip, folder.path()), (vec![], None, "1 × damaged file".into()));
    }
    // A page is damaged, lengths and all: what is read before it stays.
    let mut damaged = bytes.clone();
    let at = damaged.windows(12).position(|window| window == b"Document 11,").unwrap();
    damaged[at - 40..at + 40].fill(0xFF);
    fs::write(folder.path().join("c.parquet"), &damaged).unwrap();
    let (texts, failure, _) = read(&config("c.parquet"), folder.path());
    let failure = failure.unwrap();
    assert!(texts.len() < 12 && texts == many[..texts.len()], "{texts:?}");
    let start = format!("{}:{}: ", folder.path().join("c.parquet").display(), texts.len() + 1);
    assert!(failure.starts_with(&start), "{failure}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever is wrong with a Parquet file, it is an error or a skip and never a panic or an endless read.
    #[test]
    fn no_damage_to_a_parquet_file_panics(at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = parquet("OPTIONAL BYTE_ARRAY text (STRING);", &some(&DOCUMENTS), Compression::UNCOMPRESSED);
        for (index, byte) in at {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let folder = folder(&[("a.parquet", &bytes)]);
        for on_error in [OnError::Fail, OnError::Skip] {
            let config = CorpusConfig { on_error, ..config("a.parquet") };
            let mut source = documents(&config, folder.path()).unwrap();
            prop_assert!(source.by_ref().take(1_000).count() < 1_000);
        }
    }

    /// Any bytes at all, read as anything.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in 0..4usize) {
        let magics: [&[u8]; 4] = [b"", b"\x1F\x8B\x08\x00", b"\x28\xB5\x2F\xFD", b"PAR1"];
        let bytes = [magics[magic], &bytes].concat();
        let folder = folder(&[("a", &bytes)]);
        for format in [Format::Text, Format::Jsonl, Format::Parquet] {
            let (on_error, max_skipped) = (OnError::Skip, Some(1.0));
            let config = CorpusConfig {
                format,
                on_error,
                max_skipped,
                max_line_bytes: 50,
                max_document_bytes: 60,
                ..config("a")
            };
            let texts = documents(&config, folder.path()).unwrap().map(Result::unwrap);
            prop_assert!(texts.take(1_000).count() < 1_000);
        }
    }
}

#[test]
fn truncated_compressed_files_keep_what_came_before() {
    let text: String = (0..20_000).map(|i| format!("Line {i} is {}.\n\n", i * 7919 % 10_007)).collect();
    for (name, bytes) in [("a.txt.gz", gzip(&text)), ("a.txt.zst", zstd(&text))] {
        let folder = folder(&[(name, &bytes[..bytes.len() / 2])]);
        let (texts, failure, _) = read(&config(name), folder.path());
        let failure = failure.unwrap();
        assert!(texts.len() > 1_000 && texts.len() < 19_000, "{name}: {} documents", texts.len());
        assert!(texts.iter().enumerate().all(|(i, line)| line.starts_with(&format!("Line {i} is "))));
        let place = format!(
            "{}:{}: reading failed part way: ",
            folder.path().join(name).display(),
            2 * texts.len() + 1
        );
        let near =
            format!("{}:{}: reading failed part way: ", folder.path().join(name).display(), 2 * texts.len());
        assert!(failure.starts_with(&place) || failure.starts_with(&near), "{failure}");
        let skip = CorpusConfig { on_error: OnError::Skip, ..config(name) };
        assert_eq!(read(&skip, folder.path()), (texts, None, "1 × damaged file".into()));
    }
    // The rest of the corpus is read after it.
    let gz = gzip(&text);
    let folder = folder(&[("in/a.gz", &gz[..gz.len() - 9]), ("in/b.txt", b"after")]);
    let skip = CorpusConfig { on_error: OnError::Skip, ..config("in") };
    assert_eq!(read(&skip, folder.path()).0.last().unwrap(), "after");
}

#[test]
fn an_unreadable_file_is_reported() {
    let folder = folder(&[("a.txt", b"one"), ("b.txt", b"two")]);
    let source =
        documents(&CorpusConfig { files: vec!["*.txt".into()], ..Default::default() }, folder.path());
    // Gone between listing and reading.
    fs::remove_file(folder.path().join("b.txt")).unwrap();
    let results: Vec<_> = source.unwrap().collect();
    let path: PathBuf = folder.path().join("b.txt");
    let message = results[1].as_ref().unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: cannot be read: ", path.display())), "{message}");
    assert_eq!(results.len(), 2);
}
