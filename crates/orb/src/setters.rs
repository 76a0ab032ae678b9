//! A macro for chained setters of configuration structs.

/// Generates a setter for each listed field of a configuration struct.
macro_rules! setters {
    ($config:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        impl $config {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}
