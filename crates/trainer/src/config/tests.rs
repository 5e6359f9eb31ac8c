use super::*;
use crate::engine::schedule::Schedule;
use cloze_model::huggingface::Family;
use std::path::Path;

/// A config as a user writes it; the tests below change a line of it.
const FILE: &str = r#"[corpus]
files = ["data/*.txt"]

[tokenizer]
kind = "train-wordpiece"
vocab_size = 4096

[examples]
seq_len = 64
pairs = { kind = "next-sentence", short_seq_prob = 0.2 }

[model]
preset = "tiny"
hidden_dropout = 0.0

[train]
steps = 100
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "linear"
warmup_steps = 10
final_fraction = 0.1
"#;

fn resolve(text: &str, sets: &[&str]) -> Result<RunConfig> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    RunConfig::parse(text, "run", &Place::file(Path::new("run.toml")), &sets)
}

fn resolved(sets: &[&str]) -> RunConfig {
    resolve(FILE, sets).unwrap()
}

fn new(config: &RunConfig) -> &NewModel {
    config.model.as_new().unwrap()
}

/// [`FILE`] with a checkpoint in place of sizes and a vocabulary.
fn from_checkpoint() -> String {
    let file = FILE.replace("preset = \"tiny\"", "path = \"some/model\"");
    file.replace("[tokenizer]\nkind = \"train-wordpiece\"\nvocab_size = 4096\n\n", "")
}

#[test]
fn a_path_is_of_a_checkpoint_with_its_tokenizer() {
    let file = from_checkpoint();
    let config = resolve(&file, &[]).unwrap();
    let ModelSection::Pretrained(model) = &config.model else { panic!("{:?}", config.model) };
    assert_eq!((model.path.as_path(), model.hidden_dropout), (Path::new("some/model"), Some(0.0)));
    assert_eq!(config.tokenizer, TokenizerSection::Checkpoint {});
    assert_eq!(resolve(&config.to_toml(), &[]).unwrap(), config);
    // A kind that changes takes the other's keys with it.
    let sets = ["model.path=some/model", "tokenizer.kind=checkpoint"];
    let set = resolved(&sets);
    assert_eq!(set.model, resolve(&file, &["model.hidden_dropout=0.0"]).map(|_| set.model.clone()).unwrap());
    assert!(set.model.as_new().is_none());
    let back = resolve(&file, &["model.preset=mini", "tokenizer={ kind = \"load\", path = \"a\" }"]).unwrap();
    assert_eq!(new(&back).d_model, 256);

    let error = |sets: &[&str]| resolve(&file, sets).unwrap_err().to_string();
    assert_eq!(
        error(&["model.n_layers=3"]),
        "--set model.n_layers=3: `model.n_layers` is 3; expected it to be absent: \
         `model.path` brings its own"
    );
    let both = file.replace("path = ", "preset = \"tiny\"\npath = ");
    assert_eq!(
        resolve(&both, &[]).unwrap_err().to_string(),
        "run.toml:9: `model.preset` is \"tiny\"; expected it to be absent: `model.path` \
         brings its own"
    );
    assert_eq!(
        error(&["tokenizer={ kind = \"train-byte-bpe\", vocab_size = 300 }"]).split_once(": `").unwrap().1,
        "tokenizer.kind` is train-byte-bpe; expected no `[tokenizer]`, which cannot be combined with `model.path`: the vocabulary is \
         the checkpoint's"
    );
    assert_eq!(
        error_of_set("tokenizer={ kind = \"checkpoint\" }").split_once(": `").unwrap().1,
        "tokenizer.kind` is checkpoint; expected another one: a new model has no checkpoint"
    );
    assert!(error(&["model.pat=x"]).contains("unknown key `model.pat`; did you mean `model.path`?"));
    assert!(error(&["model.hidden_dropout=1"]).contains("expected a number from 0 to below 1"));
    assert!(error(&["examples.seq_len=7"]).contains("expected a whole number of 8 or more"));
}

/// The message for [`FILE`] with `from` replaced by `to`.
#[track_caller]
fn error_of(from: &str, to: &str) -> String {
    assert_eq!(FILE.matches(from).count(), 1, "{from} is to occur once");
    resolve(&FILE.replace(from, to), &[]).unwrap_err().to_string()
}

#[track_caller]
fn error_of_set(set: &str) -> String {
    resolve(FILE, &[set]).unwrap_err().to_string()
}

#[test]
fn a_file_is_completed_from_defaults_and_preset() {
    let config = resolved(&[]);
    assert_eq!((config.common.run.name.as_str(), config.common.run.seed), ("run", 42));
    let model = new(&config);
    assert_eq!((model.n_layers, model.d_model, model.n_heads, model.d_ff), (2, 128, 2, 512));
    assert_eq!((model.hidden_dropout, model.attention_dropout), (0.0, 0.1));
    assert_eq!(
        config.common.schedule,
        Schedule::Linear { warmup_steps: 10, warmup_fraction: None, final_fraction: 0.1 }
    );
    assert_eq!(config.common.optimizer.beta2, 0.999);
    assert_eq!(config.common.checkpoint, CheckpointSection::default());
}

#[test]
fn an_objective_is_one_of_encoders() {
    assert_eq!(resolved(&[]).objective, ObjectiveSection::Masked {});
    let spans = resolved(&["objective.kind=span-boundary"]);
    assert_eq!(spans.objective, ObjectiveSection::SpanBoundary {});
    assert_eq!(resolve(&spans.to_toml(), &[]).unwrap(), spans);
    // Runs of before there was a choice are resumed.
    assert!(!resolved(&[]).to_toml().contains("objective"));
    assert_eq!(
        error_of_set("objective.kind=left-to-right"),
        "--set objective.kind=left-to-right: `objective.kind` is \"left-to-right\"; expected \"masked\", \
         \"span-boundary\", \"replaced-tokens\" or \"translation-language-model\": only a decoder is trained left to \
         right"
    );
    assert_eq!(
        error_of_set("objective.kind=spans"),
        "--set objective.kind=spans: `objective.kind` is \"spans\"; expected one of \"left-to-right\", \
         \"bidirectional-language-model\", \"masked\", \"span-boundary\", \"permutation\", \"replaced-tokens\", \
         \"translation-language-model\" or \"denoising\""
    );
}

/// [`FILE`] with texts of two languages and translations.
fn of_languages() -> String {
    let languages = "[corpus]\nsampling_alpha = 0.5\n\
         languages = [{ name = \"en\", files = [\"en.txt\"] }, { name = \"de\", files = [\"de.txt\"] }]\n\n\
         [objective]\nkind = \"translation-language-model\"\n\
         parallel = [{ languages = [\"en\", \"de\"], text = { source = [\"a.en\"], target = [\"a.de\"] } }]\n";
    let pairs = "pairs = { kind = \"next-sentence\", short_seq_prob = 0.2 }";
    let file = FILE.replace("[corpus]\nfiles = [\"data/*.txt\"]\n", languages);
    file.replace(pairs, "pairs = { kind = \"full-sentences\" }")
}

#[test]
fn several_languages_may_have_translations_and_embeddings() {
    let file = of_languages();
    let config = resolve(&file, &["model.language_embeddings=true"]).unwrap();
    assert_eq!((config.corpus.languages.len(), config.corpus.sampling_alpha), (2, Some(0.5)));
    assert_eq!(config.objective.parallel()[0].languages, ["en", "de"]);
    assert_eq!(resolve(&config.to_toml(), &[]).unwrap(), config);
    let (encoder, _) = new(&config).published(&config, new(&config).with_vocabulary(50, 0));
    assert_eq!(encoder.n_token_types, 2);
    // An XLM has them too, and networks of four times its width.
    let xlm = resolve(&file, &["model.language_embeddings=true", "model.family=xlm"]).unwrap();
    let (encoder, save) = new(&xlm).published(&xlm, new(&xlm).with_vocabulary(50, 0));
    assert_eq!((encoder.n_token_types, save.family), (2, Family::XLM));
    assert_eq!(save.languages, ["en", "de"]);
    let message = resolve(&file, &["model.family=xlm", "model.d_ff=300"]).unwrap_err().to_string();
    assert!(
        message.contains("`model.d_ff` is 300; expected 512: transformers has no other XLM"),
        "{message}"
    );
    // Another kind takes the parallel text with it.
    let alone = resolve(&file, &["objective.kind=masked"]).unwrap();
    assert!(alone.objective.parallel().is_empty());
    assert_ne!(alone.fingerprint(), config.fingerprint());
}

#[test]
fn languages_that_cannot_be_trained_on_are_refused_with_what_would_go() {
    let file = of_languages();
    let parallel = |languages: &str, text: &str| {
        format!("objective.parallel=[{{ languages = {languages}, text = {text} }}]")
    };
    let text = "{ source = [\"a\"], target = [\"b\"] }";
    let unknown = parallel("[\"en\", \"fr\"]", text);
    let same = parallel("[\"en\", \"en\"]", text);
    let without = parallel("[\"en\", \"de\"]", "{}");
    for (set, expected) in [
        (
            "corpus.sampling_alpha=1.5",
            "`corpus.sampling_alpha` is 1.5; expected a number from 0, which draws the languages of `corpus.languages` \
             alike, to 1, which draws them by how much text they have",
        ),
        (
            "corpus.languages=[]",
            "`corpus.files` is []; expected at least one file, folder or glob, or texts in `corpus.languages`",
        ),
        (
            "corpus.languages=[{ name = \"en\", files = [\"a\"] }, { name = \"de\" }]",
            "`corpus.languages` is \"de\" without `files`; expected `files` with its text, or no such language",
        ),
        (
            "corpus.languages=[{ name = \"en\", files = [\"a\"] }, { name = \"en\", files = [\"a\"] }]",
            "`corpus.languages` is \"en\" twice; expected a unique name for each language",
        ),
        (
            "corpus.files=[\"a\"]",
            "`corpus.files` is [\"a\"]; expected it to be absent: each of `corpus.languages` has its own `files`",
        ),
        (
            "corpus.language=de",
            "`corpus.language` is de; expected it to be absent: the names of `corpus.languages` choose the sentence \
             rules",
        ),
        (
            "objective.parallel=[]",
            "`objective.parallel` is []; expected parallel text, or `objective.kind` = \"masked\", which needs none",
        ),
        (&unknown, "`objective.parallel` is en-fr; expected two languages of `corpus.languages` (en, de)"),
        (&same, "`objective.parallel` is en-en; expected two languages of `corpus.languages` (en, de)"),
        (
            &without,
            "`objective.parallel` is en-de without files; expected `text` with `source` and `target`, or with `files`, or \
             `objective.kind` = \"masked\", which needs none",
        ),
        (
            "examples.masking.unit=whole-word",
            "`examples.masking.unit` is \"whole-word\"; expected \"token\" with `objective.kind` = \
             \"translation-language-model\": word starts are unknown in translations",
        ),
        (
            "examples.masking.static_copies=2",
            "`examples.masking.static_copies` is 2; expected 0 with `corpus.languages`, whose examples come as often as \
             they are drawn",
        ),
        (
            "model.positions=relative-bias",
            "`model.positions` is \"relative-bias\"; expected \"learned\" or \"sinusoidal\": `objective.kind` = \
             \"translation-language-model\" counts positions anew in the second sentence",
        ),
        (
            "model.family=modernbert",
            "`model.family` is \"modernbert\"; expected \"bert\", \"xlm-roberta\" or another family whose positions are \
             added to the embeddings: `objective.kind` = \"translation-language-model\" counts them anew in the second \
             sentence",
        ),
    ] {
        let message = resolve(&file, &[set]).unwrap_err().to_string();
        assert!(message.ends_with(expected), "{set}: {message}");
    }
    let two = |sets: &[&str]| resolve(&file, sets).unwrap_err().to_string();
    let message =
        two(&["model.language_embeddings=true", "model.family=distilbert", "objective.kind=masked"]);
    assert!(
        message
            .ends_with("expected false: `model.family` = \"distilbert\" has no token types, which they are"),
        "{message}"
    );
    let message = two(&["model.language_embeddings=true", "examples.pairs.kind=sentence-order"]);
    assert!(
        message.contains("`model.language_embeddings` is true; expected false with pairs of segments"),
        "{message}"
    );
    for (set, expected) in [
        (
            "corpus.sampling_alpha=0.5",
            "`corpus.sampling_alpha` is 0.5; expected no such key without `corpus.languages`",
        ),
        (
            "model.language_embeddings=true",
            "`model.language_embeddings` is true; expected false, or several languages in `corpus.languages`",
        ),
        (
            "objective.kind=translation-language-model",
            "`objective.kind` is \"translation-language-model\"; expected \"masked\", or texts of two languages or more in \
             `corpus.languages`",
        ),
    ] {
        let message = error_of_set(set);
        assert!(message.ends_with(expected), "{set}: {message}");
    }
}

#[test]
fn replaced_tokens_are_detected_with_the_papers_numbers() {
    let sets = ["objective.kind=replaced-tokens", "examples.pairs={ kind = \"doc-sentences\" }"];
    let config = resolved(&sets);
    assert_eq!(config.objective, ObjectiveSection::ReplacedTokens { generator_size: 0.25, weight: 50.0 });
    assert_eq!(resolve(&config.to_toml(), &[]).unwrap(), config);
    let error = |set: &str| resolve(FILE, &[&sets[..], &[set]].concat()).unwrap_err().to_string();
    let no_wider = "expected a number above 0, at most 1: the generator is no wider than the discriminator";
    for size in ["1.5", "0", "-0.5", "nan"] {
        let message = error(&format!("objective.generator_size={size}"));
        assert!(
            message.contains("`objective.generator_size` is ") && message.ends_with(no_wider),
            "{message}"
        );
    }
    assert_eq!(
        error("objective.weight=-1"),
        "--set objective.weight=-1: `objective.weight` is -1; expected a number above 0"
    );
    let message = error("model.norm=pre");
    assert!(
        message.contains("`model.norm` is \"pre\"; expected \"post\": transformers has no other ELECTRA")
    );
    assert_eq!(
        error_of_set("objective.kind=replaced-tokens"),
        "run.toml:10: `examples.pairs.kind` is of sentence pairs; expected \"doc-sentences\" or \"full-sentences\": \
         `objective.kind` = \"replaced-tokens\" has no head for pairs"
    );
}

#[test]
fn attention_masks_have_shares() {
    let unilm = "examples.attention={ bidirectional = 1, left_to_right = 1, right_to_left = 1, \
                 sequence_to_sequence = 2 }";
    let config = resolved(&[unilm]);
    assert_eq!(config.examples.attention.shares(), [0.2, 0.2, 0.2, 0.4]);
    assert_eq!(resolve(&config.to_toml(), &[]).unwrap(), config);
    let plain = resolved(&[]);
    assert!(plain.examples.attention.is_bidirectional() && !plain.to_toml().contains("attention]"));
    let packed = "examples.pairs={ kind = \"doc-sentences\" }";
    let directions = "examples.attention={ left_to_right = 2 }";
    assert_eq!(resolved(&[packed, directions]).examples.attention.shares(), [0.0, 1.0, 0.0, 0.0]);
    for (sets, expected) in [
        (
            &["examples.attention.left_to_right=-1"][..],
            "`examples.attention.left_to_right` is -1; expected 0, or a",
        ),
        (
            &["examples.attention.bidirectional=nan"],
            "`examples.attention.bidirectional` is NaN; expected 0, or a",
        ),
        (&["examples.attention.bidirectional=1e9"], "expected 0, or a number of 1e-6 to 1e6"),
        (
            &["examples.attention={}"],
            "`examples.attention` is without shares; expected at least one share above 0",
        ),
        (
            &[packed, unilm],
            "`examples.attention.sequence_to_sequence` is 2; expected 0: `examples.pairs.kind` = \"doc-sentences\" has \
             no second segment",
        ),
        (
            &[directions],
            "`examples.attention.bidirectional` is 0; expected a number above 0: the labels of \
             `examples.pairs.kind` = \"next-sentence\" are predicted with bidirectional attention alone",
        ),
        (
            &[packed, "examples.attention={ right_to_left = 1 }", "objective.kind=replaced-tokens"],
            "`examples.attention.right_to_left` is 1; expected 0: `objective.kind` = \"replaced-tokens\" is trained \
             with bidirectional attention alone",
        ),
        (&["examples.attention={ causal = 1 }"], "unknown key `examples.attention.causal`"),
    ] {
        let message = resolve(FILE, sets).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn every_preset_has_the_published_size() {
    let sizes = [(2, 128, 2), (4, 256, 4), (4, 512, 8), (8, 512, 8), (12, 768, 12), (24, 1024, 16)];
    for (preset, (n_layers, d_model, n_heads)) in ModelPreset::ALL.into_iter().zip(sizes) {
        let config = resolved(&[&format!("model.preset={}", preset.name())]);
        let model = new(&config);
        assert_eq!(model.preset, Some(preset));
        assert_eq!((model.n_layers, model.d_model, model.n_heads), (n_layers, d_model, n_heads));
        assert_eq!(model.d_ff, 4 * d_model);
    }
}

#[test]
fn a_later_layer_overrides_key_by_key() {
    let config =
        resolved(&["train.steps=200", "optimizer.lr=0.5", "run.name=other", "model.activation=\"relu\""]);
    assert_eq!((config.train.steps, config.train.batch_size), (200, 8));
    assert_eq!((config.common.optimizer.lr, config.common.run.name.as_str()), (0.5, "other"));
    assert_eq!(new(&config).activation, Activation::Relu);
}

#[test]
fn of_two_arguments_for_a_key_the_later_counts() {
    assert_eq!(resolved(&["train.steps=20", "train.steps=30"]).train.steps, 30);
}

#[test]
fn lists_and_tables_are_values_too() {
    let config = resolved(&[r#"corpus.files=["a.txt", "b.txt"]"#, "train={ steps = 50, batch_size = 4 }"]);
    assert_eq!(config.corpus.files, ["a.txt", "b.txt"]);
    assert_eq!((config.train.steps, config.train.batch_size), (50, 4));
}

#[test]
fn a_table_merges_while_its_kind_stays_and_is_replaced_when_it_changes() {
    let same = resolved(&["schedule.kind=linear", "schedule.final_fraction=0.5"]);
    assert_eq!(
        same.common.schedule,
        Schedule::Linear { warmup_steps: 10, warmup_fraction: None, final_fraction: 0.5 }
    );

    // Without replacement `final_fraction` would be left over, and an error.
    let changed = resolved(&["schedule.kind=constant"]);
    assert_eq!(changed.common.schedule, Schedule::Constant { warmup_steps: 0, warmup_fraction: None });

    // The arguments are one layer, whatever their order.
    for sets in [
        ["schedule.warmup_steps=20", "schedule.kind=cosine"],
        ["schedule.kind=cosine", "schedule.warmup_steps=20"],
    ] {
        let expected = Schedule::Cosine { warmup_steps: 20, warmup_fraction: None, final_fraction: 0.0 };
        assert_eq!(resolved(&sets).common.schedule, expected);
    }
}

#[test]
fn a_table_that_is_an_arguments_value_replaces_the_files() {
    let set = "schedule={kind=\"linear\", warmup_steps=3}";
    let replaced = Schedule::Linear { warmup_steps: 3, warmup_fraction: None, final_fraction: 0.0 };
    assert_ne!(resolved(&["schedule.warmup_steps=3"]).common.schedule, replaced);
    assert_eq!(resolved(&[set]).common.schedule, replaced);
    assert_eq!(resolved(&["schedule.final_fraction=0.7", set]).common.schedule, replaced);
    let more = resolved(&[set, "schedule.final_fraction=0.7"]).common.schedule;
    assert_eq!(more, Schedule::Linear { warmup_steps: 3, warmup_fraction: None, final_fraction: 0.7 });
}

#[test]
fn noam_is_the_inverse_square_root() {
    // A warm-up of another form replaces the file's.
    let fraction = Schedule::Linear { warmup_steps: 0, warmup_fraction: Some(0.2), final_fraction: 0.1 };
    let of_fraction = resolved(&["schedule.warmup_fraction=0.2"]);
    assert_eq!(
        (of_fraction.common.schedule.warmup_steps(100), &of_fraction.common.schedule),
        (20, &fraction)
    );
    let both =
        resolve(FILE, &["schedule.warmup_fraction=0.2", "schedule.warmup_steps=5"]).unwrap_err().to_string();
    assert!(
        both.contains("expected none with `schedule.warmup_steps`, which is 5: remove one of them"),
        "{both}"
    );
    let schedule = resolved(&["schedule.kind=noam", "schedule.warmup_steps=10"]).common.schedule;
    assert_eq!(schedule, Schedule::InverseSqrt { warmup_steps: 10, warmup_fraction: None });
}

#[test]
fn a_preset_counts_in_its_own_layer() {
    let own_size = FILE.replace("hidden_dropout = 0.0", "hidden_dropout = 0.0\nn_layers = 3");
    let config = resolve(&own_size, &[]).unwrap();
    let model = new(&config);
    assert_eq!((model.n_layers, model.d_model), (3, 128));

    let config = resolve(&own_size, &["model.d_ff=100", "model.preset=mini"]).unwrap();
    let model = new(&config);
    assert_eq!((model.n_layers, model.d_model, model.n_heads, model.d_ff), (4, 256, 4, 100));
    assert_eq!(model.hidden_dropout, 0.0);
}

#[test]
fn the_resolved_config_reads_back_as_itself() {
    for sets in [&[][..], &["schedule.kind=noam", "schedule.warmup_steps=10"], &["model.preset=large"]] {
        let config = resolved(sets);
        let text = config.to_toml();
        assert_eq!(resolve(&text, &[]).unwrap(), config, "{text}");
        assert!(text.contains("n_layers") && text.contains("clip_norm"), "{text}");
    }
}

#[test]
fn the_fingerprint_covers_what_determines_the_weights_and_nothing_else() {
    let config = resolved(&[]);
    let same = resolved(&[
        "run.name=other",
        "train.workers=3",
        "train.prefetch=9",
        "train.recompute=true",
        "eval.every=7",
        "eval.batch_size=3",
        "eval.max_examples=5",
        "checkpoint.every=3",
        "checkpoint.keep_last=1",
        "checkpoint.keep_best=false",
        "log.every=2",
    ]);
    assert_eq!(config.fingerprint(), same.fingerprint());
    assert_eq!(config.differences(&same), []);

    let mut prints = vec![config.fingerprint()];
    for set in [
        "run.seed=1",
        "corpus.files=[\"x\"]",
        "tokenizer.vocab_size=5000",
        "examples.seq_len=32",
        "model.n_layers=3",
        "model.layer_norm_eps=1e-6",
        "train.steps=101",
        "train.batch_size=9",
        "train.accumulate=2",
        "train.non_finite=skip",
        "optimizer.lr=2e-3",
        "optimizer.clip_norm=0",
        "schedule.warmup_steps=11",
        "eval.heldout_fraction=0.1",
    ] {
        let other = resolved(&[set]);
        assert_eq!(config.differences(&other).len(), 1, "{set}");
        prints.push(other.fingerprint());
    }
    let count = prints.len();
    prints.sort();
    prints.dedup();
    assert_eq!(prints.len(), count);
    assert_eq!(config.fingerprint().len(), 64);
}

#[test]
fn differences_name_both_values() {
    let changed = resolved(&["optimizer.lr=2e-3", "schedule.kind=constant"]);
    let shown: Vec<_> = resolved(&[]).differences(&changed).iter().map(Difference::to_string).collect();
    assert_eq!(
        shown,
        [
            "optimizer.lr: 0.001 became 0.002",
            "schedule.final_fraction: 0.1 became absent",
            "schedule.kind: \"linear\" became \"constant\"",
            "schedule.warmup_steps: 10 became 0",
        ]
    );
}

#[test]
fn unknown_keys_name_file_line_and_the_nearest_key() {
    let cases = [
        (
            "\nsteps = 100",
            "\nstesp = 100",
            "run.toml:17: unknown key `train.stesp`; did you mean `train.steps`?",
        ),
        (
            "\nsteps = 100",
            "\nSteps = 100",
            "run.toml:17: unknown key `train.Steps`; did you mean `train.steps`?",
        ),
        ("[train]", "[trian]", "run.toml:16: unknown key `trian`; did you mean `train`?"),
        (
            "lr = 1e-3",
            "lr = 1e-3\nbeta_1 = 0.8",
            "run.toml:22: unknown key `optimizer.beta_1`; did you mean `optimizer.beta1`?",
        ),
        // In the wrong section.
        (
            "batch_size = 8",
            "batch_size = 8\nlr = 1.0",
            "run.toml:19: unknown key `train.lr`; did you mean `optimizer.lr`?",
        ),
        // Inside tables tagged by a kind.
        (
            "warmup_steps = 10",
            "warmup_stesp = 10",
            "run.toml:25: unknown key `schedule.warmup_stesp`; did you mean `schedule.warmup_steps`?",
        ),
        (
            "short_seq_prob = 0.2",
            "short_seq = 0.2",
            "run.toml:10: unknown key `examples.pairs.short_seq`; did you mean \
             `examples.pairs.short_seq_prob`?",
        ),
        // Like nothing.
        (
            "\nsteps = 100",
            "\nsteps = 100\nwarp = 9",
            "run.toml:18: unknown key `train.warp`; expected one of `steps`, `batch_size`, `accumulate`, \
             `workers`, `prefetch`, `non_finite`, `precision` or `recompute`",
        ),
    ];
    for (from, to, message) in cases {
        assert_eq!(error_of(from, to), message);
    }
    assert_eq!(
        error_of_set("train.stesp=4"),
        "--set train.stesp=4: unknown key `train.stesp`; did you mean `train.steps`?"
    );
    assert_eq!(error_of_set("lr=4"), "--set lr=4: unknown key `lr`; did you mean `optimizer.lr`?");
}

#[test]
fn every_way_of_writing_a_key_has_its_line() {
    for (text, message) in [
        ("\n\ntrian.steps = 1", "run.toml:3: unknown key `trian`; did you mean `train`?"),
        ("\n[trian.deep]\nx = 1", "run.toml:2: unknown key `trian`; did you mean `train`?"),
        ("\n[trian]\nx = [\n1,\n2]", "run.toml:2: unknown key `trian`; did you mean `train`?"),
        ("\n[[trian]]\nx = 1", "run.toml:2: unknown key `trian`; did you mean `train`?"),
        (
            "run.name = 'a'\ncorpus = {\n  files = [\n    'a',\n    2,\n  ],\n  x = 1 }",
            "run.toml:3: `corpus.files` is a list; expected a string in quotes",
        ),
    ] {
        let error = resolve(text, &[]).unwrap_err().to_string();
        // What these few lines lack is told too.
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn missing_keys_name_the_table_that_lacks_them() {
    let cases = [
        ("\nsteps = 100", "", "run.toml:16: missing key `train.steps`, which has no default"),
        ("lr = 1e-3", "", "run.toml:20: missing key `optimizer.lr`, which has no default"),
        ("kind = \"linear\"", "", "run.toml:23: missing key `schedule.kind`, which has no default"),
        ("vocab_size = 4096", "", "run.toml:4: missing key `tokenizer.vocab_size`, which has no default"),
        (
            "preset = \"tiny\"",
            "n_layers = 2",
            "run.toml: missing keys, which have no default: `d_model`, `n_heads` and `d_ff` in `[model]`",
        ),
    ];
    for (from, to, message) in cases {
        assert_eq!(error_of(from, to), message);
    }
    let nothing = resolve("", &[]).unwrap_err().to_string();
    assert!(nothing.starts_with("run.toml: missing keys, which have no default: "), "{nothing}");
    for part in [
        "`[corpus]`",
        "`kind` in `[tokenizer]`",
        "`seq_len` in `[examples]`",
        "`n_layers`, `d_model`, `n_heads` and `d_ff` in `[model]`",
        "`steps` and `batch_size` in `[train]`",
        "`lr` in `[optimizer]`",
        "`kind` in `[schedule]`",
    ] {
        assert!(nothing.contains(part), "{part}: {nothing}");
    }
    assert_eq!(
        error_of_set("schedule.kind=noam"),
        "--set schedule.kind=noam: `schedule.warmup_steps` is 0; expected a whole number of 1 or more, or \
         `schedule.warmup_fraction` in its place"
    );
}

#[test]
fn all_unknown_and_missing_keys_are_told_at_once() {
    // Inside a table tagged by a kind too, where serde loses the place.
    let text = FILE
        .replace("\nsteps = 100", "\nstesp = 100\nwarp = 9")
        .replace("vocab_size = 4096", "")
        .replace("lr = 1e-3", "")
        .replace("warmup_steps = 10", "warmup_stesp = 10");
    let told = resolve(&text, &[]).unwrap_err().to_string();
    for part in [
        "run.toml:17: unknown key `train.stesp`; did you mean `train.steps`? Also run.toml:18: unknown key `train.warp`; \
         expected one of `steps`, ",
        "; also run.toml:26: unknown key `schedule.warmup_stesp`; did you mean `schedule.warmup_steps`? Also run.toml: \
         missing keys, which have no default: `vocab_size` in `[tokenizer]`, `lr` in `[optimizer]`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // A misspelt key that is required is not missing too.
    let one = error_of("\nsteps = 100", "\nstesp = -1");
    assert_eq!(one, "run.toml:17: unknown key `train.stesp`; did you mean `train.steps`?");
    let value = resolve(&FILE.replace("lr = 1e-3", "lr = 0").replace("\nsteps = 100", ""), &[]).unwrap_err();
    assert_eq!(
        value.to_string(),
        "run.toml:16: missing key `train.steps`, which has no default; also run.toml:20: `optimizer.lr` is 0; expected a \
         number above 0"
    );
    // A file of another kind.
    let many: String = (0..12).map(|key| format!("other{key} = 1\n")).collect();
    let many = resolve(&(many + FILE), &[]).unwrap_err().to_string();
    assert!(many.ends_with("; and 4 more mistakes"), "{many}");
}

#[test]
fn wrong_types_say_what_was_expected() {
    let cases = [
        (
            "\nsteps = 100",
            "\nsteps = \"many\"",
            "run.toml:17: `train.steps` is \"many\"; expected a whole number of 1 or more",
        ),
        (
            "\nsteps = 100",
            "\nsteps = -1",
            "run.toml:17: `train.steps` is -1; expected a whole number of 1 or more",
        ),
        (
            "\nsteps = 100",
            "\nsteps = 1.5",
            "run.toml:17: `train.steps` is 1.5; expected a whole number of 1 or more",
        ),
        ("lr = 1e-3", "lr = true", "run.toml:21: `optimizer.lr` is true; expected a number above 0"),
        (
            "lr = 1e-3",
            "lr = 2026-11-21",
            "run.toml:21: `optimizer.lr` is 2026-11-21; expected a number above 0",
        ),
        (
            "files = [\"data/*.txt\"]",
            "files = \"data/a.txt\"",
            "run.toml:2: `corpus.files` is \"data/a.txt\"; expected a list in brackets",
        ),
        (
            "files = [\"data/*.txt\"]",
            "files = [1]",
            "run.toml:2: `corpus.files` is a list; expected a string in quotes",
        ),
        (
            "preset = \"tiny\"",
            "preset = \"tny\"",
            "run.toml:13: `model.preset` is \"tny\"; expected one of \"tiny\", \"mini\", \"small\", \"medium\", \
             \"base\" or \"large\"; did you mean \"tiny\"?",
        ),
        (
            "hidden_dropout = 0.0",
            "norm = 3",
            "run.toml:14: `model.norm` is 3; expected one of \"post\" or \"pre\"",
        ),
        // Inside tables tagged by a kind.
        (
            "vocab_size = 4096",
            "vocab_size = [4096]",
            "run.toml:6: `tokenizer.vocab_size` is a list; expected a whole number of 32 or more",
        ),
        (
            "short_seq_prob = 0.2",
            "short_seq_prob = \"0.2\"",
            "run.toml:10: `examples.pairs.short_seq_prob` is \"0.2\"; expected a number from 0 to 1",
        ),
        (
            "kind = \"linear\"",
            "kind = \"liner\"",
            "run.toml:24: `schedule.kind` is \"liner\"; expected one of \"linear\", \"cosine\", \"constant\", \
             \"inverse-sqrt\", \"noam\", \"trapezoidal\", \"wsd\" or \"slanted-triangular\"; did you mean \"linear\"?",
        ),
    ];
    for (from, to, message) in cases {
        assert_eq!(error_of(from, to), message);
    }
    let table = error_of_set("train=5");
    assert_eq!(table, "--set train=5: `train` is 5; expected a table");
    let argument = error_of_set("tokenizer.vocab_size=big");
    assert_eq!(
        argument,
        "--set tokenizer.vocab_size=big: `tokenizer.vocab_size` is \"big\"; expected a whole number of 32 or more"
    );
    let name = error_of_set("run.name=7");
    assert_eq!(name, "--set run.name=7: `run.name` is 7; expected a string in quotes");
}

#[test]
fn values_out_of_range_say_the_range() {
    let cases = [
        ("train.steps=0", "`train.steps` is 0; expected a whole number of 1 or more"),
        ("train.batch_size=0", "`train.batch_size` is 0; expected a whole number from 1 to 33554431"),
        ("train.accumulate=0", "`train.accumulate` is 0; expected a whole number from 1 to 2147483647"),
        ("train.workers=0", "`train.workers` is 0; expected a whole number from 1 to 256"),
        ("train.prefetch=0", "`train.prefetch` is 0; expected a whole number from 1 to 65536"),
        (
            "corpus.files=[]",
            "`corpus.files` is []; expected at least one file, folder or glob, or texts in `corpus.languages`",
        ),
        ("tokenizer.vocab_size=5", "`tokenizer.vocab_size` is 5; expected a whole number of 32 or more"),
        (
            "examples.seq_len=513",
            "`examples.seq_len` is 513; expected 8 to 512 tokens (`model.max_positions`)",
        ),
        ("examples.seq_len=0", "`examples.seq_len` is 0; expected 8 to 512 tokens (`model.max_positions`)"),
        ("model.n_heads=3", "`model.n_heads` is 3; expected a divisor of `model.d_model`, which is 128"),
        ("model.n_heads=0", "`model.n_heads` is 0; expected a whole number of 1 or more"),
        ("model.n_layers=0", "`model.n_layers` is 0; expected a whole number of 1 or more"),
        ("model.d_model=0", "`model.d_model` is 0; expected a whole number of 1 or more"),
        ("model.d_ff=0", "`model.d_ff` is 0; expected a whole number of 1 or more"),
        ("model.hidden_dropout=1", "`model.hidden_dropout` is 1; expected a number from 0 to below 1"),
        (
            "model.attention_dropout=-1",
            "`model.attention_dropout` is -1; expected a number from 0 to below 1",
        ),
        ("model.layer_norm_eps=0", "`model.layer_norm_eps` is 0; expected a number above 0"),
        ("model.init_std=0", "`model.init_std` is 0; expected a number above 0"),
        ("optimizer.lr=0", "`optimizer.lr` is 0; expected a number above 0"),
        ("optimizer.lr=inf", "`optimizer.lr` is inf; expected a number above 0"),
        ("optimizer.lr=nan", "`optimizer.lr` is NaN; expected a number above 0"),
        ("optimizer.beta1=1", "`optimizer.beta1` is 1; expected a number from 0 to below 1"),
        ("optimizer.beta2=-0.1", "`optimizer.beta2` is -0.1; expected a number from 0 to below 1"),
        ("optimizer.eps=0", "`optimizer.eps` is 0; expected a number above 0"),
        ("optimizer.weight_decay=-1", "`optimizer.weight_decay` is -1; expected a number of 0 or more"),
        ("optimizer.clip_norm=-1", "`optimizer.clip_norm` is -1; expected a number of 0 or more"),
        (
            "schedule.warmup_steps=101",
            "`schedule.warmup_steps` is 101; expected at most 100, the steps of the run: lower it, or set \
             `schedule.warmup_fraction`, such as 0.1, in its place",
        ),
        ("schedule.final_fraction=1.5", "`schedule.final_fraction` is 1.5; expected a number from 0 to 1"),
        ("eval.heldout_fraction=1", "`eval.heldout_fraction` is 1; expected a number above 0 and below 1"),
        ("eval.every=0", "`eval.every` is 0; expected a whole number of 1 or more"),
        ("eval.batch_size=0", "`eval.batch_size` is 0; expected a whole number of 1 or more"),
        ("eval.max_examples=0", "`eval.max_examples` is 0; expected a whole number of 1 or more"),
        ("checkpoint.every=0", "`checkpoint.every` is 0; expected a whole number of 1 or more"),
        ("checkpoint.keep_last=0", "`checkpoint.keep_last` is 0; expected a whole number of 1 or more"),
        ("log.every=0", "`log.every` is 0; expected a whole number of 1 or more"),
    ];
    for (set, message) in cases {
        assert_eq!(error_of_set(set), format!("--set {set}: {message}"));
    }
    // From the file, and from a default of another key.
    assert_eq!(
        error_of("warmup_steps = 10", "warmup_steps = 1_000"),
        "run.toml:25: `schedule.warmup_steps` is 1000; expected at most 100, the steps of the run: lower it, or set \
         `schedule.warmup_fraction`, such as 0.1, in its place"
    );
    assert_eq!(
        error_of("final_fraction = 0.1", "[log]\nevery = 0"),
        "run.toml:27: `log.every` is 0; expected a whole number of 1 or more"
    );
    let noam = resolve(FILE, &["schedule={ kind = \"noam\", warmup_steps = 0 }"]).unwrap_err().to_string();
    assert!(noam.contains("`schedule.warmup_steps` is 0; expected a whole number of 1 or more"), "{noam}");
}

#[test]
fn data_values_out_of_range_say_the_range() {
    let cases = [
        ("corpus.max_line_bytes=0", "`corpus.max_line_bytes` is 0; expected a whole number of 1 or more"),
        (
            "corpus.max_document_bytes=0",
            "`corpus.max_document_bytes` is 0; expected a whole number of 1 or more",
        ),
        (
            "examples.pairs.short_seq_prob=2",
            "`examples.pairs.short_seq_prob` is 2; expected a number from 0 to 1",
        ),
        (
            "examples.pairs.random_next_prob=-1",
            "`examples.pairs.random_next_prob` is -1; expected a number from 0 to 1",
        ),
        (
            "examples.masking.probability=0",
            "`examples.masking.probability` is 0; expected a number above 0, at most 1",
        ),
        (
            "examples.masking.mask_share=1.5",
            "`examples.masking.mask_share` is 1.5; expected a number from 0 to 1",
        ),
        (
            "examples.masking.random_share=0.3",
            "`examples.masking.random_share` is 0.3; expected at most 1 together with \
             `examples.masking.mask_share`, which is 0.8",
        ),
        ("corpus.on_error=ignore", "`corpus.on_error` is \"ignore\"; expected one of \"fail\" or \"skip\""),
        (
            "examples.masking.max_span=5",
            "`examples.masking.max_span` is 5; expected no such key unless `examples.masking.unit` is \"span\"",
        ),
        (
            "examples.masking={ unit = \"span\", span_p = 0 }",
            "`examples.masking.span_p` is 0; expected a number above 0, at most 1",
        ),
        (
            "examples.masking={ unit = \"n-gram\", max_ngram = 0 }",
            "`examples.masking.max_ngram` is 0; expected a whole number from 1 to 1000",
        ),
        (
            "examples.masking.unit=whole-words",
            "`examples.masking.unit` is \"whole-words\"; expected one of \"token\", \"whole-word\", \"span\" or \"n-gram\"; did you mean \
             \"whole-word\"?",
        ),
    ];
    for (set, message) in cases {
        assert_eq!(error_of_set(set), format!("--set {set}: {message}"));
    }
    // Shares that sum to 1 but for rounding.
    resolved(&["examples.masking.mask_share=0.7", "examples.masking.random_share=0.3"]);
}

#[test]
fn what_is_not_toml_names_its_line() {
    // The place is ours, the words are the TOML parser's.
    for (from, to, start) in [
        ("lr = 1e-3", "lr = ", "run.toml:21: string values must be quoted"),
        ("lr = 1e-3", "lr = 1\nlr = 2", "run.toml:22: duplicate key"),
        ("[train]", "[train", "run.toml:16: unclosed table"),
        ("\nsteps = 100", "\nsteps = 99999999999999999999", "run.toml:17: a number out of range"),
    ] {
        let message = error_of(from, to);
        assert!(message.starts_with(start) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn malformed_arguments_show_the_form() {
    assert_eq!(
        error_of_set("train.steps"),
        "--set train.steps: expected section.key=value, as in train.steps=100"
    );
    assert_eq!(
        error_of_set("train..steps=1"),
        "--set train..steps=1: `train..steps` is not a dotted key; expected section.key=value, as in \
         train.steps=100"
    );
    assert_eq!(
        error_of_set("=1"),
        "--set =1: `` is not a dotted key; expected section.key=value, as in train.steps=100"
    );
    assert_eq!(
        error_of_set("corpus.files=[\"a\""),
        "--set corpus.files=[\"a\": unclosed array, expected `]`"
    );
}

#[test]
fn a_nested_argument_cannot_exhaust_the_stack() {
    let key = vec!["a"; 100_000].join(".");
    let message = error_of_set(&format!("{key}=1"));
    assert!(message.ends_with("is not a dotted key; expected section.key=value, as in train.steps=100"));
}

#[test]
fn long_values_are_shown_in_short_and_on_one_line() {
    let message = error_of("\nsteps = 100", &format!("\nsteps = \"\"\"a\n\"b{}\"\"\"", "x".repeat(500)));
    assert_eq!(
        message,
        format!(
            "run.toml:17: `train.steps` is \"a\\n\\\"b{}…; expected a whole number of 1 or more",
            "x".repeat(53)
        )
    );
}

#[test]
fn the_model_section_makes_the_model() {
    let config =
        resolved(&["model.preset=base", "model.norm=post", "model.activation=relu", "model.d_ff=100"]);
    let model = new(&config);
    assert_eq!(model.fixed_padding(), None);
    let bert = model.with_vocabulary(1_000, 7);
    assert_eq!((bert.vocab_size, bert.pad_token_id, bert.n_layers, bert.d_ff), (1_000, 7, 12, 100));
    assert_eq!((bert.activation, bert.norm), (Activation::Relu, NormPlacement::Post));
    assert_eq!((bert.hidden_dropout, bert.attention_dropout), (0.0, 0.1));
    bert.validate().unwrap();
}

#[test]
fn a_family_gives_the_model_its_architecture() {
    let masked = "examples.pairs={kind=\"doc-sentences\"}";
    let model = |sets: &[&str]| new(&resolved(&[&[masked], sets].concat())).with_vocabulary(1_000, 7);
    let albert = model(&["model.family=albert", "model.d_embedding=32"]);
    assert_eq!((albert.share_layers, albert.d_embedding), (true, Some(32)));
    assert_eq!(model(&["model.family=roberta"]).position_offset, 8);
    // Its class in transformers gives id 1 no position, whatever its config says.
    let padding = |family| new(&resolved(&[masked, family])).fixed_padding();
    assert_eq!(["model.family=roberta", "model.family=mpnet"].map(padding), [None, Some(1)]);
    let sets = ["model.family=modernbert", "model.local_window=16", "model.global_every=2", "model.norm=pre"];
    let modern = model(&sets);
    assert_eq!((modern.norm, modern.gated, modern.attention_bias), (NormPlacement::Pre, true, false));
    let local = modern.local.unwrap();
    assert_eq!((local.window, local.global_every), (16, 2));
    assert_eq!(model(&["model.family=bert"]), model(&[]));
    assert_eq!(new(&resolved(&[])).family, Family::BERT);
}

#[test]
fn a_new_bert_has_the_positions_that_are_asked_for() {
    let model = |sets: &[&str]| new(&resolved(sets)).with_vocabulary(1_000, 7);
    assert_eq!(model(&["model.positions=learned"]), model(&[]));
    for kind in PositionKind::ALL {
        let set = format!("model.positions={}", kind.name());
        let config = resolved(&[set.as_str()]);
        assert_eq!(config, resolve(&config.to_toml(), &[]).unwrap());
        assert_eq!(new(&config).positions, Some(kind));
        let bert = model(&[set.as_str()]);
        assert_eq!(bert.positions(), Some(kind.into()), "{kind:?}");
        // Nothing else differs.
        assert_eq!(bert.with_positions(PositionKind::Learned.into()), model(&[]), "{kind:?}");
    }
    // What has no table may be long.
    assert_eq!(model(&["model.positions=alibi", "model.max_positions=100000"]).max_positions, 100_000);
}

#[test]
fn positions_that_a_model_cannot_have_are_refused() {
    let masked = "examples.pairs={kind=\"doc-sentences\"}";
    let electra = "objective.kind=replaced-tokens";
    for (sets, expected) in [
        (
            &["model.positions=spiral"][..],
            "`model.positions` is \"spiral\"; expected one of \"learned\", \"sinusoidal\", \"relative\", \"relative-bias\", \
             \"rotary\", \"alibi\" or \"none\"",
        ),
        (
            &[masked, "model.family=modernbert", "model.positions=rotary"],
            "`model.positions` is \"rotary\"; expected no such key: a \"modernbert\", which `model.family` asks for, has \
             positions of its own",
        ),
        (
            &[masked, electra, "model.positions=alibi"],
            "`model.positions` is \"alibi\"; expected \"learned\", or no such key: `objective.kind` is \"replaced-tokens\", \
             and ELECTRA has no others",
        ),
        (
            &["model.family=cloze-bert"],
            "`model.family` is \"cloze-bert\"; expected \"bert\" with `model.positions`",
        ),
        (
            &["model.positions=rotary", "model.d_model=126", "model.n_heads=42"],
            "`model.n_heads` is 42; expected heads of an even width, whose features `model.positions` = \"rotary\" rotates in \
             pairs: 126 / 42 is 3",
        ),
    ] {
        let message = resolve(FILE, sets).unwrap_err().to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
    let message = resolve(&from_checkpoint(), &["model.positions=rotary"]).unwrap_err().to_string();
    assert!(
        message.contains("`model.positions` is ") && message.ends_with("absent: `model.path` brings its own"),
        "{message}"
    );
}

#[test]
fn what_a_family_lacks_is_refused() {
    let masked = "examples.pairs={kind=\"doc-sentences\"}";
    for (sets, expected) in [
        (
            &["model.family=roberta"][..],
            "`examples.pairs.kind` is \"next-sentence\"; expected \"doc-sentences\" or \"full-sentences\": \
             `model.family` = \"roberta\" has no head for pairs",
        ),
        (
            &[masked, "model.family=roberta", "model.local_window=8"],
            "`model.local_window` is 8; expected no such key unless `model.family` is \"modernbert\"",
        ),
        (
            &["model.global_every=2"],
            "`model.global_every` is 2; expected no such key unless `model.family` is \"modernbert\"",
        ),
        (&["model.d_embedding=16"], "`model.d_embedding` is 16; expected none"),
        (
            &[masked, "model.family=modernbert", "model.norm=post"],
            "`model.norm` is \"post\"; expected \"pre\"",
        ),
        (&["model.family=robert"], "did you mean \"roberta\"?"),
    ] {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let place = Place::file(Path::new("run.toml"));
        let error = RunConfig::parse(FILE, "run", &place, &sets).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_key_is_told_one_range_whatever_it_is_given() {
    for (key, expected) in [
        ("train.steps", "a whole number of 1 or more"),
        ("train.workers", "a whole number from 1 to 256"),
        ("tokenizer.vocab_size", "a whole number of 32 or more"),
        ("optimizer.lr", "a number above 0"),
        ("eval.heldout_fraction", "a number above 0 and below 1"),
        ("model.hidden_dropout", "a number from 0 to below 1"),
        (
            "schedule.kind",
            r#"one of "linear", "cosine", "constant", "inverse-sqrt", "noam", "trapezoidal", "wsd" or "slanted-triangular""#,
        ),
        ("train.precision", r#"one of "f32", "bf16" or "f16""#),
        ("train.recompute", "true or false"),
        ("corpus", "a table"),
    ] {
        let values = ["-1", "nan", "1e300", "[]", "{a=1}", "true", "word"];
        let values = values.into_iter().chain(key.contains('.').then_some("0"));
        let fits = [
            ("optimizer.lr", "1e300"),
            ("model.hidden_dropout", "0"),
            ("train.recompute", "true"),
            ("corpus", "{a=1}"),
        ];
        for value in values.filter(|value| !fits.contains(&(key, *value))) {
            let message = error_of_set(&format!("{key}={value}"));
            assert!(message.ends_with(&format!("; expected {expected}")), "{key}={value}: {message}");
        }
    }
    assert!(error_of_set("train.steps=1e300").contains("`train.steps` is 1e300; "));
}

#[test]
fn all_values_that_are_wrong_are_told_at_once() {
    let sets = [
        "train.steps=-1",
        "optimizer.lr=0",
        "train.precision=half",
        "eval.heldout_fraction=2.0",
        "model.n_heads=5",
        "tokenizer.vocab=3",
    ];
    let message = resolve(FILE, &sets).unwrap_err().to_string();
    for told in [
        "unknown key `tokenizer.vocab`",
        "--set train.steps=-1: `train.steps` is -1; expected a whole number of 1 or more",
        "`optimizer.lr` is 0; expected a number above 0",
        "`train.precision` is \"half\"; expected one of",
        "`eval.heldout_fraction` is 2; expected a number above 0 and below 1",
        "`model.n_heads` is 5; expected a divisor of `model.d_model`, which is 128",
    ] {
        assert_eq!(message.matches(told).count(), 1, "{told}: {message}");
    }
    // The warm-up of 10 steps is too long only for a number of steps that nobody has written.
    assert_eq!(message.matches("lso ").count(), sets.len() - 1, "{message}");
}

#[test]
fn a_value_that_is_wrong_only_beside_a_stand_in_is_not_told() {
    for (set, told) in [
        ("train.steps=0", "`train.steps` is 0; expected a whole number of 1 or more"),
        ("model.d_model=0", "`model.d_model` is 0; expected a whole number of 1 or more"),
        ("train.steps=9", "`schedule.warmup_steps` is 10; expected at most 9, the steps of the run"),
    ] {
        let message = error_of_set(set);
        assert!(message.contains(told) && !message.contains("also"), "{message}");
    }
}

#[test]
fn a_value_that_is_wrong_only_for_a_misspelt_key_is_not_told() {
    let sets = ["model.max_position=1024", "examples.seq_len=1000", "optimizer.lr=0"];
    let message = resolve(FILE, &sets).unwrap_err().to_string();
    assert!(
        message.contains("unknown key `model.max_position`; did you mean `model.max_positions`?"),
        "{message}"
    );
    assert!(message.contains("`optimizer.lr` is 0") && !message.contains("`examples.seq_len`"), "{message}");
}

#[test]
fn a_model_that_could_not_be_saved_is_refused() {
    let message = error_of_set("model.norm=pre");
    assert_eq!(
        message,
        "--set model.norm=pre: `model.norm` is \"pre\"; expected \"post\": transformers has no other BERT, so such a \
         model cannot be saved"
    );
    let message = error_of_set("model.d_model=3000000000");
    assert!(message.contains("`model.d_model` is 3000000000; expected at most 2147483647"), "{message}");
}

#[test]
fn an_unreadable_file_is_named() {
    let error = RunConfig::load("no/such.toml", &[]).unwrap_err();
    assert_eq!(error.to_string(), "cannot read config no/such.toml");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn the_run_is_named_after_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("first-try.toml");
    std::fs::write(&path, FILE).unwrap();
    assert_eq!(RunConfig::load(&path, &[]).unwrap().common.run.name, "first-try");
    let set = ["run.name=second".to_owned()];
    assert_eq!(RunConfig::load(&path, &set).unwrap().common.run.name, "second");
}
