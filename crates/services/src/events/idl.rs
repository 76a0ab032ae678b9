//! The code that the IDL compiler generates from `idl/rtec.idl` and `idl/cos_events.idl`.

corelane::include_idl!("rtec");
corelane::include_idl!("cos_events");
