//! A macro for setters that can be chained. With setters, configuration structs can get more fields
//! without breaking their users.

/// Generates a setter for each listed field of a configuration struct. A setter takes the struct
/// and returns it.
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
