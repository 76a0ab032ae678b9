//! A macro for chained setters of configuration structs.

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
