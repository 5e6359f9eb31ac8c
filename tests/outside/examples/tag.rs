use cloze::Tagger;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let tagger = Tagger::load("dslim/bert-base-NER", &device)?;
    for text in tagger.tag(&["Ada Lovelace was born in London."])? {
        text.entities.iter().for_each(|entity| println!("{}: {}", entity.label, entity.text));
    }
    Ok(())
}
