//! `cloze eval-embeddings`: its figures are those of the model's vectors, and failures.

use crate::ran::{Ran, run};
use burn::tensor::Device;
use cloze::Embedder;
use cloze_evaluation::embeddings::{
    Documents, LogisticConfig, Retrieval, Similarity, Vectors, linear_probe, pair_figures, sts_figures,
};
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use std::collections::BTreeMap;
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
const PROMPT: &str = "the queen ";

/// A folder with a model, whose queries have a prompt, and files of all kinds.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = WordPieceTrainer { vocab_size: 90, ..Default::default() }
        .train([TEXTS.join("\n").repeat(9)])
        .unwrap();
    let model = place.path().join("model");
    let mut config = BertConfig::new(tokenizer.vocab_size(), 1, 16);
    (config.n_heads, config.max_positions) = (2, 16);
    let encoder = config.init_encoder(&mut ParamInit::new(&Device::flex(), 1));
    save_pretrained(&model, &encoder, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
    tokenizer.save(&model).unwrap();
    fs::write(
        model.join("modules.json"),
        r#"[{"path": "", "type": "sentence_transformers.models.Transformer"}]"#,
    )
    .unwrap();
    let prompts = serde_json::json!({"prompts": {"query": PROMPT}}).to_string();
    fs::write(model.join("config_sentence_transformers.json"), prompts).unwrap();
    let write = |name: &str, text: String| {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let [a, b, c, d, e, f] = TEXTS;
    // As STS 2015 has it, without header and with a pair that nobody scored, and as SICK has it.
    write("sts.tsv", format!("3.5\t{a}\t{b}\n\t{a}\t{c}\n1\t{c}\t{d}\n0.5\t{e}\t{f}\n4\t{f}\t{c}\n"));
    let header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n";
    let sick = [(a, b, "3.5"), (c, d, "1"), (e, f, "0.5"), (f, c, "4")];
    let row = |(i, (a, b, score)): (usize, &(&str, &str, &str))| format!("{i}\t{a}\t{b}\t{score}\tNEUTRAL\n");
    write("sick.tsv", header.to_owned() + &sick.iter().enumerate().map(row).collect::<String>());
    let pair = |(a, b, label): (&str, &str, u8)| {
        serde_json::json!({"sentence1": a, "sentence2": b, "label": label}).to_string() + "\n"
    };
    write("pairs.jsonl", [(a, b, 1), (c, d, 0), (e, f, 0), (f, c, 1)].map(pair).concat());
    write("bad.jsonl", [(a, b, 1), (c, d, 2)].map(pair).concat());
    let labelled = |rows: &[(&str, &str)]| -> String {
        rows.iter().fold("text\tlabel\n".to_owned(), |all, (text, label)| format!("{all}{text}\t{label}\n"))
    };
    write("train.tsv", labelled(&[(a, "sea"), (b, "sea"), (d, "court"), (e, "court")]));
    write("test.tsv", labelled(&[(c, "sea"), (f, "sea"), (d, "court")]));
    write("one.tsv", labelled(&[(a, "sea"), (b, "sea")]));
    write("none.tsv", String::new());
    let object =
        |(id, text): (usize, &str)| serde_json::json!({"_id": format!("d{id}"), "text": text}).to_string();
    let corpus: Vec<String> = TEXTS.into_iter().enumerate().map(object).collect();
    let queries = [("q0", "old boats"), ("q1", "bread"), ("q2", "night"), ("d3", "the king")];
    let query = |(id, text): (&str, &str)| serde_json::json!({"_id": id, "text": text}).to_string();
    for (folder, wrong) in [("beir", ""), ("unknown", "q1\td99\t1\n")] {
        write(&format!("{folder}/corpus.jsonl"), corpus.join("\n"));
        write(&format!("{folder}/queries.jsonl"), queries.map(query).join("\n"));
        let qrels = "query-id\tcorpus-id\tscore\nq0\td0\t2\nq0\td2\t1\nq1\td4\t1\nd3\td4\t1\n";
        write(&format!("{folder}/qrels/test.tsv"), format!("{qrels}{wrong}"));
    }
    place
}

/// `cloze eval-embeddings COMMAND`, with names of files and folders where they are.
fn eval(place: &Path, args: &[&str]) -> Ran {
    let is_path = |arg: &str| {
        ["model", "beir", "unknown", "absent", "report"].contains(&arg)
            || [".jsonl", ".tsv"].iter().any(|ending| arg.ends_with(ending))
    };
    let mut all = vec!["eval-embeddings".to_owned()];
    all.extend(args.iter().map(|arg| match is_path(arg) {
        true => place.join(arg).to_str().unwrap().to_owned(),
        false => (*arg).to_owned(),
    }));
    run(&all.iter().map(String::as_str).collect::<Vec<_>>(), b"")
}

/// The figures that a command prints as JSON.
fn figures(place: &Path, args: &[&str]) -> Figures {
    serde_json::from_str(&eval(place, &[args, &["--model", "model", "--json"]].concat()).done()).unwrap()
}

#[track_caller]
fn assert_same(ours: &Figures, expected: &Figures) {
    assert_eq!((ours.main().0, ours.examples()), (expected.main().0, expected.examples()));
    let names = |figures: &Figures| figures.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(ours), names(expected));
    for ((name, ours), (_, expected)) in ours.iter().zip(expected.iter()) {
        assert!((ours - expected).abs() < 1e-4, "{name}: {ours}, not {expected}");
    }
}

fn embedded(place: &Path, texts: &[&str]) -> (Vec<f32>, usize) {
    let embedder = Embedder::load(place.join("model"), &Device::flex()).unwrap();
    (embedder.embed(texts).unwrap().values().to_vec(), embedder.width())
}

#[test]
fn figures_of_pairs_are_those_of_the_models_vectors() {
    let place = place();
    let place = place.path();
    let [a, b, c, d, e, f] = TEXTS;
    let (first, width) = embedded(place, &[a, c, e, f]);
    let (second, _) = embedded(place, &[b, d, f, c]);
    let (first, second) = (Vectors::new(&first, width).unwrap(), Vectors::new(&second, width).unwrap());
    let both = [Similarity::Cosine, Similarity::Manhattan];
    let expected = sts_figures(first, second, &[3.5, 1.0, 0.5, 4.0], &both);
    let sick = ["sts", "--columns", "text=sentence_A,pair=sentence_B,label=relatedness_score", "sick.tsv"];
    let several = [&sick[..], &["--similarity", "cosine,manhattan,cosine"]].concat();
    assert_same(&figures(place, &several), &expected);

    let without_header = ["sts", "--no-header", "--columns", "label=1,text=2,pair=3", "sts.tsv"];
    let skipped = [&without_header[..], &["--on-bad-row", "skip", "--model", "model"]].concat();
    let ran = eval(place, &skipped);
    assert!(ran.err.contains("skipped") && ran.err.contains('1'), "{}", ran.err);
    let table = ran.done();
    assert!(table.contains("spearman_cosine *") && table.contains("4 examples"), "{table}");

    let expected = pair_figures(first, second, &[true, false, false, true], &[Similarity::Cosine]);
    assert_same(&figures(place, &["pairs", "pairs.jsonl"]), &expected);
}

#[test]
fn retrieval_puts_prompts_before_queries_and_leaves_out_those_without_judgement() {
    let place = place();
    let place = place.path();
    let (documents, width) = embedded(place, &TEXTS);
    let queries = ["old boats", "bread", "the king"];
    let expected = |prompt: &str| {
        let texts = queries.map(|query| format!("{prompt}{query}"));
        let (vectors, _) = embedded(place, &texts.each_ref().map(String::as_str));
        let ids: Vec<String> = (0..TEXTS.len()).map(|id| format!("d{id}")).collect();
        let documents = Documents::new(&ids, Vectors::new(&documents, width).unwrap(), Similarity::Cosine);
        let mut retrieval = Retrieval::new(&[1, 2]);
        let judged = [&[("d0", 2), ("d2", 1)][..], &[("d4", 1)], &[("d4", 1)]];
        for ((id, query), judged) in ["q0", "q1", "d3"].iter().zip(vectors.chunks_exact(width)).zip(judged) {
            let judged: BTreeMap<String, i64> =
                judged.iter().map(|(id, grade)| ((*id).to_owned(), *grade)).collect();
            let hits = documents.nearest(id, query, 2);
            retrieval.add(hits.iter().map(|hit| hit.id), &judged);
        }
        retrieval.figures()
    };
    assert_same(&figures(place, &["retrieval", "-k", "2,1,2", "beir"]), &expected(PROMPT));
    let without = ["retrieval", "-k", "1,2", "--query-prompt-text", "", "beir"];
    assert_same(&figures(place, &without), &expected(""));
    // A relevant document that the corpus lacks counts as not found.
    let ran = eval(place, &["retrieval", "--model", "model", "--json", "unknown"]);
    let told = "judgements of documents missing from the corpus: 1; relevant ones count as not found";
    assert!(ran.err.contains(told), "{}", ran.err);
    let recall = |folder| figures(place, &["retrieval", "-k", "6", folder]).get("recall@6").unwrap();
    assert_eq!(recall("beir"), 1.0);
    assert!((recall("unknown") - 2.5 / 3.0).abs() < 1e-12);
    let ran = eval(place, &["retrieval", "--model", "model", "beir"]);
    assert!(ran.err.contains("skipped queries without judgements: 1"), "{}", ran.err);
    assert!(ran.done().contains("ndcg@10 *"));
}

#[test]
fn classes_are_found_by_clusters_and_by_a_probe() {
    let place = place();
    let place = place.path();
    let [a, b, c, d, e, f] = TEXTS;
    let (train, width) = embedded(place, &[a, b, d, e]);
    let (test, _) = embedded(place, &[c, f, d]);
    let (train, test) = (Vectors::new(&train, width).unwrap(), Vectors::new(&test, width).unwrap());
    // `court` is the first label, `sea` the second.
    let config = LogisticConfig { c: 10.0, ..LogisticConfig::default() };
    let expected = linear_probe((train, &[1, 1, 0, 0]), (test, &[1, 1, 0]), 2, config, &mut |_| ()).unwrap();
    let args = ["classification", "-c", "10", "--train", "train.tsv", "--out", "report", "test.tsv"];
    assert_same(&figures(place, &args), &expected.figures);
    let page = fs::read_to_string(place.join("report/report.html")).unwrap();
    assert!(page.contains("Embeddings: classification") && page.contains("accuracy"));
    assert_eq!(fs::read_to_string(place.join("report/predictions.jsonl")).unwrap().lines().count(), 3);

    let clusters = |seed| figures(place, &["clustering", "--runs", "3", "--seed", seed, "train.tsv"]);
    let found = clusters("1");
    assert_eq!((found.main().0, found.examples()), ("v_measure", 4));
    assert!((0.0..=1.0).contains(&found.main().1), "{}", found.main().1);
    assert_eq!(found, clusters("1"));
}

#[test]
fn failures_are_one_line() {
    let place = place();
    let place = place.path();
    for (args, status, expected) in [
        (&["sts", "sick.tsv"][..], 1, "no column `sentence1`"),
        (
            &["sts", "--columns", "words=1", "sick.tsv"],
            2,
            "no field `words`; expected one of text, pair, label",
        ),
        (&["sts", "--columns", "text", "sick.tsv"], 2, "expected FIELD=COLUMN"),
        (
            &["sts", "--columns", "text=a,text=b", "sick.tsv"],
            2,
            "--columns: the field `text` is given twice; expected one column for it",
        ),
        (
            &["sts", "--no-header", "--columns", "label=1,text=2,pair=3", "sts.tsv"],
            1,
            "correct it, or skip such rows with --on-bad-row skip",
        ),
        (&["sts", "--no-header", "pairs.jsonl"], 2, "`--no-header`"),
        (&["sts", "none.tsv"], 1, "none.tsv"),
        (&["sts", "absent"], 1, "absent"),
        (&["pairs", "bad.jsonl"], 1, "bad.jsonl:2: column `label`: `2`, expected one of 0, 1"),
        (&["retrieval", "--split", "dev", "beir"], 1, "dev.tsv: there is no such file"),
        (&["retrieval", "-k", "0", "beir"], 2, "-k"),
        (
            &["clustering", "--columns", "pair=3", "train.tsv"],
            2,
            "no field `pair`; expected one of text, label",
        ),
        (&["clustering", "none.tsv"], 1, "none.tsv"),
        (
            &["classification", "--train", "one.tsv", "one.tsv"],
            1,
            "there is one class only; expected two or more",
        ),
        (&["classification", "--train", "one.tsv", "test.tsv"], 1, "test.tsv:4: column `label`: `court`"),
        (&["classification", "-c", "0", "--train", "train.tsv", "test.tsv"], 2, "expected a number above 0"),
        (&["pairs", "--prompt", "absent-prompt", "pairs.jsonl"], 1, "prompt \"absent-prompt\" is unknown"),
    ] {
        let ran = eval(place, &[args, &["--model", "model"]].concat());
        let line = ran.error_line(status);
        assert!(line.contains(expected), "{args:?}: {line}");
        assert!(ran.out.is_empty(), "{args:?}");
    }
}
