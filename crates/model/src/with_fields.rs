/// Gives a configuration a method for each of its fields, which returns the configuration with that field
/// changed.
///
/// Other crates cannot write a `#[non_exhaustive]` struct as a literal, so it can get more fields later; with these
/// methods they can still change one in one expression.
macro_rules! with_fields {
    ($config:ident { $($method:ident => $field:ident: $type:ty,)* }) => {
        impl $config {
            $(
                #[doc = concat!("The same with another [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                pub fn $method(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use with_fields;
