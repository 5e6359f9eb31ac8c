//! Word senses against means and cosines by NumPy of transformers' hidden states: `tests/fixtures/senses/export.py`.

use crate::golden::{Golden, fixture, relative_error};
use burn::tensor::{Device, TensorData};
use cloze_data::labelled::LabelledSource;
use cloze_evaluation::senses::{Group, PartOfSpeech};
use cloze_trainer::senses::{
    Choice, LearnReport, MOST_FREQUENT, NEAREST, RELATED, SenseData, SenseModel, SensePart, SenseReport,
    SenseSentence, SenseTagger, SenseTarget, SenseText, SenseVectors, TargetEmbedder, WordNet, evaluate,
    learn,
};
use cloze_trainer::token_vectors::{Layers, TokenEmbedConfig};
use serde_json::Value;
use std::path::Path;

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
/// The share that the exporter holds out.
const HELD_OUT: f64 = 0.25;

fn golden() -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("senses").join("golden.json")).unwrap()).unwrap()
}

fn embedder(model: &Path, batch_tokens: usize) -> TargetEmbedder {
    let config = TokenEmbedConfig { layers: Layers::LastFourMean, batch_tokens, ..Default::default() };
    TargetEmbedder::load(model, config, &Device::flex()).unwrap()
}

fn data() -> SenseData {
    SenseData::open(&fixture("senses").join("data.jsonl"), &LabelledSource::default()).unwrap()
}

fn identity() -> SenseModel {
    SenseModel { name: "small".into(), hash: "00".into(), layers: String::new(), width: 0 }
}

fn learnt(embedder: &TargetEmbedder, data: &SenseData) -> SenseVectors {
    let mut shown = Vec::new();
    let progress = &mut |done: u64, all: u64| shown.push((done, all));
    let (vectors, report) = learn(embedder, identity(), data, HELD_OUT, progress).unwrap();
    assert_eq!(report, LearnReport { without_token: 0 });
    assert_eq!(shown, [(30, 30)]);
    vectors
}

#[test]
fn a_sense_has_the_mean_of_its_occurrences() {
    let data = data();
    assert_eq!(data.sentences, 40);
    let embedder = embedder(&fixture("token_vectors"), 1024);
    let vectors = learnt(&embedder, &data);
    assert_eq!((vectors.model.layers.as_str(), vectors.model.width), ("last-four-mean", 12));
    let found: Vec<(String, String, String, u64)> = vectors
        .inventory
        .iter()
        .flat_map(|(lemma, pos, senses)| {
            senses.iter().map(move |sense| (lemma.into(), pos.to_string(), sense.sense.clone(), sense.count))
        })
        .collect();
    let text = |sense: &Value, key: &str| sense[key].as_str().unwrap().to_owned();
    let golden = golden();
    let expected: Vec<(String, String, String, u64)> = golden["senses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sense| {
            let count = sense["count"].as_u64().unwrap();
            (text(sense, "lemma"), text(sense, "pos"), text(sense, "sense"), count)
        })
        .collect();
    assert_eq!(found, expected);
    let expected = Golden::open(&fixture("senses")).data("senses");
    let found = TensorData::new(vectors.values.clone(), [vectors.inventory.n_senses(), 12]);
    let error = relative_error(&found, &expected);
    assert!(error <= TOLERANCE, "off by {error:e} of its scale");
    // Other batches give the same up to rounding.
    let others = learnt(&self::embedder(&fixture("token_vectors"), 1), &data);
    assert_eq!(others.inventory, vectors.inventory);
    let others = TensorData::new(others.values, [vectors.inventory.n_senses(), 12]);
    assert!(relative_error(&others, &found) <= 1e-5);
}

#[test]
fn the_same_senses_are_nearest() {
    let (data, embedder) = (data(), embedder(&fixture("token_vectors"), 1024));
    let vectors = learnt(&embedder, &data);
    let wordnet = WordNet::load(&fixture("senses/wordnet")).unwrap();
    let (with_wordnet, fits) = SenseTagger::with_wordnet(&vectors, &wordnet).unwrap();
    assert!(fits.iter().all(|fit| fit.is_used && fit.found == fit.senses), "{fits:?}");
    let alone = SenseTagger::new(&vectors);
    let held_out = data.read(SensePart::HeldOut(HELD_OUT)).unwrap();
    let sentences: Vec<SenseSentence> = held_out.map(|sentence| sentence.unwrap()).collect();
    let embedded = embedder.embed(&sentences).unwrap();
    let golden = golden();
    let mut expected = golden["answers"].as_array().unwrap().iter();
    let close = |found: Option<Choice>, expected: &Value, or: &Value| {
        let sense = found.as_ref().map(|choice| choice.sense.as_str());
        match expected {
            Value::Null => {
                assert_eq!(sense, or.as_str());
                assert!(found.is_none_or(|choice| choice.similarity.is_none()));
            }
            expected => {
                assert_eq!(sense, expected["sense"].as_str());
                let (similarity, expected) =
                    (found.unwrap().similarity.unwrap(), expected["similarity"].as_f64().unwrap());
                assert!((similarity - expected).abs() < 1e-4, "{similarity}, not {expected}");
            }
        }
    };
    for (sentence, vectors) in sentences.iter().zip(embedded) {
        for (target, vector) in sentence.targets.iter().zip(vectors) {
            let answer = expected.next().unwrap();
            let (lemma, pos, vector) = (target.lemma.as_str(), target.pos, vector.as_deref());
            assert_eq!(
                (Some(lemma), Some(pos.to_string().as_str())),
                (answer["lemma"].as_str(), answer["pos"].as_str())
            );
            assert_eq!(target.sense.as_deref(), answer["gold"].as_str());
            let baseline = alone.most_frequent(lemma, pos).map(|choice| choice.sense);
            assert_eq!(baseline.as_deref(), answer["most_frequent"].as_str());
            close(alone.choose(lemma, pos, vector, true), &answer["nearest"], &answer["most_frequent"]);
            let or = &answer["most_frequent_or_first"];
            close(with_wordnet.choose(lemma, pos, vector, false), &answer["nearest"], or);
            close(with_wordnet.choose(lemma, pos, vector, true), &answer["related"], or);
        }
    }
    assert!(expected.next().is_none());
}

#[test]
fn scores_count_the_same_words() {
    let (data, embedder) = (data(), embedder(&fixture("token_vectors"), 1024));
    let vectors = learnt(&embedder, &data);
    let wordnet = WordNet::load(&fixture("senses/wordnet")).unwrap();
    let golden = golden();
    let right = |name: &str| golden["right"][name].as_u64().unwrap();
    let n_words = golden["answers"].as_array().unwrap().len() as u64;
    let measured = |tagger: &SenseTagger| {
        evaluate(tagger, &embedder, &data, SensePart::HeldOut(HELD_OUT), &mut |_| ()).unwrap()
    };
    let alone = measured(&SenseTagger::new(&vectors));
    let all = |report: &SenseReport, system| report.scores.get(system, Group::All).unwrap();
    assert_eq!((alone.scores.words(), alone.without_token), (n_words, 0));
    assert_eq!(all(&alone, MOST_FREQUENT).right, right("most frequent"));
    assert_eq!(all(&alone, NEAREST).right, right("nearest"));
    assert!(alone.scores.get(RELATED, Group::All).is_none());
    // So the exporter's seed was chosen: this tells that groups are counted, not how good the method is.
    let f1 = |system| alone.scores.get(system, Group::Ambiguous).unwrap().f1();
    assert!(f1(NEAREST) > f1(MOST_FREQUENT), "{}", alone.scores);

    let with_wordnet = measured(&SenseTagger::with_wordnet(&vectors, &wordnet).unwrap().0);
    assert_eq!(all(&with_wordnet, MOST_FREQUENT).right, right("most frequent or first"));
    assert_eq!(all(&with_wordnet, RELATED).right, right("nearest or related"));
}

#[test]
fn minilm_tells_the_senses_of_a_word() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/models/all-MiniLM-L6-v2");
    if !model.is_dir() {
        println!("skipped: no shared/models/all-MiniLM-L6-v2 beside the repository");
        return;
    }
    let embedder = embedder(&model, 1024);
    let folder = tempfile::tempdir().unwrap();
    let row = |text: &str, sense: &str| {
        let start = text.find("bank").unwrap();
        let target = serde_json::json!({"start": start, "end": start + 4, "lemma": "bank", "pos": "n", "sense": sense});
        serde_json::json!({"text": text, "senses": [target]}).to_string() + "\n"
    };
    let training: String = [
        row("They went to the bank to borrow money for a house.", "money"),
        row("The bank charges a fee for each transfer.", "money"),
        row("Her bank refused the loan.", "money"),
        row("Reeds grow along the bank of the river.", "river"),
        row("The boat was tied to the muddy bank.", "river"),
    ]
    .concat();
    let path = folder.path().join("bank.jsonl");
    std::fs::write(&path, training).unwrap();
    let data = SenseData::open(&path, &LabelledSource::default()).unwrap();
    let (vectors, _) = learn(&embedder, identity(), &data, 0.0, &mut |_, _| ()).unwrap();
    let tagger = SenseTagger::new(&vectors);
    for (text, expected) in [
        ("He swam to the other bank of the stream.", "river"),
        ("The bank pays interest on savings.", "money"),
        ("Willows stood on the grassy bank beside the water.", "river"),
        ("Robbers stole the cash from the bank.", "money"),
    ] {
        let start = text.find("bank").unwrap();
        let target = SenseTarget {
            place: start..start + 4,
            lemma: "bank".into(),
            pos: PartOfSpeech::Noun,
            sense: None,
        };
        let sentence = SenseSentence { line: 1, text: SenseText::Text(text.into()), targets: vec![target] };
        let vector = embedder.embed(&[sentence]).unwrap().remove(0).remove(0);
        let choice = tagger.choose("bank", PartOfSpeech::Noun, vector.as_deref(), true).unwrap();
        assert_eq!((choice.sense.as_str(), choice.by), (expected, "nearest"), "{text}");
    }
}
