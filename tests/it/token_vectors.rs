//! Vectors of tokens and words against transformers' hidden states: `tests/fixtures/token_vectors/export.py`.

use crate::golden::{Golden, fixture, relative_error};
use burn::tensor::{Device, TensorData};
use cloze_tokenizer::Sequence;
use cloze_trainer::token_vectors::{Layers, TokenEmbedConfig, TokenEmbedder, TokenVectors, WordPooling};
use serde_json::Value;

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
const LAYERS: usize = 5;
const WIDTH: usize = 12;

/// What transformers' tokenizer says of a text.
struct Told {
    text: String,
    tokens: Vec<String>,
    offsets: Vec<(usize, usize)>,
    words: Vec<u32>,
}

fn told() -> Vec<Told> {
    let json = std::fs::read_to_string(fixture("token_vectors").join("golden.json")).unwrap();
    let texts: Vec<Value> = serde_json::from_str(&json).unwrap();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let list = |text: &Value, key: &str| text[key].as_array().unwrap().clone();
    let told = |text: &Value| Told {
        text: text["text"].as_str().unwrap().into(),
        tokens: list(text, "tokens").iter().map(|token| token.as_str().unwrap().into()).collect(),
        offsets: list(text, "offsets").iter().map(|pair| (number(&pair[0]), number(&pair[1]))).collect(),
        words: list(text, "words").iter().map(|word| number(word) as u32).collect(),
    };
    texts.iter().map(told).collect()
}

fn load(config: TokenEmbedConfig) -> cloze_trainer::Result<TokenEmbedder> {
    TokenEmbedder::load(&fixture("token_vectors"), config, &Device::flex())
}

fn embed(config: TokenEmbedConfig) -> Vec<TokenVectors> {
    let texts: Vec<String> = told().into_iter().map(|told| told.text).collect();
    load(config).unwrap().embed(&texts).unwrap()
}

fn of_layers(layers: Layers) -> TokenEmbedConfig {
    TokenEmbedConfig { layers, ..TokenEmbedConfig::default() }
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let data = |values: &[f32]| TensorData::new(values.to_vec(), [values.len()]);
    let error = relative_error(&data(found), &data(expected));
    assert!(error <= TOLERANCE, "{what}: off by {error:e} of its scale");
}

/// The golden states of a text, by layer and token.
fn states(golden: &Golden, text: usize, n_tokens: usize) -> Vec<Vec<Vec<f32>>> {
    let values: Vec<f32> = golden.data(&format!("{text}.states")).iter::<f32>().collect();
    let of_layer = |layer: &[f32]| layer.chunks(WIDTH).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let layers: Vec<Vec<Vec<f32>>> = values.chunks(n_tokens * WIDTH).map(of_layer).collect();
    assert_eq!(layers.len(), LAYERS + 1);
    layers
}

/// Layers side by side, token by token.
fn side_by_side(states: &[Vec<Vec<f32>>], layers: &[usize]) -> Vec<f32> {
    let n = states[0].len();
    (0..n).flat_map(|token| layers.iter().flat_map(move |layer| states[*layer][token].clone())).collect()
}

#[test]
fn tokens_have_transformers_states_places_and_words() {
    let golden = Golden::open(&fixture("token_vectors"));
    let all: Vec<usize> = (0..=LAYERS).collect();
    for (layers, numbers) in [
        (Layers::Last, &[5][..]),
        (Layers::LastFourConcat, &[2, 3, 4, 5]),
        (Layers::All, &all),
        (Layers::Listed(vec![-1, 0, 3]), &[5, 0, 3]),
    ] {
        // Few tokens at a time, so that there are several batches, or all at once.
        for batch_tokens in [1, 30, 10_000] {
            let config = TokenEmbedConfig { batch_tokens, ..of_layers(layers.clone()) };
            let embedder = load(config.clone()).unwrap();
            assert_eq!((embedder.width(), embedder.max_len()), (numbers.len() * WIDTH, 20));
            assert!(embedder.report().missing.is_empty() && embedder.report().unexpected.is_empty());
            for (number, (told, found)) in told().iter().zip(embed(config)).enumerate() {
                let tokens: Vec<&str> = found.units.iter().map(|unit| unit.text.as_str()).collect();
                assert_eq!(tokens, told.tokens);
                let places: Vec<(usize, usize)> =
                    found.units.iter().map(|unit| (unit.chars.start, unit.chars.end)).collect();
                assert_eq!(places, told.offsets);
                let words: Vec<u32> = found.units.iter().map(|unit| unit.word.unwrap()).collect();
                assert_eq!(words, told.words);
                if told.tokens.is_empty() {
                    assert!(found.values.is_empty());
                    continue;
                }
                let expected = side_by_side(&states(&golden, number, told.tokens.len()), numbers);
                assert_close(&format!("{layers} of text {number}"), &found.values, &expected);
            }
        }
    }
}

#[test]
fn words_have_the_mean_or_the_first_of_their_tokens() {
    let golden = Golden::open(&fixture("token_vectors"));
    let config = |words| TokenEmbedConfig { words, ..of_layers(Layers::LastFourMean) };
    let tokens = embed(config(None));
    let (means, firsts) = (embed(config(Some(WordPooling::Mean))), embed(config(Some(WordPooling::First))));
    for (number, told) in told().iter().enumerate() {
        let (tokens, mean, first) = (&tokens[number], &means[number], &firsts[number]);
        assert_eq!(mean.units, first.units);
        let n_words = told.words.last().map_or(0, |last| *last as usize + 1);
        assert_eq!(mean.units.len(), n_words);
        let mut expected = Vec::new();
        for (word, unit) in mean.units.iter().enumerate() {
            assert_eq!(unit.word, Some(word as u32));
            let written: String = told.text.chars().skip(unit.chars.start).take(unit.chars.len()).collect();
            assert_eq!(unit.text, written);
            let place = told.words.iter().position(|of| *of as usize == word).unwrap();
            expected.extend_from_slice(&tokens.values[place * WIDTH..(place + 1) * WIDTH]);
        }
        assert_eq!(first.values, expected);
        if n_words > 0 {
            let golden: Vec<f32> = golden.data(&format!("{number}.words")).iter::<f32>().collect();
            assert_close(&format!("the words of text {number}"), &mean.values, &golden);
        }
    }
    let texts: Vec<&str> = means[2].units.iter().map(|unit| unit.text.as_str()).collect();
    assert_eq!(texts, ["Étés", "𝄞", "sea"]);
}

#[test]
fn given_words_are_the_words() {
    let config = TokenEmbedConfig { words: Some(WordPooling::Mean), ..TokenEmbedConfig::default() };
    let embedder = load(config).unwrap();
    let given = ["the", "old", "seaman's", "sea"];
    let found = embedder.embed_sequences(&[Sequence::Words(&given), Sequence::Text("the sea")]).unwrap();
    let texts: Vec<&str> = found[0].units.iter().map(|unit| unit.text.as_str()).collect();
    assert_eq!(texts, given);
    let places: Vec<_> = found[0].units.iter().map(|unit| unit.chars.clone()).collect();
    assert_eq!(places, [0..3, 0..3, 0..8, 0..3]);
    assert_eq!(found[0].values.len(), given.len() * WIDTH);
    let alone = embedder.embed(&["the sea"]).unwrap().remove(0);
    assert_eq!(found[1].units, alone.units);
    assert_close("a text beside words", &found[1].values, &alone.values);
}

#[test]
fn windows_that_cannot_be_are_refused() {
    let long = "the sea ".repeat(30);
    let with = |max_len, overlap| TokenEmbedConfig { max_len, overlap, ..TokenEmbedConfig::default() };
    let message = load(with(Some(21), None)).unwrap_err().to_string();
    assert_eq!(message, "`max_len` is 21; expected at most 20, the model's positions");
    for (max_len, overlap, expected) in [
        (Some(2), None, "`max_len` is 2; expected more than 2, the special tokens around a text"),
        (None, Some(18), "`overlap` is 18; expected less than 18, the tokens of a text in a window"),
    ] {
        let message = load(with(max_len, overlap)).unwrap().embed(&[&long]).unwrap_err().to_string();
        assert_eq!(message, expected);
    }
    // One token after another is a window too.
    let found = load(with(Some(3), Some(0))).unwrap().embed(&[&long]).unwrap();
    assert_eq!(found[0].units.len(), 60);
    let alone = load(TokenEmbedConfig::default()).unwrap().embed(&["sea"]).unwrap();
    assert_close("a token by itself", &found[0].values[59 * WIDTH..], &alone[0].values);
    let unknown = TokenEmbedConfig { language: Some("de".into()), ..TokenEmbedConfig::default() };
    let message = load(unknown).unwrap_err().to_string();
    assert!(message.contains("`language` is \"de\"; expected a number below 2"), "{message}");
}
