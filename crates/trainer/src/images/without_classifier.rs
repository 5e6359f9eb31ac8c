//! What runs that train an encoder without a classifier have in common.

use super::config::{ImageDataSection, ImageEval, ImageTaskSection, ImageTrain, check_data, check_steps};
use super::data::{ImageSplits, Reading};
use crate::config::Run;
use crate::config::validate::{Check, Complaint, ensure};
use crate::engine::RunOptions;
use crate::engine::run_folder::RunFolder;
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::{Result, recompute};
use burn::tensor::Device;
use cloze_data::images::{AugmentConfig, MixConfig, Preprocessing};
use std::sync::atomic::Ordering;

/// The sections of such a run.
#[derive(Clone, Copy)]
pub(super) struct Sections<'a> {
    pub data: &'a ImageDataSection,
    pub augment: &'a AugmentConfig,
    pub train: &'a ImageTrain,
    pub eval: &'a ImageEval,
}

impl Sections<'_> {
    /// The height and width of the model's input.
    ///
    /// # Errors
    /// They are absent.
    pub fn size(&self) -> std::result::Result<[usize; 2], Complaint> {
        let expected = "height and width of the model's input: `[32, 32]`";
        ensure(self.data.size.is_some(), "data.size", "absent", expected)?;
        Ok(self.data.size.unwrap_or_default())
    }

    /// Checks `[data]`, `[augment]`, `[train]`, `[eval]` and what all runs have.
    pub fn check<K>(&self, config: &Run<K>) -> Check {
        if let Some(shots) = self.data.shots {
            let expected = "it to be absent: classes are not read in training";
            ensure(false, "data.shots", shots, expected)?;
        }
        check_data(self.data, self.augment)?;
        check_steps(self.data.is_measured(), self.train, self.eval, &config.common)
    }
}

/// A run whose images are read.
pub(super) struct Opened {
    pub folder: RunFolder,
    pub device: Device,
    pub preprocessing: Preprocessing,
    pub splits: ImageSplits,
}

impl Opened {
    /// Claims the run's folder and finds its images, with their classes if there is a `task`; none if the run was stopped
    /// meanwhile.
    ///
    /// # Errors
    /// Invalid data or run folder; a device that cannot recompute.
    pub fn open<K: RunKind>(
        config: &Run<K>,
        Sections { data, augment, train, .. }: Sections<'_>,
        task: Option<&ImageTaskSection>,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Option<Self>> {
        let folder = RunFolder::open(&options.folder, config, options.resume)?;
        let device = options.device.clone().autodiff();
        recompute::check(train.recompute, &device)?;
        let preprocessing = data.preprocessing(None);
        let (mix, seed) = (MixConfig::default(), config.common.run.seed);
        let reading = Reading { task, data, augment, mix: &mix, seed };
        let found = reading.find(progress)?;
        let splits = reading.prepare(found, &preprocessing)?;
        let is_stopped = options.stop.load(Ordering::Relaxed);
        Ok((!is_stopped).then_some(Self { folder, device, preprocessing, splits }))
    }
}
