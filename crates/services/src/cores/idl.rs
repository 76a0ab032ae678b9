//! The Rust form of `idl/cores.idl`.

corelane::include_idl!("cores");
