use cloze::Generator;

fn main() -> Result<(), cloze::Error> {
    let device = cloze::device::open(None)?;
    let generator = Generator::load("openai-community/gpt2", &device)?;
    println!("The old man sat by{}", generator.generate(&["The old man sat by"])?[0].text);
    Ok(())
}
