//! What must hold for any input. The fuzz targets in `fuzz/` and the tests beside this file run the same.

use std::{fs, path::Path, sync::LazyLock};

use cloze_tokenizer::{
    AddedToken, Encoding, Padding, PaddingStrategy, Tokenizer, Truncation,
    train::{BpeTrainer, WordPieceTrainer},
};

const TEXTS: [&str; 4] =
    ["The old sailor's boats", "he sails 12 old seas; naïve 中文字 e\u{301}", " \n ", ""];

/// One tokenizer of each kind, small, so that most words are cut.
pub static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let wordpiece = WordPieceTrainer { vocab_size: 70, ..Default::default() }.train(TEXTS);
    let bytes = BpeTrainer { vocab_size: 290, ..Default::default() }.train(TEXTS);
    let characters = BpeTrainer { vocab_size: 60, ..BpeTrainer::characters() }.train(TEXTS);
    let mut all = Vec::from([wordpiece, bytes, characters].map(|trained| trained.expect("enough text")));
    for tokenizer in &mut all {
        let strip = AddedToken { lstrip: true, rstrip: true, ..AddedToken::special("<x>") };
        let word = AddedToken { single_word: true, ..AddedToken::plain("Old") };
        tokenizer.add_tokens([strip, word, AddedToken::plain("s ")]).expect("tokens that are not empty");
    }
    all
});

/// Encoding: pieces lie within the text, and every way to encode agrees. The first byte sets truncation.
pub fn encode(data: &[u8]) {
    let (settings, text) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let text = String::from_utf8_lossy(text);
    for tokenizer in &*TOKENIZERS {
        let whole = tokenizer.encode(&text, false).unwrap();
        check(&whole, [&text, ""]);
        let (mut ids, mut starts) = (Vec::new(), Vec::new());
        tokenizer.encode_into(&text, &mut ids, &mut starts).unwrap();
        assert_eq!(ids, whole.ids);
        assert_eq!(starts.len(), ids.len());
        let middle = (0..=text.len() / 2).rfind(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let (a, b) = text.split_at(middle);
        check(&tokenizer.encode_pair(a, b, true).unwrap(), [a, b]);
        tokenizer.decode(&whole.ids, true).unwrap();

        let mut short = tokenizer.clone();
        // More than the four special tokens of a pair.
        let (max_length, stride) = (5 + usize::from(settings >> 3), usize::from(settings & 7));
        if short.set_truncation(Some(Truncation { stride, ..Truncation::to(max_length) })).is_ok() {
            let one = short.encode(&text, true).unwrap();
            assert!(one.len() <= max_length);
            assert!(one.overflowing.iter().all(|part| part.len() <= max_length));
            assert!(short.encode_pair(a, b, true).unwrap().len() <= max_length);
        }
    }
    // Bytes lose nothing, where no added token takes white space.
    let bytes = &TOKENIZERS[1];
    if !text.contains("<x>") && !text.contains("<mask>") {
        let ids = bytes.encode(&text, false).unwrap().ids;
        assert_eq!(bytes.decode(&ids, false).unwrap(), text);
    }
}

fn check(encoding: &Encoding, texts: [&str; 2]) {
    let len = encoding.len();
    assert!(
        [encoding.tokens.len(), encoding.offsets.len(), encoding.word_ids.len()].iter().all(|n| *n == len)
    );
    let tokens = encoding.tokens.iter().zip(&encoding.offsets);
    for ((token, &(start, end)), sequence) in tokens.zip(&encoding.sequence_ids) {
        let text = texts[sequence.unwrap_or(0) as usize];
        // Trimming counts characters of white space for bytes, as the reference does.
        let wide = |c: char| c.is_whitespace() && c.len_utf8() > 1;
        let trimmed = token.starts_with(wide) || token.ends_with(wide);
        let inside = start <= end && end <= text.len();
        assert!(inside && (trimmed || text.get(start..end).is_some()), "{start}..{end} of {text:?}");
    }
}

/// Decoding any ids, known or not.
pub fn decode(data: &[u8]) {
    let ids: Vec<u32> =
        data.chunks(2).map(|two| two.iter().fold(0, |id, b| id << 8 | u32::from(*b))).collect();
    // Mostly known ones.
    let small: Vec<u32> = ids.iter().map(|id| id % 300).collect();
    for tokenizer in &*TOKENIZERS {
        for ids in [&ids, &small] {
            let all = tokenizer.decode(ids, false).unwrap();
            let known = ids.iter().all(|id| tokenizer.id_to_token(*id).is_some());
            assert!(known || ids.len() > 1 || all.is_empty());
            tokenizer.decode(ids, true).unwrap();
        }
    }
}

/// A `tokenizer.json`.
pub fn read_json(data: &[u8]) {
    if let Ok(Ok(tokenizer)) = std::str::from_utf8(data).map(Tokenizer::from_json) {
        usable(tokenizer);
    }
}

/// A `vocab.txt`, and after the first byte 0x1e a `tokenizer_config.json`.
pub fn read_vocab_txt(data: &[u8]) {
    read_folder(data, ["vocab.txt", "tokenizer_config.json"]);
}

/// A `merges.txt`, and after the first byte 0x1e a `vocab.json`.
pub fn read_merges(data: &[u8]) {
    read_folder(data, ["merges.txt", "vocab.json"]);
}

/// A SentencePiece model, and after the bytes 0x1e 0x1e a `tokenizer_config.json`.
pub fn read_sentencepiece(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let end = data.windows(2).position(|two| two == [SEPARATOR; 2]).unwrap_or(data.len());
    fs::write(folder.path().join("tokenizer.model"), &data[..end]).expect("a file in it");
    if let Some(config) = data.get(end + 2..) {
        fs::write(folder.path().join("tokenizer_config.json"), config).expect("a file in it");
    }
    loads(folder.path());
    loads(&folder.path().join("tokenizer.model"));
}

/// What stands between the two files of a folder.
pub const SEPARATOR: u8 = 0x1e;

fn read_folder(data: &[u8], names: [&str; 2]) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let mut parts = data.splitn(2, |byte| *byte == SEPARATOR);
    for (name, part) in names.iter().zip(&mut parts) {
        fs::write(folder.path().join(name), part).expect("a file in it");
    }
    loads(folder.path());
    loads(&folder.path().join(names[0]));
}

fn loads(path: &Path) {
    match Tokenizer::load(path) {
        Ok(tokenizer) => usable(tokenizer),
        // Says something, and only one line of it.
        Err(error) => {
            let mut error: Option<&dyn std::error::Error> = Some(&error);
            while let Some(e) = error {
                let message = e.to_string();
                assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
                error = e.source();
            }
        }
    }
}

/// A tokenizer that was read works, and is written as it was read.
fn usable(mut tokenizer: Tokenizer) {
    let written = tokenizer.to_json();
    let again = Tokenizer::from_json(&written).expect("a file of ours");
    assert_eq!(again.to_json(), written);
    // Padding to millions is allowed, and no fault.
    let long = |p: &Padding| {
        matches!(p.strategy, PaddingStrategy::Fixed(1000..)) || p.pad_to_multiple_of > Some(1000)
    };
    if tokenizer.padding().is_some_and(long) {
        tokenizer.set_padding(None).expect("no padding");
    }
    for text in TEXTS {
        let encoding = tokenizer.encode(text, true).unwrap();
        tokenizer.decode(&encoding.ids, false).unwrap();
        tokenizer.encode_pair(text, TEXTS[0], true).unwrap();
        tokenizer.encode_into(text, &mut Vec::new(), &mut Vec::new()).unwrap();
    }
    let ids: Vec<u32> = (0..40).chain([u32::MAX]).collect();
    tokenizer.decode(&ids, true).unwrap();
}
