use crate::ParamInit;
use crate::blocks::Linear;
use burn::module::Module;
use burn::tensor::Tensor;

/// Learnt maps from a student's width to its teacher's, `W_e` of embeddings and `W_h` of states (Jiao et al. 2020,
/// "TinyBERT", Eq. 8 and 9). All layers share `W_h`.
#[derive(Module, Debug)]
pub struct TeacherMaps {
    /// Of the states that enter the first layer, `[d_model, width]`.
    pub embeddings: Linear,
    /// Of the states that leave a layer, `[d_model, width]`.
    pub states: Linear,
}

impl TeacherMaps {
    /// New maps from states of `d_model` features to a teacher's `width`.
    pub fn new(d_model: usize, width: usize, init: &mut ParamInit) -> Self {
        let mut map = || Linear::without_bias(d_model, width, init);
        Self { embeddings: map(), states: map() }
    }

    /// Maps the states of a pass.
    pub(super) fn apply(&self, states: &mut [Tensor<2>]) {
        for (layer, states) in states.iter_mut().enumerate() {
            let map = if layer == 0 { &self.embeddings } else { &self.states };
            *states = map.forward(states.clone());
        }
    }
}
