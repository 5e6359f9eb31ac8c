//! Reports of labels and texts that are markup.

use std::fs;

use anyhow::Result;

use crate::campaign::case::{self, Case};
use crate::campaign::program::Attempt;
use crate::campaign::world::{delimited, sentence};

const MARKUP: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</td></table><h1>x",
    "<svg onload=alert(1)>",
    "&lt;script&gt;",
    "\" onmouseover=\"alert(1)",
];

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    let markup = *case.random.pick(&MARKUP);
    let (config, name, data) = match case.random.below(3) {
        0 => {
            let rows: Vec<Vec<String>> = (0..8)
                .map(|i| vec![format!("{} {markup}", sentence(i)), ["no", markup][i % 2].into()])
                .collect();
            ("classification", "odd.tsv", delimited(&rows, "\t"))
        }
        1 => {
            let tagged =
                |i: usize| format!("{}\tB-{}\nword\tO\n\n", markup.replace(' ', "_"), ["X", "<b>"][i % 2]);
            ("tagging", "odd.conll", (0..8).map(tagged).collect())
        }
        _ => {
            let mut value = crate::campaign::world::squad(6);
            for paragraph in value["data"][0]["paragraphs"].as_array_mut().into_iter().flatten() {
                paragraph["qas"][0]["question"] = format!("What {markup}?").into();
                paragraph["qas"][0]["id"] = format!("{markup}{}", paragraph["qas"][0]["id"]).into();
                paragraph["context"] =
                    format!("{} {markup}", paragraph["context"].as_str().unwrap_or("")).into();
            }
            ("answers", "odd.json", value.to_string())
        }
    };
    case.write(name, data)?;
    let (train, dev) = (format!("data.train.files=[{name:?}]"), format!("data.dev=[{name:?}]"));
    let (config, title) = (format!("seeds/{config}.toml"), format!("run.name={markup:?}"));
    let mut attempt = Attempt::new([
        "train",
        &config,
        "--out",
        "out",
        "--set",
        "train.epochs=1",
        "--set",
        &train,
        "--set",
        &dev,
        "--set",
        &title,
    ]);
    if case.random.one_in(2) {
        attempt = attempt.arg("--seeds").arg("1,2");
    }
    let ran = case.run(attempt)?;
    let model = ran.output().trim().to_owned();
    if ran.succeeded() {
        case.run(Attempt::new([
            "eval", "--model", &model, &config, "--set", &dev, "--set", &title, "--out", "report",
        ]))?;
    }
    let pages: Vec<_> = case::files(&case.path(""))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "html" || ending == "svg"))
        .collect();
    case.expect(!ran.succeeded() || pages.len() > 1, "no page was written");
    // As they would have to stand to do anything.
    let raw = ["<script>alert", "<img src=x", "</table><h1>", "<svg onload", "\" onmouseover=\""];
    for page in pages {
        let text = fs::read_to_string(case.path(&page))?;
        for raw in raw {
            case.expect(!text.contains(raw), format!("{} holds {raw}", page.display()));
        }
    }
    Ok(())
}
