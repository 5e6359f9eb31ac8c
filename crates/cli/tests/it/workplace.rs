//! A folder in which every file of `configs/` can be run: small stand-ins lie where the configs look for data
//! sets, corpora and the checkpoint, in the formats that the configs describe.

use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use toml::{Table, Value};

/// The folder, with the repository's copy in a folder of its own so that `../shared` lies beside it.
pub struct Workplace {
    folder: TempDir,
}

/// The checkpoint that the configs begin with.
pub const CHECKPOINT: &str = "../shared/models/all-MiniLM-L6-v2";

impl Workplace {
    pub fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.root()).unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for folder in ["configs", "datasets"] {
            fs::create_dir(place.root().join(folder)).unwrap();
            for entry in fs::read_dir(repository.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                fs::copy(&path, place.root().join(folder).join(path.file_name().unwrap())).unwrap();
            }
        }
        place.checkpoint();
        // A file that several configs read has the columns of the one that names the most.
        let mut configs: Vec<Table> = place.configs().into_values().collect();
        configs.sort_by_key(|config| std::cmp::Reverse(n_columns(config)));
        configs.iter().for_each(|config| place.data_of(config));
        place
    }

    /// Where the configs' relative paths begin.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("cloze")
    }

    /// Every config with its name.
    pub fn configs(&self) -> BTreeMap<String, Table> {
        let read = |path: PathBuf| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap().parse().unwrap())
        };
        let paths = fs::read_dir(self.root().join("configs")).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).map(read).collect()
    }

    /// A BERT of two narrow layers with random weights, and a tokenizer for the stand-ins' texts.
    fn checkpoint(&self) {
        let model = self.root().join(CHECKPOINT);
        fs::create_dir_all(&model).unwrap();
        let texts: Vec<String> = (0..200).map(sentence).collect();
        let tokenizer = WordPieceTrainer { vocab_size: 200, ..Default::default() }
            .train(texts.iter().map(String::as_str))
            .unwrap();
        tokenizer.save(&model).unwrap();
        let config = BertConfig::new(tokenizer.vocab_size(), 2, 16).with_d_ff(32).with_n_heads(2);
        let init = &mut ParamInit::new(&burn::tensor::Device::flex(), 3);
        let encoder = config.init_encoder(init);
        save_pretrained(&model, &encoder, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
    }

    /// Writes what a config reads and the repository does not have.
    fn data_of(&self, config: &Table) {
        let patterns = |value: Option<&Value>| -> Vec<String> {
            let list = value.and_then(Value::as_array).into_iter().flatten();
            list.map(|pattern| pattern.as_str().unwrap().replace('*', "any")).collect()
        };
        let tables = |section: &str, key: &str| -> Vec<Table> {
            let list = config.get(section).and_then(|section| section.get(key)).and_then(Value::as_array);
            list.into_iter().flatten().map(|table| table.as_table().unwrap().clone()).collect()
        };
        let mut corpus = patterns(config.get("corpus").and_then(|corpus| corpus.get("files")));
        corpus.extend(
            tables("corpus", "languages").iter().flat_map(|language| patterns(language.get("files"))),
        );
        for translations in tables("objective", "parallel") {
            for side in ["source", "target"] {
                corpus.extend(patterns(translations["text"].get(side)));
            }
        }
        let text = || (0..60).map(|i| format!("{}\n{}\n\n", sentence(2 * i), sentence(2 * i + 1))).collect();
        for file in corpus {
            self.write(&file, text);
        }
        for split in ["train", "dev", "test"] {
            let files = config.get("parallel").and_then(|parallel| parallel.get(split));
            for (side, shift) in [("source", 0), ("target", 1)] {
                for file in patterns(files.and_then(|files| files.get(side))) {
                    // A line is the translation of the same line: its words, each another one.
                    self.write(&file, || (0..60).map(|i| format!("{}\n", sentence(4 * i + shift))).collect());
                }
            }
        }
        let Some(data) = config.get("data") else { return };
        if config.contains_key("probe") {
            for file in ["train", "dev"].into_iter().flat_map(|split| patterns(data.get(split))) {
                self.write(&file, treebank);
            }
            if let Some(pairs) = config.get("geometry").and_then(|geometry| geometry.get("similarity")) {
                let pairs = pairs.as_table().unwrap();
                for file in patterns(pairs.get("files")) {
                    self.write(&file, || texts("regression", pairs, &file));
                }
            }
            return;
        }
        // Scenes are drawn.
        let Some(train) = data.get("train") else { return };
        let train = train.as_table().unwrap();
        if is_of_images(config) {
            let lists = [train.get("files"), data.get("dev"), data.get("test")];
            let files: Vec<String> = lists.into_iter().flat_map(patterns).collect();
            // The others are in the repository.
            for file in files.iter().filter(|file| file.ends_with(".parquet")) {
                self.write_bytes(file, images);
            }
            // MNIST's digits are the smaller ones of the repository.
            for file in files.iter().filter(|file| file.starts_with("mnist/")) {
                let split = if file.contains("train") { "train" } else { "test" };
                for part in ["images-idx3", "labels-idx1"] {
                    let ours = self.root().join(format!("datasets/digits-{split}-{part}-ubyte.gz"));
                    self.write_bytes(&file.replace("images-idx3", part), || fs::read(ours).unwrap());
                }
            }
            return;
        }
        let kind = config["task"]["kind"].as_str().unwrap();
        let lists = [train.get("files"), data.get("dev"), data.get("test")];
        for file in lists.into_iter().flat_map(patterns) {
            self.write(&file, || labelled(kind, train, &file));
        }
    }

    fn write(&self, file: &str, text: impl FnOnce() -> String) {
        self.write_bytes(file, || text().into_bytes());
    }

    fn write_bytes(&self, file: &str, bytes: impl FnOnce() -> Vec<u8>) {
        let path = self.root().join(file);
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes()).unwrap();
        }
    }
}

/// Whether a config is of a run on images.
pub fn is_of_images(config: &Table) -> bool {
    let kind =
        |section: &str| config.get(section).and_then(|section| section.get("kind")).and_then(Value::as_str);
    kind("task") == Some("image-classification")
        || matches!(kind("objective"), Some("masked-patches" | "contrastive-views"))
}

/// A Parquet file of 40 images of 32 × 32 pixels as BMP, of four classes that differ in colour.
fn images() -> Vec<u8> {
    let schema = "message m { REQUIRED BYTE_ARRAY img; REQUIRED INT64 label; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let bytes: Vec<ByteArray> = (0..40).map(|i| ByteArray::from(bitmap(i))).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&bytes, None, None).unwrap();
    column.close().unwrap();
    let labels: Vec<i64> = (0..40).map(|i| i % 4).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&labels, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// A picture in the colour of its class, darker to the right.
pub fn bitmap(number: usize) -> Vec<u8> {
    const SIDE: usize = 32;
    let size = 54 + 3 * SIDE * SIDE;
    let mut bytes = b"BM".to_vec();
    for word in [size, 0, 54, 40, SIDE, SIDE] {
        bytes.extend((word as u32).to_le_bytes());
    }
    // One plane of 24 bits a pixel, not compressed; the rest is not needed.
    bytes.extend([1, 0, 24, 0]);
    bytes.extend([0; 24]);
    let colour: [usize; 3] = [[200, 40, 40], [40, 200, 40], [40, 40, 200], [120, 120, 120]][number % 4];
    for place in 0..SIDE * SIDE {
        bytes.extend(colour.map(|value| (value + number - place % SIDE) as u8));
    }
    bytes
}

/// How many columns of its training data a config names.
fn n_columns(config: &Table) -> usize {
    let columns =
        config.get("data").and_then(|data| data.get("train")).and_then(|train| train.get("columns"));
    columns.and_then(Value::as_table).map_or(0, Table::len)
}

/// Among them those that a prompt asks for.
const WORDS: [&str; 14] =
    ["great", "films", "have", "Rome", "good", "in", "Ann", "it", "bad", "was", "never", "poor", "who", "is"];

/// A sentence of seven words, one after another a different one.
fn sentence(i: usize) -> String {
    let words: Vec<&str> = (0..7).map(|j| WORDS[(i * 5 + j * (1 + i % 4)) % WORDS.len()]).collect();
    format!("{}.", words.join(" "))
}

/// Sentences in CoNLL-U whose words hang on one another in a chain.
fn treebank() -> String {
    let parsed = |i| {
        let line = |(j, word): (usize, &str)| {
            let class = if word.chars().any(char::is_uppercase) { "PROPN" } else { "NOUN" };
            let relation = if j == 0 { "root" } else { "dep" };
            format!("{}\t{word}\t_\t{class}\t_\t_\t{j}\t{relation}\t_\t_\n", j + 1)
        };
        let words = sentence(i).split(' ').enumerate().map(line).collect::<String>();
        format!("# sent_id = {i}\n{words}\n")
    };
    (0..32).map(parsed).collect()
}

/// A file of labelled examples, as the source describes it.
fn labelled(kind: &str, source: &Table, file: &str) -> String {
    match kind {
        "tagging" if file.ends_with(".conllu") => treebank(),
        "tagging" => {
            let inside = if file.contains("wikigold") { "I" } else { "B" };
            let tagged = |i| {
                let line = |(j, word): (usize, &str)| match j {
                    3 => format!("{word}\t{inside}-place\n"),
                    _ => format!("{word}\tO\n"),
                };
                sentence(i).split(' ').enumerate().map(line).chain(["\n".to_owned()]).collect::<String>()
            };
            (0..32).map(tagged).collect()
        }
        "answers" => {
            let questions: Vec<_> = (0..32)
                .map(|i| {
                    let context = sentence(i).repeat(12);
                    let answer = context.split(' ').nth(2).unwrap();
                    let start = context.find(answer).unwrap();
                    serde_json::json!({"context": context, "qas": [{"id": format!("q{i}"), "question": "who is it",
                        "answers": [{"text": answer, "answer_start": start}]}]})
                })
                .collect();
            serde_json::json!({"data": [{"title": "t", "paragraphs": questions}]}).to_string()
        }
        "multiple-choice" => choices(source),
        _ => texts(kind, source, file),
    }
}

/// CSV with a column for each choice.
fn choices(source: &Table) -> String {
    let columns = source["columns"].as_table().unwrap();
    let name = |value: &Value| value.as_str().unwrap().to_owned();
    let endings = columns["choices"].as_array().unwrap();
    let header = [name(&columns["context"])].into_iter().chain(endings.iter().map(name));
    let rows = (0..32).map(|i| {
        let texts = (0..=endings.len()).map(|j| sentence(3 * i + j));
        texts.chain([(i % endings.len()).to_string()]).collect()
    });
    let header = header.chain([name(&columns["label"])]).collect();
    std::iter::once(header).chain(rows).map(|cells: Vec<String>| cells.join(",") + "\n").collect()
}

/// Rows of texts or pairs with a class or a number.
fn texts(kind: &str, source: &Table, file: &str) -> String {
    let text = |key: &str| source.get(key).and_then(Value::as_str);
    let columns = source.get("columns").and_then(Value::as_table).cloned().unwrap_or_default();
    let mut fields = vec![("text", "text"), ("label", "label")];
    for more in ["pair", "class"] {
        fields.extend(columns.contains_key(more).then_some((more, more)));
    }
    let name = |field: &str| columns.get(field).cloned().unwrap_or_else(|| field.into());
    let cell = |field: &str, i: usize| match (field, kind) {
        ("text", _) => sentence(i),
        ("pair", _) => sentence(3 * i + 1),
        ("class", _) => ["yes", "no", "maybe"][i % 3].to_owned(),
        (_, "regression" | "embedding") => format!("{}.5", i % 5),
        _ => format!("{}{}", i % 2, text("label_before").map_or(String::new(), |mark| format!("{mark}fine"))),
    };
    if file.ends_with(".xml") {
        let row = |i| {
            let inner: String = fields
                .iter()
                .map(|(field, _)| {
                    let name = name(field);
                    let tag = name.as_str().unwrap();
                    format!("<{tag}>{}</{tag}>", cell(field, i))
                })
                .collect();
            format!("<pair>{inner}</pair>\n")
        };
        return format!("<corpus>{}</corpus>", (0..32).map(row).collect::<String>());
    }
    let delimiter = text("delimiter").unwrap_or("\t");
    let numbered = source.get("header").and_then(Value::as_bool) == Some(false);
    // Numbered columns have those between them filled.
    let place = |(i, field): (usize, &str)| match name(field) {
        Value::Integer(number) => number as usize - 1,
        _ => i,
    };
    let places: Vec<usize> = fields.iter().enumerate().map(|(i, (field, _))| place((i, field))).collect();
    let n_columns = places.iter().max().unwrap() + 1;
    let line = |cells: &dyn Fn(&str) -> String| {
        let mut row = vec!["-".to_owned(); n_columns];
        for ((field, _), place) in fields.iter().zip(&places) {
            row[*place] = cells(field);
        }
        row.join(delimiter) + "\n"
    };
    let header = line(&|field| name(field).as_str().unwrap_or("-").to_owned());
    let rows = (0..32).map(|i| line(&|field| cell(field, i)));
    [header].into_iter().filter(|_| !numbered).chain(rows).collect()
}
