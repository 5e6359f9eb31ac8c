//! What the cases begin with: texts that the campaign writes, and tokenizers, models and runs that the program
//! itself makes of them, a few kilobytes each.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::case;
use super::formats::parquet;
use super::program::{self, Attempt};

/// The seeds' folder and the program.
pub struct World {
    folder: PathBuf,
    pub program: PathBuf,
    /// Runs that were never interrupted, made when they are first asked for.
    whole: Mutex<HashMap<String, Arc<Mutex<Option<Duration>>>>>,
}

/// A kind of run, small enough for a second.
pub struct Run {
    pub name: &'static str,
    config: &'static str,
    /// Settings over the file's.
    pub sets: &'static [&'static str],
}

/// The setting that makes the translation model a recurrent one.
const RECURRENT: &str = "model={kind=\"recurrent\",d_embedding=8,d_model=16,dropout=0.2}";

/// The runs that are killed, filled disks under, resumed.
pub const RUNS: [Run; 33] = [
    Run { name: "pretraining", config: "pretrain.toml", sets: &[] },
    Run { name: "pretraining-lamb", config: "pretrain.toml", sets: &["optimizer.algorithm=\"lamb\""] },
    Run {
        name: "pretraining-bf16",
        config: "pretrain.toml",
        sets: &["train.precision=\"bf16\"", "train.workers=2"],
    },
    Run {
        name: "continued",
        config: "pretrain.toml",
        sets: &["tokenizer={kind=\"checkpoint\"}", "model={path=\"seeds/mlm\"}"],
    },
    Run { name: "classification", config: "classification.toml", sets: &[] },
    Run {
        name: "lora",
        config: "classification.toml",
        sets: &["model.lora={rank=2,dropout=0.1}", "data.dev=[]", "data.dev_fraction=0.25"],
    },
    Run { name: "frozen", config: "classification.toml", sets: &["model.freeze=[\"bert.*\"]"] },
    Run { name: "tagging-crf", config: "tagging.toml", sets: &["task.crf=true"] },
    Run { name: "answers", config: "answers.toml", sets: &["train.precision=\"bf16\""] },
    Run { name: "choices", config: "choices.toml", sets: &["optimizer.algorithm=\"lamb\""] },
    Run { name: "left-to-right", config: "left-to-right.toml", sets: &[] },
    Run {
        name: "llama",
        config: "left-to-right.toml",
        sets: &["model.shape=\"llama\"", "blocks.order=\"random\"", "train.precision=\"bf16\""],
    },
    Run { name: "translation", config: "translation.toml", sets: &[] },
    Run {
        name: "recurrent-translation",
        config: "translation.toml",
        sets: &[RECURRENT, "average={kind=\"ema\",decay=0.9}"],
    },
    Run {
        name: "convolutional-translation",
        config: "translation.toml",
        sets: &["model={kind=\"convolutional\",n_layers=2,d_embedding=8,d_model=16,dropout=0.2}"],
    },
    Run {
        name: "replaced-tokens",
        config: "pretrain.toml",
        sets: &[
            "objective={kind=\"replaced-tokens\",generator_size=0.5}",
            "examples.pairs={kind=\"doc-sentences\"}",
        ],
    },
    Run {
        name: "span-boundary",
        config: "pretrain.toml",
        sets: &[
            "objective={kind=\"span-boundary\"}",
            "examples.pairs={kind=\"doc-sentences\"}",
            "examples.masking={unit=\"span\"}",
        ],
    },
    Run {
        name: "albert",
        config: "pretrain.toml",
        sets: &[
            "model.family=\"albert\"",
            "model.d_embedding=8",
            "examples.pairs={kind=\"sentence-order\"}",
            "examples.masking={unit=\"n-gram\"}",
        ],
    },
    Run {
        name: "modernbert",
        config: "pretrain.toml",
        sets: &[
            "model={family=\"modernbert\",n_layers=2,d_model=16,n_heads=2,d_ff=24,max_positions=64,local_window=8,global_every=2}",
            "examples.pairs={kind=\"full-sentences\"}",
            "optimizer.algorithm=\"stable-adamw\"",
        ],
    },
    Run {
        name: "unilm",
        config: "pretrain.toml",
        sets: &[
            "examples.attention={bidirectional=1,left_to_right=1,right_to_left=1,sequence_to_sequence=2}",
        ],
    },
    Run { name: "permutation", config: "permutation.toml", sets: &[] },
    Run { name: "denoising-bart", config: "denoising.toml", sets: &[] },
    Run {
        name: "denoising-t5",
        config: "denoising.toml",
        sets: &[
            "denoising={kind=\"t5\"}",
            "model={kind=\"t5\",n_layers=1,d_model=16,n_heads=2,gated=true,d_ff=24,max_positions=32}",
        ],
    },
    Run { name: "translation-language-model", config: "languages.toml", sets: &[] },
    Run { name: "awd-lstm", config: "awd-lstm.toml", sets: &[] },
    Run { name: "elmo", config: "elmo.toml", sets: &[] },
    Run {
        name: "left-to-right-wordpiece",
        config: "left-to-right.toml",
        sets: &["tokenizer={kind=\"train-wordpiece\",vocab_size=150}"],
    },
    Run { name: "embedding", config: "embedding.toml", sets: &[] },
    Run {
        name: "simcse",
        config: "embedding.toml",
        sets: &["task.loss={kind=\"simcse\",temperature=0.05}", "model.dropout.hidden=0.1"],
    },
    Run { name: "bilstm", config: "bilstm.toml", sets: &[] },
    Run {
        name: "images",
        config: "images.toml",
        sets: &[
            "train.workers=2",
            "augment.flip=0.5",
            "mix={mixup_alpha=0.5,cutmix_alpha=1.0}",
            "model.stochastic_depth=0.2",
            "model.n_layers=2",
        ],
    },
    Run { name: "ulmfit", config: "classification.toml", sets: &["model.path=\"seeds/awd-lstm\""] },
    Run {
        name: "elmo-tagging",
        config: "tagging.toml",
        sets: &["model.path=\"seeds/elmo\"", "task.crf=true"],
    },
];

impl Run {
    /// `cloze train` of this run into `out`, in a folder that has the [`World::bring_data`].
    pub fn attempt(&self, out: &str) -> Attempt {
        let mut args = vec!["train".to_owned(), format!("seeds/{}", self.config), "--out".into(), out.into()];
        for set in self.sets {
            args.extend(["--set".to_owned(), set.to_string()]);
        }
        Attempt::new(args)
    }
}

/// A picture of 32 × 24 pixels in every format; the first two are sound for every program.
pub const PICTURES: [(&str, &[u8]); 12] = [
    ("colour.png", include_bytes!("pictures/colour.png")),
    ("grey.png", include_bytes!("pictures/grey.png")),
    ("colour.bmp", include_bytes!("pictures/colour.bmp")),
    ("colour.jpg", include_bytes!("pictures/colour.jpg")),
    ("turned.jpg", include_bytes!("pictures/turned.jpg")),
    ("cmyk.jpg", include_bytes!("pictures/cmyk.jpg")),
    ("colour.webp", include_bytes!("pictures/colour.webp")),
    ("exact.webp", include_bytes!("pictures/exact.webp")),
    ("palette.gif", include_bytes!("pictures/palette.gif")),
    ("moving.gif", include_bytes!("pictures/moving.gif")),
    ("alpha.png", include_bytes!("pictures/alpha.png")),
    ("sixteen.png", include_bytes!("pictures/sixteen.png")),
];

/// What makes a pretraining and a fine-tuning run as short as they get. The world's own models are made so, which
/// shows that such runs succeed when nothing is wrong.
pub const SHORT: (&str, &str) = ("train.steps=3", "train.epochs=1");

const WHO: [&str; 6] = ["The senate", "A farmer", "Our nation", "The bank", "Ann", "Rome"];
const WHAT: [&str; 6] = ["law", "harvest", "road", "debt", "treaty", "river"];

/// A sentence of nine words or so, another one for each `i`.
pub fn sentence(i: usize) -> String {
    format!("{} saw the {} of year {} and spoke of it.", WHO[i % 6], WHAT[i / 2 % 6], 1800 + i % 40)
}

/// Documents of sentences, blank lines between them.
pub fn corpus(documents: usize) -> String {
    let document = |d: usize| (0..10).map(|s| sentence(d * 7 + s) + "\n").collect::<String>() + "\n";
    (0..documents).map(document).collect()
}

/// Rows of text and label.
pub fn rows(n: usize) -> Vec<Vec<String>> {
    (0..n).map(|i| vec![sentence(i), ["no", "yes"][i % 2].to_owned()]).collect()
}

/// Sentences with tags, as CoNLL has them.
pub fn conll(n: usize) -> String {
    let tag = |word: &str| match word.trim_end_matches('.') {
        "Rome" => "B-LOC",
        "Ann" => "B-PER",
        "senate" | "nation" | "bank" => "B-ORG",
        _ => "O",
    };
    let tagged =
        |i| sentence(i).split(' ').map(|word| format!("{word}\t{}\n", tag(word))).collect::<String>() + "\n";
    (0..n).map(tagged).collect()
}

/// Questions with their answers, as SQuAD has them.
pub fn squad(n: usize) -> Value {
    let paragraph = |i: usize| {
        let context = format!("{} {}", sentence(i), sentence(i + 5));
        let answer = WHAT[i / 2 % 6];
        let start = context.find(answer).unwrap_or(0);
        json!({"context": context, "qas": [{"id": format!("q{i}"), "question": format!("What did {} see?", WHO[i % 6]),
            "answers": [{"text": answer, "answer_start": start}]}]})
    };
    json!({"version": "1.1", "data": [{"title": "t", "paragraphs": (0..n).map(paragraph).collect::<Vec<_>>()}]})
}

/// Rows of a context, two choices and the number of the right one.
fn choices(n: usize) -> String {
    let row = |i: usize| {
        json!({"context": sentence(i), "choices": [sentence(i + 1), sentence(i + 2)], "label": i % 2})
            .to_string()
            + "\n"
    };
    (0..n).map(row).collect()
}

/// Rows between `delimiter`s under a header.
pub fn delimited(rows: &[Vec<String>], delimiter: &str) -> String {
    let rows = rows.iter().map(|row| row.join(delimiter) + "\n");
    std::iter::once(["text", "label"].join(delimiter) + "\n").chain(rows).collect()
}

const PRETRAIN: &str = r#"corpus.files = ["seeds/corpus.txt"]
tokenizer = { kind = "train-wordpiece", vocab_size = 200 }
examples = { seq_len = 32, pairs.kind = "next-sentence" }
train = { steps = 80, batch_size = 4, accumulate = 2 }
optimizer.lr = 1e-3
schedule = { kind = "linear", warmup_steps = 2 }
eval = { heldout_fraction = 0.2, every = 7, max_examples = 16 }
checkpoint = { every = 8, keep_last = 2 }
log.every = 5
model = { n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32, max_positions = 64 }
"#;

/// A language model of characters.
const LEFT_TO_RIGHT: &str = r#"corpus.files = ["seeds/corpus.txt"]
objective.kind = "left-to-right"
tokenizer.kind = "train-characters"
blocks.seq_len = 24
model = { n_layers = 1, d_model = 16, n_heads = 2, max_positions = 32 }
train = { steps = 80, batch_size = 4 }
optimizer.lr = 1e-3
schedule = { kind = "linear", warmup_steps = 2 }
eval = { every = 7, heldout_fraction = 0.2, max_blocks = 16 }
checkpoint = { every = 8, keep_last = 2 }
log.every = 5
"#;

/// What runs on blocks of text have in common.
const BLOCKS: &str = r#"corpus.files = ["seeds/corpus.txt"]
tokenizer = { kind = "train-byte-bpe", vocab_size = 300 }
train = { steps = 80, batch_size = 4 }
optimizer.lr = 1e-3
schedule = { kind = "linear", warmup_steps = 2 }
checkpoint = { every = 8, keep_last = 2 }
log.every = 5
"#;

/// Runs on blocks of text: what each has beside them.
const OF_BLOCKS: [(&str, &str); 4] = [
    (
        "permutation.toml",
        "objective.kind = \"permutation\"\nsegments = { seq_len = 16, memory_len = 8 }\n\
         eval = { every = 7, heldout_fraction = 0.2, max_blocks = 16 }\n\
         model = { n_layers = 1, d_model = 16, n_heads = 2, dropout = 0.1 }\n",
    ),
    (
        "denoising.toml",
        "objective.kind = \"denoising\"\nexamples.seq_len = 24\n\
         eval = { every = 7, heldout_fraction = 0.2, max_examples = 16 }\n\
         denoising = { kind = \"bart\", noises = [{ kind = \"sentence-permutation\" }, { kind = \"infilling\", share = 0.3, mean_span = 3.0 }] }\n\
         model = { kind = \"bart\", n_layers = 1, d_model = 16, n_heads = 2, d_ff = 24, max_positions = 32 }\n",
    ),
    (
        "awd-lstm.toml",
        "objective.kind = \"left-to-right\"\nstreams.seq_len = 12\n\
         eval = { every = 7, heldout_fraction = 0.2, max_blocks = 16 }\n\
         model = { d_embedding = 8, d_hidden = 16, n_layers = 2 }\n",
    ),
    (
        "elmo.toml",
        "objective.kind = \"bidirectional-language-model\"\nblocks.seq_len = 12\n\
         eval = { every = 7, heldout_fraction = 0.2, max_blocks = 16 }\n\
         model = { max_characters = 10, filters = [[1, 4], [2, 4]], n_highway = 1, d_hidden = 16, d_projection = 8, n_layers = 1, dropout = 0.1 }\n",
    ),
];

/// One language after another, and translations.
const LANGUAGES: &str = r#"objective = { kind = "translation-language-model", parallel = [
    { languages = ["en", "de"], text = { source = ["seeds/train.en"], target = ["seeds/train.de"] } },
] }
corpus = { languages = [{ name = "en", files = ["seeds/corpus.txt"] }, { name = "de", files = ["seeds/corpus.de.txt"] }], sampling_alpha = 0.7 }
tokenizer = { kind = "train-wordpiece", vocab_size = 250 }
examples = { seq_len = 32, pairs.kind = "full-sentences" }
train = { steps = 80, batch_size = 4 }
optimizer.lr = 1e-3
schedule = { kind = "linear", warmup_steps = 2 }
eval = { heldout_fraction = 0.2, every = 7, max_examples = 16 }
checkpoint = { every = 8, keep_last = 2 }
log.every = 5
model = { n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32, max_positions = 64 }
"#;

/// Sentences with what stands for their translations.
pub fn pairs(n: usize) -> Vec<Vec<String>> {
    let translated = |text: &str| text.split(' ').rev().collect::<Vec<_>>().join(" ").to_lowercase();
    (0..n).map(|i| vec![sentence(i), translated(&sentence(i))]).collect()
}

const TRANSLATION: &str = r#"tokenizer = { kind = "train-bpe", vocab_size = 120 }
model = { kind = "transformer", n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32 }
train = { steps = 80, batch_tokens = 256, label_smoothing = 0.1 }
optimizer.lr = 1e-3
schedule = { kind = "noam", warmup_steps = 2 }
average = { kind = "last", checkpoints = 3, every = 5 }
eval = { every = 20 }
checkpoint = { every = 8, keep_last = 2 }
log.every = 5
[parallel]
source = "en"
target = "de"
max_len = 64
train = { source = ["seeds/train.en"], target = ["seeds/train.de"] }
dev = { source = ["seeds/dev.en"], target = ["seeds/dev.de"] }
"#;

const IMAGES: &str = r#"task.kind = "image-classification"
model = { kind = "vit", patch_size = 4, n_layers = 1, d_model = 16, n_heads = 2, d_ff = 24 }
optimizer.lr = 1e-3
train = { epochs = 5, batch_size = 2 }
schedule = { kind = "linear", warmup_steps = 5 }
checkpoint = { every = 4, keep_last = 2 }
eval.per_epoch = 2
[data]
train.files = ["seeds/train-images-idx3-ubyte"]
dev = ["seeds/dev-images-idx3-ubyte"]
test = ["seeds/dev-images-idx3-ubyte"]
size = [8, 8]
"#;

/// MNIST's two files: so many images of 6 × 5 pixels, and their classes.
fn digits(n: usize) -> [Vec<u8>; 2] {
    let header = |magic: u32, sizes: &[usize]| {
        let sizes = sizes.iter().map(|size| *size as u32);
        std::iter::once(magic).chain(sizes).flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
    };
    let pixels = (0..n * 30).map(|at| (at / 30 % 3 * 80 + at % 30) as u8);
    let images = header(2051, &[n, 6, 5]).into_iter().chain(pixels).collect();
    let classes = header(2049, &[n]).into_iter().chain((0..n).map(|at| (at % 3) as u8)).collect();
    [images, classes]
}

/// A fine-tuning configuration.
fn tuning(task: &str, data: &str) -> String {
    format!(
        "task = {{ {task} }}\nmodel.path = \"seeds/mlm\"\noptimizer.lr = 1e-3\ntrain = {{ epochs = 5, batch_size = 2 }}\n\
         schedule = {{ kind = \"linear\", warmup_steps = 5 }}\ncheckpoint = {{ every = 4, keep_last = 2 }}\n\
         eval.per_epoch = 2\n[data]\nmax_len = 48\ntrain.files = [\"seeds/train.{data}\"]\ndev = [\"seeds/dev.{data}\"]\n\
         test = [\"seeds/dev.{data}\"]\n"
    )
}

impl World {
    /// Makes all seeds in `folder`, which is emptied first.
    ///
    /// # Errors
    /// A call of the program that fails: there is then nothing to attack.
    pub fn new(folder: PathBuf, program: PathBuf) -> Result<Self> {
        case::remove(&folder)?;
        fs::create_dir_all(folder.join("seeds"))?;
        let folder = folder.canonicalize()?;
        let world = Self { folder, program, whole: Mutex::default() };
        world.texts()?;
        world.models()?;
        Ok(world)
    }

    /// A path in the world's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads a seed.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.path(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Reads a seed that is JSON.
    pub fn json(&self, name: &str) -> Result<Value> {
        serde_json::from_slice(&self.read(name)?).with_context(|| name.to_owned())
    }

    /// The seeds that runs read, by the names that their configurations have for them.
    pub fn bring_data(&self, case: &case::Case<'_>) -> Result<()> {
        for name in fs::read_dir(self.path("seeds"))?.flatten() {
            if name.path().is_file() {
                case::copy(&name.path(), &case.path("seeds").join(name.file_name()))?;
            }
        }
        ["mlm", "awd-lstm", "elmo"].iter().try_for_each(|name| {
            let seed = format!("seeds/{name}");
            case.bring(&seed, &seed)
        })
    }

    /// The folder of a run that was never interrupted, and how long it took.
    pub fn whole(&self, run: &Run) -> Result<(PathBuf, Duration)> {
        let slot = match self.whole.lock() {
            Ok(mut whole) => whole.entry(run.name.to_owned()).or_default().clone(),
            Err(_) => bail!("a thread of the campaign panicked"),
        };
        let Ok(mut taken) = slot.lock() else { bail!("a thread of the campaign panicked") };
        let out = format!("whole/{}", run.name);
        let time = match *taken {
            Some(time) => time,
            None => *taken.insert(self.call(run.attempt(&out))?),
        };
        Ok((self.path(&out), time))
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path("seeds").join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        Ok(fs::write(path, bytes)?)
    }

    /// Calls the program in the world's folder, where it has to succeed.
    fn call(&self, attempt: Attempt) -> Result<Duration> {
        let streams = self.path("call");
        let ran = program::run(&self.program, &self.folder, &streams, &attempt)?;
        if !ran.succeeded() {
            bail!("{} fails without an attack:\n{}", attempt.shown(&self.program, None), ran.error());
        }
        Ok(ran.time)
    }

    fn cloze(&self, args: &[&str]) -> Result<Duration> {
        self.call(Attempt::new(args.iter().copied()))
    }

    fn texts(&self) -> Result<()> {
        self.write("corpus.txt", corpus(40))?;
        self.write("corpus.de.txt", corpus(40).to_lowercase())?;
        self.write("other.txt", (0..300).map(|i| format!("zebra quagga {i} okapi\n")).collect::<String>())?;
        for (split, n) in [("train", 16), ("dev", 6)] {
            let file = |ending: &str| format!("{split}.{ending}");
            self.write(&file("tsv"), delimited(&rows(n), "\t"))?;
            self.write(&file("csv"), delimited(&rows(n), ","))?;
            let line = |row: &Vec<String>| json!({"text": row[0], "label": row[1]}).to_string() + "\n";
            self.write(&file("jsonl"), rows(n).iter().map(line).collect::<String>())?;
            let row =
                |row: &Vec<String>| format!("<r><text>{}</text><label>{}</label></r>\n", row[0], row[1]);
            self.write(
                &file("xml"),
                format!(
                    "<?xml version=\"1.0\"?>\n<all>{}</all>\n",
                    rows(n).iter().map(row).collect::<String>()
                ),
            )?;
            self.write(&file("parquet"), parquet::file(&["text", "label"], &rows(n)))?;
            self.write(&file("conll"), conll(n))?;
            self.write(&file("json"), squad(n).to_string())?;
            self.write(&file("choices.jsonl"), choices(n))?;
            for (language, at) in [("en", 0), ("de", 1)] {
                let side = pairs(n).iter().map(|row| row[at].clone() + "\n").collect::<String>();
                self.write(&file(language), side)?;
            }
        }
        self.write("pretrain.toml", PRETRAIN)?;
        self.write("left-to-right.toml", LEFT_TO_RIGHT)?;
        self.write("translation.toml", TRANSLATION)?;
        for (name, section) in OF_BLOCKS {
            self.write(name, section.to_owned() + BLOCKS)?;
        }
        self.write("languages.toml", LANGUAGES)?;
        let loss = "kind = \"embedding\", loss = { kind = \"cosent\", temperature = 0.05 }";
        let columns = "train.columns = { text = \"text\", pair = \"pair\", label = \"label\" }\n";
        self.write("embedding.toml", tuning(loss, "pairs.tsv") + columns)?;
        for (split, n) in [("train", 16), ("dev", 6)] {
            let row = |i: usize| format!("{}\t{}\t{}.5\n", sentence(i), sentence(i + 1), i % 5);
            let rows = "text\tpair\tlabel\n".to_owned() + &(0..n).map(row).collect::<String>();
            self.write(&format!("{split}.pairs.tsv"), rows)?;
        }
        let recurrent = "model.recurrent = { cell = \"lstm\", d_embedding = 8, d_model = 16, dropout = 0.2, pooling = \"max\", \
                         tokenizer = { kind = \"train-wordpiece\", vocab_size = 100 } }";
        let bilstm = tuning("kind = \"classification\"", "tsv");
        self.write("bilstm.toml", bilstm.replace("model.path = \"seeds/mlm\"", recurrent))?;
        self.write("classification.toml", tuning("kind = \"classification\"", "tsv"))?;
        self.write("tagging.toml", tuning("kind = \"tagging\"", "conll"))?;
        self.write("images.toml", IMAGES)?;
        for (split, n) in [("train", 16), ("dev", 6)] {
            let [images, classes] = digits(n);
            self.write(&format!("{split}-images-idx3-ubyte"), images)?;
            self.write(&format!("{split}-labels-idx1-ubyte"), classes)?;
        }
        self.write("answers.toml", tuning("kind = \"answers\", stride = 8, max_question = 16", "json"))?;
        self.write("choices.toml", tuning("kind = \"multiple-choice\"", "choices.jsonl"))?;
        let prompt = "kind = \"prompt\", template = \"{text} It was {mask}.\", verbaliser = { no = [\"law\"], yes = [\"debt\", \"road\"] }";
        self.write("prompt.toml", tuning(prompt, "tsv"))?;
        let regression = tuning("kind = \"regression\"", "numbers.tsv");
        self.write("regression.toml", regression)?;
        for split in ["train", "dev"] {
            let rows: Vec<Vec<String>> = (0..12).map(|i| vec![sentence(i), format!("{}.5", i % 5)]).collect();
            self.write(&format!("{split}.numbers.tsv"), delimited(&rows, "\t"))?;
        }
        Ok(())
    }

    fn models(&self) -> Result<()> {
        for (model, size) in [("wordpiece", "200"), ("bpe", "120"), ("byte-bpe", "400")] {
            let out = format!("seeds/tokenizers/{model}");
            let cased = if model == "wordpiece" { "--lowercase" } else { "--cased" };
            self.cloze(&[
                "tokenizer",
                "train",
                "--model",
                model,
                "--vocab-size",
                size,
                cased,
                "--out",
                &out,
                "seeds/corpus.txt",
            ])?;
        }
        self.cloze(&["train", "seeds/pretrain.toml", "--out", "runs/mlm", "--set", SHORT.0])?;
        case::copy(&self.path("runs/mlm/model"), &self.path("seeds/mlm"))?;
        for task in ["classification", "tagging", "answers", "choices", "regression", "prompt", "images"] {
            let (config, run) = (format!("seeds/{task}.toml"), format!("runs/{task}"));
            self.cloze(&["train", &config, "--out", &run, "--set", SHORT.1])?;
            case::copy(&self.path(&format!("{run}/model")), &self.path(&format!("models/{task}")))?;
        }
        for name in ["awd-lstm", "elmo"] {
            let (config, run) = (format!("seeds/{name}.toml"), format!("runs/{name}"));
            self.cloze(&["train", &config, "--out", &run, "--set", SHORT.0])?;
            case::copy(&self.path(&format!("{run}/model")), &self.path(&format!("seeds/{name}")))?;
        }
        for (config, model, set) in [
            ("left-to-right", "left-to-right", None),
            ("left-to-right", "llama", Some("model.shape=\"llama\"")),
            ("translation", "translator", None),
            ("translation", "recurrent-translator", Some(RECURRENT)),
        ] {
            let (config, run) = (format!("seeds/{config}.toml"), format!("runs/{model}"));
            let mut args: Vec<&str> = vec!["train", &config, "--out", &run, "--set", SHORT.0];
            args.extend(set.iter().flat_map(|set| ["--set", *set]));
            self.cloze(&args)?;
            case::copy(&self.path(&format!("{run}/model")), &self.path(&format!("models/{model}")))?;
        }
        case::copy(&self.path("seeds/mlm"), &self.path("models/mlm"))?;
        self.cloze(&[
            "convert",
            "--model",
            "seeds/mlm",
            "--out",
            "models/shards",
            "--max-shard-size",
            "6KB",
        ])?;
        // A run that is not done: the same config's, its result and last checkpoint taken away.
        let (whole, _) = self.whole(&RUNS[0])?;
        case::copy(&whole, &self.path("unfinished"))?;
        case::remove(&self.path("unfinished/model"))?;
        if let Some(last) = checkpoints(&self.path("unfinished")).last() {
            case::remove(last)?;
        }
        Ok(())
    }
}

/// The folders of a run's checkpoints, oldest first.
pub fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-")));
    found.sort();
    found
}
