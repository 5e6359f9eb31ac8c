use cloze::Answerer;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let answerer = Answerer::load("deepset/bert-base-cased-squad2", &device)?;
    for answer in answerer.answer(&[("Where does Ann live?", "Ann lives in Rome.")])? {
        println!("{}", answer.map_or("no answer".into(), |answer| answer.text));
    }
    Ok(())
}
