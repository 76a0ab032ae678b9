//! The code that the IDL compiler makes of `idl/naming.idl`.

corelane::include_idl!("naming");
