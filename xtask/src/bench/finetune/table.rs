//! Both sides' figures over the seeds, and their times.

use super::side::Trained;
use super::tasks::Task;
use crate::bench::measure::median;
use crate::bench::report;

/// How many times the peer's time ours is to be shorter.
const FLOOR: f64 = 2.0;

/// Runs of both sides, one for each seed.
#[derive(Default)]
pub struct Both {
    pub ours: Vec<Trained>,
    pub theirs: Vec<Trained>,
}

/// What is known of a task.
pub struct Row {
    pub task: &'static Task,
    pub quality: Both,
    /// Runs that were made for their time.
    pub timed: Both,
}

const HEADER: [&str; 11] = [
    "task",
    "figure",
    "seeds",
    "ours",
    "theirs",
    "within one sd",
    "measured with",
    "ours, s",
    "theirs, s",
    "ratio",
    "times of",
];

/// The table and what it says.
pub fn text(rows: &[Row], machine: &str) -> String {
    let table = report::table(HEADER, rows.iter().flat_map(Row::lines));
    format!(
        "{table}\n\nMeans ± standard deviations over the seeds. Measured with development data: the best epoch's \
         figures; with test data: the last one's. Times are medians, of all epochs' steps alone, with two threads; \
         ratios are to be at least {FLOOR} ×. {machine}."
    )
}

impl Row {
    /// A line for each figure, the times on the first.
    fn lines(&self) -> Vec<[String; 11]> {
        let Both { ours, theirs } = &self.quality;
        let lines = self.task.figures.iter().enumerate().map(|(i, figure)| {
            let values =
                |runs: &[Trained]| Spread::of(runs.iter().filter_map(|run| run.figures.get(*figure)));
            let (a, b) = (values(ours), values(theirs));
            let [name, seeds, measured, times @ ..] = match i {
                0 => self.facts(),
                _ => Default::default(),
            };
            let [our_time, their_time, ratio, of] = times;
            let within = within(&a, &b);
            [
                name,
                (*figure).to_owned(),
                seeds,
                a.shown(),
                b.shown(),
                within,
                measured,
                our_time,
                their_time,
                ratio,
                of,
            ]
        });
        lines.collect()
    }

    /// What is the same for all of a task's figures.
    fn facts(&self) -> [String; 7] {
        let Both { ours, theirs } = &self.quality;
        let seeds = match (ours.len(), theirs.len()) {
            (ours, theirs) if ours == theirs || theirs == 0 => ours.to_string(),
            (ours, theirs) => format!("{ours}, {theirs}"),
        };
        let first = ours.first().or(theirs.first());
        let measured = first.and_then(|run| {
            let held_out = if run.held_out.is_empty() { "" } else { ", held out" };
            Some(format!("{} {}{held_out}", report::short(run.examples as f64), run.split.as_ref()?))
        });
        let [ours, theirs, ratio, of] = self.times();
        [self.task.name.into(), seeds, measured.unwrap_or_else(none), ours, theirs, ratio, of]
    }

    /// The seconds of both, their ratio, and which runs they are of.
    fn times(&self) -> [String; 4] {
        let both_timed = !self.timed.ours.is_empty() && !self.timed.theirs.is_empty();
        let (Both { ours, theirs }, of) = match both_timed {
            true => (&self.timed, "one epoch"),
            false => (&self.quality, "the runs"),
        };
        let epochs = self.quality.ours.first().or(ours.first()).map_or(1, |run| run.epochs) as f64;
        let seconds =
            |runs: &[Trained]| median(runs.iter().map(Trained::seconds_an_epoch)).map(|s| s * epochs);
        let (ours, theirs) = (seconds(ours), seconds(theirs));
        let ratio = ours.zip(theirs).map(|(ours, theirs)| format!("{:.2} ×", theirs / ours));
        let shown = |seconds: Option<f64>| seconds.map_or_else(none, report::short);
        [shown(ours), shown(theirs), ratio.unwrap_or_else(none), of.into()]
    }
}

/// A figure over the seeds.
pub struct Spread {
    n: usize,
    pub mean: f64,
    /// With n - 1; 0 of a single one.
    pub deviation: f64,
}

impl Spread {
    pub fn of<'a>(values: impl Iterator<Item = &'a f64>) -> Self {
        let values: Vec<f64> = values.copied().collect();
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { n, mean, deviation: (squares / (n.max(2) - 1) as f64).sqrt() }
    }

    pub fn shown(&self) -> String {
        match self.n {
            0 => none(),
            1 => format!("{:.4}", self.mean),
            _ => format!("{:.4} ± {:.4}", self.mean, self.deviation),
        }
    }
}

/// Whether ours is as good as theirs, or worse by no more than their deviation; if not, by how much it is worse.
fn within(ours: &Spread, theirs: &Spread) -> String {
    match ours.mean - theirs.mean {
        _ if ours.n == 0 || theirs.n == 0 => none(),
        difference if difference + theirs.deviation >= 0.0 => "yes".into(),
        difference => format!("no, {difference:+.4}"),
    }
}

fn none() -> String {
    "–".into()
}

#[cfg(test)]
mod tests {
    use super::super::tasks::TASKS;
    use super::*;

    fn runs(values: &[f64], seconds: f64) -> Vec<Trained> {
        values.iter().map(|value| Trained::of("accuracy", *value, seconds)).collect()
    }

    fn line(quality: Both, timed: Both) -> [String; 11] {
        Row { task: &TASKS[0], quality, timed }.lines().remove(0)
    }

    #[test]
    fn sides_stand_beside_one_another() {
        let none = || Both { ours: Vec::new(), theirs: Vec::new() };
        let both = |ours: &[f64], theirs: &[f64]| Both { ours: runs(ours, 20.0), theirs: runs(theirs, 50.0) };
        let row = line(both(&[0.9, 0.92], &[0.91, 0.93]), none());
        let expected =
            ["sst2", "accuracy", "2", "0.9100 ± 0.0141", "0.9200 ± 0.0141", "yes", "500 dev", "20.0"];
        assert_eq!(row[..8], expected);
        assert_eq!(row[8..], ["50.0", "2.50 ×", "the runs"]);
        // A run of two epochs whose one epoch took 15 s when nobody else was at the machine.
        let timed = |seconds| {
            let one = |seconds| Trained { epochs: 1, ..Trained::of("accuracy", 0.0, seconds) };
            vec![one(seconds), one(seconds + 90.0), one(seconds)]
        };
        let row = line(both(&[0.9], &[0.95]), Both { ours: timed(15.0), theirs: timed(60.0) });
        assert_eq!(row[3..6], ["0.9000", "0.9500", "no, -0.0500"]);
        assert_eq!(row[7..], ["30.0", "120", "4.00 ×", "one epoch"]);
        let worse = line(both(&[0.9, 0.92], &[0.95, 0.95]), none());
        assert_eq!(worse[5], "no, -0.0400");
        let alone = line(Both { theirs: Vec::new(), ..both(&[0.9], &[]) }, none());
        assert_eq!(alone[2..], ["1", "0.9000", "–", "–", "500 dev", "20.0", "–", "–", "the runs"]);
        let nothing = line(none(), none());
        assert_eq!(nothing[2..], ["0", "–", "–", "–", "–", "–", "–", "–", "the runs"]);
    }
}
