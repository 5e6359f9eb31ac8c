use cloze::Embedder;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let embedder = Embedder::load("sentence-transformers/all-MiniLM-L6-v2", &device)?;
    let embeddings = embedder.embed(&["The old man sat by the sea.", "A sailor rests."])?;
    println!("{} numbers each, cosine {:.3}", embeddings[0].len(), embeddings.cosine(0, 1));
    Ok(())
}
