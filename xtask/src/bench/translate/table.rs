//! Models beside one another.

use super::side::Trained;
use crate::bench::report;

/// A model's run on one side.
pub struct Row {
    pub name: String,
    pub trained: Option<Trained>,
}

/// Quality and time of each model.
pub fn quality(rows: &[Row]) -> String {
    let header = ["model", "BLEU", "chrF", "held-out loss", "parameters", "minutes", "steps", "tokens/s"];
    report::table(
        header,
        rows.iter().map(|Row { name, trained }| {
            let shown = |of: &dyn Fn(&Trained) -> String| trained.as_ref().map_or("–".into(), of);
            [
                name.clone(),
                shown(&|run| format!("{:.2}", run.bleu)),
                shown(&|run| format!("{:.2}", run.chrf)),
                shown(&|run| run.held_out_loss.map_or("–".into(), |loss| format!("{loss:.3}"))),
                shown(&|run| format!("{:.1} M", run.parameters as f64 / 1e6)),
                shown(&|run| format!("{:.1}", run.seconds / 60.0)),
                shown(&|run| report::count(run.steps)),
                shown(&|run| report::short(run.per_s())),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_all_figures_or_dashes() {
        let trained = Trained {
            seconds: 1_800.0,
            steps: 5_000,
            tokens: 9e6,
            held_out_loss: Some(1.5),
            parameters: 8_200_000,
            bleu: 36.128,
            chrf: 60.0,
        };
        let rows = [Some(trained), None].map(|trained| Row { name: "Transformer".into(), trained });
        let table = quality(&rows);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .skip(2)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(lines[0], ["Transformer", "36.13", "60.00", "1.500", "8.2 M", "30.0", "5,000", "5,000"]);
        assert_eq!(lines[1][1..], ["–"; 7]);
    }
}
