use cloze::Translator;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let translator = Translator::load("runs/multi30k/model", &device)?;
    println!("{}", translator.translate(&["A man rides a bicycle."])?[0].text);
    Ok(())
}
