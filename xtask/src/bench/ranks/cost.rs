//! What a step costs by ranks: a model of compute, latency and bandwidth, fitted to few ranks, tried on more, and continued to machines
//! that nobody measured.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::super::measure::{Rounds, median};
use super::super::report;
use super::{Training, launcher, n_parameters, tokens_per_second, weights};
use crate::step;

/// Every number of ranks divides them.
const SHARDS: usize = 12;

/// Tokens of a step: 24 texts of 128 in 12 shards.
const TOKENS: f64 = 24.0 * 128.0;

const SETS: [&str; 6] = [
    "train.steps=16",
    "train.batch_size=24",
    "schedule.warmup_steps=4",
    "eval.every=1000",
    "eval.max_examples=8",
    "log.every=4",
];

/// The ranks that the model is fitted to, and those that it is tried on.
const FITTED: [usize; 3] = [1, 2, 3];
const TRIED: usize = 4;

/// Wanted of the model.
const WITHIN: f64 = 0.15;

/// Machines of the forecast, and their links in Gbit/s.
const MACHINES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
const LINKS: [f64; 4] = [1.0, 10.0, 25.0, 100.0];

/// Models of the forecast: a name, parameters, and tokens that a machine computes in a step.
const MODELS: [(&str, f64, f64); 2] =
    [("BERT-base", 110e6, 64.0 * 128.0), ("1 billion parameters", 1e9, 64.0 * 512.0)];

/// The seconds of a step of `R` ranks on `n` cores: `W / C + R / C·(α·(R − 1) + β·2·(R − 1)/R·4·P)`, where `C = min(R, n)`.
/// Ranks that share a core take turns in the exchange too.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// `W`: core-seconds of the computation.
    work: f64,
    /// `α`: seconds for each other rank, whatever the size of the messages.
    latency: f64,
    /// `β`: seconds for each byte that a rank sends.
    byte: f64,
}

/// The bytes that each of `ranks` sends in a step.
fn bytes(ranks: usize, parameters: f64) -> f64 {
    2.0 * (ranks - 1) as f64 / ranks as f64 * 4.0 * parameters
}

/// How many ranks take turns on a core.
fn turns(ranks: usize, cores: usize) -> f64 {
    ranks as f64 / ranks.min(cores) as f64
}

impl Cost {
    /// Fits the seconds of one rank, and of two others, which determine both constants. Neither is negative.
    fn fit(seconds: [f64; 3], cores: usize, parameters: f64) -> Self {
        let [work, ..] = seconds;
        let spent = |place: usize| seconds[place] - work / FITTED[place].min(cores) as f64;
        let row = |place: usize| {
            let (ranks, turns) = (FITTED[place], turns(FITTED[place], cores));
            (turns * (ranks - 1) as f64, turns * bytes(ranks, parameters), spent(place))
        };
        let ((a, b, first), (c, d, second)) = (row(1), row(2));
        let determinant = a * d - b * c;
        let (latency, byte) =
            ((first * d - b * second) / determinant, (a * second - first * c) / determinant);
        match (latency < 0.0, byte < 0.0) {
            // The best fit of one constant alone.
            (true, _) => {
                Self { work, latency: 0.0, byte: ((b * first + d * second) / (b * b + d * d)).max(0.0) }
            }
            (_, true) => {
                Self { work, latency: ((a * first + c * second) / (a * a + c * c)).max(0.0), byte: 0.0 }
            }
            _ => Self { work, latency, byte },
        }
    }

    fn seconds(self, ranks: usize, cores: usize, parameters: f64) -> f64 {
        let exchange = self.latency * (ranks - 1) as f64 + self.byte * bytes(ranks, parameters);
        self.work / ranks.min(cores) as f64 + turns(ranks, cores) * exchange
    }
}

pub fn run(args: &Rounds, program: &Path, place: &Path) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let all: Vec<usize> = FITTED.into_iter().chain([TRIED]).collect();
    let mut seconds: Vec<Vec<f64>> = all.iter().map(|_| Vec::new()).collect();
    let out = place.join("cost");
    for round in 0..args.rounds {
        for (ranks, seconds) in all.iter().zip(&mut seconds) {
            eprintln!("{ranks} ranks, round {}", round + 1);
            let shards = format!("train.shards={SHARDS}");
            let sets: Vec<&str> = SETS.into_iter().chain([&*shards]).collect();
            let mut command = launcher(*ranks);
            command.args(["--bind-to", "none"]).arg(program).env("RAYON_NUM_THREADS", "1");
            Training { config: "bert-mini-corpus", sets: &sets, out: &out }.run(&mut command)?;
            seconds.push(TOKENS / tokens_per_second(&out)?);
        }
    }
    let parameters = n_parameters(&weights(&out)?)? as f64;
    let medians: Vec<f64> =
        seconds.into_iter().map(|all| median(all.into_iter()).unwrap_or(f64::NAN)).collect();
    let fitted = <[f64; 3]>::try_from(&medians[..3]).context("three numbers of ranks")?;
    let cost = Cost::fit(fitted, cores, parameters);
    let rows = all.iter().zip(&medians).map(|(ranks, measured)| {
        let told = cost.seconds(*ranks, cores, parameters);
        let use_of =
            if *ranks == TRIED { format!("tried; at most {:.0} %", 100.0 * WITHIN) } else { "fitted".into() };
        [
            ranks.to_string(),
            format!("{:.3} s", measured),
            format!("{told:.3} s"),
            format!("{:+.0} %", 100.0 * (told / measured - 1.0)),
            use_of,
        ]
    });
    // Of a transformer, a token costs 6 operations a parameter; so does BERT-mini here.
    let per_parameter = cost.work / (parameters * TOKENS);
    let forecast = |model: (f64, f64), machines: usize, link: f64| {
        // A byte is packed, copied and added on the machine, too.
        let ((parameters, tokens), byte) = (model, cost.byte + 8.0 / (link * 1e9));
        let compute = per_parameter * parameters * tokens / cores as f64;
        let step = compute + cost.latency * (machines - 1) as f64 + byte * bytes(machines, parameters);
        (compute / step, machines as f64 * tokens / step)
    };
    let mut text = report::table(["ranks", "a step", "the model says", "difference", ""], rows);
    text += &format!(
        "\n\nBERT-mini, 24 × 128 in {SHARDS} shards, ranks of one thread on {cores} cores. The model of a step by R ranks: \
         `W / C + R / C·(α·(R − 1) + β·2·(R − 1)/R·4·P)` seconds, C = min(R, cores), P the parameters; fitted to 1, 2 and 3 ranks, \
         W = {:.3} s, α = {:.2} ms, 1/β = {} MB/s. Medians of {} rounds. {}.\n\nWhat it says of machines like this one: **not measured**, computed \
         from W for each parameter and token, from α, and from β and the link's nominal bandwidth for each byte. Tokens a second of all machines, and the share of \
         the time in which they compute; {} tokens a machine for BERT-base, {} for a model of 1 billion parameters.\n\n",
        cost.work,
        1e3 * cost.latency,
        if cost.byte > 0.0 { report::short(1e-6 / cost.byte) } else { "∞".into() },
        args.rounds,
        report::machine(None),
        MODELS[0].2,
        MODELS[1].2,
    );
    for (name, parameters, tokens) in MODELS {
        let header = [name.to_owned()].into_iter().chain(LINKS.map(|link| format!("{link} Gbit/s")));
        let rows = MACHINES.map(|machines| {
            let cells = LINKS.map(|link| {
                let (share, rate) = forecast((parameters, tokens), machines, link);
                format!("{} ({:.0} %)", report::short(rate), 100.0 * share)
            });
            [machines.to_string()].into_iter().chain(cells).collect::<Vec<_>>()
        });
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        text += &line(header.collect());
        text += &line(vec!["---:".into(); LINKS.len() + 1]);
        rows.into_iter().for_each(|row| text += &line(row));
        text.push('\n');
    }
    println!("{text}");
    if args.write {
        let plot = "ranks-forecast.svg";
        draw(&step::root().join("benches").join(plot), forecast)?;
        let text = format!("{text}![Share of the time in which machines compute, not measured]({plot})");
        report::write("ranks-cost", &text)?;
    }
    Ok(())
}

/// The share of the time in which machines compute, against their number, a panel each model and a line each link.
fn draw(path: &Path, forecast: impl Fn((f64, f64), usize, f64) -> (f64, f64)) -> Result<()> {
    let area = SVGBackend::new(path, (960, 320)).into_drawing_area();
    area.fill(&WHITE)?;
    let [first, last] = [MACHINES[0], MACHINES[MACHINES.len() - 1]].map(|n| (n as f64).log2());
    for ((name, parameters, tokens), panel) in MODELS.into_iter().zip(area.split_evenly((1, MODELS.len()))) {
        let mut chart = ChartBuilder::on(&panel)
            .margin(8)
            .caption(format!("{name}: % of the time computing (not measured)"), ("sans-serif", 14))
            .x_label_area_size(30)
            .y_label_area_size(40)
            .build_cartesian_2d(first..last, 0.0..100.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(MACHINES.len())
            .x_label_formatter(&|x| format!("{:.0}", x.exp2()))
            .x_desc("machines")
            .draw()?;
        for (place, link) in LINKS.into_iter().enumerate() {
            let style = Palette99::pick(place).stroke_width(2);
            let points = MACHINES.map(|machines| {
                let (share, _) = forecast((parameters, tokens), machines, link);
                ((machines as f64).log2(), 100.0 * share)
            });
            let line = chart.draw_series(LineSeries::new(points, style))?;
            line.label(format!("{link} Gbit/s"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw()?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_of_this_form_is_found() {
        let (cores, parameters) = (2, 11e6);
        let cost = Cost { work: 3.0, latency: 0.01, byte: 2e-9 };
        let seconds = FITTED.map(|ranks| cost.seconds(ranks, cores, parameters));
        let found = Cost::fit(seconds, cores, parameters);
        for ranks in 1..9 {
            let [expected, found] = [cost, found].map(|cost| cost.seconds(ranks, cores, parameters));
            assert!((found - expected).abs() < 1e-9 * expected, "{ranks} ranks: {found}, not {expected}");
        }
    }

    #[test]
    fn no_constant_is_negative() {
        let found = Cost::fit([3.0, 1.6, 1.4], 2, 11e6);
        assert!(found.latency >= 0.0 && found.byte >= 0.0, "{found:?}");
    }
}
