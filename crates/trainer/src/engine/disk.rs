//! Whether a run's checkpoints and its model fit on the disk.

use super::settings::RunSettings;
use crate::memory::bytes;
use crate::{Result, TrainerError};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use std::path::Path;

/// Checks that what a run certainly writes fits into the free space below `folder`, before it has made any step; a run that
/// resumes has written most of it. Nothing is checked where the free space is unknown.
///
/// # Errors
/// [`TrainerError::Disk`].
pub(super) fn check<M: Module>(
    folder: &Path,
    model: &M,
    settings: &RunSettings,
    is_resumed: bool,
) -> Result<()> {
    let Ok(free) = fs4::available_space(folder) else { return Ok(()) };
    fits(folder, least(model, settings, is_resumed), free)
}

fn fits(folder: &Path, needs: u64, free: u64) -> Result<()> {
    if needs <= free {
        return Ok(());
    }
    Err(TrainerError::Disk { folder: folder.into(), needs: bytes(needs), free: bytes(free) })
}

/// The bytes that a run writes at least: its checkpoints, of which there is one more than are kept while one is written, and
/// the model.
fn least<M: Module>(model: &M, settings: &RunSettings, is_resumed: bool) -> u64 {
    let mut elements = Elements::default();
    model.visit(&mut elements);
    let averaged = if settings.average.is_some() { elements.all } else { 0 };
    // Weights, both moments, and the average, in FP32.
    let checkpoint = 4 * (elements.all + 2 * elements.trained + averaged);
    let made = settings.steps.div_ceil(settings.checkpoint.every.max(1));
    let at_once = (settings.checkpoint.keep_last.max(1) as u64 + 1).min(made.max(1));
    let checkpoints = if is_resumed { 1 } else { at_once };
    checkpoints * checkpoint + 4 * elements.all
}

/// Counts a model's numbers.
#[derive(Default)]
struct Elements {
    all: u64,
    trained: u64,
}

impl ModuleVisitor for Elements {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let n = param.lazy_shape().num_elements() as u64;
        self.all += n;
        self.trained += if param.is_require_grad() { n } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use cloze_model::ParamInit;
    use cloze_model::blocks::Linear;

    #[test]
    fn what_does_not_fit_is_told() {
        let device = Device::flex().autodiff();
        // 8 · 4 + 4 numbers.
        let model = Linear::uniform(8, 4, &mut ParamInit::new(&device, 1));
        let mut settings = RunSettings::new("a", 10, 1e-3);
        settings.checkpoint.every = 100;
        assert_eq!(least(&model, &settings, false), 4 * 36 * 3 + 4 * 36, "one checkpoint, at the end");
        settings.checkpoint.every = 1;
        assert_eq!(least(&model, &settings, false), 3 * 4 * 36 * 3 + 4 * 36);
        assert_eq!(least(&model, &settings, true), 4 * 36 * 3 + 4 * 36);
        assert!(fits("runs/a".as_ref(), 5, 5).is_ok());
        let error = fits("runs/a".as_ref(), 3_000_000_000, 1_000_000_000).unwrap_err().to_string();
        assert!(
            error.starts_with("the run writes at least 3.00 GB below runs/a, and 1.00 GB are free"),
            "{error}"
        );
        check(&std::env::temp_dir(), &model, &settings, false).unwrap();
    }
}
