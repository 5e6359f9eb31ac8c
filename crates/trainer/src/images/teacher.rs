use super::data::{bad_setting, pixels};
use super::predictor::ImagePredictor;
use crate::Result;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::images::{ImageBatch, Normalisation, Preprocessing};
use std::path::Path;

/// A classifier whose classes a student learns. It sees what the student sees, changes included.
#[derive(Debug)]
pub struct ImageTeacher {
    predictor: ImagePredictor,
    /// For each colour, the factor and the summand that make the teacher's values of the student's.
    recoloured: [[f32; 2]; 3],
}

impl ImageTeacher {
    /// The classifier in a folder, for a student of these classes that sees images so.
    ///
    /// # Errors
    /// Those of the folder; other classes, or inputs of another size.
    pub fn open(
        folder: &Path,
        labels: &[String],
        preprocessing: &Preprocessing,
        device: &Device,
    ) -> Result<Self> {
        let predictor = ImagePredictor::open(folder, device, false)?;
        let refused = |expected| Err(bad_setting("distillation.teacher", folder.display(), expected));
        if predictor.labels() != labels {
            return refused(format!(
                "a classifier of {}; it has {}",
                labels.join(", "),
                predictor.labels().join(", ")
            ));
        }
        let (own, theirs) = (preprocessing.input_size(), predictor.preprocessing().input_size());
        if own != theirs {
            let size = |size: Option<(usize, usize)>| {
                size.map_or("any size".to_owned(), |(height, width)| format!("{height} × {width}"))
            };
            return refused(format!("a classifier of images of {}; it takes {}", size(own), size(theirs)));
        }
        let values = |preprocessing: &Preprocessing| {
            let rescale = preprocessing.rescale.unwrap_or(1.0) as f32;
            let of = preprocessing.normalise.unwrap_or(Normalisation { mean: [0.0; 3], std: [1.0; 3] });
            (rescale, of)
        };
        let ((own_scale, own), (scale, theirs)) = (values(preprocessing), values(predictor.preprocessing()));
        // A byte is `(own · std + mean) / own_scale`.
        let recoloured = std::array::from_fn(|colour| {
            let scale = scale / own_scale;
            let factor = own.std[colour] * scale / theirs.std[colour];
            [factor, (own.mean[colour] * scale - theirs.mean[colour]) / theirs.std[colour]]
        });
        Ok(Self { predictor, recoloured })
    }

    /// The class that it gives each image, `[images]`, on `device`.
    pub fn classes(&self, batch: &ImageBatch, device: &Device) -> Tensor<1, Int> {
        let inner = device.clone().inner();
        let of = |place: usize| {
            let values: Vec<f32> = self.recoloured.iter().map(|colour| colour[place]).collect();
            Tensor::<4>::from_data(TensorData::new(values, [1, 3, 1, 1]), &inner)
        };
        let logits = self.predictor.logits(pixels(batch, &inner) * of(0) + of(1));
        let classes: Vec<i32> = logits.argmax(1).into_data().iter::<i32>().collect();
        Tensor::from_data(classes.as_slice(), device)
    }
}
