use super::*;
use crate::finetune::testing::{ask, encoder, init, saved, tokenizer};
use crate::finetune::{PretrainedTask, TASK_FILE, TagTask, TaggingSection, TaskFile, TaskSection, TextTask};
use cloze_data::labelled::{LabelSet, TagScheme};
use cloze_model::awd_lstm::AwdLstmConfig;
use cloze_model::blocks::PositionKind;
use cloze_model::elmo::{
    CharacterEncoderConfig, ElmoClassifierConfig, ElmoConfig, ElmoTaggerConfig, Filters,
};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{
    Architecture, Family, FloatType, SaveConfig, save_pretrained, save_published,
};
use cloze_model::recurrent::{Cell, Reading};
use cloze_model::tasks::{
    RecurrentClassifierConfig, RecurrentEncoderConfig, RecurrentPooling, RecurrentTaggerConfig,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const TEXT: &str = "some words of text";

fn open(folder: &TempDir) -> Inspector {
    Inspector::load(folder.path(), &Device::flex()).unwrap()
}

/// What is seen, explained by every method that is there.
fn seen(inspector: &Inspector, request: InspectRequest) -> Inspection {
    let seen = inspector.inspect(&InspectRequest { methods: inspector.methods(), ..request }).unwrap();
    for explanation in &seen.explanations {
        assert_eq!(explanation.source.len(), seen.source.len());
        assert!(explanation.source.iter().any(|value| *value != 0.0), "{explanation:?}");
    }
    seen
}

fn classes() -> TextTask {
    TextTask::new(Some(LabelSet::given(["no", "yes", "who knows"]).unwrap()), None)
}

/// What is explained is what the model answers.
#[test]
fn the_answer_is_the_predictors() {
    let line = format!("{TEXT:?}");
    for (folder, kind) in [
        (saved(classes(), 20), "class"),
        (saved(classes().with_threshold(0.5), 20), "label"),
        (saved(TextTask::new(None, None), 20), "number"),
    ] {
        let value = ask(folder.path(), &[&line]).values.remove(0);
        let inspector = open(&folder);
        assert_eq!(inspector.methods().len(), 5);
        let seen = seen(&inspector, InspectRequest::new(TEXT));
        let answer = seen.answer.unwrap();
        assert_eq!(answer.kind, kind);
        match kind {
            "number" => assert!((answer.choices[0].score - value["value"].as_f64().unwrap()).abs() < 1e-4),
            _ => {
                for choice in answer.choices {
                    let expected = value["scores"][&choice.name].as_f64().unwrap();
                    assert!((choice.probability.unwrap() - expected).abs() < 1e-4);
                }
            }
        }
    }
}

fn tags() -> TaggingSection {
    let labels = ["O", "B-x", "I-x", "B-y", "I-y"].map(String::from).to_vec();
    TaggingSection { labels, predict_scheme: Some(TagScheme::Bio), ..TaggingSection::default() }
}

#[test]
fn a_words_tag_is_that_of_its_first_piece() {
    let folder = saved(TagTask::spelt_out(&tags()).unwrap(), 20);
    let inspector = open(&folder);
    let of = |place| {
        let request = InspectRequest { place, ..InspectRequest::new("some words") };
        seen(&inspector, request).answer.unwrap()
    };
    // [CLS] s ##o ##m ##e w …
    let first = of(None);
    assert_eq!((first.kind.as_str(), first.place), ("tag", Some((Side::Source, 1))));
    assert_eq!(of(Some(4)), first);
    assert_ne!(of(Some(5)).choices, first.choices);
    let special = InspectRequest { place: Some(0), ..InspectRequest::new("some words") };
    let message = inspector.inspect(&special).unwrap_err().to_string();
    assert!(message.contains("the token 0, [CLS], belongs to no word"), "{message}");
    let shown = inspector.inspect(&InspectRequest::new(" a  bc")).unwrap().source;
    let places: Vec<_> = shown.iter().map(|token| (token.start, token.end, token.word)).collect();
    assert_eq!(places[1..4], [(1, 2, Some(0)), (4, 5, Some(1)), (5, 6, Some(1))]);
}

#[test]
fn a_span_of_the_second_text_is_explained() {
    let section =
        TaskSection::Answers { stride: 4, max_question: 8, max_answer: 3, n_best: 20, null_threshold: None };
    let folder = saved(crate::finetune::AnswerTask::of_saved(&section, None).unwrap(), 20);
    let value = ask(folder.path(), &[r#"{"question": "a b", "context": "c d e f"}"#]).values.remove(0);
    let inspector = open(&folder);
    let request = || InspectRequest { pair: Some("c d e f".into()), ..InspectRequest::new("a b") };
    let seen = seen(&inspector, request());
    let answer = seen.answer.unwrap();
    assert_eq!(Value::from(answer.explained.clone()), value["answer"]);
    assert!(answer.choices.is_sorted_by(|a, b| a.score >= b.score));
    let other = answer.choices[1].name.clone();
    let against =
        InspectRequest { against: Some(other.clone()), methods: vec![Method::Occlusion], ..request() };
    let difference = inspector.inspect(&against).unwrap();
    assert_eq!(difference.answer.unwrap().against, Some(other));
    assert_ne!(difference.explanations[0].source, seen.explanations[4].source);
    for (request, expected) in [
        (InspectRequest::new("a b"), "the second text is missing"),
        (InspectRequest { label: Some("d c".into()), ..request() }, "`d c` is no span"),
    ] {
        let message = inspector.inspect(&request).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// Its format is of our own too, but it is an encoder.
#[test]
fn what_other_positions_add_to_scores_is_seen() {
    let request = InspectRequest { neurons_up_to: 5, ..InspectRequest::new("a b c") };
    for kind in PositionKind::ALL {
        let folder = tempfile::tempdir().unwrap();
        let config = Family::CLOZE_BERT.encoder(encoder().with_positions(kind.into())).with_pooler(false);
        let save = SaveConfig::new(Architecture::Encoder).with_family(Family::CLOZE_BERT);
        save_pretrained(folder.path(), &config.init_encoder(&mut init()), &config, &save).unwrap();
        tokenizer().save(folder.path()).unwrap();
        let seen = open(&folder).inspect(&request).unwrap();
        let head = &seen.attention[0].layers[0].heads[1];
        let added = head.neurons.as_ref().unwrap().positions.as_ref();
        let adds = matches!(kind, PositionKind::Relative | PositionKind::RelativeBias | PositionKind::Alibi);
        assert_eq!(added.map(Vec::len), adds.then_some(25), "{kind:?}");
        // Slopes of two heads: 2^(−8/2) and 2^(−8).
        if kind == PositionKind::Alibi {
            assert_eq!(added.unwrap()[..3], [0.0, -1.0 / 256.0, -2.0 / 256.0]);
        }
    }
}

#[test]
fn a_left_to_right_model_owes_nothing_to_later_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let config = GptConfig::llama(57, 2, 16);
    save_published(folder.path(), &config.init(&mut init()), &config, FloatType::F32).unwrap();
    // Nothing stands around its texts.
    let specials = ["[PAD]", "[UNK]"].map(String::from);
    let pieces = specials.into_iter().chain(('a'..='z').map(String::from));
    let vocab = cloze_tokenizer::Vocab::from_tokens(pieces).unwrap();
    Tokenizer::bert(vocab, true).unwrap().save(folder.path()).unwrap();
    let inspector = open(&folder);
    assert_eq!(inspector.methods().len(), 5);
    let request = InspectRequest { place: Some(2), ..InspectRequest::new("a b c d e") };
    let given = seen(&inspector, request);
    let answer = given.answer.as_ref().unwrap();
    assert_eq!((answer.explained.as_str(), answer.place), ("c", Some((Side::Source, 2))));
    for explanation in &given.explanations {
        assert!(explanation.source[2..].iter().all(|value| *value == 0.0), "{explanation:?}");
    }
    let next = seen(&inspector, InspectRequest::new("a b c d e")).answer.unwrap();
    assert_eq!((next.place, next.explained == next.choices[0].name), (None, true));
}

/// A folder with a recurrent model and the file of its task.
fn recurrent<C: cloze_model::huggingface::Published>(config: &C, task: TaskSection) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    save_published(folder.path(), &config.init(&mut init()), config, FloatType::F32).unwrap();
    tokenizer().save(folder.path()).unwrap();
    let file = TaskFile { task, max_len: 20, pairs: Some(false) };
    file.write(folder.path()).unwrap();
    folder
}

/// A small ELMo of the tokenizer's 57 pieces.
fn elmo() -> ElmoConfig {
    let pieces: Vec<Vec<u8>> = (0..57).map(|piece| format!("piece {piece}").into_bytes()).collect();
    let characters = CharacterEncoderConfig {
        max_characters: 10,
        d_character: 4,
        filters: [[1, 4], [2, 4]].map(Filters::from).to_vec(),
        n_highway: 1,
        d_out: 6,
        ..CharacterEncoderConfig::default()
    };
    ElmoConfig { characters, d_hidden: 9, ..ElmoConfig::new(pieces.iter().map(Vec::as_slice).collect()) }
}

#[test]
fn recurrent_language_models_owe_nothing_to_later_tokens() {
    let awd_lstm = AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 2, ..AwdLstmConfig::new(57) };
    let [of_awd_lstm, of_elmo] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    save_published(of_awd_lstm.path(), &awd_lstm.init(&mut init()), &awd_lstm, FloatType::F32).unwrap();
    save_published(of_elmo.path(), &elmo().init(&mut init()), &elmo(), FloatType::F32).unwrap();
    // Layers of an AWD-LSTM are wider than what its head reads; the forward half of an ELMo's are not.
    for (folder, n_layers) in [(of_awd_lstm, 0), (of_elmo, 3)] {
        tokenizer().save(folder.path()).unwrap();
        let inspector = open(&folder);
        let request = InspectRequest { place: Some(3), lens: true, ..InspectRequest::new(TEXT) };
        let given = seen(&inspector, request);
        for explanation in &given.explanations {
            assert!(explanation.source[3..].iter().all(|value| *value == 0.0), "{explanation:?}");
        }
        let layers = given.lens.map(|lens| lens.layers).unwrap_or_default();
        assert_eq!(layers.len(), n_layers);
        let best = &given.answer.unwrap().choices[0];
        if let Some(layer) = layers.last() {
            let (name, probability) = &layer.positions[2].best[0];
            assert_eq!(*name, best.name);
            assert!((probability - best.probability.unwrap()).abs() < 1e-6);
        }
    }
}

#[test]
fn recurrent_models_are_explained_without_attention() {
    let encoder = RecurrentEncoderConfig {
        vocab_size: 57,
        cell: Cell::Lstm,
        d_embedding: 8,
        d_model: 8,
        n_layers: 1,
        reading: Reading::Both,
        dropout: 0.3,
    };
    let labels = ["no", "yes"].map(String::from).to_vec();
    let section: TaskSection =
        serde_json::from_value(json!({ "kind": "classification", "labels": labels })).unwrap();
    let pooling = RecurrentPooling::Attention;
    let config = RecurrentClassifierConfig { encoder: encoder.clone(), pooling, n_outputs: 2 };
    let classifier = recurrent(&config, section.clone());
    let config = RecurrentTaggerConfig { encoder, n_tags: 5, crf: false };
    let tagger = recurrent(&config, TaskSection::Tagging(tags()));
    let elmo_classifier = recurrent(&ElmoClassifierConfig::new(elmo(), 2), section);
    let elmo_tagger = recurrent(&ElmoTaggerConfig::new(elmo(), 5), TaskSection::Tagging(tags()));
    for folder in [classifier, tagger, elmo_classifier, elmo_tagger] {
        assert!(folder.path().join(TASK_FILE).exists());
        let inspector = open(&folder);
        let expected = [Method::GradientTimesInput, Method::IntegratedGradients, Method::Occlusion];
        assert_eq!(inspector.methods(), expected);
        let seen = seen(&inspector, InspectRequest::new(TEXT));
        assert!(seen.attention.is_empty() && seen.notes == ["The model has no attention."]);
        let found = seen.explanations[1].completeness.unwrap();
        assert!(found.converged, "{found:?}");
        let request = InspectRequest { methods: vec![Method::Rollout], ..InspectRequest::new(TEXT) };
        let message = inspector.inspect(&request).unwrap_err().to_string();
        assert!(message.contains("has no attention heads"), "{message}");
        let request = InspectRequest { layers: Some(0..1), ..InspectRequest::new(TEXT) };
        let message = inspector.inspect(&request).unwrap_err().to_string();
        assert!(message.contains("expected none: the model has no attention"), "{message}");
    }
}
