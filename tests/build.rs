//! Compiles the tests' IDL.
fn main() {
    corelane_idl::Builder::new()
        .compile("idl/probe.idl")
        .compile("idl/dynamic.idl")
        .compile("idl/timed.idl")
        .compile("idl/plain.idl");
    // What the compiler's own tests look at.
    corelane_idl::Builder::new().idl_4().compile("../crates/idl/tests/accepted/values.idl");
    corelane_idl::Builder::new().compile("../crates/idl/tests/accepted/names.idl");
}
