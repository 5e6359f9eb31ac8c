//! The commands of README.md and of the book run as they are written there.
//!
//! A page's blocks of `sh` run with `bash -eu -o pipefail`, in their order and in one folder, so that a block finds
//! the files of those before it. The folder is like a clone: it has `configs/` and `datasets/`, and beside it lies
//! `../shared` with small stand-ins for public data sets. `cloze` is the program under test, `cargo xtask train` is
//! `cloze train`, and models that a page calls by their public names are small ones with random weights.
//!
//! A comment in HTML before a block says how it runs. Before a table it makes a block of the commands that stand there
//! as code.
//!
//! | comment | meaning |
//! | --- | --- |
//! | none | as written, in CI |
//! | `<!-- run: steps=N -->` | in CI; `cloze train` takes N steps, or one epoch to fine-tune, and `cloze probe` one epoch |
//! | `<!-- run: KEY=VALUE … -->` | in CI, each `cloze train` and `cloze probe` with `--set KEY=VALUE`; `steps=N` may be among them |
//! | `<!-- run: full -->` | only in `cargo xtask check --full`; `KEY=VALUE` may follow |
//! | `<!-- run: python -->` | the same, if `CLOZE_PYTHON` names an interpreter with transformers |
//! | `<!-- run: no, because … -->` | never; [`NOT_RUN`] counts them |
//! | `<!-- file: NAME -->` | the block, of any language, is a file that the page's reader has |
//!
//! `check --full` runs all pages anew, with the real models and data that lie in `../shared`.

use crate::library::models;
use crate::workplace::{self, Workplace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Pages with commands, and the names of their tests.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];

        $(#[test]
        fn $name() {
            run($page, false);
        })*

        /// Everything, with real models and data where they lie beside the repository.
        mod full {
            $(#[test]
            #[ignore = "minutes: cargo xtask check --full"]
            fn $name() {
                super::run($page, true);
            })*
        }
    };
}

pages! {
    readme: "README.md",
    first_run: "docs/src/first-run.md",
    learn_attention: "docs/src/learn/attention.md",
    learn_bert: "docs/src/learn/bert.md",
    learn_family: "docs/src/learn/family.md",
    learn_language_models: "docs/src/learn/language-models.md",
    learn_seq2seq: "docs/src/learn/seq2seq.md",
    learn_text_to_ids: "docs/src/learn/text-to-ids.md",
    learn_vectors: "docs/src/learn/vectors.md",
    reference_commands: "docs/src/reference/commands.md",
    use_answer: "docs/src/use/answer.md",
    use_captions: "docs/src/use/captions.md",
    use_denoising: "docs/src/use/denoising.md",
    use_distil: "docs/src/use/distil.md",
    use_domain: "docs/src/use/domain.md",
    use_embed: "docs/src/use/embed.md",
    use_evaluate_embeddings: "docs/src/use/evaluate-embeddings.md",
    use_export: "docs/src/use/export.md",
    use_fine_tune: "docs/src/use/fine-tune.md",
    use_glue: "docs/src/use/glue.md",
    use_gpu: "docs/src/use/gpu.md",
    use_images: "docs/src/use/images.md",
    use_inspect: "docs/src/use/inspect.md",
    use_knowledge: "docs/src/use/knowledge.md",
    use_language_models: "docs/src/use/language-models.md",
    use_lexicon: "docs/src/use/lexicon.md",
    use_likelihood: "docs/src/use/likelihood.md",
    use_map: "docs/src/use/map.md",
    use_pretrain: "docs/src/use/pretrain.md",
    use_probe: "docs/src/use/probe.md",
    use_prune: "docs/src/use/prune.md",
    use_python: "docs/src/use/python.md",
    use_quantize: "docs/src/use/quantize.md",
    use_rerank: "docs/src/use/rerank.md",
    use_score: "docs/src/use/score.md",
    use_search: "docs/src/use/search.md",
    use_senses: "docs/src/use/senses.md",
    use_serve: "docs/src/use/serve.md",
    use_tables: "docs/src/use/tables.md",
    use_tag: "docs/src/use/tag.md",
    use_tokenizers: "docs/src/use/tokenizers.md",
    use_train_embeddings: "docs/src/use/train-embeddings.md",
    use_train_translator: "docs/src/use/train-translator.md",
    use_transfer: "docs/src/use/transfer.md",
    use_translate: "docs/src/use/translate.md",
}

/// Blocks that nothing runs, by page.
const NOT_RUN: &[(&str, usize)] = &[
    ("README.md", 1),
    ("docs/src/build/parts.md", 1),
    ("docs/src/use/captions.md", 1),
    ("docs/src/use/export.md", 3),
    ("docs/src/use/glue.md", 1),
    ("docs/src/use/gpu.md", 1),
    ("docs/src/use/ranks.md", 5),
];

/// `cloze`, but for its first line, which names the program, and its last: a marked block's runs are short, and a
/// service is stopped as soon as it is ready.
const CLOZE: &str = r#"
set -f
if [ "${1-}" = serve ]; then
  said=$(mktemp)
  "$real" "$@" --port 0 2> "$said" &
  until grep -q '^ready: ' "$said"; do
    if ! kill -0 $! 2> /dev/null; then
      cat "$said" >&2
      exit 1
    fi
    sleep 0.1
  done
  kill $!
  wait $!
  exit
fi
words=()
for word; do
  # The small models have two layers.
  case $word in model.layers=*) word='model.layers=[1]' ;; esac
  words+=("$word")
done
set -- "${words[@]}"
case ${1-} in
  probe) short='probe.epochs=1 structure.epochs=1' ;;
  train)
    short='train.epochs=1 schedule.warmup_steps=1'
    if [ -f "$2" ] && ! grep -q '^\[task\]\|^task\.' "$2"; then short='train.steps=N schedule.warmup_steps=1'; fi
    # As many scenes are drawn as are asked for.
    if [ -f "$2" ] && grep -q 'kind = "scenes"' "$2"; then
      short='train.epochs=1 schedule.warmup_steps=1 data.source.train=24 data.source.dev=6 data.source.test=0 data.size=[32,32]'
    fi ;;
  *) PAGE_SETS= ;;
esac
for value in $PAGE_SETS; do
  case $1,$value in
    *,steps=*) for key in $short; do set -- "$@" --set "${key/N/${value#*=}}"; done ;;
    probe,probe.* | probe,structure.* | probe,geometry.*) set -- "$@" --set "$value" ;;
    probe,*) ;;
    *) set -- "$@" --set "$value" ;;
  esac
done
"#;

/// `cargo`, but for its last two lines, which are for `check --full`.
const CARGO: &str = r#"
if [ "${1-} ${2-}" = 'xtask train' ]; then
  shift 2
  case ${1-} in '' | -*) set -- configs/bert-tiny-sample.toml "$@" ;; esac
  exec cloze train "$@"
fi
if [ -z "$PAGE_FULL" ]; then
  echo "CI runs no \`cargo ${1-}\` of a page: mark it \`run: full\` or \`run: no, because …\`" >&2
  exit 1
fi
"#;

/// How a block runs.
#[derive(Debug, PartialEq)]
enum Runs {
    Always,
    Full,
    /// As `Full`, with an interpreter.
    Python,
    Never,
}

/// Commands that run together.
#[derive(Debug, PartialEq)]
struct Block {
    /// The line of the page on which the commands begin, from 1.
    line: usize,
    runs: Runs,
    /// What `--set` gets in addition.
    sets: Vec<String>,
    commands: String,
}

#[derive(Debug, Default, PartialEq)]
struct Page {
    blocks: Vec<Block>,
    files: Vec<(String, String)>,
}

impl Page {
    /// # Panics
    /// On a comment that means nothing, and on commands in a block that would not be run.
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut note = None::<&str>;
        let mut lines = (1..).zip(text.lines()).peekable();
        while let Some((number, line)) = lines.next() {
            let comment = line.strip_prefix("<!--").and_then(|line| line.trim_end().strip_suffix("-->"));
            if let Some(comment) = comment.map(str::trim) {
                let is_note = comment.starts_with("run:") || comment.starts_with("file:");
                assert!(note.is_none() || !is_note, "line {number}: two comments for one block");
                note = is_note.then_some(comment).or(note);
            } else if line.starts_with("```") {
                // A longer fence may have blocks in it.
                let (fence, language) = line.split_at(line.len() - line.trim_start_matches('`').len());
                let inside = std::iter::from_fn(|| lines.next_if(|(_, line)| *line != fence));
                let commands: String = inside.map(|(_, line)| format!("{line}\n")).collect();
                lines.next();
                page.block(number + 1, language, note.take(), commands);
            } else if line.starts_with('|') {
                let below = std::iter::from_fn(|| lines.next_if(|(_, line)| line.starts_with('|')));
                let rows = std::iter::once(line).chain(below.map(|(_, line)| line));
                let commands: String = rows.flat_map(in_row).map(|command| command + "\n").collect();
                if let Some(note) = note.take() {
                    page.block(number, "sh", Some(note), commands);
                }
            } else {
                let in_list = |c: char| c.is_ascii_digit() || " -*>.".contains(c);
                let fence = line.trim_start_matches(in_list).starts_with("```");
                assert!(!fence, "line {number}: a block in a list is not run; begin it at the margin");
                if let Some(note) = note.filter(|_| !line.is_empty()) {
                    panic!("line {number}: no block after `{note}`");
                }
            }
        }
        assert_eq!(note, None, "no block after the comment");
        page
    }

    fn block(&mut self, line: usize, language: &str, note: Option<&str>, commands: String) {
        if let Some(name) = note.and_then(|note| note.strip_prefix("file:")) {
            self.files.push((name.trim().to_owned(), commands));
            return;
        }
        let unmarked = ["", "bash", "console", "shell", "shell-session", "zsh"];
        assert!(
            !unmarked.contains(&language),
            "line {line}: a block of `{language}`; expected `sh` or `text`"
        );
        if language != "sh" {
            assert_eq!(note, None, "line {line}: a block of `{language}` is not run");
            return;
        }
        assert!(!commands.is_empty(), "line {line}: no commands");
        let how = note.and_then(|note| note.strip_prefix("run:")).unwrap_or_default().trim();
        let (mut runs, mut sets) = (Runs::Always, Vec::new());
        if let Some(reason) = how.strip_prefix("no, because ") {
            assert!(reason.len() > 10, "line {line}: why is it not run?");
            runs = Runs::Never;
        } else {
            for word in how.split_whitespace() {
                match word {
                    "full" => runs = Runs::Full,
                    "python" => runs = Runs::Python,
                    set if set.contains('=') => sets.push(set.to_owned()),
                    other => panic!(
                        "line {line}: `run: {other}`; expected full, python, KEY=VALUE or `no, because …`"
                    ),
                }
            }
        }
        self.blocks.push(Block { line, runs, sets, commands });
    }
}

/// The commands that stand as code in a table's row.
fn in_row(row: &str) -> Vec<String> {
    let code = row.split('`').skip(1).step_by(2).map(|code| code.replace("\\|", "|"));
    code.filter(|code| code.starts_with("cloze ") || code.starts_with("cargo ")).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn parsed(page: &str) -> Page {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let parse = || Page::parse(&text);
    std::panic::catch_unwind(parse).unwrap_or_else(|_| panic!("{page}: see above"))
}

/// README.md and the files of the book.
fn all() -> Vec<String> {
    let (mut pages, mut folders) = (vec!["README.md".to_owned()], vec![PathBuf::from("docs/src")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "md") => {
                    pages.push(path.to_str().unwrap().to_owned());
                }
                false => {}
            }
        }
    }
    pages.sort();
    pages
}

/// A clone for one page, with all that its reader has.
struct Reader {
    place: Workplace,
}

impl Reader {
    fn of(name: &str, page: &Page, full: bool) -> Self {
        let reader = Self { place: Workplace::new() };
        let shared = repository().join("../shared");
        if full && shared.is_dir() {
            fs::remove_dir_all(reader.beside("shared")).unwrap();
            symlink(shared.canonicalize().unwrap(), reader.beside("shared")).unwrap();
        }
        for (name, text) in &page.files {
            let path = reader.place.root().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        reader.models();
        reader.programs();
        if name == "README.md" {
            reader.files_of_readme();
        }
        reader
    }

    /// What README.md names and does not show.
    fn files_of_readme(&self) {
        let root = self.place.root();
        let sample = |name: &str| fs::read_to_string(root.join("datasets").join(name)).unwrap();
        let phrases = sample("phrases.tsv");
        let column = |n: usize| -> Vec<&str> {
            phrases.lines().skip(1).map(|line| line.split('\t').nth(n).unwrap()).collect()
        };
        let (english, german) = (column(0), column(1));
        let lines = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let documents = english.chunks(9).map(lines).collect::<Vec<_>>().join("\n");
        let asked = r#"{"question": "Where is it?", "context": "It is in the sea."}"#;
        let pair =
            r#"{"sentence_good": "The boats sail.", "sentence_bad": "The boats sails.", "UID": "a_1"}"#;
        let sense = r#"{"tokens": ["a", "bank"], "senses": [{"index": 1, "lemma": "bank", "pos": "n", "sense": "s"}]}"#;
        let entailed = "index\tsentence1\tsentence2\tlabel\n";
        for (name, text) in [
            ("texts.txt", lines(&english)),
            ("english.txt", lines(&english[..9])),
            ("words.txt", "old\nnew\nsea\n".to_owned()),
            ("simlex.csv", "word1,word2,similarity\nold,new,1.6\nold,sea,0.4\nnew,sea,0.5\n".to_owned()),
            ("sentences.txt", lines(&english[..3])),
            ("blimp/data/a_1.jsonl", format!("{pair}\n")),
            ("test.de", lines(&german)),
            ("translations.de", lines(&german)),
            ("my/text/phrases.txt", documents.clone()),
            ("corpus/phrases.txt", documents),
            ("pairs.csv", sample("questions.csv").replacen("question,passage", "query,text", 1)),
            ("notes/sea.md", "# The sea\n\nThe boats are in the harbour.\n".to_owned()),
            ("new.csv", "id,review\n1,Wonderful.\n".to_owned()),
            ("checked.csv", "review,sentiment\nWonderful.,positive\nAwful.,negative\n".to_owned()),
            ("asked.jsonl", format!("{asked}\n")),
            ("semcor.jsonl", format!("{sense}\n")),
            ("GLUE/CoLA/train.tsv", "gj04\t1\t\tOne more film.\ngj04\t0\t*\tFilm more one.\n".repeat(4)),
            ("GLUE/CoLA/dev.tsv", "gj04\t1\t\tGood.\ngj04\t0\t*\tBad the.\n".to_owned()),
            ("GLUE/CoLA/test.tsv", "index\tsentence\n0\tIt is.\n".to_owned()),
            ("GLUE/RTE/train.tsv", format!("{entailed}0\tA b.\tA.\tentailment\n1\tA.\tB.\tnot_entailment\n")),
            ("GLUE/RTE/dev.tsv", format!("{entailed}0\tA b.\tA.\tentailment\n1\tA.\tB.\tnot_entailment\n")),
            ("GLUE/RTE/test.tsv", "index\tsentence1\tsentence2\n0\tA b.\tB.\n".to_owned()),
            ("probe.toml", fs::read_to_string(root.join("configs/probe-ud-ewt.toml")).unwrap()),
        ] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.place.root().join("..").join(name)
    }

    /// The hub's cache, with small models under public names; the real one where it is.
    fn models(&self) {
        let made = self.beside("made");
        models::make(&made).unwrap();
        let of = |name: &str| made.join(name);
        let real = self.place.root().join(workplace::CHECKPOINT);
        let is_real = real.join("modules.json").is_file();
        let encoder = if is_real { real } else { of(models::ENCODER) };
        let models = [
            (models::ENCODER, encoder),
            (models::MASKED, of(models::MASKED)),
            (models::CLASSIFIER, of(models::CLASSIFIER)),
            (models::RERANKER, of(models::RERANKER)),
            (models::TAGGER, of(models::TAGGER)),
            (models::ANSWERER, of(models::ANSWERER)),
            (models::GENERATOR, of(models::GENERATOR)),
            ("Helsinki-NLP/opus-mt-en-de", of(models::TRANSLATOR)),
            ("intfloat/e5-small-v2", of(models::ENCODER)),
        ];
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (name, folder) in models {
            let cached = self.beside("hf/hub").join(format!("models--{}", name.replace('/', "--")));
            fs::create_dir_all(cached.join("refs")).unwrap();
            fs::write(cached.join("refs/main"), commit).unwrap();
            link_files(&folder.canonicalize().unwrap(), &cached.join("snapshots").join(commit));
        }
    }

    /// What the pages call `cloze`, `cargo`, `mpirun` and `python`.
    fn programs(&self) {
        let program = |name: &str, script: String| {
            let path = self.beside("bin").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("#!/usr/bin/env bash\n{script}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program("cloze", format!("real='{}'\n{CLOZE}exec \"$real\" \"$@\"\n", env!("CARGO_BIN_EXE_cloze")));
        // What several processes do together is `ranks.rs`'s to test.
        program("mpirun", "shift 2\nexec \"$@\"\n".into());
        let real = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        program("cargo", format!("{CARGO}cd '{}'\nexec '{real}' \"$@\"\n", repository().display()));
        if let Ok(python) = std::env::var("CLOZE_PYTHON") {
            program("python", format!("exec '{python}' \"$@\"\n"));
        }
    }

    /// Runs a block's commands.
    ///
    /// # Panics
    /// If they fail: with what they said.
    fn run(&self, page: &str, block: &Block, full: bool) {
        let mut path = vec![self.beside("bin").canonicalize().unwrap()];
        path.extend(std::env::split_paths(&std::env::var("PATH").unwrap()));
        let mut bash = Command::new("bash");
        for (key, _) in std::env::vars() {
            if ["HF_", "HUGGING", "TRANSFORMERS_"].iter().any(|start| key.starts_with(start)) {
                bash.env_remove(key);
            }
        }
        let ran = bash
            .args(["-eu", "-o", "pipefail", "-c", &block.commands])
            .current_dir(self.place.root())
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("HF_HOME", self.beside("hf"))
            .env("HF_HUB_OFFLINE", "1")
            .env("CARGO_INSTALL_ROOT", self.beside("installed"))
            .env("PAGE_SETS", block.sets.join(" "))
            .env("PAGE_FULL", if full { "yes" } else { "" })
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        let (line, commands) = (block.line, &block.commands);
        assert!(ran.status.success(), "{page}:{line}: {}\n{commands}{said}", ran.status);
    }
}

/// Makes a folder of links to the files of another one.
fn link_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() { link_files(&path, &to) } else { symlink(path, to).unwrap() }
    }
}

fn run(page: &str, full: bool) {
    let parsed = parsed(page);
    let python = std::env::var_os("CLOZE_PYTHON").is_some();
    let runs = |block: &&Block| match block.runs {
        Runs::Always => true,
        Runs::Full => full,
        Runs::Python => full && python,
        Runs::Never => false,
    };
    if full && !python && parsed.blocks.iter().any(|block| block.runs == Runs::Python) {
        eprintln!(
            "{page}: what needs Python is not run: CLOZE_PYTHON names no interpreter with transformers"
        );
    }
    let reader = Reader::of(page, &parsed, full);
    parsed.blocks.iter().filter(runs).for_each(|block| reader.run(page, block, full));
}

#[test]
fn every_page_with_commands_has_a_test() {
    let has_commands = |page: &String| parsed(page).blocks.iter().any(|block| block.runs != Runs::Never);
    let found: BTreeSet<String> = all().into_iter().filter(has_commands).collect();
    let tested = PAGES.iter().map(|page| (*page).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found, tested, "left: pages with commands; right: those in the list `pages!` of pages.rs");
}

/// What a configuration names of data that is not in a clone, beside what these `--set`s replace.
fn lacking(config: &str, command: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(config)).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let mut found = Vec::new();
    for (section, keys) in table.iter().filter_map(|(name, value)| Some((name, value.as_table()?))) {
        for (key, value) in keys {
            if value.to_string().contains("../shared") && !command.contains(&format!("{section}.{key}=")) {
                found.push(format!("{section}.{key}"));
            }
        }
    }
    found
}

#[test]
fn the_commands_of_the_readme_need_a_clone_and_models_alone() {
    let page = parsed("README.md");
    let lines: Vec<&str> = page.blocks.iter().flat_map(|block| block.commands.lines()).collect();
    assert!(lines.len() > 20, "{lines:?}");
    for line in lines {
        assert!(!line.contains("../shared"), "{line}");
        for config in line.split_whitespace().filter(|word| word.starts_with("configs/")) {
            assert_eq!(lacking(config, line), [""; 0], "{line}");
        }
    }
}

#[test]
fn blocks_that_nothing_runs_are_counted() {
    let never = |page: String| {
        let count = parsed(&page).blocks.iter().filter(|block| block.runs == Runs::Never).count();
        (count > 0).then_some((page, count))
    };
    let found: BTreeMap<String, usize> = all().into_iter().filter_map(never).collect();
    let expected =
        NOT_RUN.iter().map(|(page, count)| ((*page).to_owned(), *count)).collect::<BTreeMap<_, _>>();
    assert_eq!(found, expected, "left: blocks marked `run: no`; right: NOT_RUN of pages.rs");
}

#[test]
fn comments_say_how_a_block_runs() {
    let text = "Text.\n\n<!-- file: a/b.csv -->\n```csv\ntext\nx\n```\n\n```sh\ncloze one\n```\n\n\
                <!-- run: train.steps=2 model.n_layers=1 -->\n```sh\ncloze train x\ncloze two\n```\n\n\
                <!-- run: full -->\n| to | run |\n| --- | --- |\n| go | `cloze go a \\| wc` or `--far` |\n\n\
                <!-- run: no, because it takes a year -->\n\n```sh\nsleep 1y\n```\n\n```text\n$ no\n```\n";
    let block = |line, runs, sets: &[&str], commands: &str| {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        Block { line, runs, sets, commands: commands.to_owned() }
    };
    let expected = Page {
        blocks: vec![
            block(10, Runs::Always, &[], "cloze one\n"),
            block(15, Runs::Always, &["train.steps=2", "model.n_layers=1"], "cloze train x\ncloze two\n"),
            block(20, Runs::Full, &[], "cloze go a | wc\n"),
            block(27, Runs::Never, &[], "sleep 1y\n"),
        ],
        files: vec![("a/b.csv".into(), "text\nx\n".into())],
    };
    assert_eq!(Page::parse(text), expected);
    let bad = [
        "```bash\nx\n```\n",
        "- ```sh\n  x\n  ```\n",
        "<!-- run: fast -->\n```sh\nx\n```\n",
        "<!-- run: no -->\n```sh\nx\n```\n",
        "<!-- run: full -->\nText.\n",
        "<!-- run: full -->\n```text\nx\n```\n",
        "<!-- run: full -->",
    ];
    for bad in bad {
        assert!(std::panic::catch_unwind(|| Page::parse(bad)).is_err(), "{bad}");
    }
}
