//! The code that the IDL compiler generates from `idl/rtec.idl`, `idl/cos_events.idl` and
//! `idl/corelane_events.idl`.

corelane::include_idl!("rtec");
corelane::include_idl!("cos_events");
corelane::include_idl!("corelane_events");
