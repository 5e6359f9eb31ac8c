use cloze::Classifier;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let classifier = Classifier::load("distilbert/distilbert-base-uncased-finetuned-sst-2-english", &device)?;
    for class in classifier.classify(&["One long string of cliches.", "A quiet, moving film."])? {
        println!("{} {:.3}", class.label, class.score);
    }
    Ok(())
}
