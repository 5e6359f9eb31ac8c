use cloze::Reranker;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let reranker = Reranker::load("cross-encoder/ms-marco-MiniLM-L6-v2", &device)?;
    let texts = ["Berlin has 3.6 million inhabitants.", "Bread is baked at night."];
    for ranked in reranker.rank("How many people live in Berlin?", &texts)? {
        println!("{:.3} {}", ranked.score, texts[ranked.place]);
    }
    Ok(())
}
