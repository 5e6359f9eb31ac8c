use cloze::{Device, Embedder};

fn main() -> Result<(), cloze::Error> {
    let embedder = &Embedder::load("sentence-transformers/all-MiniLM-L6-v2", &Device::flex())?;
    std::thread::scope(|scope| {
        for text in ["The old man sat by the sea.", "A sailor rests."] {
            scope.spawn(move || println!("{:?}", embedder.embed(&[text]).map(|found| found[0][0])));
        }
    });
    Ok(())
}
