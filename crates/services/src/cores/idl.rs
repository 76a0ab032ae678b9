//! The code that the IDL compiler generates from `idl/cores.idl`.

corelane::include_idl!("cores");
