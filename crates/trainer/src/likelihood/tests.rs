use super::*;
use crate::perplexity::tests::masked;
use crate::perplexity::{Perplexity, TextScore};
use cloze_model::huggingface::{FloatType, save_published};
use std::io::Cursor;

fn load(folder: &Path, metric: Option<Metric>) -> Result<Likelihood> {
    let config = LikelihoodConfig { metric, ..Default::default() };
    Likelihood::load(folder, config, &Device::flex())
}

fn left_to_right(max_positions: usize) -> tempfile::TempDir {
    let device = Device::flex();
    let tokenizer = Tokenizer::characters("to be or not".chars(), ["<unk>"], Some("<unk>")).unwrap();
    let mut config = GptConfig::llama(tokenizer.vocab_size(), 1, 16);
    config.max_positions = max_positions;
    let model = config.init(&mut ParamInit::new(&device, 1).with_std(0.5));
    let folder = tempfile::tempdir().unwrap();
    save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
    tokenizer.save(folder.path()).unwrap();
    folder
}

fn perplexity(folder: &Path, text: &str) -> TextScore {
    let model = Perplexity::load(folder, None, &Device::flex()).unwrap();
    model.score(Cursor::new(text), Path::new("text.txt")).unwrap()
}

#[test]
fn the_sum_is_what_perplexity_adds_up() {
    for (folder, metric, text) in [
        (masked(&Device::flex()), Some(Metric::Pll), "the old sea and the old boats"),
        (left_to_right(16), None, "to be or not"),
    ] {
        let model = load(folder.path(), metric).unwrap();
        let score = &model.score(&[model.encode(text, None).unwrap()], &mut |_| ()).unwrap()[0];
        let expected = perplexity(folder.path(), text);
        assert_eq!(score.pieces.len() as u64, expected.tokens);
        assert!((score.sum() + expected.nats).abs() < 1e-4, "{} is not {}", score.sum(), expected.nats);
        assert_eq!((score.words as u64, score.bytes as u64), (expected.words, expected.bytes));
        assert!((score.mean() * score.pieces.len() as f64 - score.sum()).abs() < 1e-9);
    }
}

#[test]
fn later_pieces_of_a_word_are_hidden_by_word_l2r_alone() {
    let folder = masked(&Device::flex());
    let hidden = |metric| {
        let model = load(folder.path(), metric).unwrap();
        // A word of three pieces and one of one.
        let Input::Blanks(text) = model.encode("boatsea sea", None).unwrap().input else { unreachable!() };
        text.blanks.iter().map(ExactSizeIterator::len).collect::<Vec<_>>()
    };
    let (plain, by_word) = (hidden(Some(Metric::Pll)), hidden(None));
    assert!(plain.len() > 2 && plain.iter().all(|n| *n == 1));
    let first = by_word.len() - 1;
    assert_eq!(by_word, (1..=first).rev().chain([1]).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_scored_is_told() {
    let (encoder, writer) = (masked(&Device::flex()), left_to_right(6));
    let message = |error: Result<EncodedSentence>| error.unwrap_err().to_string();
    let model = load(encoder.path(), None).unwrap();
    assert_eq!(message(model.encode(" ", None)), "the sentence has no piece to predict; expected words");
    assert!(
        message(model.encode("sea", Some("old"))).contains("there is a source, but only an encoder–decoder")
    );
    let long = message(model.encode(&"sea ".repeat(20), None));
    assert!(
        long.starts_with("the text has 22 tokens") && long.ends_with("takes at most 16: shorten it"),
        "{long}"
    );
    let error = load(writer.path(), Some(Metric::Pll)).unwrap_err().to_string();
    assert!(error.starts_with("`metric` is pll; expected none"), "{error}");
    let model = load(writer.path(), None).unwrap();
    assert_eq!(
        message(model.encode("t", None)),
        "the sentence has no piece to predict; expected two words or more: the first piece is only read"
    );
    assert!(model.encode("to be o", None).is_ok());
    assert!(message(model.encode("to be or", None)).contains("the text has 7 tokens"));
    let config = LikelihoodConfig { batch_tokens: 0, ..Default::default() };
    assert!(Likelihood::load(writer.path(), config, &Device::flex()).is_err());
}

#[test]
fn words_with_the_same_beginning_share_copies_and_have_the_scores_of_their_own() {
    let folder = masked(&Device::flex());
    let model = load(folder.path(), None).unwrap();
    let slot = |before: &str, after: &str| Slot { before: before.into(), after: after.into() };
    let slots = [slot("the old ", " and the sea"), slot("", " sea")];
    let words: Vec<String> = ["sea", "boats", "seads", "seado"].map(String::from).to_vec();
    let pieces: Vec<Vec<u32>> = words.iter().map(|word| model.pieces_in(&slots[0], word).unwrap()).collect();
    assert!(pieces[2].len() > 1 && pieces[3].len() > 1);
    let found = model.word_scores(&slots, &words, &pieces).unwrap();
    for (slot, row) in slots.iter().zip(&found) {
        // The pieces of the word in the whole text, whose other pieces are given.
        for (word, score) in words.iter().zip(row) {
            let sentence = model.encode(&slot.filled(word), None).unwrap();
            let scores = &model.score(&[sentence], &mut |_| ()).unwrap()[0];
            let (start, end) = (slot.before.len(), slot.before.len() + word.len());
            let own = scores.pieces.iter().filter(|piece| piece.offsets.0 < end && piece.offsets.1 > start);
            let own: Vec<f64> = own.map(|piece| piece.log_prob).collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            assert!((score - mean).abs() < 1e-4, "{word}: {score} is not {mean}");
        }
    }
    let error = model.pieces_in(&slots[0], "Ω").unwrap_err().to_string();
    assert!(error.contains("\"Ω\" has no piece in the model's vocabulary"), "{error}");
    let error =
        model.word_scores(&[slot("a [MASK] ", "")], &words[..1], &pieces[..1]).unwrap_err().to_string();
    assert!(error.contains("has 1 masks of its own"), "{error}");
    let check = |slot: &Slot| model.check_slot(slot, &words, &pieces).map_err(|error| error.to_string());
    assert!(slots.iter().all(|slot| check(slot).is_ok()));
    assert!(check(&slot("a [MASK] ", "")).unwrap_err().contains("has 1 masks of its own"));
    assert!(check(&slot(&"sea ".repeat(20), "")).unwrap_err().contains("takes at most 16"));
}

#[test]
fn words_in_a_text_that_is_read_from_left_to_right_have_the_scores_of_the_whole_texts() {
    let folder = left_to_right(32);
    let model = load(folder.path(), None).unwrap();
    let slot = |before: &str, after: &str| Slot { before: before.into(), after: after.into() };
    let slots = [slot("to be ", " or not"), slot("", " to"), slot("not ", "")];
    // Texts of a slot begin alike, one is the beginning of another, and one word stands twice.
    for words in [&["or", "not", "note", "or"][..], &["to", "to be", "to bet"], &["be"]] {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let pieces: Vec<Vec<u32>> =
            words.iter().map(|word| model.pieces_in(&slots[0], word).unwrap()).collect();
        let found = model.word_scores(&slots, &words, &pieces).unwrap();
        for (slot, row) in slots.iter().zip(&found) {
            assert_eq!(row.len(), words.len());
            for (word, score) in words.iter().zip(row) {
                let sentence = model.encode(&slot.filled(word), None).unwrap();
                let expected = model.score(&[sentence], &mut |_| ()).unwrap()[0].sum();
                assert!((score - expected).abs() < 1e-4, "{word}: {score} is not {expected}");
            }
        }
    }
    let slots = [slot("", "")];
    let error = model.word_scores(&slots, &["t".into()], &[vec![0]]).unwrap_err().to_string();
    assert!(error.contains("expected two words or more"), "{error}");
    assert_eq!(model.word_scores(&slots, &[], &[]).unwrap(), [Vec::<f64>::new()]);
}
