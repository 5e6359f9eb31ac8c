//! Nothing that a user supplies may panic, whatever it is.

#![allow(clippy::unwrap_used)]

use cloze_tokenizer::{
    AddedToken, Encoding, Tokenizer, Truncation,
    train::{BpeTrainer, WordPieceTrainer},
};
use proptest::prelude::*;

const TEXT: [&str; 3] = ["the old sailor's boats", "he sails 12 old seas; naïve 中文", "boats"];

fn wordpiece() -> Tokenizer {
    let trainer = WordPieceTrainer { vocab_size: 70, ..Default::default() };
    trainer.train(TEXT).unwrap()
}

fn bytes() -> Tokenizer {
    let trainer = BpeTrainer { vocab_size: 290, ..Default::default() };
    trainer.train(TEXT).unwrap()
}

#[test]
fn shared_between_threads() {
    fn check<T: Send + Sync + Clone + 'static>(_: &T) {}
    let tokenizer = wordpiece();
    check(&tokenizer);
    let expected = tokenizer.encode(TEXT[1], true).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..100).for_each(|_| assert_eq!(tokenizer.encode(TEXT[1], true).unwrap(), expected))
            });
        }
    });
}

#[test]
fn training_is_deterministic() {
    let lines: Vec<String> = (0..2000).map(|i| format!("{} {} w{}", TEXT[i % 3], i * 7919, i % 97)).collect();
    let trainer = WordPieceTrainer { vocab_size: 300, ..Default::default() };
    let first = trainer.train(&lines).unwrap().to_json();
    let backwards = trainer.train(lines.iter().rev()).unwrap().to_json();
    assert!(first == backwards, "the order of lines does not matter");
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert!(first == one.install(|| trainer.train(&lines)).unwrap().to_json());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    /// Damaged files are refused, or work.
    #[test]
    fn damaged_json(at in any::<prop::sample::Index>(), len in 0usize..40, with in "[\\[\\]{}\":,0-9a-z]{0,12}") {
        for tokenizer in [wordpiece(), bytes()] {
            let json = tokenizer.to_json();
            let start = (0..=at.index(json.len())).rfind(|i| json.is_char_boundary(*i)).unwrap();
            let end = (start + len..=json.len()).find(|i| json.is_char_boundary(*i)).unwrap_or(json.len());
            let damaged = format!("{}{with}{}", &json[..start], &json[end..]);
            if let Ok(tokenizer) = Tokenizer::from_json(&damaged) {
                let encoding = tokenizer.encode("old boats <mask> é", true).unwrap();
                tokenizer.decode(&encoding.ids, false).unwrap();
            }
        }
    }

    #[test]
    fn any_text_and_any_ids(a in any::<String>(), b in any::<String>(), ids in prop::collection::vec(0u32..400, 0..20), max in 4usize..12, stride in 0usize..3) {
        for mut tokenizer in [wordpiece(), bytes()] {
            tokenizer.add_tokens([AddedToken::plain("s "), AddedToken { rstrip: true, lstrip: true, ..AddedToken::special(" x ") }]).unwrap();
            let text = format!("{a} x {b}s  x ");
            let whole = tokenizer.encode_pair(&text, &b, true).unwrap();
            prop_assert!(offsets_are_within(&whole, [&text, &b]));
            // A bad stride is refused, any other gives no more than `max` pieces.
            if tokenizer.set_truncation(Some(Truncation { stride, ..Truncation::to(max) })).is_ok() {
                prop_assert!(tokenizer.encode_pair(&a, &b, true).unwrap().len() <= max);
                prop_assert!(tokenizer.encode(&a, true).unwrap().len() <= max);
            }
            tokenizer.decode(&ids, true).unwrap();
        }
    }

    /// Byte-level text survives the round trip as it is.
    #[test]
    fn byte_level_round_trip(text in any::<String>()) {
        let tokenizer = bytes();
        let ids = tokenizer.encode(&text, true).unwrap().ids;
        prop_assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
    }
}

fn offsets_are_within(encoding: &Encoding, texts: [&str; 2]) -> bool {
    let mut pieces = encoding.offsets.iter().zip(&encoding.sequence_ids);
    pieces.all(|(&(start, end), sequence)| {
        let text = texts[sequence.unwrap_or(0) as usize];
        start <= end && end <= text.len()
    })
}
