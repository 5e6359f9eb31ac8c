//! Whether what was published is seen: some rows are to be better than the others.

use crate::bench::finetune::table::Spread;

/// A row's name and a figure of each seed.
pub struct Scores {
    pub name: &'static str,
    pub values: Vec<f64>,
}

/// What is said of it; nothing where either side has no row of several seeds.
pub fn verdict(rows: &[Scores], favoured: &[&str]) -> Option<String> {
    let best = |is_favoured: bool| {
        let rows =
            rows.iter().filter(|row| favoured.contains(&row.name) == is_favoured && row.values.len() > 1);
        let rows = rows.map(|row| (row.name, Spread::of(row.values.iter())));
        rows.max_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean))
    };
    let (one, other) = (best(true)?, best(false)?);
    let ahead = one.1.mean - other.1.mean;
    let within = ahead.abs() <= one.1.deviation.max(other.1.deviation);
    let seen = match (ahead > 0.0, within) {
        (true, false) => "seen",
        (true, true) => "seen, but within a deviation",
        (false, true) => "not seen, but within a deviation",
        (false, false) => "not seen",
    };
    Some(format!("{} {}, {} {}: {seen}", one.0, one.1.shown(), other.0, other.1.shown()))
}

/// The mean over several tasks for each seed, each task with a figure of each seed.
pub fn means(tasks: &[&[f64]]) -> Vec<f64> {
    let seeds = tasks.iter().map(|task| task.len()).min().unwrap_or(0);
    (0..seeds).map(|seed| tasks.iter().map(|task| task[seed]).sum::<f64>() / tasks.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_both_sides_are_compared() {
        let rows = |learned: [f64; 2], rotary: [f64; 2]| {
            [("learned", learned), ("none", [0.1, 0.1]), ("rotary", rotary)]
                .map(|(name, values)| Scores { name, values: values.into() })
        };
        let said = |learned, rotary| verdict(&rows(learned, rotary), &["learned"]).unwrap();
        assert_eq!(said([0.8, 0.8], [0.7, 0.7]), "learned 0.8000 ± 0.0000, rotary 0.7000 ± 0.0000: seen");
        assert!(said([0.6, 0.6], [0.7, 0.7]).ends_with(": not seen"));
        assert!(said([0.7, 0.9], [0.75, 0.75]).ends_with(": seen, but within a deviation"));
        assert!(said([0.6, 0.8], [0.75, 0.75]).ends_with(": not seen, but within a deviation"));
        assert_eq!(verdict(&rows([0.8, 0.8], [0.7, 0.7])[..1], &["learned"]), None);
        let one_seed = ["learned", "none"].map(|name| Scores { name, values: vec![0.5] });
        assert_eq!(verdict(&one_seed, &["learned"]), None);
    }

    #[test]
    fn means_are_of_the_same_seed() {
        assert_eq!(means(&[&[1.0, 2.0, 3.0], &[3.0, 4.0]]), [2.0, 3.0]);
        assert!(means(&[]).is_empty());
    }
}
