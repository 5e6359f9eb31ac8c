use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::Device;
use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

/// Tells a module visitor the type of an exchangeable part, such as a layer's attention. It has no parameters.
///
/// Two attentions may have parameters of the same paths and shapes and still compute different things, and positions
/// may have no parameters at all, so parameters alone do not identify a model.
pub(crate) struct PartType<T> {
    kind: PartKind,
    part: PhantomData<fn() -> T>,
}

/// The kind of an exchangeable part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    Attention,
    Positions,
}

impl PartKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Positions => "positions",
        }
    }

    /// The container type with which a visitor enters a [`PartType`]; the container's name is the part's type.
    fn container(self) -> &'static str {
        match self {
            Self::Attention => "AttentionType",
            Self::Positions => "PositionsType",
        }
    }
}

impl<T> PartType<T> {
    pub fn new(kind: PartKind) -> Self {
        Self { kind, part: PhantomData }
    }
}

/// The exchangeable parts in `model`, layer by layer, with their types as [`type_name`] gives them.
pub(crate) fn part_types<M: Module>(model: &M) -> Vec<(PartKind, String)> {
    struct Types(Vec<(PartKind, String)>);

    impl ModuleVisitor for Types {
        fn enter_module(&mut self, name: &str, container: &str) {
            let kinds = [PartKind::Attention, PartKind::Positions].into_iter();
            self.0.extend(
                kinds.filter(|kind| container == kind.container()).map(|kind| (kind, name.to_owned())),
            );
        }
    }

    let mut types = Types(Vec::new());
    model.visit(&mut types);
    types.0
}

impl<T> Module for PartType<T> {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module(type_name::<T>(), self.kind.container());
        visitor.exit_module(type_name::<T>(), self.kind.container());
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

// Derived implementations would require the same of the part.
impl<T> Clone for PartType<T> {
    fn clone(&self) -> Self {
        Self::new(self.kind)
    }
}

impl<T> fmt::Debug for PartType<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(type_name::<T>())
    }
}

impl<T> ModuleDisplayDefault for PartType<T> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&type_name::<T>()).optional()
    }
}

impl<T> ModuleDisplay for PartType<T> {}
