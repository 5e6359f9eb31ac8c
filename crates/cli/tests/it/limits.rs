//! What no model and no machine can do, refused: weights that are not numbers, sizes that do not fit, full disks,
//! files that make a library panic.

use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, BertForPreTraining};
use cloze_model::huggingface::{
    Architecture, Family, ProblemType, SaveConfig, read_tensors, save_pretrained, write_tensors,
};
use cloze_model::tasks::BertForSequenceClassification;
use cloze_tokenizer::train::WordPieceTrainer;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cloze");

fn cloze(folder: &Path, args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

/// The one line that a failure is told in.
#[track_caller]
fn error(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("error:")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    lines[0].to_owned()
}

const TEXTS: [&str; 4] =
    ["a cat sat on a mat", "some dogs ran far", "the cat ran home", "dogs sat on the mat"];

/// A folder with a corpus, labelled data, and models of random weights: `mlm`, and the classifier `yes-no`.
fn workplace() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let tokenizer =
        WordPieceTrainer { vocab_size: 60, min_frequency: 1, ..Default::default() }.train(TEXTS).unwrap();
    let config = BertConfig::new(tokenizer.vocab_size(), 2, 16).with_d_ff(24).with_n_heads(2);
    let init = &mut ParamInit::new(&burn::tensor::Device::flex(), 3);
    let model: BertForPreTraining = config.init(init);
    save_pretrained(&path("mlm"), &model, &config, &SaveConfig::new(Architecture::PreTraining)).unwrap();
    let architecture = Architecture::SequenceClassification;
    let head = architecture.sequence_head(Family::BERT, &config, 2, 0.1, init);
    let model = BertForSequenceClassification::new(config.init_encoder(init), head);
    let save = SaveConfig::new(architecture)
        .with_labels(vec!["no".into(), "yes".into()])
        .with_problem_type(Some(ProblemType::SingleLabel));
    save_pretrained(&path("yes-no"), &model, &config, &save).unwrap();
    for model in ["mlm", "yes-no"] {
        tokenizer.save(path(model)).unwrap();
    }
    fs::write(path("rows.tsv"), "text\tlabel\na cat sat\tyes\ndogs ran\tno\n").unwrap();
    fs::write(path("corpus.txt"), TEXTS.join("\n\n").repeat(30)).unwrap();
    fs::write(path("run.toml"), RUN).unwrap();
    fs::write(path("task.toml"), TASK).unwrap();
    folder
}

const RUN: &str = r#"
corpus.files = ["corpus.txt"]
tokenizer = { kind = "train-wordpiece", vocab_size = 60 }
examples = { seq_len = 16, pairs.kind = "full-sentences" }
model = { preset = "tiny", max_positions = 16 }
train = { steps = 2, batch_size = 4 }
optimizer.lr = 1e-3
schedule.kind = "constant"
eval.heldout_fraction = 0.2
"#;

const TASK: &str = r#"
task = { kind = "classification", labels = ["no", "yes"] }
model.path = "yes-no"
data = { train = { files = ["rows.tsv"] }, dev = ["rows.tsv"] }
train = { epochs = 1, batch_size = 2 }
optimizer.lr = 1e-3
schedule.kind = "constant"
"#;

fn spoil(model: &Path, name: &str) {
    let file = model.join("model.safetensors");
    let mut tensors = read_tensors(&file).unwrap();
    let data = &tensors[name];
    let (mut values, shape) = (data.iter::<f32>().collect::<Vec<_>>(), data.shape().to_vec());
    values[17] = f32::NAN;
    tensors.insert(name.into(), burn::tensor::TensorData::new(values, shape));
    write_tensors(&file, &tensors, &[("format", "pt")]).unwrap();
}

#[test]
fn weights_that_are_not_finite_are_named() {
    let place = workplace();
    let folder = place.path();
    let name = "bert.encoder.layer.1.output.dense.weight";
    for model in ["mlm", "yes-no"] {
        spoil(&folder.join(model), name);
    }
    let told = |model: &str| {
        format!(
            "error: {model}/model.safetensors: tensor `{name}` is NaN at [0, 17], expected finite numbers: the file is \
             damaged, or the model's training diverged"
        )
    };
    for args in [&["embed", "--model", "mlm"][..], &["fill-mask", "--model", "mlm", "a [MASK] sat"]] {
        assert_eq!(error(&cloze(folder, args), 1), told("mlm"));
    }
    for args in [&["predict", "--model", "yes-no"][..], &["eval", "--model", "yes-no", "task.toml"]] {
        assert_eq!(error(&cloze(folder, args), 1), told("yes-no"), "{args:?}");
    }
}

#[test]
fn training_that_ends_in_infinite_weights_saves_no_model() {
    let place = workplace();
    let sets = ["--set", "optimizer.lr=1e300", "--set", "train.steps=1", "--out", "run"];
    let line = error(&cloze(place.path(), &[&["train", "run.toml"], &sets[..]].concat()), 1);
    assert!(line.contains("expected finite numbers") && line.contains("training diverged"), "{line}");
    assert!(!place.path().join("run/model").exists());
}

#[test]
fn sizes_that_do_not_fit_are_refused_before_anything_is_made() {
    let place = workplace();
    for (sets, keys) in [
        (&["model.d_model=1000000000"][..], "model.d_model"),
        (&["model.d_ff=1000000000"], "`model.d_ff` (1000000000)"),
        (&["model.n_layers=1000000000"], "`model.n_layers` is 1000000000"),
        (&["model.n_layers=10000", "model.d_model=8192"], "`model.n_layers` (10000)"),
        (&["model.max_positions=1000000000"], "`model.max_positions` (1000000000)"),
        (&["train.batch_size=1000000000"], "`train.batch_size` is 1000000000"),
        (&["train.batch_size=100000000"], "`train.batch_size` (100000000)"),
        (&["train.accumulate=1000000000", "train.batch_size=1000"], "`train.accumulate` (1000000000)"),
        (
            &["examples.seq_len=1000000000", "model.max_positions=1000000000", "train.batch_size=1"],
            "`model.max_positions` (1000000000)",
        ),
    ] {
        let mut args = vec!["train", "run.toml", "--out", "run"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let line = error(&cloze(place.path(), &args), 2);
        assert!(line.contains(keys), "{sets:?}: {line}");
        assert!(!place.path().join("run").exists(), "{sets:?}");
    }
    let output = cloze(place.path(), &["train", "run.toml", "--out", "run"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.starts_with("memory: ")).unwrap();
    assert!(
        line.starts_with("memory: about ")
            && line.contains("parameters 2 MB, optimiser 4 MB, gradients 2 MB"),
        "{line}"
    );
}

#[test]
fn a_model_that_could_not_be_saved_is_not_trained() {
    let place = workplace();
    let line =
        error(&cloze(place.path(), &["train", "run.toml", "--set", "model.norm=pre", "--out", "run"]), 2);
    assert_eq!(
        line,
        "error: --set model.norm=pre: `model.norm` is \"pre\"; expected \"post\": transformers has no other BERT, so such \
         a model cannot be saved"
    );
    assert!(!place.path().join("run").exists());
}

#[test]
fn a_file_of_weights_without_weights_is_not_converted() {
    let place = workplace();
    let folder = place.path();
    fs::remove_file(folder.join("mlm/model.safetensors")).unwrap();
    // The empty dictionary, pickled by the protocol of old files.
    let magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}(X\x0d\x00\x00\x00little_endian\x88u.";
    let empty = b"\x80\x02}.\x80\x02].";
    fs::write(folder.join("mlm/pytorch_model.bin"), [&magic[..], empty].concat()).unwrap();
    let line = error(&cloze(folder, &["convert", "--model", "mlm", "--out", "out"]), 1);
    let expected =
        "mlm/pytorch_model.bin: has no tensor of floating-point numbers, expected a model's weights";
    assert!(line.contains(expected), "{line}");
    assert!(!folder.join("out").exists());
}

#[test]
fn of_two_that_convert_into_one_folder_the_other_is_told_so() {
    let place = workplace();
    for round in 0..8 {
        let out = format!("out-{round}");
        let convert = || {
            let mut command = Command::new(PROGRAM);
            command.args(["convert", "--model", "mlm", "--out", &out]).current_dir(place.path());
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [convert(), convert()].map(|child| child.wait_with_output().unwrap());
        let (done, failed): (Vec<_>, Vec<_>) = both.iter().partition(|output| output.status.success());
        assert_eq!(done.len(), 1, "{both:?}");
        let text = String::from_utf8_lossy(&failed[0].stderr);
        let late = format!("error: another process wrote {out} in the meantime; it is left unchanged\n");
        let later = format!("error: {out} already exists: choose a new or empty folder\n");
        assert!(text == late || text == later, "{text}");
        assert!(place.path().join(&out).join("config.json").is_file());
    }
}

/// Runs the program where no file may be larger than `kilobytes`.
#[cfg(unix)]
fn with_small_files(folder: &Path, kilobytes: u32, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    // In POSIX's blocks of half a kilobyte.
    command.args(["-c", &format!("ulimit -f {}; exec \"$0\" \"$@\"", 2 * kilobytes), PROGRAM]);
    command.args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_gives_an_error_and_nothing_half_written() {
    let place = workplace();
    let folder = place.path();
    let line = error(&with_small_files(folder, 8, &["convert", "--model", "mlm", "--out", "out"]), 1);
    assert!(line.contains("cannot write ") && line.contains("model.safetensors: File too large"), "{line}");
    assert!(!folder.join("out").exists());
    let hidden = |folder: &Path| -> Vec<String> {
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.') && name != ".lock" || name.contains("partial")).collect()
    };
    assert_eq!(hidden(folder), Vec::<String>::new());

    let line = error(&with_small_files(folder, 1_000, &["train", "run.toml", "--out", "run"]), 1);
    assert!(line.contains("cannot write ") && line.contains("File too large"), "{line}");
    assert_eq!(hidden(&folder.join("run/checkpoints")), Vec::<String>::new());
}

/// Rows of a text and a label.
fn write_parquet(path: &Path) {
    let schema = "message m { REQUIRED BYTE_ARRAY text (STRING); REQUIRED BYTE_ARRAY label (STRING); }";
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let (schema, file) = (parse_message_type(schema).unwrap().into(), File::create(path).unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, properties.into()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for texts in [["a cat sat", "dogs ran"], ["yes", "no"]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&texts.map(ByteArray::from), None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

/// The Parquet library panics on this file: the first of its two texts reaches so far that the length of the second
/// one is cut off.
#[test]
fn a_parquet_file_that_the_library_panics_on_is_one_error_line() {
    let place = workplace();
    let path = place.path().join("damaged.parquet");
    write_parquet(&path);
    let mut bytes = fs::read(&path).unwrap();
    let text = bytes.windows(9).position(|window| window == b"a cat sat").unwrap();
    assert_eq!(bytes[text - 4..text], [9, 0, 0, 0]);
    let page = "a cat satdogs ran".len() + 4;
    bytes[text - 4] = page as u8 - 2;
    fs::write(&path, &bytes).unwrap();

    let expected = "its contents contradict each other";
    let corpus = [
        "tokenizer",
        "train",
        "--model",
        "wordpiece",
        "--vocab-size",
        "60",
        "--out",
        "tokenizer",
        "damaged.parquet",
    ];
    let rows = "data.dev=[\"damaged.parquet\"]";
    for args in [&corpus[..], &["eval", "--model", "yes-no", "task.toml", "--set", rows, "--out", "report"]] {
        let output = cloze(place.path(), args);
        let line = error(&output, 1);
        assert!(line.contains("damaged.parquet") && line.contains(expected), "{line}");
    }
}

/// The Parquet library panics when it writes this date as text.
#[test]
fn a_date_that_no_calendar_has_is_one_error_line() {
    let place = workplace();
    let schema = parse_message_type("message m { REQUIRED INT32 text (DATE); }").unwrap().into();
    let file = File::create(place.path().join("dates.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[i32::MAX], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let set = ["data.dev=[\"dates.parquet\"]", "data.train.columns={text = \"text\", label = \"text\"}"];
    let args =
        ["eval", "--model", "yes-no", "task.toml", "--set", set[0], "--set", set[1], "--out", "report"];
    let line = error(&cloze(place.path(), &args), 1);
    assert!(line.contains("unsupported Parquet value: one that cannot be printed"), "{line}");
}
