use cloze::MaskFiller;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let filler = MaskFiller::load("google-bert/bert-base-uncased", &device)?;
    for masks in filler.fill(&["The people of the United [MASK].", "A [MASK] sailor."], 3)? {
        println!("{}", masks[0][0].filled);
    }
    Ok(())
}
