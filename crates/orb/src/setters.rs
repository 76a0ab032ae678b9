//! A macro for chained setters of configuration structs. With setters, a struct can get more fields
//! without breaking programs that use it.

/// Generates a setter for each listed field of a configuration struct. A setter takes the struct by
/// value and returns the changed struct.
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
