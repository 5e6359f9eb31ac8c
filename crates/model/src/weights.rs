//! A model's parameters by path, used by all file formats.

use crate::ops;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use std::collections::BTreeMap;
use std::fmt;

/// Float parameters by their path in the module tree, `bert.encoder.layers.0.attention.query.weight`.
pub type NamedTensors = BTreeMap<String, TensorData>;

/// A visitor's position in the module tree: the names of the fields leading there.
///
/// The variants of enums are left out, so that a model's parameters have the same paths in an enum of models.
/// Call [`enter`](Self::enter) and [`exit`](Self::exit) where the visitor enters and exits modules.
#[derive(Debug, Clone, Default)]
pub struct ModulePath(Vec<String>);

impl ModulePath {
    /// Enters a module with this name in its container.
    pub fn enter(&mut self, name: &str, container: &str) {
        if !is_enum(container) {
            self.0.push(name.to_owned());
        }
    }

    /// Returns to the container.
    pub fn exit(&mut self, container: &str) {
        if !is_enum(container) {
            self.0.pop();
        }
    }
}

impl fmt::Display for ModulePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Whether a container type, as burn's `Module` derives it, is an enum.
fn is_enum(container: &str) -> bool {
    container.starts_with("Enum:")
}

/// Copies all float parameters of `module` to the host.
pub fn collect<M: Module>(module: &M) -> NamedTensors {
    let mut visitor = Collect::default();
    module.visit(&mut visitor);
    visitor.tensors
}

/// A float tensor copied to the host only when read, so that many can be written without copying all at once.
pub struct OnDevice {
    shape: Vec<usize>,
    dtype: DType,
    copy: Box<dyn Fn() -> TensorData>,
}

impl OnDevice {
    /// Keeps the tensor alive, so an in-place change in the meantime must copy it.
    pub fn new<const D: usize>(tensor: Tensor<D>) -> Self {
        let (shape, dtype) = (tensor.dims().to_vec(), tensor.dtype());
        Self { shape, dtype, copy: Box::new(move || tensor.to_data()) }
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A copy on the host.
    pub fn to_data(&self) -> TensorData {
        (self.copy)()
    }
}

impl fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.dtype, self.shape)
    }
}

/// Float tensors by path, not copied.
pub type TensorsOnDevice = BTreeMap<String, OnDevice>;

/// All float parameters of `module`, without copying them.
pub fn on_device<M: Module>(module: &M) -> TensorsOnDevice {
    let mut visitor = InPlace::default();
    module.visit(&mut visitor);
    visitor.tensors
}

/// The paths and shapes of all float parameters, in the order of the module tree.
pub fn shapes<M: Module>(module: &M) -> Vec<(String, Vec<usize>)> {
    let mut visitor = Shapes::default();
    module.visit(&mut visitor);
    visitor.shapes
}

/// Replaces the parameters whose paths are in `tensors`; all others keep their values. Devices, parameter ids and the
/// tracking of gradients do not change.
///
/// # Panics
/// If a tensor's shape differs from its parameter's: check against [`shapes`] first.
pub fn replace<M: Module>(module: M, tensors: NamedTensors) -> M {
    let mut mapper = Replace { path: ModulePath::default(), tensors };
    module.map(&mut mapper)
}

/// Computes a parameter's value.
pub(crate) type Compute = Box<dyn FnOnce() -> TensorData + Send + Sync>;

/// Replaces parameters by values that are computed when they are first used. Ids do not change.
pub(crate) fn defer<M: Module>(module: M, values: BTreeMap<String, Compute>) -> M {
    module.map(&mut Defer { path: ModulePath::default(), values })
}

struct Defer {
    path: ModulePath,
    values: BTreeMap<String, Compute>,
}

impl ModuleMapper for Defer {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(compute) = self.values.remove(&self.path.to_string()) else {
            return param;
        };
        let (id, device, shape) = (param.id, param.lazy_device(), param.lazy_shape());
        let init = move |device: &Device, tracked: bool| {
            let tensor = Tensor::from_data(compute(), device);
            if tracked { tensor.require_grad() } else { tensor }
        };
        Param::uninitialized(id, init, device, true, shape)
    }
}

#[derive(Default)]
struct Collect {
    path: ModulePath,
    tensors: NamedTensors,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.tensors.insert(self.path.to_string(), ops::read(param.val()));
    }
}

#[derive(Default)]
struct InPlace {
    path: ModulePath,
    tensors: TensorsOnDevice,
}

impl ModuleVisitor for InPlace {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.tensors.insert(self.path.to_string(), OnDevice::new(param.val()));
    }
}

#[derive(Default)]
struct Shapes {
    path: ModulePath,
    shapes: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for Shapes {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.shapes.push((self.path.to_string(), param.lazy_shape().to_vec()));
    }
}

struct Replace {
    path: ModulePath,
    tensors: NamedTensors,
}

impl ModuleMapper for Replace {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(data) = self.tensors.remove(&self.path.to_string()) else {
            return param;
        };
        // None of this draws the initial value of a deferred parameter.
        assert_eq!(data.shape(), &param.lazy_shape(), "`{}`", self.path);
        let (id, tensor) = (param.id, Tensor::from_data(data, &param.lazy_device()));
        param.transform_for_load(tensor, id)
    }
}
