use super::head_of;
use crate::bert::integer_only::{FloatHead, FloatMap};
use crate::huggingface::{Architecture, PretrainedFolder};
use crate::{ModelError, Result};

impl PretrainedFolder {
    /// The head over sequences that can be computed in integers alone; none if the folder has another, or none.
    ///
    /// # Errors
    /// [`ModelError::Weights`] for tensors that do not fit together.
    pub fn float_head(&self) -> Result<Option<FloatHead>> {
        let Some([dense, output]) = head_of(&self.config) else { return Ok(None) };
        let rules = self.config.family.rules(Architecture::Encoder, &self.config.encoder, "");
        let find = |name: String| {
            let found = self.tensors().floats.iter().find(|(found, _)| rules.canonical(found) == name);
            found.map(|(_, data)| (data.shape().to_vec(), data.iter::<f32>().collect::<Vec<f32>>()))
        };
        let map = |module: &str| -> Option<FloatMap> {
            let (shape, rows) = find(format!("{module}.weight"))?;
            let (_, bias) = find(format!("{module}.bias"))?;
            Some(FloatMap { rows, dims: shape.try_into().ok()?, bias })
        };
        let (Some(dense), Some(output)) = (map(dense), map(output)) else { return Ok(None) };
        let d = self.config.encoder.d_model;
        let fits = |map: &FloatMap| map.dims[1] == d && map.bias.len() == map.dims[0];
        match dense.dims[0] == d && fits(&dense) && fits(&output) {
            true => Ok(Some(FloatHead { dense, output })),
            false => Err(ModelError::Weights {
                path: self.folder().into(),
                reason: format!("the head's maps do not take states of {d} features"),
            }),
        }
    }
}
