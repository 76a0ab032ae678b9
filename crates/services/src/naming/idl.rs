//! The code that the IDL compiler generates from `idl/naming.idl`.

corelane::include_idl!("naming");
