/// Gives a configuration a method for each of its fields: the same configuration with another value there.
///
/// A struct that is `#[non_exhaustive]` cannot be written as a literal by other crates, and so can get fields later.
/// These methods change it in one expression.
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
