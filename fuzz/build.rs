//! Compiles the types of the targets `generated` and `valuetypes`.
fn main() {
    corelane_idl::Builder::new().compile("idl/values.idl").compile("idl/valuetypes.idl");
}
