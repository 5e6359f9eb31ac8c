//! Images in every format, and files of many images.

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::formats;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::PICTURES;

/// What a command may take, in MB: a small model, and no picture that says it is larger than it is.
const MOST: u64 = 1_200;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    case.bring("models/images", "model")?;
    let attempt = match case.random.below(4) {
        0 => many(case)?,
        1 => folder(case)?,
        _ => alone(case)?,
    };
    case.run(attempt.seconds(30).megabytes(MOST))?;
    Ok(())
}

/// A damaged picture, and the ending of another format now and then.
fn damaged(case: &mut Case<'_>) -> (String, Vec<u8>) {
    let (name, seed) = *case.random.pick(&PICTURES);
    let bytes = mutate::bytes(&mut case.random, seed);
    let (other, _) = *case.random.pick(&PICTURES);
    let named = if case.random.one_in(5) { other } else { name };
    (format!("bad-{named}"), bytes)
}

/// One picture among good ones, named or as bytes, on lines.
fn alone(case: &mut Case<'_>) -> Result<Attempt> {
    let (name, bytes) = damaged(case);
    let bad = match case.random.below(3) {
        0 => format!("data:image/png;base64,{}", formats::base64(&bytes)),
        _ => {
            case.write(&name, &bytes)?;
            name
        }
    };
    let lines = [PICTURES[0].0, &bad, PICTURES[1].0].map(|image| format!("{{\"image\": \"{image}\"}}\n"));
    for (name, seed) in &PICTURES[..2] {
        case.write(name, seed)?;
    }
    case.write("images.jsonl", lines.concat())?;
    let mut attempt = Attempt::new(["predict", "--model", "model", "--input", "images.jsonl"]);
    if case.random.one_in(2) {
        attempt = attempt.arg("--on-bad-row").arg("skip");
    }
    Ok(attempt)
}

/// A folder of classes with one damaged picture.
fn folder(case: &mut Case<'_>) -> Result<Attempt> {
    for (number, (name, seed)) in PICTURES.iter().enumerate() {
        case.write(format!("pictures/{}/{name}", ["a", "b"][number % 2]), seed)?;
    }
    let (name, bytes) = damaged(case);
    case.write(format!("pictures/a/{name}"), bytes)?;
    let sets = ["data.train.files=[\"pictures\"]", "data.dev=[]", "data.test=[]", "train.epochs=1"];
    let mut attempt = Attempt::new(["train", "seeds/images.toml", "--out", "out"]);
    for set in sets {
        attempt = attempt.arg("--set").arg(set);
    }
    if case.random.one_in(2) {
        attempt = attempt.arg("--set").arg("data.on_bad_image=\"skip\"");
    }
    Ok(attempt)
}

/// MNIST's files, of which one is damaged.
fn many(case: &mut Case<'_>) -> Result<Attempt> {
    let name = *case.random.pick(&["dev-images-idx3-ubyte", "dev-labels-idx1-ubyte"]);
    let path = format!("seeds/{name}");
    let seed = case.world.read(&path)?;
    let bytes = mutate::bytes(&mut case.random, &seed);
    case.write(&path, bytes)?;
    Ok(Attempt::new(["eval", "--model", "model", "seeds/images.toml", "--out", "report"]))
}
