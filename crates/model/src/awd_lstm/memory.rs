//! A language model's state carried over between training steps on text streams.

use super::{AwdLstm, AwdLstmConfig};
use crate::linear_maps;
use crate::recurrent::RecurrentState;
use burn::module::{Module, RunningState};
use burn::tensor::{Device, Tensor};

/// The state of each stream of text after its last stretch. It is part of the module, and so of its checkpoints, but is
/// not trained: no gradient goes through it.
///
/// A training step changes it in place ([`write`](Self::write)); if the device fails afterwards, the change
/// remains. Evaluation copies of the module (`Module::valid`) have their own copy.
#[derive(Module, Debug)]
pub struct StreamMemory {
    /// For each layer, `[streams, d]`.
    hidden: Vec<RunningState<Tensor<2>>>,
    /// For each layer, `[streams, d]`.
    cell: Vec<RunningState<Tensor<2>>>,
}

impl StreamMemory {
    /// Zero states for `streams` streams.
    pub fn new(config: &AwdLstmConfig, streams: usize, device: &Device) -> Self {
        let zeros = || {
            let of_layer = |d| RunningState::new(Tensor::zeros([streams, d], device));
            config.widths().into_iter().map(of_layer).collect()
        };
        Self { hidden: zeros(), cell: zeros() }
    }

    /// The states of `n` streams from stream `first` on, one per layer.
    ///
    /// # Panics
    /// If there are fewer streams.
    pub fn read(&self, first: usize, n: usize) -> Vec<RecurrentState> {
        let rows = |state: &RunningState<Tensor<2>>| state.value_sync().narrow(0, first, n);
        let layers = self.hidden.iter().zip(&self.cell);
        layers.map(|(hidden, cell)| RecurrentState { hidden: rows(hidden), cell: Some(rows(cell)) }).collect()
    }

    /// Stores the states of the streams from stream `first` on. Non-finite numbers, such as from a skipped
    /// step, become 0.
    ///
    /// # Panics
    /// If there are fewer streams, or the number of layers differs.
    pub fn write(&self, first: usize, states: &[RecurrentState]) {
        assert_eq!(states.len(), self.hidden.len(), "a state of each layer");
        let put = |state: &RunningState<Tensor<2>>, new: Tensor<2>| {
            let new = new.detach();
            let broken = new.clone().is_finite().bool_not();
            let new = new.mask_fill(broken, 0.0);
            let ([n, d], all) = (new.dims(), state.value_sync());
            let new = if all.dims()[0] == n { new } else { all.slice_assign([first..first + n, 0..d], new) };
            state.update(new);
            // An update counts once it is asked for.
            state.value_sync();
        };
        for ((hidden, cell), new) in self.hidden.iter().zip(&self.cell).zip(states) {
            put(hidden, new.hidden.clone());
            put(cell, new.cell.clone().expect("an LSTM's state has a cell"));
        }
    }
}

/// A language model in training on text streams, with its carried-over state.
#[derive(Module, Debug)]
pub struct StreamedAwdLstm {
    /// The model.
    pub model: AwdLstm,
    /// The carried-over state.
    pub memory: StreamMemory,
}

linear_maps!(StreamedAwdLstm { model });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::awd_lstm::AwdLstmDropout;
    use crate::{ParamInit, weights};

    fn model(device: &Device) -> StreamedAwdLstm {
        let dropout = AwdLstmDropout::none();
        let config =
            AwdLstmConfig { d_embedding: 2, d_hidden: 3, n_layers: 2, dropout, ..AwdLstmConfig::new(9) };
        let init = &mut ParamInit::new(device, 1);
        StreamedAwdLstm { model: config.init(init), memory: StreamMemory::new(&config, 4, device) }
    }

    fn states(value: f32, device: &Device) -> Vec<RecurrentState> {
        let state = |d| {
            let hidden = Tensor::full([2, d], value, device);
            RecurrentState { cell: Some(hidden.clone() * 2.0), hidden }
        };
        vec![state(3), state(2)]
    }

    #[test]
    fn streams_are_remembered_each_for_itself() {
        let device = Device::flex().autodiff();
        let memory = model(&device).memory;
        memory.write(0, &states(1.0, &device));
        memory.write(2, &states(3.0, &device));
        memory.write(2, &states(5.0, &device));
        let read = memory.read(1, 2);
        assert_eq!(
            read[0].hidden.to_data().iter::<f32>().collect::<Vec<_>>(),
            [1.0, 1.0, 1.0, 5.0, 5.0, 5.0]
        );
        let cell = read[1].cell.clone().unwrap();
        assert_eq!(cell.to_data().iter::<f32>().collect::<Vec<_>>(), [2.0, 2.0, 10.0, 10.0]);
        memory.write(0, &states(f32::NAN, &device));
        assert_eq!(memory.read(0, 2)[1].hidden.to_data().iter::<f32>().collect::<Vec<_>>(), [0.0; 4]);
    }

    #[test]
    fn memory_is_saved_with_the_parameters_and_not_trained() {
        let device = Device::flex().autodiff();
        let trained = model(&device);
        trained.memory.write(2, &states(7.0, &device));
        let tensors = weights::collect(&trained);
        let path = "memory.hidden.1";
        assert_eq!(tensors[path].iter::<f32>().collect::<Vec<_>>(), [0.0, 0.0, 0.0, 0.0, 7.0, 7.0, 7.0, 7.0]);
        let restored = weights::replace(model(&device), tensors);
        let read = restored.memory.read(2, 1);
        assert_eq!(read[1].hidden.to_data().iter::<f32>().collect::<Vec<_>>(), [7.0, 7.0]);
        assert!(read.iter().all(|state| !state.hidden.is_require_grad()));
        // A copy for evaluation is a copy.
        let copy = trained.valid();
        copy.memory.write(2, &states(1.0, &device.clone().inner()));
        assert_eq!(
            trained.memory.read(2, 1)[1].hidden.to_data().iter::<f32>().collect::<Vec<_>>(),
            [7.0, 7.0]
        );
    }
}
