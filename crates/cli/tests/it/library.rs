//! The package's library, with small models of random weights in the places of published ones.

#[path = "../../../../tests/outside/src/models.rs"]
pub mod models;

use std::fmt::Debug;
use std::path::Path;
use std::sync::LazyLock;
use std::thread;

use cloze::tokenizer::split_words;
use cloze::trainer::embed::{EmbedConfig, Pooling};
use cloze::trainer::token_vectors::{Layers, TokenEmbedConfig};
use cloze::{
    Answerer, Classifier, Device, Embedder, Error, MaskFiller, Reranker, Tagger, TokenEmbedder, trainer,
};
use tempfile::TempDir;

static MODELS: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    models::make(folder.path()).unwrap();
    folder
});

pub fn at(name: &str) -> std::path::PathBuf {
    MODELS.path().join(name)
}

fn device() -> Device {
    cloze::device::open(None).unwrap()
}

const TEXTS: [&str; 4] = ["the old man sat by the sea", "a sailor", "", "été in paris, and then home again"];

/// What several threads get from one model is what one thread gets from it alone.
fn shared<M: Sync, T: PartialEq + Debug + Send>(model: &M, ask: impl Fn(&M) -> T + Sync) {
    let alone = ask(model);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..3).map(|_| ask(model)).collect())).collect();
        for thread in threads {
            let found: Vec<T> = thread.join().unwrap();
            assert!(found.iter().all(|found| *found == alone), "{found:?}\n{alone:?}");
        }
    });
}

#[test]
fn threads_share_one_of_each() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Embedder>();
    is_shared::<TokenEmbedder>();
    is_shared::<MaskFiller>();
    is_shared::<Classifier>();
    is_shared::<Tagger>();
    is_shared::<Reranker>();
    is_shared::<Answerer>();
    is_shared::<Error>();

    let device = device();
    shared(&Embedder::load(at(models::ENCODER), &device).unwrap(), |model| model.embed(&TEXTS).unwrap());
    let tokens = TokenEmbedder::load(at(models::ENCODER), TokenEmbedConfig::default(), &device).unwrap();
    shared(&tokens, |model| model.embed(&TEXTS).unwrap());
    let masks = ["the [MASK] man", "[MASK] and [MASK]"];
    shared(&MaskFiller::load(at(models::MASKED), &device).unwrap(), |model| model.fill(&masks, 3).unwrap());
    shared(&Classifier::load(at(models::CLASSIFIER), &device).unwrap(), |model| {
        model.classify(&TEXTS).unwrap()
    });
    shared(&Tagger::load(at(models::TAGGER), &device).unwrap(), |model| model.tag(&TEXTS).unwrap());
    shared(&Reranker::load(at(models::RERANKER), &device).unwrap(), |model| {
        model.rank("the sea", &TEXTS).unwrap()
    });
    let questions = [("who sat", TEXTS[0]), ("where", TEXTS[3])];
    shared(&Answerer::load(at(models::ANSWERER), &device).unwrap(), |model| {
        model.answer(&questions).unwrap()
    });
}

#[test]
fn tokens_have_vectors_as_wide_as_is_said() {
    let config = TokenEmbedConfig { layers: Layers::Listed(vec![0, -1]), ..TokenEmbedConfig::default() };
    let embedder = TokenEmbedder::load(at(models::ENCODER), config, &device()).unwrap();
    assert_eq!(embedder.width(), 64);
    let found = embedder.embed(&TEXTS).unwrap();
    for (text, found) in TEXTS.iter().zip(&found) {
        assert_eq!(found.values.len(), found.units.len() * 64);
        assert_eq!(found.units.last().map_or(0, |unit| unit.chars.end), text.chars().count());
    }
    let unknown = TokenEmbedConfig { layers: Layers::Listed(vec![99]), ..TokenEmbedConfig::default() };
    let error = TokenEmbedder::load(at(models::ENCODER), unknown, &device()).unwrap_err().to_string();
    assert!(error.contains("`layers` is \"99\"; expected numbers from 0"), "{error}");
}

#[test]
fn embeddings_are_the_trainers() {
    let embedder = Embedder::load(at(models::ENCODER), &device()).unwrap();
    let embeddings = embedder.embed(&TEXTS).unwrap();
    assert_eq!((embeddings.len(), embedder.width(), embeddings.truncated()), (4, 32, 0));
    let load = |config| trainer::embed::Embedder::load(&at(models::ENCODER), config, &device()).unwrap();
    let plain = load(EmbedConfig::default());
    assert_eq!(embeddings.values(), plain.embed(&TEXTS).unwrap().values);
    assert_eq!(embeddings.iter().flatten().copied().collect::<Vec<_>>(), embeddings.values());
    assert!((embeddings.cosine(0, 0) - 1.0).abs() < 1e-6);
    // Other settings are the trainer's affair.
    let first = load(EmbedConfig { pooling: Some(Pooling::Cls.into()), ..EmbedConfig::default() });
    let first = Embedder::from(first).embed(&TEXTS).unwrap();
    assert_ne!(first[0], embeddings[0]);
    let long = embedder.embed(&["word ".repeat(10_000)]).unwrap();
    assert_eq!((long.truncated(), embedder.max_len()), (1, 512));
}

#[test]
fn masks_are_filled_best_first() {
    let filler = MaskFiller::load(at(models::MASKED), &device()).unwrap();
    let mask = filler.mask_token();
    let texts = [format!("the {mask} man"), format!("{mask} and {mask}")];
    let filled = filler.fill(&texts, 3).unwrap();
    assert_eq!(filled.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
    for candidates in filled.iter().flatten() {
        assert_eq!(candidates.len(), 3);
        assert!(candidates.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
    }
    let error = filler.fill(&["the [MASK]", "no mask"], 1).unwrap_err();
    assert!(matches!(error, Error::Input { place: 1, .. }), "{error}");
}

#[test]
fn a_class_is_the_likeliest() {
    let classifier = Classifier::load(at(models::CLASSIFIER), &device()).unwrap();
    let classes = classifier.classify(&TEXTS).unwrap();
    assert_eq!(classes.len(), 4);
    for class in &classes {
        let names: Vec<&str> = class.scores.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["NEGATIVE", "POSITIVE"]);
        assert!((class.scores.iter().map(|(_, score)| score).sum::<f64>() - 1.0).abs() < 1e-6);
        let best = class.scores.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert_eq!((&class.label, class.score), (&best.0, best.1));
    }
    let pairs = classifier.classify_pairs(&[(TEXTS[0], TEXTS[1])]).unwrap();
    assert_ne!(pairs[0].scores, classes[0].scores);
    assert!(classifier.classify::<&str>(&[]).unwrap().is_empty());
}

#[test]
fn entities_and_answers_have_their_bytes() {
    let tagged = Tagger::load(at(models::TAGGER), &device()).unwrap().tag(&TEXTS).unwrap();
    let mut n_entities = 0;
    for (tagged, text) in tagged.iter().zip(TEXTS) {
        let words: Vec<&str> = split_words(text).into_iter().map(|word| &text[word]).collect();
        assert_eq!(tagged.words, words);
        assert_eq!(tagged.words.len(), tagged.tags.len());
        for entity in &tagged.entities {
            assert_eq!(text[entity.bytes.clone()], entity.text);
            assert_eq!(tagged.words[entity.words.clone()].concat(), entity.text.replace(' ', ""));
            let chars: Vec<char> = text.chars().collect();
            assert_eq!(chars[entity.chars.clone()].iter().collect::<String>(), entity.text);
            assert!(["PER", "LOC"].contains(&entity.label.as_str()));
            n_entities += 1;
        }
    }
    assert!(n_entities > 0, "{tagged:?}");
    // Words that are already split are kept, and places are those in the words with spaces between them.
    let split: Vec<Vec<&str>> = TEXTS.map(|text| text.split_whitespace().collect()).to_vec();
    let tagged = Tagger::load(at(models::TAGGER), &device()).unwrap().tag_words(&split).unwrap();
    for (tagged, words) in tagged.iter().zip(&split) {
        assert_eq!(tagged.words, *words);
        let joined = words.join(" ");
        for entity in &tagged.entities {
            assert_eq!(tagged.words[entity.words.clone()].join(" "), entity.text);
            assert_eq!(joined[entity.bytes.clone()], entity.text);
            assert_eq!(
                joined.chars().skip(entity.chars.start).take(entity.chars.len()).collect::<String>(),
                entity.text
            );
        }
    }
    assert!(tagged.iter().any(|tagged| !tagged.entities.is_empty()), "{tagged:?}");

    let answerer = Answerer::load(at(models::ANSWERER), &device()).unwrap();
    let questions = [("who sat", TEXTS[0]), ("where", TEXTS[3]), ("nothing", " ")];
    let answers = answerer.answer(&questions).unwrap();
    for ((_, text), answer) in questions.iter().zip(&answers).take(2) {
        let answer = answer.as_ref().unwrap();
        assert_eq!(text[answer.bytes.clone()], answer.text);
        assert!(!answer.text.is_empty() && (0.0..=1.0).contains(&answer.score));
    }
    assert_eq!(answers[2], None);
}

#[test]
fn a_model_for_another_task_is_refused() {
    let error = Classifier::load(at(models::TAGGER), &device()).unwrap_err().to_string();
    assert_eq!(error, "the model is for tagging; expected one for classification");
    let error = Answerer::load(at(models::CLASSIFIER), &device()).unwrap_err().to_string();
    assert_eq!(error, "the model is for classification; expected one for answers");
    assert!(Tagger::load(at(models::ENCODER), &device()).is_err());
    let error = Reranker::load(at(models::TAGGER), &device()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the model is for tagging; expected one for regression, or classification with two classes"
    );
}

#[test]
fn what_is_no_model_is_named() {
    let error = Embedder::load(Path::new("./nowhere"), &device()).unwrap_err();
    assert!(matches!(error, Error::NoFolder { .. }) && !error.is_wrong_usage());
    assert_eq!(error.to_string(), "there is no folder \"./nowhere\"");
    #[cfg(feature = "hub")]
    {
        let error = Embedder::load("no name", &device()).unwrap_err();
        assert!(matches!(error, Error::BadName { .. }) && error.is_wrong_usage(), "{error}");
    }
}
