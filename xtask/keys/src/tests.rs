use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// A crate of one file, whose root type is `Root`.
fn reference(text: &str) -> Result<Reference> {
    let mut sources = Sources::default();
    sources.add(Path::new("a.rs"), vec!["cloze_a".to_owned()], text)?;
    Reference::of(&sources, &[("Root", "Things")])
}

fn page(text: &str) -> String {
    reference(text).and_then(|reference| reference.page()).unwrap_or_else(|error| panic!("{error:#}"))
}

fn fault(text: &str) -> String {
    match reference(text) {
        Ok(_) => panic!("it is taken"),
        Err(error) => format!("{error:#}"),
    }
}

/// A section with these fields, and items beside it.
fn section(attributes: &str, fields: &str, beside: &str) -> String {
    format!(
        "use serde::Deserialize;
        /// All of it.
        #[derive(Deserialize)]
        struct Root {{
            /// `[one]`: the section.
            one: One,
        }}
        /// `[one]`: what it is.
        #[derive(Deserialize)]
        {attributes}
        struct One {{ {fields} }}
        {beside}"
    )
}

fn has(page: &str, row: &str) {
    assert!(page.lines().any(|line| line == row), "no `{row}` in\n{page}");
}

#[test]
fn names_are_those_that_serde_reads() {
    let fields = r#"
        /// Renamed.
        #[serde(rename = "second")]
        first_one: u64,
        /// With another spelling.
        #[serde(alias = "size")]
        big_width: f64,
        /// Not read.
        #[serde(skip)]
        hidden: bool,
        /// Chosen.
        choice: Choice,
        #[serde(flatten)]
        flat: Flat,"#;
    let beside = r#"
        /// A choice.
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Choice {
            /// The first.
            TopLeft,
            /// The other.
            #[serde(alias = "low")]
            NGram,
        }
        /// Keys of the table around it.
        #[derive(Deserialize)]
        struct Flat {
            /// Of the inner one.
            inner: PathBuf,
        }"#;
    let page = page(&section(r#"#[serde(rename_all = "kebab-case")]"#, fields, beside));
    has(&page, "| `second` | whole number | *required* | Renamed. |");
    has(&page, "| `big-width`, `size` | number | *required* | With another spelling. |");
    has(
        &page,
        "| `choice` | `\"top-left\"` or `\"n-gram\"` | *required* | Chosen.<br>`\"top-left\"`: The first.<br>`\"n-gram\"` \
         (also `\"low\"`): The other. |",
    );
    has(&page, "| `inner` | path | *required* | Of the inner one. |");
    assert!(!page.contains("hidden"), "{page}");
    has(&page, "### Things: `[one]`");
    has(&page, "| [`[one]`](#things-one) | The section. |");
}

#[test]
fn defaults_are_the_code_s_where_it_has_them_and_else_the_comment_s() {
    let fields = r#"
        /// A number. Default 1,000.
        #[serde(default = "defaults::thousand")]
        number: usize,
        /// A share. Default 0.02, BERT's; others learn sooner.
        #[serde(default = "share")]
        share: f64,
        /// Bytes.
        #[serde(default = "mebibyte")]
        bytes: usize,
        /// A word. Default `"b"`.
        #[serde(default)]
        word: Word,
        /// Of another type. Default 7.
        #[serde(default = "other")]
        other: u64,
        /// A list. Default: all of them. They are many.
        #[serde(default)]
        list: Vec<String>,
        /// A length. Default the checkpoint's.
        length: Option<usize>,
        /// A width. Default 4,096.
        width: Option<usize>,
        /// Files. Required.
        #[serde(default)]
        files: Vec<String>,
        /// A limit.
        limit: Option<usize>,
        /// A flag.
        #[serde(default)]
        flag: bool,
        /// A thing | with a bar.
        thing: char,"#;
    let beside = r#"
        mod defaults { pub fn thousand() -> usize { 1_000 } }
        fn share() -> f64 { 0.02 }
        fn mebibyte() -> usize { 1 << 20 }
        fn other() -> u64 { Other::default().size }
        /// A word.
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            /// First.
            A,
            /// Second.
            #[default]
            B,
        }
        struct Other { size: u64 }
        impl Default for Other { fn default() -> Self { Self { size: 7 } } }"#;
    let page = page(&section("", fields, beside));
    has(&page, "| `number` | whole number | `1000` | A number. |");
    has(&page, "| `share` | number | `0.02` | A share. Default 0.02, BERT's; others learn sooner. |");
    has(&page, "| `bytes` | whole number | `1_048_576` | Bytes. |");
    has(&page, "| `word` | `\"a\"` or `\"b\"` | `\"b\"` | A word.<br>`\"a\"`: First.<br>`\"b\"`: Second. |");
    has(&page, "| `other` | whole number | `7` | Of another type. |");
    has(&page, "| `list` | list of texts | all of them | A list. They are many. |");
    has(&page, "| `length` | whole number | the checkpoint's | A length. |");
    has(&page, "| `width` | whole number | `4096` | A width. |");
    has(&page, "| `files` | list of texts | *required* | Files. |");
    has(&page, "| `limit` | whole number | – | A limit. |");
    has(&page, "| `flag` | true or false | `false` | A flag. |");
    has(&page, "| `thing` | one character | *required* | A thing \\| with a bar. |");
}

#[test]
fn a_whole_table_s_defaults_are_those_of_its_type() {
    let fields = "
        /// Steps. Default 50.
        every: u64,
        /// A rate.
        rate: f64,
        /// An end.
        end: Option<u64>,";
    let beside =
        "impl Default for One { fn default() -> Self { Self { every: 50, rate: 1e-3, end: None } } }";
    let page = page(&section("#[serde(default)]", fields, beside));
    has(&page, "| `every` | whole number | `50` | Steps. |");
    has(&page, "| `rate` | number | `1e-3` | A rate. |");
    has(&page, "| `end` | whole number | – | An end. |");
}

#[test]
fn a_tag_chooses_the_keys() {
    let beside = r#"
        /// A tagged table.
        ///
        /// `kind` is optional: the one whose keys are set.
        #[derive(Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        enum Tagged {
            /// Straight.
            Linear {
                /// Steps.
                #[serde(default)]
                steps: u64,
            },
            /// Bent.
            Bent {
                /// Steps.
                #[serde(default)]
                steps: u64,
                /// By how much, see [`Tagged::Linear`] and [`Inner::width`].
                by: Vec<Column>,
            },
            /// Of its own.
            Own(Inner),
        }
        /// The own one.
        #[derive(Deserialize)]
        struct Inner {
            /// Its width.
            width: [usize; 2],
            /// Named ones.
            named: BTreeMap<String, Column>,
        }
        /// Either.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Column {
            /// A number.
            Number(usize),
            /// A name.
            Name(String),
        }"#;
    let fields = "/// Tagged tables.\n tagged: Vec<Tagged>,";
    let page = page(&section("", fields, beside));
    has(&page, "| `tagged` | [list of tables](#things-onetagged) | *required* | Tagged tables. |");
    has(&page, "### Things: `[[one.tagged]]`");
    has(&page, "- `\"linear\"`: Straight.");
    has(&page, "- `\"own\"`: Of its own. [Its keys](#things-onetagged-kind-own).");
    has(
        &page,
        "| `kind` | `\"linear\"`, `\"bent\"` or `\"own\"` | the one whose keys are set | One of the above. |",
    );
    has(&page, "| `steps` | whole number | `0` | For `\"linear\"` and `\"bent\"`: Steps. |");
    let by = "For `\"bent\"`: By how much, see `\"linear\"` and `width`.";
    has(&page, &format!("| `by` | list of whole numbers or texts | *required* | {by} |"));
    has(&page, "### Things: `[[one.tagged]]`, kind `own`");
    has(&page, "| `width` | list of 2 whole numbers | *required* | Its width. |");
    has(&page, "| `named` | table: name → whole number or text | *required* | Named ones. |");
}

#[test]
fn what_the_comments_lack_is_told() {
    let message = fault(&section("", "first: u64, /// There.\n second: u64, third: bool,", ""));
    assert!(message.contains("a.rs: `One.first` has no doc comment"), "{message}");
    assert!(message.contains("a.rs: `One.third` has no doc comment"), "{message}");
    assert!(!message.contains("second"), "{message}");
    let fields = "/// Steps. Default 5.\n #[serde(default = \"five\")]\n steps: u64,";
    let message = fault(&section("", fields, "fn five() -> u64 { 6 }"));
    assert!(
        message.contains("`One.steps`: the comment says that the default is 5, but it is 6"),
        "{message}"
    );
    let message = fault(&section("", "/// As in [`Vec::new`].\n steps: u64,", ""));
    assert!(message.contains("the comment of `One.steps`: it names `Vec::new`"), "{message}");
    let message = fault(&section("", "/// Unknown.\n #[serde(with = \"w\")]\n steps: u64,", ""));
    assert!(message.contains("`#[serde(with)]`"), "{message}");
    let message = fault(&section("", "/// Unknown.\n steps: Duration,", ""));
    assert!(message.contains("does not know the type `Duration`"), "{message}");
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn of_the_repository() -> Reference {
    Reference::read(&root()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// The heading of the kind of run that a file is.
fn title_of(config: &toml::Table) -> &'static str {
    let kind_of = |section: &str| config.get(section)?.get("kind")?.as_str();
    let (objective, task) = (kind_of("objective"), kind_of("task"));
    let has = |section: &str| config.contains_key(section);
    match objective {
        _ if has("probe") => "Probing",
        _ if task == Some("image-classification") => "Images",
        _ if task == Some("captions") => "Captions",
        _ if has("task") => "Fine-tuning",
        _ if has("parallel") => "Translation",
        Some("left-to-right") if has("streams") => "AWD-LSTM",
        Some("left-to-right") => "Language models",
        Some("bidirectional-language-model") => "ELMo",
        Some("permutation") => "XLNet",
        Some("denoising") => "Denoising",
        Some("masked-patches") => "Masked patches",
        Some("contrastive-views") => "Contrastive views",
        _ => "Pretraining",
    }
}

/// The keys of the rows under each heading of a page.
fn rows(page: &str) -> BTreeSet<(String, String)> {
    let (mut rows, mut heading) = (BTreeSet::new(), "");
    for line in page.lines() {
        heading = line.strip_prefix("### ").or(line.strip_prefix("## ")).unwrap_or(heading);
        let first =
            line.strip_prefix("| ").and_then(|line| line.split_once(" | ")).map_or("", |(first, _)| first);
        for name in first.split('`').skip(1).step_by(2) {
            rows.insert((heading.to_owned(), name.to_owned()));
        }
    }
    rows
}

#[test]
fn the_page_has_every_key_that_a_config_sets() {
    let reference = of_the_repository();
    let rows = rows(&reference.page().unwrap_or_else(|error| panic!("{error:#}")));
    let (mut n_files, mut seen) = (0, BTreeSet::new());
    for entry in fs::read_dir(root().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        n_files += 1;
        let config: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let title = title_of(&config);
        seen.insert(title);
        let found = reference.walk(title, &config);
        let found = found.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert!(found.len() > 8, "{}: {}", path.display(), found.len());
        for Found { path: key, heading, .. } in found {
            let name = key.rsplit('.').next().unwrap().to_owned();
            let is_there = rows.contains(&(heading.clone(), name));
            assert!(is_there, "{}: the page has no `{key}` under `{heading}`", path.display());
        }
    }
    assert!(n_files > 40, "{n_files}");
    assert_eq!(seen.len(), TITLES.len() - 1, "{seen:?}");
}

#[test]
fn a_key_that_there_is_not_is_found() {
    let reference = of_the_repository();
    for (config, expected) in [
        ("train.step = 1", "there is no key `train.step`"),
        ("trian.steps = 1", "Pretraining has no `[trian]`"),
        (
            "examples.pairs = { kind = \"doc-sentences\", short_seq_prob = 0.1 }",
            "no key `examples.pairs.short_seq_prob`",
        ),
        ("corpus.languages = [{ name = \"en\" }, { nmae = \"de\" }]", "no key `corpus.languages.nmae`"),
    ] {
        let config: toml::Table = config.parse().unwrap();
        let Err(error) = reference.walk("Pretraining", &config) else { panic!("{config}") };
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
}

#[test]
fn every_kind_of_run_has_its_sections_and_every_link_leads_somewhere() {
    let reference = of_the_repository();
    let page = reference.page().unwrap();
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")))
        .map(|heading| {
            let kept = heading.to_lowercase().replace(' ', "-");
            kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
        })
        .collect();
    let links: Vec<&str> = page.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert!(links.len() > 100, "{}", links.len());
    for link in links {
        assert!(anchors.contains(link), "no heading for the link `#{link}`");
    }
    for kind in reference.kinds() {
        let (_, part) = page.split_once(&format!("\n## {}\n", kind.title)).expect(kind.title);
        let part = part.split("\n## ").next().unwrap();
        for section in &kind.sections {
            let cell = format!("| [`[{}]`](#", section.names[0]);
            assert!(part.contains(&cell), "{} does not list `[{}]`", kind.title, section.names[0]);
        }
    }
    // Where one file tells a name's other spelling, and where a type of the same name is in two files.
    has(
        &page,
        "- `\"inverse-sqrt\"` (also `\"noam\"`): Decays with the inverse square root of the step, \
        `peak · min(step / warmup, √(warmup / step))`: Vaswani et al. 2017, §5.3, whose peak is `(d_model · warmup)^-0.5`.",
    );
    let tables = |title: &str, path: &str| reference.keys_of_tables(title)[path].clone();
    assert!(tables("Fine-tuning", "model.recurrent").contains("tokenizer"));
    assert!(tables("Translation", "model").contains("bridge"));
    assert!(tables("Denoising", "model").contains("bridge"));
}
