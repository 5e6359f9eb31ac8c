//! What is measured, in which order, and how much of the time each part may take.

/// A part of the benchmark.
pub struct Stage {
    pub name: String,
    pub work: Work,
    /// Its share of the time, beside those of the others.
    pub weight: f64,
    /// Seconds that it needs at least.
    pub least: f64,
    /// Which cases, of a stage that has cases.
    pub only: &'static str,
}

pub enum Work {
    /// Every model beside flex.
    Parity,
    /// So many losses of both sides.
    Curves(Shape, usize),
    /// Both sides' times.
    Sides(Shape),
    /// The kernels of a step.
    Causes(Shape),
}

/// What both sides' programs are told.
#[derive(Clone, Copy)]
pub struct Shape {
    pub work: &'static str,
    pub preset: &'static str,
    pub batch: usize,
    pub len: usize,
    pub precision: &'static str,
}

/// All stages, in the order in which they matter; `tokens` are those of a step of training, `low` is what most multiply in.
pub fn stages(small: bool, tokens: usize, low: &'static str) -> Vec<Stage> {
    // A software device has no bf16, and needs a minute for what a GPU does in a second.
    let low = if small { "f32" } else { low };
    let shape = |work, preset, batch, len, precision| match small {
        true => Shape { work, preset: "tiny", batch: 2, len: 16, precision: "f32" },
        false => Shape { work, preset, batch, len, precision },
    };
    let stage = |name: String, work, weight| Stage { name, work, weight, least: 10.0, only: "" };
    let batch = |len: usize| (tokens / len).max(1);
    let pretraining = |preset: &'static str, len: usize, precision: &'static str, weight: f64| {
        let shape = shape("pretrain", preset, batch(len), len, precision);
        stage(
            format!("pretraining, BERT-{}, {}, tokens", shape.preset, told(&shape)),
            Work::Sides(shape),
            weight,
        )
    };
    let mut all = vec![Stage {
        least: 20.0,
        only: if small { "BERT" } else { "" },
        ..stage("parity".into(), Work::Parity, 2.0)
    }];
    let steps = if small { 5 } else { 100 };
    let mut curves = vec!["f32"];
    curves.extend((low != "f32").then_some(low));
    for precision in curves {
        let shape = shape("curve", "mini", batch(128).min(32), 128, precision);
        all.push(stage(format!("losses, {precision}"), Work::Curves(shape, steps), 1.0));
    }
    all.push(pretraining("base", 128, low, 1.5));
    if !small {
        all.extend([
            pretraining("mini", 128, low, 1.0),
            pretraining("large", 128, low, 1.5),
            pretraining("mini", 512, low, 1.0),
            pretraining("base", 512, low, 1.5),
            pretraining("large", 512, low, 1.5),
        ]);
    }
    if low != "f32" {
        all.push(pretraining("base", 128, "f32", 1.0));
    }
    let tuned = shape("finetune", "base", 32, 128, low);
    all.push(stage(
        format!("fine-tuning, BERT-{}, {}, texts", tuned.preset, told(&tuned)),
        Work::Sides(tuned),
        1.0,
    ));
    let embedded = shape("embed", "base", 64, 128, low);
    let name = format!("embeddings, BERT-{}, {}, texts", embedded.preset, told(&embedded));
    all.push(stage(name, Work::Sides(embedded), 1.0));
    let written = shape("generate", "base", 8, 32, low);
    let name = format!(
        "generation, GPT-2 {}, {} texts, {}, tokens",
        written.preset, written.batch, written.precision
    );
    all.push(stage(name, Work::Sides(written), 1.0));
    let causes = shape("pretrain", "base", batch(128), 128, low);
    all.push(stage(format!("kernels, BERT-{}, {}", causes.preset, told(&causes)), Work::Causes(causes), 1.0));
    all
}

fn told(shape: &Shape) -> String {
    format!("{} × {}, {}", shape.batch, shape.len, shape.precision)
}

/// The seconds of the next stage: its part, by weight, of those that are left. `weights` are its own and those of the stages
/// after it. None where that is less than it needs: the others then have more.
pub fn share(left: f64, weights: &[f64], least: f64) -> Option<f64> {
    let seconds = left * weights.first()? / weights.iter().sum::<f64>();
    (seconds >= least).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_time_is_shared_by_weight_and_what_does_not_fit_is_left_out() {
        assert_eq!(share(100.0, &[1.0, 3.0], 10.0), Some(25.0));
        assert_eq!(share(100.0, &[1.0, 3.0], 30.0), None);
        assert_eq!(share(40.0, &[2.0], 10.0), Some(40.0));
        assert_eq!(share(0.0, &[2.0], 10.0), None);
        // What a stage leaves unused goes to those after it.
        let (mut left, weights) = (90.0, [1.0, 1.0, 1.0]);
        let mut shares = Vec::new();
        for place in 0..3 {
            let seconds = share(left, &weights[place..], 1.0).unwrap();
            shares.push(seconds);
            left -= seconds.min(10.0);
        }
        assert_eq!(shares, [30.0, 40.0, 70.0]);
    }

    #[test]
    fn ten_minutes_are_enough_for_every_stage() {
        let stages = stages(false, 8_192, "bf16");
        let mut left = 600.0;
        for (place, stage) in stages.iter().enumerate() {
            let weights: Vec<f64> = stages[place..].iter().map(|stage| stage.weight).collect();
            let seconds = share(left, &weights, stage.least);
            assert!(seconds.is_some(), "{} is left out", stage.name);
            left -= seconds.unwrap();
        }
        assert!(left.abs() < 1e-6, "{left}");
    }

    #[test]
    fn every_preset_is_pretrained_at_both_lengths() {
        let stages = stages(false, 8_192, "bf16");
        for preset in ["mini", "base", "large"] {
            for (batch, len) in [(64, 128), (16, 512)] {
                let found = stages.iter().filter(|stage| match &stage.work {
                    Work::Sides(shape) => {
                        shape.work == "pretrain"
                            && (shape.preset, shape.batch, shape.len) == (preset, batch, len)
                            && shape.precision == "bf16"
                    }
                    _ => false,
                });
                assert_eq!(found.count(), 1, "{preset}, {len}");
            }
        }
        let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        assert!(names.contains(&"pretraining, BERT-base, 64 × 128, bf16, tokens"), "{names:?}");
        assert!(
            names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1),
            "{names:?}"
        );
    }

    #[test]
    fn no_stage_is_there_twice() {
        for low in ["bf16", "f16", "f32"] {
            let stages = stages(false, 8_192, low);
            let names: HashSet<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
            assert_eq!(names.len(), stages.len(), "{low}: {names:?}");
            assert!(names.contains(format!("losses, {low}").as_str()), "{low}: {names:?}");
        }
    }

    #[test]
    fn small_shapes_are_tiny_and_in_32_bits() {
        for stage in stages(true, 8_192, "bf16") {
            if let Work::Curves(shape, _) | Work::Sides(shape) | Work::Causes(shape) = stage.work {
                assert_eq!((shape.preset, shape.batch, shape.len, shape.precision), ("tiny", 2, 16, "f32"));
            }
        }
    }
}
