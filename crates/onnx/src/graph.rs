use crate::Result;
use crate::proto::{
    AttributeProto, BOOL, DOUBLE, DimensionProto, FLOAT, INT64, NodeProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, UINT8, ValueInfoProto, attribute_type,
};
use burn::tensor::{Tensor, TensorData};
use std::collections::HashMap;

/// The domain of ONNX Runtime's own operators.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// A value of the graph, by its name: an input, a parameter, a constant or a node's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// An input of the graph.
    pub(crate) fn input(name: &str) -> Self {
        Self(name.into())
    }
}

/// The size of an input's or output's axis.
#[derive(Debug, Clone, Copy)]
pub enum Dim {
    /// The same in all batches.
    Fixed(usize),
    /// Known only when the model runs.
    Named(&'static str),
}

/// A type that values are cast to.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// 32-bit floats.
    Float,
    /// 64-bit floats.
    Double,
    /// 64-bit integers.
    Int,
    /// Truth values.
    Bool,
}

impl Kind {
    /// The number in ONNX's format.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Float => FLOAT,
            Self::Double => DOUBLE,
            Self::Int => INT64,
            Self::Bool => BOOL,
        }
    }
}

/// The numbers of an initialiser.
pub(crate) enum Numbers {
    /// Here, little-endian.
    Bytes(Vec<u8>),
    /// In the model, from which they are read when they are written to a file.
    Model(Box<dyn Fn() -> TensorData>),
    /// Made when they are written to a file, little-endian.
    Made(Box<dyn Fn() -> Vec<u8>>),
}

/// A tensor that is a part of the graph: its declaration without numbers, and the numbers.
pub(crate) struct Initializer {
    pub declaration: TensorProto,
    pub numbers: Numbers,
    pub n_bytes: usize,
}

/// A graph of operators under construction.
///
/// Nodes and parameters are named by the path of the part of the model that they belong to, see [`within`](Self::within).
#[derive(Default)]
pub struct Graph {
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) inputs: Vec<ValueInfoProto>,
    pub(crate) outputs: Vec<ValueInfoProto>,
    pub(crate) initializers: Vec<Initializer>,
    /// Initialisers by name, so that each is there once.
    known: HashMap<String, usize>,
    /// The number of nodes by the names that they would have without a number.
    counts: HashMap<String, usize>,
    path: Vec<String>,
}

impl Graph {
    /// Builds a part of the model, such as `attention`, within the part that is being built.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.path.push(part.into());
        let built = build(self);
        self.path.pop();
        built
    }

    /// The name in the part of the model that is being built.
    fn full(&self, name: &str, separator: char) -> String {
        match self.path.is_empty() {
            true => name.into(),
            false => format!("{}{separator}{name}", self.path.join(".")),
        }
    }

    /// A new input of 32-bit floats.
    pub fn float_input(&mut self, name: &str, dims: &[Dim]) -> Value {
        self.inputs.push(declared(name, Kind::Float, dims));
        Value(name.into())
    }

    /// A new input of integers.
    pub fn input(&mut self, name: &str, dims: &[Dim]) -> Value {
        self.inputs.push(declared(name, Kind::Int, dims));
        Value(name.into())
    }

    /// Makes a node's output an output of the graph, under this name.
    pub fn output(&mut self, name: &str, value: &Value, dims: &[Dim]) -> Value {
        for node in &mut self.nodes {
            for value_name in node.input.iter_mut().chain(&mut node.output) {
                if *value_name == value.0 {
                    *value_name = name.into();
                }
            }
        }
        self.outputs.push(declared(name, Kind::Float, dims));
        Value(name.into())
    }

    /// A node with one output.
    pub fn op(&mut self, kind: &str, inputs: &[&Value]) -> Value {
        self.op_with(kind, inputs, Vec::new())
    }

    /// A node with one output, and with attributes.
    pub fn op_with(&mut self, kind: &str, inputs: &[&Value], attributes: Vec<AttributeProto>) -> Value {
        self.ops(kind, inputs, attributes, 1).remove(0)
    }

    /// A node with several outputs.
    pub fn ops(
        &mut self,
        kind: &str,
        inputs: &[&Value],
        attribute: Vec<AttributeProto>,
        n_outputs: usize,
    ) -> Vec<Value> {
        self.ops_of("", kind, inputs, attribute, n_outputs)
    }

    /// A node with one output, of an operator that ONNX Runtime has beside those of ONNX.
    pub(crate) fn microsoft_op(
        &mut self,
        kind: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        self.ops_of(MICROSOFT, kind, inputs, attributes, 1).remove(0)
    }

    fn ops_of(
        &mut self,
        domain: &str,
        kind: &str,
        inputs: &[&Value],
        attribute: Vec<AttributeProto>,
        n_outputs: usize,
    ) -> Vec<Value> {
        let base = self.full(kind, '/');
        let count = self.counts.entry(base.clone()).or_default();
        let name = format!("{base}_{count}");
        *count += 1;
        let output: Vec<String> = match n_outputs {
            1 => vec![name.clone()],
            n => (0..n).map(|i| format!("{name}.{i}")).collect(),
        };
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            output: output.clone(),
            name,
            op_type: kind.into(),
            attribute,
            domain: domain.into(),
        });
        output.into_iter().map(Value).collect()
    }

    /// A parameter of the part of the model that is being built. A parameter that several parts share is there once.
    pub fn parameter<const D: usize>(&mut self, name: &str, tensor: Tensor<D>) -> Value {
        let name = self.full(name, '.');
        let dims = tensor.dims();
        let n_bytes = dims.iter().product::<usize>() * size_of::<f32>();
        let read = move || tensor.clone().into_data().convert::<f32>();
        self.initializer(name, FLOAT, &dims, n_bytes, || Numbers::Model(Box::new(read)))
    }

    /// Numbers of the part of the model that is being built, which are made when they are written: bytes of `kind`, one of
    /// the types of [`proto`](crate::proto).
    pub(crate) fn made(
        &mut self,
        name: &str,
        kind: i32,
        dims: &[usize],
        bytes: impl Fn() -> Vec<u8> + 'static,
    ) -> Value {
        let name = self.full(name, '.');
        let n_bytes = dims.iter().product::<usize>() * if kind == FLOAT { size_of::<f32>() } else { 1 };
        self.initializer(name, kind, dims, n_bytes, || Numbers::Made(Box::new(bytes)))
    }

    /// Constant unsigned bytes with a shape.
    pub(crate) fn bytes(&mut self, values: &[u8], dims: &[usize]) -> Value {
        self.constant(&format!("{values:?}"), UINT8, dims, values.len(), || values.to_vec())
    }

    /// A number.
    pub fn float(&mut self, value: f32) -> Value {
        self.floats(&[value], &[])
    }

    /// Constant floats with a shape.
    pub fn floats(&mut self, values: &[f32], dims: &[usize]) -> Value {
        let bytes = || values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(&format!("{values:?}"), FLOAT, dims, 4 * values.len(), bytes)
    }

    /// Constant 64-bit floats with a shape.
    pub fn doubles(&mut self, values: &[f64], dims: &[usize]) -> Value {
        let bytes = || values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(&format!("{values:?}"), DOUBLE, dims, 8 * values.len(), bytes)
    }

    /// An integer.
    pub fn int(&mut self, value: i64) -> Value {
        self.shaped_ints(&[value], &[])
    }

    /// A list of integers.
    pub fn ints(&mut self, values: &[i64]) -> Value {
        self.shaped_ints(values, &[values.len()])
    }

    fn shaped_ints(&mut self, values: &[i64], dims: &[usize]) -> Value {
        let bytes = || values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(&format!("{values:?}"), INT64, dims, 8 * values.len(), bytes)
    }

    /// A constant, of which equal ones are there once.
    fn constant(
        &mut self,
        values: &str,
        kind: i32,
        dims: &[usize],
        n_bytes: usize,
        bytes: impl FnOnce() -> Vec<u8>,
    ) -> Value {
        // Long ones are named by their number rather than by what they hold.
        let content = format!("constant {kind} {dims:?} {values}");
        let name = match self.known.get(&content) {
            Some(found) => self.initializers[*found].declaration.name.clone(),
            None => format!("constant_{}", self.known.len()),
        };
        let value = self.initializer(name.clone(), kind, dims, n_bytes, || Numbers::Bytes(bytes()));
        let place = self.known[&name];
        self.known.insert(content, place);
        value
    }

    fn initializer(
        &mut self,
        name: String,
        data_type: i32,
        dims: &[usize],
        n_bytes: usize,
        numbers: impl FnOnce() -> Numbers,
    ) -> Value {
        if !self.known.contains_key(&name) {
            self.known.insert(name.clone(), self.initializers.len());
            let dims = dims.iter().map(|dim| *dim as i64).collect();
            let declaration = TensorProto { dims, data_type, name: name.clone(), ..TensorProto::default() };
            self.initializers.push(Initializer { declaration, numbers: numbers(), n_bytes });
        }
        Value(name)
    }
}

/// An input or output.
fn declared(name: &str, kind: Kind, dims: &[Dim]) -> ValueInfoProto {
    let dim = dims
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(size) => DimensionProto { dim_value: Some(*size as i64), dim_param: None },
            Dim::Named(name) => DimensionProto { dim_value: None, dim_param: Some((*name).into()) },
        })
        .collect();
    let shape = Some(TensorShapeProto { dim });
    let tensor_type = Some(TensorTypeProto { elem_type: kind.number(), shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
}

/// An attribute that is an integer.
pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    let r#type = attribute_type::INT;
    AttributeProto { name: name.into(), i: Some(value), r#type, ..AttributeProto::default() }
}

/// An attribute that is a list of integers.
pub(crate) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    let (ints, r#type) = (values.to_vec(), attribute_type::INTS);
    AttributeProto { name: name.into(), ints, r#type, ..AttributeProto::default() }
}

/// An attribute that is a number.
pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    let r#type = attribute_type::FLOAT;
    AttributeProto { name: name.into(), f: Some(value), r#type, ..AttributeProto::default() }
}
