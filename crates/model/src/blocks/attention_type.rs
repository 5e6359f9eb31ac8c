use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::Device;
use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

/// Tells a visitor of any model which attention a layer has. It has no parameters.
///
/// Two attentions may have parameters of the same paths and shapes and compute different things, so whoever only
/// looks at parameters cannot tell them apart.
pub(super) struct AttentionType<A>(PhantomData<fn() -> A>);

/// The kind of container under which a visitor enters an [`AttentionType`]; the name is the attention's type.
const CONTAINER: &str = "AttentionType";

impl<A> AttentionType<A> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

/// The types of all attentions in `model`, those of each layer, as [`type_name`] gives them.
pub(crate) fn attention_types<M: Module>(model: &M) -> Vec<String> {
    struct Types(Vec<String>);

    impl ModuleVisitor for Types {
        fn enter_module(&mut self, name: &str, container: &str) {
            if container == CONTAINER {
                self.0.push(name.to_owned());
            }
        }
    }

    let mut types = Types(Vec::new());
    model.visit(&mut types);
    types.0
}

impl<A> Module for AttentionType<A> {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module(type_name::<A>(), CONTAINER);
        visitor.exit_module(type_name::<A>(), CONTAINER);
    }

    fn map<M: ModuleMapper>(self, _: &mut M) -> Self {
        self
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }

    fn fork(self, _: &Device) -> Self {
        self
    }

    fn to_device(self, _: &Device) -> Self {
        self
    }

    fn train(self) -> Self {
        self
    }

    fn valid(&self) -> Self {
        self.clone()
    }

    fn materialize(self) -> Self {
        self
    }
}

// Derived implementations would ask the same of the attention.
impl<A> Clone for AttentionType<A> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<A> fmt::Debug for AttentionType<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(type_name::<A>())
    }
}

impl<A> ModuleDisplayDefault for AttentionType<A> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&type_name::<A>()).optional()
    }
}

impl<A> ModuleDisplay for AttentionType<A> {}
