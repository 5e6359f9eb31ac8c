//! SentencePiece's files, beside what transformers converts them to.

use super::*;

#[test]
fn sentencepiece_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sentencepiece");
    let pairs: Vec<Pair> = ["unigram", "unigram-bytes", "bpe", "bpe-bytes"]
        .into_iter()
        .map(|name| {
            let ours = Tokenizer::load(folder.join(format!("{name}.model"))).unwrap();
            let mut theirs = Reference::from_file(folder.join(format!("{name}.json"))).unwrap();
            // What the converter adds, such as `</s>` at the end, no .model says.
            theirs.with_post_processor(None::<tokenizers::PostProcessorWrapper>);
            let added = ours.added_tokens().map(|(_, token)| token.content.clone()).collect();
            Pair { name, ours, theirs, added, refused: AtomicUsize::new(0) }
        })
        .collect();
    try_strings(&pairs, SEED, 1000);
}
