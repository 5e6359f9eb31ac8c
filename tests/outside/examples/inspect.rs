use cloze::{InspectRequest, Inspector};

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let inspector = Inspector::load("distilbert/distilbert-base-uncased-finetuned-sst-2-english", &device)?;
    let methods = inspector.methods();
    let seen = inspector.inspect(&InspectRequest { methods, ..InspectRequest::new("not a bad film") })?;
    for explanation in &seen.explanations {
        println!("{:?}: {:.3?}", explanation.method, explanation.source);
    }
    Ok(())
}
