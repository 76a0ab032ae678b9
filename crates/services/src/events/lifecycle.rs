//! The code that the IDL compiler generates from `idl/cos_lifecycle.idl`, for
//! [`EventChannelFactory`](super::EventChannelFactory).

corelane::include_idl!("cos_lifecycle");
