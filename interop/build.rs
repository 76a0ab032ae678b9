//! Compiles the IDL that all peers share.
fn main() {
    corelane_idl::Builder::new().compile("idl/interop.idl").compile("idl/values.idl").compile("idl/lanes.idl");
}
