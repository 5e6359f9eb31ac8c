//! `cloze probe`: odd treebanks and configurations.

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::sentence;

const CONFIG: &str = r#"[model]
path = "model"
[data]
train = ["train.conllu"]
dev = ["dev.conllu"]
[probe]
hidden = 8
epochs = 1
[structure]
rank = 4
[geometry]
pairs = 20
"#;

/// Sentences whose words hang on their second one.
fn treebank(n: usize) -> String {
    (0..n)
        .map(|i| {
            let text = sentence(i);
            let rows = text.split(' ').enumerate().map(|(word, form)| {
                let (head, relation) = if word == 1 { (0, "root") } else { (2, "dep") };
                let tag = ["DET", "NOUN", "VERB"][word % 3];
                format!("{}\t{form}\t{form}\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n", word + 1)
            });
            rows.collect::<String>() + "\n"
        })
        .collect()
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let mut files = [
        ("train.conllu", treebank(10).into_bytes()),
        ("dev.conllu", treebank(5).into_bytes()),
        ("probe.toml", CONFIG.as_bytes().to_vec()),
    ];
    let at = case.random.below(4);
    if let Some((name, text)) = files.get_mut(at) {
        let whole = String::from_utf8_lossy(text).into_owned();
        *text = match *name {
            "probe.toml" => mutate::toml(&mut case.random, &toml::from_str(&whole)?).into_bytes(),
            _ => mutate::text(&mut case.random, &whole),
        };
    }
    for (name, text) in &files {
        case.write(name, text)?;
    }
    let ran = case.run(Attempt::new(["probe", "probe.toml", "--out", "out"]).seconds(60))?;
    case.expect(ran.succeeded() || at < files.len(), "a whole treebank is refused");
    Ok(())
}
