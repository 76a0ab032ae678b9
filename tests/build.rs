//! Compiles the tests' IDL.
fn main() {
    corelane_idl::Builder::new().compile("idl/probe.idl").compile("idl/dynamic.idl");
}
